"use strict";
// Puts the page's data on it. Text from the data only ever becomes textContent.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  const root = document.documentElement;

  const make = (tag, options = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(options)) {
      if (name === "text") element.textContent = value;
      else element.setAttribute(name, value);
    }
    element.append(...children.filter(Boolean));
    return element;
  };
  window.grposcope = Object.assign(window.grposcope || {}, { make });

  const theme = document.getElementById("theme");
  const remembered = () => { try { return localStorage.getItem("grposcope-theme"); } catch { return null; } };
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("grposcope-theme", root.dataset.theme); } catch { /* not remembered, then */ }
  });

  const tip = document.body.appendChild(make("div", { id: "tip", "aria-hidden": "true" }));
  const showTip = (handler, event, item, value) => {
    if (value === null || value === undefined || value === "") { tip.style.display = "none"; return; }
    const rows = typeof value === "object" ? Object.entries(value) : [["", value]];
    const grid = make("div");
    for (const [name, shown] of rows) grid.append(make("span", { text: name }), make("span", { text: String(shown) }));
    tip.replaceChildren(grid);
    tip.style.display = "block";
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 14 : event.clientX + 14;
    const y = event.clientY + 14 + box.height > innerHeight ? event.clientY - box.height - 14 : event.clientY + 14;
    tip.style.left = `${Math.max(4, x)}px`;
    tip.style.top = `${Math.max(4, y)}px`;
  };

  const rowsOf = columns => {
    const names = Object.keys(columns);
    return (columns[names[0]] || []).map((_, i) => Object.fromEntries(names.map(name => [name, columns[name][i]])));
  };

  const charts = [];
  const figure = content => {
    const place = make("div", { class: "chart", role: "img", "aria-label": `${content.title}. ${content.caption || ""}` });
    place.id = `chart-${content.name}`;
    charts.push({ place, content });
    return make("figure", content.wide ? { class: "wide" } : {},
      make("h3", { text: content.title }, content.unit && make("small", { text: content.unit })),
      place, content.caption && make("figcaption", { text: content.caption }));
  };

  const table = content => {
    const row = (cells, tag) => make("tr", {}, ...cells.map(cell => make(tag, { text: cell })));
    const grid = make("table", {}, make("thead", {}, row(content.header, "th")),
      make("tbody", {}, ...content.rows.map(cells => row(cells, "td"))));
    const body = [make("div", { class: "scroll" }, grid), content.caption && make("p", { class: "note", text: content.caption })];
    if (content.folded) {
      const folded = make("details", {}, make("summary", { text: content.title }), ...body);
      return make("div", { class: "block" }, folded);
    }
    return make("div", { class: "block" }, content.title && make("h3", { text: content.title }), ...body);
  };

  const filled = (host, content) => {
    for (const text of content.text || []) host.append(make("p", { text }));
    if (content.tiles) host.append(make("div", { class: "tiles" }, ...content.tiles.map(tile => make("div", { class: "tile" },
      make("span", { text: tile.label }), make("b", { text: tile.value }), tile.detail && make("span", { text: tile.detail })))));
    if (content.figures) host.append(make("div", { class: "figures" }, ...content.figures.map(figure)));
    if (content.widget) host.append(window.grposcope[content.widget](content.data));
    if (content.tables) host.append(make("div", { class: "tables" }, ...content.tables.map(table)));
    return host;
  };

  document.title = `${data.title} · GRPOscope`;
  if (data.runs.length > 1) {
    for (const run of data.runs) {
      const line = make("i");
      line.style.background = run.colour;
      document.getElementById("legend").append(make("span", {}, line, document.createTextNode(run.name)));
    }
  }
  main.replaceChildren();
  const top = make("div", { class: "top" }, data.runs.length === 1 && make("div", { class: "name", text: data.runs[0].name }),
    make("h1", { text: data.top.title, ...(data.top.grade && { class: `verdict ${data.top.grade.replace(" ", "-")}` }) }));
  main.append(filled(top, data.top));
  main.append(make("nav", { "aria-label": "Sections" },
    ...data.sections.map(section => make("a", { href: `#${section.name}`, text: section.title }))));
  for (const section of data.sections) main.append(filled(make("section", { id: section.name }, make("h2", { text: section.title })), section));
  main.append(make("footer", { text: `GRPOscope ${data.version}. Long curves are thinned with their smallest and largest values kept; hover or tap for numbers.` }));

  const draw = async () => {
    for (const { place, content } of charts) {
      const datasets = Object.fromEntries(Object.entries(content.data).map(([name, columns]) => [name, rowsOf(columns)]));
      try {
        await vegaEmbed(place, { ...content.spec, datasets },
          { renderer: "svg", ast: true, actions: false, defaultStyle: false, tooltip: showTip });
      } catch (error) {
        place.replaceChildren(make("p", { class: "failed", text: `This chart could not be drawn: ${error.message}` }));
        console.error(content.name, error);
      }
      await new Promise(resolve => setTimeout(resolve));
    }
    root.dataset.drawn = "yes";
    performance.mark("drawn");
  };
  draw();
})();
