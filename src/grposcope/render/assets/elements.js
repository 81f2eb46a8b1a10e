"use strict";
// Elements of the page. Text from the data only ever becomes textContent.
(() => {
  const CARD = 48, COLUMNS = 4; // characters of a cell, and columns, from which the rows of a table are cards on a narrow screen

  const make = (tag, options = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(options)) {
      if (name === "text") element.textContent = value;
      else element.setAttribute(name, value);
    }
    element.append(...children.filter(Boolean));
    return element;
  };

  // A paragraph; what stands between backticks is code.
  const prose = text => make("p", {}, ...text.split(/`([^`]+)`/).map((part, i) => i % 2 ? make("code", { text: part }) : part));

  // A details element whose content is made when it is opened for the first time.
  const folded = (head, fill, options = {}) => {
    const details = make("details", options, make("summary", {}, ...head));
    details.fill = () => {
      if (!fill) return;
      const build = fill;
      fill = null;
      build(details);
    };
    details.addEventListener("toggle", () => { if (details.open) details.fill(); });
    return details;
  };

  const grid = content => {
    const cell = (text, i) => make(i ? "td" : "th", { text, "data-label": content.header[i], role: i ? "cell" : "rowheader", ...(!i && { scope: "row" }) });
    const head = make("tr", { role: "row" }, ...content.header.map(text => make("th", { text, scope: "col", role: "columnheader" })));
    const rows = content.rows.map(cells => make("tr", { role: "row" }, ...cells.map(cell)));
    const long = content.header.length > COLUMNS || content.rows.some(cells => cells.some(text => text.length > CARD));
    const place = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": content.title || content.header.join(", ") },
      make("table", { role: "table", class: long ? "cards" : "" },
        make("thead", { role: "rowgroup" }, head), make("tbody", { role: "rowgroup" }, ...rows)));
    return place;
  };

  const table = content => {
    const body = () => [grid(content), content.caption && make("p", { class: "note", text: content.caption })].filter(Boolean);
    if (!content.folded) return make("div", { class: "block" }, content.title && make("h3", { text: content.title }), ...body());
    return make("div", { class: "block" }, folded([content.title], details => details.append(...body())));
  };

  const switchTheme = button => {
    const root = document.documentElement;
    const remembered = () => { try { return localStorage.getItem("grposcope-theme"); } catch { return null; } };
    const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("grposcope-theme", root.dataset.theme); } catch { /* not remembered, then */ }
    });
  };

  window.grposcope = Object.assign(window.grposcope || {}, { make, prose, folded, table, switchTheme });
})();
