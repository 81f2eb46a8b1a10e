"use strict";
// The rollout viewer: steps with the left and right arrows, problems with up and down; two steps beside each other, and
// the difference of two completions.
(() => {
  const rollouts = data => {
    const { make, kindsOf, chosen, textOf, words, difference, highlight } = window.grposcope;
    const { SHADES, marked, clean, plain, shaded, largestOf, scale: scaleOf, key: makeKey } = window.grposcope.tokens(data);
    const state = { run: 0, step: Infinity, problem: 0, shade: "logp", wanted: data.runs[0].probe ? "credit" : "logp",
      kind: "all", typed: "", beside: "", compared: [], source: 0, other: 0 };
    const run = () => data.runs[state.run];
    const number = value => typeof value === "number" ? String(Number(value.toPrecision(4))) : value;
    const word = data.word || "step", Word = word[0].toUpperCase() + word.slice(1);
    const named = step => step.step === null ? "probe" : step.step.toLocaleString("en");

    const select = (label, onChange) => {
      const box = make("select");
      box.addEventListener("change", () => { onChange(box.selectedIndex, box); draw(); });
      return [box, make("label", {}, make("span", { text: label }), box)];
    };
    const [runBox, runLabel] = select("run", i => { state.run = i; state.problem = 0; state.kind = "all"; state.beside = ""; state.compared = []; });
    const [stepBox, stepLabel] = select(`${word} ← →`, i => move("step", i));
    const [problemBox, problemLabel] = select("problem ↑ ↓", i => move("problem", i));
    const [kindBox, kindLabel] = select("completions", i => { state.kind = Object.keys(kindsOf(run()))[i]; });
    const [besideBox, besideLabel] = select(`beside ${word}`, (i, box) => { state.beside = box.value; });
    const [sourceBox, sourceLabel] = select("credit", i => { state.source = i; });
    const [otherBox, otherLabel] = select("beside credit", i => { state.other = i; });
    const field = make("input", { type: "search", placeholder: "words of prompt or completion" });
    field.addEventListener("input", () => { state.typed = field.value; draw(); });
    const move = (what, to) => { state[what] = to; state.compared = []; };

    const pick = make("div", { class: "pick" });
    const probed = data.runs.some(one => one.probe);
    for (const [key, about] of Object.entries(SHADES).filter(([, about]) => !about.compared && (probed || !about.probe))) {
      const input = make("input", { type: "radio", name: "shade", value: key });
      input.checked = key === state.shade;
      input.addEventListener("change", () => { state.wanted = key; draw(); });
      pick.append(make("label", {}, input, document.createTextNode(about.name)));
    }
    const shadeLabel = make("fieldset", {}, make("legend", { text: "shading" }), pick);
    const scale = make("div", { class: "scale" });
    const key = makeKey();
    const status = make("p", { class: "note found", role: "status" });
    const compared = make("div");
    const panels = make("div", { class: "panels" });
    const notes = make("p", { class: "note" });
    const options = (box, entries, place) => {
      box.replaceChildren(...entries.map(entry => make("option", typeof entry === "string" ? { text: entry } : { value: entry[0], text: entry[1] })));
      box.selectedIndex = place;
    };

    const compare = (one, title) => {
      const at = state.compared.findIndex(other => other.one === one);
      if (at >= 0) state.compared.splice(at, 1);
      else state.compared = [...state.compared.slice(-1), { one, title }];
      draw();
      panels.querySelector(`[data-answer="${CSS.escape(title)}"]`)?.focus();
    };
    const componentsOf = one => make("dl", { class: "parts" }, ...Object.entries(one.components).flatMap(([name, value]) =>
      [make("dt", { text: name }), make("dd", { text: number(value) })]));
    // Of a leaf of a tree, whence it branched; of a rollout that was continued from places inside it, what else was written.
    const whence = one => one.parent === undefined ? "" : one.shared < one.count
      ? `branched from completion ${one.parent + 1} after ${one.shared} token${one.shared === 1 ? "" : "s"}`
      : `the branch of completion ${one.parent + 1}, which ended early, counted again`;
    const continued = one => make("details", { class: "continued" },
      make("summary", { text: `continued from ${one.continued.length} place${one.continued.length === 1 ? "" : "s"}` }),
      ...one.continued.flatMap(({ place, count, mean, examples }) => [
        make("p", { class: "note", text: `after ${place} token${place === 1 ? "" : "s"}: mean reward ${number(mean)} of ${count}` }),
        make("ul", {}, ...examples.map(other => make("li", {}, make("span", { text: `reward ${other.reward}: ` }), plain(other)))),
      ]));
    const answer = (one, best, problem, title) => {
      const about = [`${one.count.toLocaleString("en")} token${one.count === 1 ? "" : "s"}`, one.truncated && "truncated", whence(one)];
      if (!one.count) about.shift();
      const button = make("button", { type: "button", text: "compare", "aria-label": `compare ${title}`, "data-answer": title,
        "aria-pressed": String(state.compared.some(other => other.one === one)) });
      button.addEventListener("click", () => compare(one, title));
      const head = make("header", {}, make("b", { text: `reward ${number(one.reward)}` }), make("span", { text: about.filter(Boolean).join(" · ") }), button);
      return make("article", { class: best ? "answer best" : "answer", "aria-label": `Completion ${one.index + 1}, reward ${number(one.reward)}` },
        head, one.components && componentsOf(one), one.credits ? creditsOf(one, problem)
          : shaded(one, state.shade, largestOf(problem, state.shade), problem.rollouts.length),
        one.continued && continued(one));
    };

    // Of a comparison of credit: the completion by the source chosen, and by the one beside it, each with its own scale.
    const by = (one, index) => ({ ...one, given: one.credits[index] });
    const creditsOf = (one, problem) => {
      const places = state.other ? [state.source, state.other - 1] : [state.source];
      return make("div", { class: "sources" }, ...places.map(index => {
        const every = { rollouts: problem.rollouts.map(other => by(other, index)) };
        const text = shaded(by(one, index), "given", largestOf(every, "given"), problem.rollouts.length);
        return make("div", {}, places.length > 1 && make("p", { class: "note", text: run().credit[index] }), text);
      }));
    };

    // One step's problem: where it is, its prompt, and the completions that are wanted.
    const panel = ({ step, place, problems }, shown, live) => {
      const { problem, number: which, chosen: wanted } = shown;
      const rewards = problem.rollouts.map(one => Number(one.reward)), best = Math.max(...rewards), uneven = Math.min(...rewards) < best;
      const when = step.step === null ? "Probe" : `${Word} ${named(step)}, ${place + 1} of ${run().steps.length} shown`;
      const left = wanted.length < problem.rollouts.length ? `${wanted.length} of ${problem.rollouts.length}` : `${problem.rollouts.length}`;
      const mean = Number((rewards.reduce((a, b) => a + b, 0) / rewards.length).toPrecision(3));
      const text = `${when}; problem ${which + 1} of ${step.problems.length}; ${left} completions, mean reward ${mean}`;
      const where = make("p", { class: "where", text, ...(live && { role: "status", "aria-live": "polite" }) });
      const title = one => `completion ${one.index + 1}${state.beside ? ` of ${word} ${named(step)}` : ""}`;
      return make("div", { class: "panel" }, where, make("div", { class: "prompt" }, plain(problem.prompt)),
        make("div", { class: "answers" }, ...wanted.map(one => answer(one, uneven && Number(one.reward) === best, problem, title(one)))));
    };
    const besidePanel = problem => {
      const step = run().steps.find(one => String(one.step) === state.beside);
      if (!step) return null;
      const same = step.problems.findIndex(one => one.problem.text === problem.problem.problem.text);
      const at = same >= 0 ? same : Math.min(problem.number, step.problems.length - 1);
      const shown = { problem: step.problems[at], number: at, chosen: step.problems[at].rollouts };
      return panel({ step, place: run().steps.indexOf(step), problems: [] }, shown, false);
    };

    const showDifference = () => {
      compared.replaceChildren();
      if (!state.compared.length) return;
      const [first, second] = state.compared;
      if (!second) { compared.append(make("p", { class: "note", role: "status", text: `Compare ${first.title} with which other?` })); return; }
      const body = make("div", { class: "text difference", dir: "auto", tabindex: "0" });
      for (const { kind, text } of difference(textOf(first.one), textOf(second.one))) {
        body.append(marked(text, make(kind === "same" ? "span" : kind === "first" ? "del" : "ins")));
      }
      compared.append(make("div", { class: "prompt", role: "region", "aria-label": `Difference of ${first.title} and ${second.title}` },
        make("p", { class: "note" }, make("del", { text: `only ${first.title}, reward ${number(first.one.reward)}` }), " ",
          make("ins", { text: `only ${second.title}, reward ${number(second.one.reward)}` })), body));
    };

    const draw = () => {
      const kinds = kindsOf(run());
      const kind = kinds[state.kind] || kinds.all;
      const found = chosen(run(), kind, state.typed);
      const narrowed = state.kind !== "all" || words(state.typed).length > 0;
      const count = found.reduce((sum, step) => sum + step.problems.reduce((part, one) => part + one.chosen.length, 0), 0);
      status.textContent = !narrowed ? "" : count ? `${count} completion${count > 1 ? "s" : ""} at ${found.length} ${word}${found.length > 1 ? "s" : ""}` : "No completion is like that.";
      options(runBox, data.runs.map(one => one.run), state.run);
      options(kindBox, Object.values(kinds).map(one => one.title), Math.max(0, Object.keys(kinds).indexOf(state.kind)));
      options(besideBox, [["", "none"], ...run().steps.map(step => [String(step.step), named(step)])], 0);
      besideBox.value = state.beside;
      besideLabel.hidden = run().steps.length < 2;
      panels.hidden = !found.length;
      if (!found.length) { showDifference(); return; }
      state.step = Math.max(0, Math.min(state.step, found.length - 1));
      const step = found[state.step];
      state.problem = Math.max(0, Math.min(state.problem, step.problems.length - 1));
      const shown = step.problems[state.problem], problem = shown.problem;
      options(stepBox, found.map(one => named(one.step)), state.step);
      options(problemBox, step.problems.map(one => `${one.number + 1}. ${clean(one.problem.problem.text)}`), state.problem);
      const sources = run().credit || [];
      sourceLabel.hidden = otherLabel.hidden = !sources.length;
      if (sources.length) {
        state.source = Math.min(state.source, sources.length - 1);
        options(sourceBox, sources, state.source);
        options(otherBox, ["none", ...sources], Math.min(state.other, sources.length));
        for (const one of problem.rollouts) one.given = one.credits[state.source];
      }
      const offered = name => problem.rollouts.some(one => one[name]);
      state.shade = offered("given") ? "given" : offered(state.wanted) ? state.wanted : offered("credit") ? "credit" : "logp";
      for (const label of pick.children) {
        const input = label.firstChild;
        input.disabled = !offered(input.value);
        input.checked = input.value === state.shade;
        label.className = input.disabled ? "off" : "";
      }
      shadeLabel.hidden = scale.hidden = !Object.keys(SHADES).some(offered);
      scale.replaceChildren(...scaleOf(state.shade, largestOf(problem, state.shade)));
      panels.replaceChildren(...[besidePanel(shown), panel(step, shown, true)].filter(Boolean));
      showDifference();
      highlight(panels.querySelectorAll(".text"), words(state.typed));
      key.hidden = !problem.rollouts.some(one => one.sharers);
      const left = step.step.left_out ? [`${step.step.left_out} further problems of this ${step.step.step === null ? "probe" : word} are in the record.`] : [];
      if (problem.dead) left.unshift("All rewards of this group are equal: no token of it has credit.");
      notes.textContent = [...run().notes, ...left].join(" ");
    };

    const viewer = make("div", { class: "block viewer", tabindex: "0", role: "group", "aria-roledescription": "rollout viewer",
      "aria-label": `Rollouts. Left and right arrow keys change the ${word}, up and down the problem.`, id: "viewer" },
    make("div", { class: "controls" }, data.runs.length > 1 && runLabel, stepLabel, problemLabel, kindLabel,
      make("label", {}, make("span", { text: "search" }), field), besideLabel, sourceLabel, otherLabel, shadeLabel, scale),
    status, key, compared, panels, notes);
    viewer.addEventListener("keydown", event => {
      if (["SELECT", "INPUT"].includes(event.target.tagName) || event.ctrlKey || event.altKey || event.metaKey) return;
      const moves = { ArrowLeft: ["step", -1], ArrowRight: ["step", 1], ArrowUp: ["problem", -1], ArrowDown: ["problem", 1] };
      if (!(event.key in moves)) return;
      event.preventDefault();
      const [what, by] = moves[event.key];
      move(what, state[what] + by);
      draw();
    });
    draw();
    return viewer;
  };
  window.grposcope = Object.assign(window.grposcope || {}, { rollouts });
})();
