"use strict";
// Draws charts, and lets the reader zoom, smooth and compare them: all charts over time share one window and one cursor.
(() => {
  const { make, folded, adapted, isOverTime, isCurve, withCellTips } = window.grposcope;
  const DRAG = 6; // pixels from which a press is a drag
  const LONG = 160; // characters of a caption of which the first sentence is enough at first
  const ERRORS = 1; // Vega's level of logging errors only

  const charts = (data, root) => {
    const choices = { smoothing: "none", axis: "step", log: false, hidden: new Set() };
    let range = [null, null];
    const drawn = new Map(); // place -> { content, view, axis, datasets }
    const waiting = new Map(); // place -> content
    const listeners = [];

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

    const whole = content => {
      const { spec, data: sets } = content;
      const own = { ...spec, config: data.shared[spec.config], layer: spec.layer.map(i => data.shared[i]) };
      const columns = Object.fromEntries(Object.entries(sets).map(([name, of]) =>
        [name, Object.fromEntries(Object.entries(of).map(([column, i]) => [column, data.shared[i]]))]));
      return [own, columns];
    };
    const draw = async (place, content) => {
      try {
        const [spec, columns] = whole(content);
        const changed = adapted(spec, columns, choices, data.runs);
        drawn.get(place)?.view.finalize();
        const { view } = await vegaEmbed(place, changed.spec, { renderer: "svg", ast: true, actions: false, defaultStyle: false, tooltip: showTip,
          patch: withCellTips });
        view.logLevel(ERRORS); // a window without points is no news
        drawn.set(place, { content, view, axis: changed.axis, datasets: changed.datasets });
        if (changed.axis === choices.axis && range.some(end => end !== null)) await zoomed(view);
        if (changed.axis) place.append(make("i", { class: "cursor" }), make("i", { class: "brush" }));
      } catch (error) {
        place.replaceChildren(make("p", { class: "failed", text: `This chart could not be drawn: ${error.message}` }));
        console.error(content.name, error);
      }
    };

    // Those on the screen come first.
    const next = () => {
      const far = place => {
        const box = place.getBoundingClientRect();
        return box.bottom < 0 ? -box.bottom : Math.max(0, box.top - innerHeight);
      };
      return [...waiting.keys()].filter(place => place.isConnected && !place.closest("details:not([open]), [hidden]")).sort((a, b) => far(a) - far(b))[0];
    };
    let busy = false;
    const drawAll = async () => {
      root.dataset.drawn = "no";
      if (busy) return;
      busy = true;
      for (let place = next(); place; place = next()) {
        const content = waiting.get(place);
        waiting.delete(place);
        await draw(place, content);
        await new Promise(resolve => setTimeout(resolve));
      }
      busy = false;
      root.dataset.drawn = "yes";
      performance.mark("drawn");
    };
    const again = (all = false) => {
      for (const [place, { content }] of drawn) if (all || isOverTime(whole(content)[0])) waiting.set(place, content);
      drawAll();
    };
    const toggle = run => { // hides a run in all charts, or shows it again; returns whether it is shown
      if (!choices.hidden.delete(run)) choices.hidden.add(run);
      again(true);
      return !choices.hidden.has(run);
    };

    const zoomed = view => view.signal("window_from", range[0]).signal("window_to", range[1]).runAsync();
    const zoom = (from, to) => {
      range = [from, to];
      for (const { view, axis } of drawn.values()) if (axis === choices.axis) zoomed(view);
      for (const listen of listeners) listen();
    };
    const bounds = () => {
      const shown = [...drawn.values()].filter(({ axis, content }) => axis === choices.axis && isCurve(content.data));
      const ends = shown.flatMap(({ datasets }) => datasets.thick.map(row => row.step));
      return ends.length ? [Math.min(...ends), Math.max(...ends)] : [0, 1];
    };

    const edges = (place, view) => { // left and right end of the chart's area, from the left of its place, in pixels
      const left = view.container().querySelector("svg").getBoundingClientRect().left - place.getBoundingClientRect().left + view.origin()[0];
      return [left, left + view.signal("width")];
    };
    const valueAt = (place, event) => {
      const chart = drawn.get(place);
      if (!chart || !chart.axis) return null;
      const [left, right] = edges(place, chart.view);
      const x = Math.max(left, Math.min(right, event.clientX - place.getBoundingClientRect().left));
      return chart.view.scale("x").invert(x - left);
    };
    const showCursor = (axis, value) => {
      for (const [place, chart] of drawn) {
        const line = place.querySelector(".cursor");
        if (!line) continue;
        const box = place.getBoundingClientRect();
        const seen = value !== null && chart.axis === axis && box.bottom > 0 && box.top < innerHeight;
        line.style.display = "none";
        if (!seen) continue;
        const [left, right] = edges(place, chart.view);
        const x = left + chart.view.scale("x")(value);
        if (!(x >= left - 1 && x <= right + 1)) continue;
        line.style.display = "block";
        line.style.left = `${x}px`;
      }
    };

    const listenTo = place => {
      let began = null;
      const brush = event => {
        const box = place.getBoundingClientRect(), mark = place.querySelector(".brush");
        const from = Math.min(began.x, event.clientX) - box.left, to = Math.max(began.x, event.clientX) - box.left;
        Object.assign(mark.style, { display: to - from > DRAG ? "block" : "none", left: `${from}px`, width: `${to - from}px` });
      };
      const end = event => {
        if (!began) return;
        place.querySelector(".brush").style.display = "none";
        const to = valueAt(place, event), from = began.value, far = Math.abs(event.clientX - began.x) > DRAG;
        began = null;
        if (far && drawn.get(place).axis === choices.axis && from !== to) zoom(Math.min(from, to), Math.max(from, to));
      };
      place.addEventListener("pointerdown", event => {
        const value = event.pointerType === "touch" || event.button !== 0 ? null : valueAt(place, event);
        if (value === null || drawn.get(place).axis !== choices.axis) return;
        event.preventDefault();
        began = { x: event.clientX, value };
        place.setPointerCapture(event.pointerId);
      });
      place.addEventListener("pointermove", event => {
        if (began) brush(event);
        showCursor(drawn.get(place)?.axis, valueAt(place, event));
      });
      place.addEventListener("pointerup", end);
      place.addEventListener("pointercancel", () => { began = null; });
      place.addEventListener("pointerleave", () => { showCursor("", null); tip.style.display = "none"; });
      place.addEventListener("dblclick", () => { if (drawn.get(place)?.axis === choices.axis) zoom(null, null); });
      place.addEventListener("wheel", event => {
        if (!(event.shiftKey || event.altKey) || drawn.get(place)?.axis !== choices.axis) return;
        event.preventDefault();
        const at = valueAt(place, event), factor = (event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8;
        const [first, last] = bounds(), [from, to] = [range[0] ?? first, range[1] ?? last];
        const ends = [Math.max(first, at - (at - from) * factor), Math.min(last, at + (to - at) * factor)];
        if (ends[0] <= first && ends[1] >= last) zoom(null, null); else zoom(...ends);
      }, { passive: false });
    };

    const figure = (content, small = false) => {
      const place = make("div", { class: "chart", role: "img", "aria-label": `${content.title}. ${content.caption || ""}`, id: `chart-${content.name}` });
      waiting.set(place, content);
      if (isOverTime(whole(content)[0])) {
        place.classList.add("time");
        listenTo(place);
      }
      const caption = () => {
        const text = content.caption || "", sentence = text.indexOf(". ") + 1;
        const first = text.startsWith("Dashed: ") || !small ? sentence : 0; // what is marked stays, and of a large chart a sentence
        if (!text || (!small && (text.length < LONG || !first))) return [text && make("figcaption", { text })];
        return [first > 0 && make("figcaption", { text: text.slice(0, first) }),
          folded([small ? "what it is" : "more"], place => place.append(make("figcaption", { text: text.slice(first).trim() })))];
      };
      return make("figure", content.wide && !small ? { class: "wide" } : {},
        make("h3", { text: content.title }, content.unit && make("small", { text: content.unit })), place, ...caption());
    };

    const choose = (name, value) => {
      choices[name] = value;
      if (name === "axis") {
        range = [null, null];
        for (const listen of listeners) listen();
      }
      again();
    };
    return { figure, drawAll, choose, toggle, zoom, range: () => range, onZoom: listen => listeners.push(listen) };
  };

  window.grposcope = Object.assign(window.grposcope, { charts });
})();
