"use strict";
// Puts the page's data on it: the headline, a way to every section, and the sections, of which later ones are folded.
(() => {
  const { make, prose, folded, table, switchTheme, charts, bar } = window.grposcope;
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  const root = document.documentElement;
  const drawing = charts && data.shared && [data.top, ...data.sections].some(section => section.figures) ? charts(data, root) : null;
  const shown = new Map(); // content of a chart -> its figure, once it is made
  const folds = []; // { details, figures }: what can be opened, and the charts in it

  const figures = (contents, small = false) => make("div", { class: "figures" }, ...contents.map(content => {
    const figure = drawing.figure(content, small);
    shown.set(content, figure);
    return figure;
  }));
  const fold = (head, contents, fill) => {
    const details = folded(head, place => { fill(place); drawing?.drawAll(); }, { class: "fold" });
    details.addEventListener("toggle", () => { if (details.open) drawing?.drawAll(); });
    folds.push({ details, figures: contents });
    return details;
  };
  const counted = contents => make("small", { text: contents.length ? `${contents.length} chart${contents.length > 1 ? "s" : ""}` : "" });
  const groups = contents => [...new Set(contents.map(content => content.group))].filter(Boolean).map(name => {
    const members = contents.filter(content => content.group === name);
    return fold([make("h3", { text: name }), counted(members)], members, place => place.append(figures(members)));
  });

  const filled = (host, content, first = false) => {
    const all = content.figures || [], atOnce = all.filter(one => !one.group);
    for (const text of content.text || []) host.append(prose(text));
    if (content.more) host.append(folded(["more"], place => place.append(...content.more.map(prose)), { class: "more" }));
    if (first && atOnce.length) host.append(figures(atOnce));
    if (content.tiles) host.append(make("div", { class: "tiles" }, ...content.tiles.map(tile => make("div", { class: "tile" },
      make("span", { text: tile.label }), make("b", { text: tile.value }), tile.detail && make("span", { text: tile.detail })))));
    if (!first && atOnce.length) host.append(figures(atOnce, content.small));
    if (content.widget) host.append(window.grposcope[content.widget](content.data));
    if (content.tables) host.append(make("div", { class: "tables" }, ...content.tables.map(table)));
    host.append(...groups(all));
    return host;
  };
  const sectionOf = content => {
    const host = make("section", { id: content.name }), head = make("h2", { text: content.title });
    if (!content.folded) {
      const section = filled(make("section", { id: content.name }, head), content);
      if (content.small) {
        section.className = "small";
        section.style.setProperty("--charts", Math.min(4, (content.figures || []).filter(one => !one.group).length) || 2);
      }
      return section;
    }
    host.append(fold([head, counted(content.figures || [])], content.figures || [], place => filled(place, content)));
    return host;
  };

  // Shows only the charts whose title, name, unit, group or section has all the words; returns how many there are.
  const searched = new Set();
  const search = typed => {
    const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
    root.classList.toggle("searching", words.length > 0);
    const text = (content, section) => [content.title, content.name, content.unit, content.group, section.title].join(" ").toLowerCase();
    const matching = new Set(data.sections.flatMap(section => (section.figures || []).filter(content => words.every(word => text(content, section).includes(word)))));
    for (const { details, figures: contents } of folds) { // opening one may add further ones, which come later
      const some = contents.some(content => matching.has(content));
      details.hidden = words.length > 0 && !some;
      if (words.length && some && !details.open) { details.open = true; searched.add(details); details.fill(); }
      if (!words.length && searched.delete(details)) details.open = false;
    }
    for (const [content, figure] of shown) figure.hidden = words.length > 0 && !matching.has(content);
    for (const section of data.sections) document.getElementById(section.name).hidden = words.length > 0 && !(section.figures || []).some(content => matching.has(content));
    drawing.drawAll();
    return words.length ? `${matching.size} chart${matching.size === 1 ? "" : "s"}` : "";
  };
  const openAll = () => {
    for (const details of main.getElementsByTagName("details")) {
      if (details.classList.contains("tools")) continue;
      details.open = true;
      details.fill?.();
    }
    drawing?.drawAll();
  };
  const openNamed = name => {
    const details = document.getElementById(name)?.querySelector(":scope > details");
    if (details) { details.open = true; details.fill(); }
  };

  switchTheme(document.getElementById("theme"));
  document.title = `${data.title} · GRPOscope`;
  if (data.runs.length > 1) {
    for (const run of data.runs) {
      const line = make("i");
      line.style.background = run.colour;
      const entry = make(drawing ? "button" : "span", drawing ? { type: "button", "aria-pressed": "true", title: "show or hide this run in all charts" } : {}, line, document.createTextNode(run.name));
      if (drawing) entry.addEventListener("click", () => entry.setAttribute("aria-pressed", drawing.toggle(run.name)));
      document.getElementById("legend").append(entry);
    }
  }
  main.replaceChildren();
  const top = make("div", { class: data.top.figures ? "top charted" : "top" },
    data.runs.length === 1 && make("div", { class: "name" }, make("b", { text: data.runs[0].name }), ...data.identity.map(text => make("div", { text }))),
    make("h1", { text: data.top.title, ...(data.top.grade && { class: `verdict ${data.top.grade.replace(" ", "-")}` }) }));
  main.append(filled(top, data.top, true));
  const links = data.sections.map(section => {
    const link = make("a", { href: `#${section.name}`, text: section.title });
    link.addEventListener("click", () => openNamed(section.name));
    return link;
  });
  main.append(make("nav", { "aria-label": "Sections" }, ...links));
  if (drawing) main.append(bar(drawing, search, data.runs, openAll));
  for (let at = 0; at < data.sections.length;) { // small sections in a row stand beside one another
    const small = [];
    while (at < data.sections.length && data.sections[at].small && !data.sections[at].folded) small.push(sectionOf(data.sections[at++]));
    if (small.length) main.append(make("div", { class: "smalls" }, ...small)); else main.append(sectionOf(data.sections[at++]));
  }
  main.append(make("footer", { text: `GRPOscope ${data.version}. Long curves are thinned with their smallest and largest values kept; hover or tap for numbers.` +
    (drawing ? " Drag over a chart to zoom, or turn the wheel with Shift; a double click shows the whole run." : "") }));
  if (location.hash) openNamed(decodeURIComponent(location.hash.slice(1)));

  if (drawing) drawing.drawAll(); else root.dataset.drawn = "yes";
})();
