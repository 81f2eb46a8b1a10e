"use strict";
// The table of many runs: a click on a column sorts by it, the field above filters by any words.
(() => {
  const COLUMNS = [
    ["name", "run"], ["word", "verdict"], ["heldout", "held-out"], ["reward", "reward"], ["curve", "course of the reward"],
    ["steps", "steps"], ["status", "status"], ["recipe", "recipe"], ["group", "G"], ["model", "model"], ["task", "task"],
    ["seed", "seed"], ["began", "began"],
  ];
  const NUMBERS = new Set(["heldout", "reward", "steps", "group", "seed"]);
  const WORST = ["failing", "warning", "cannot tell", "healthy"];

  const course = (make, values) => {
    if (!values.length) return make("span");
    const svg = (tag, options) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(options)) element.setAttribute(name, value);
      return element;
    };
    const low = Math.min(...values), span = Math.max(...values) - low || 1;
    const x = i => values.length > 1 ? 2 + 96 * i / (values.length - 1) : 50;
    const points = values.map((value, i) => `${x(i).toFixed(1)},${(22 - 20 * (value - low) / span).toFixed(1)}`);
    const picture = svg("svg", { viewBox: "0 0 100 24", class: "course", role: "img",
      "aria-label": `reward from ${values[0].toPrecision(3)} to ${values[values.length - 1].toPrecision(3)}` });
    picture.append(svg("polyline", { points: points.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.5 }));
    return picture;
  };

  const runs = data => {
    const { make } = window.grposcope;
    const columns = COLUMNS.filter(([name]) => data.some(run => run[name] !== null && run[name] !== "" && run[name] !== undefined));
    const state = { by: "", down: false, words: "" };
    const body = make("tbody");
    const count = make("span", { class: "note", role: "status" });
    const field = make("input", { type: "search", placeholder: "filter: words of any column", "aria-label": "Filter the runs" });

    const key = (run, name) => {
      if (name === "word") return WORST.indexOf(run.word);
      if (name === "curve") return run.curve.length ? run.curve[run.curve.length - 1] - run.curve[0] : null;
      if (!NUMBERS.has(name)) return String(run[name] ?? "").toLowerCase();
      const value = run[name] && typeof run[name] === "object" ? run[name].value : run[name];
      return value === null || value === "" || Number.isNaN(Number(value)) ? null : Number(value);
    };
    const cell = (run, name) => {
      if (name === "name") return make("td", {}, run.page ? make("a", { href: run.page, text: run.name }) : run.name);
      if (name === "word") return make("td", { title: run.verdict }, make("span", { class: `grade ${run.word.replace(" ", "-")}`, text: run.word }));
      if (name === "curve") return make("td", {}, course(make, run.curve));
      const value = run[name];
      return make("td", { text: value && typeof value === "object" ? value.shown : String(value ?? "") });
    };
    const draw = () => {
      const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
      const text = run => columns.map(([name]) => name === "word" ? `${run.word} ${run.verdict}` : typeof run[name] === "object" ? "" : run[name]).join(" ").toLowerCase();
      const shown = data.filter(run => words.every(word => text(run).includes(word)));
      if (state.by) {
        shown.sort((a, b) => {
          const [one, other] = [key(a, state.by), key(b, state.by)];
          if (one === null || other === null) return (one === null) - (other === null);
          return (one < other ? -1 : one > other ? 1 : 0) * (state.down ? -1 : 1);
        });
      }
      body.replaceChildren(...shown.map(run => make("tr", {}, ...columns.map(([name]) => cell(run, name)))));
      count.textContent = shown.length === data.length ? `${data.length} runs` : `${shown.length} of ${data.length} runs`;
    };
    const heads = columns.map(([name, title]) => {
      const button = make("button", { type: "button", class: "sort", text: title });
      const head = make("th", { scope: "col", "aria-sort": "none" }, button);
      button.addEventListener("click", () => {
        const numbers = NUMBERS.has(name) || name === "curve";
        state.down = state.by === name ? !state.down : numbers;
        state.by = name;
        for (const other of heads) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        draw();
      });
      return head;
    });
    field.addEventListener("input", () => { state.words = field.value; draw(); });
    draw();
    return make("div", { class: "runs" }, make("p", {}, field, " ", count),
      make("div", { class: "scroll", tabindex: "0" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)));
  };

  window.grposcope = Object.assign(window.grposcope || {}, { runs });
})();
