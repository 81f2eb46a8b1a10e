"use strict";
// The bar above the charts: a search over them, and controls that apply to all of them at once.
(() => {
  const { make } = window.grposcope;
  const WIDE = matchMedia("(min-width: 52.01rem)");

  const choice = (label, options, onChoice) => {
    const box = make("select", {}, ...options.map(([value, text]) => make("option", { value, text })));
    box.addEventListener("change", () => onChoice(box.value));
    return make("label", {}, make("span", { text: label }), box);
  };

  const windowFields = charts => {
    const [from, to] = ["from", "to"].map(name => make("input", { type: "number", step: "any", placeholder: name, "aria-label": `Charts ${name}` }));
    const number = field => field.value === "" ? null : Number(field.value);
    const apply = () => {
      const ends = [number(from), number(to)];
      if (ends[0] === null || ends[1] === null || ends[0] < ends[1]) charts.zoom(...ends);
    };
    for (const field of [from, to]) field.addEventListener("change", apply);
    const reset = make("button", { type: "button", text: "whole run" });
    reset.addEventListener("click", () => charts.zoom(null, null));
    const short = value => value === null ? "" : String(Number(value.toPrecision(4)));
    const follow = () => {
      const ends = charts.range();
      [from.value, to.value] = ends.map(short);
      reset.disabled = ends.every(end => end === null);
    };
    charts.onZoom(follow);
    follow();
    return make("span", { class: "window", role: "group", "aria-label": "Part of the run that is shown" }, from, "–", to, reset);
  };

  const bar = (charts, search, runs, openAll) => {
    const field = make("input", { type: "search", placeholder: "find a chart", "aria-label": "Find charts by words of their name" });
    const found = make("span", { class: "found", role: "status" });
    field.addEventListener("input", () => { found.textContent = search(field.value); });
    const axes = ["step", "tokens", "hours"].filter(name => name === "step" || runs.every(run => run.axes[name]));
    const log = make("input", { type: "checkbox" });
    log.addEventListener("change", () => charts.choose("log", log.checked));
    const all = make("button", { type: "button", text: "open all" });
    all.addEventListener("click", openAll);
    const controls = make("div", { role: "group", "aria-label": "Charts" }, field, found,
      choice("smoothing", [["none", "none"], ["light", "light"], ["strong", "strong"]], value => charts.choose("smoothing", value)),
      axes.length > 1 && choice("by", axes.map(name => [name, name]), value => charts.choose("axis", value)),
      make("label", { title: "Where all values are positive" }, log, make("span", { text: "log" })), windowFields(charts), all);
    const details = make("details", { class: "tools" }, make("summary", { text: "Find, zoom, smooth" }), controls);
    const unfold = () => { details.open = WIDE.matches; };
    WIDE.addEventListener("change", unfold);
    unfold();
    return details;
  };

  window.grposcope = Object.assign(window.grposcope, { bar });
})();
