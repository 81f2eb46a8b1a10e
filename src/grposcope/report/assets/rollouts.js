"use strict";
// The rollout viewer: steps with the left and right arrows, problems with up and down.
(() => {
  const SHADES = {
    logp: { name: "log-probability", low: "likely", high: "unlikely", unit: "nats" },
    entropy: { name: "entropy", low: "certain", high: "open", unit: "nats" },
    weight: { name: "weight in the loss", low: "less likely", high: "more likely", unit: "", signed: true },
    credit: { name: "credit", low: "less likely", high: "more likely", unit: "", signed: true, probe: true },
    net: { name: "credit left after cancelling", low: "none", high: "much", unit: "", probe: true },
  };
  const CANCELLED = 0.9; // share of a token's credit that cancels, from which it is struck through

  const rollouts = data => {
    const { make } = window.grposcope;
    const unseen = new RegExp(`([${data.unseen}]|[\\u{e0000}-\\u{e007f}]|\\n|\\t)`, "u");
    const state = { run: 0, step: data.runs[0].steps.length - 1, problem: 0, shade: "logp", wanted: data.runs[0].probe ? "credit" : "logp" };

    const marked = (text, host) => {
      for (const part of text.split(unseen)) {
        if (!part) continue;
        if (part === "\n") host.append(make("span", { class: "faint", text: "↵" }), "\n");
        else if (part === "\t") host.append(make("span", { class: "faint", text: "⇥" }), "\t");
        else if (part.length <= 2 && unseen.test(part)) {
          const code = part.codePointAt(0);
          const name = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
          host.append(make("span", { class: "unseen", text: data.controls[code] || name, title: name }));
        } else host.append(part);
      }
      return host;
    };
    const plain = content => {
      const host = marked(content.text, make("div", { class: "text", dir: "auto", tabindex: "0" }));
      if (content.cut) host.append(make("span", { class: "cut", text: content.cut }));
      return host;
    };

    const strength = value => {
      if (value === null || value === undefined) return 0;
      if (SHADES[state.shade].signed) return Math.max(-1, Math.min(1, value / largest));
      return Math.min(1, (state.shade === "logp" ? -value : value) / largest);
    };
    let largest = 1;
    const measure = problem => {
      const found = problem.rollouts.flatMap(one => (one[state.shade] || []).filter(v => v !== null).map(Math.abs)).sort((a, b) => a - b);
      largest = found.length ? Math.max(found[Math.floor(0.98 * (found.length - 1))], 1e-12) : 1;
    };
    const paint = (span, amount) => {
      const part = (0.62 * Math.abs(amount)).toFixed(3);
      const tint = !SHADES[state.shade].signed ? "--shade" : amount < 0 ? "--plus" : "--minus";
      if (Number(part) > 0.004) span.style.background = `rgb(var(${tint}) / ${part})`;
    };

    const said = (one, i) => Object.entries(SHADES).filter(([key]) => one[key] && one[key][i] !== null && one[key][i] !== undefined)
      .map(([key, about]) => `${about.name} ${one[key][i]}${about.unit && " " + about.unit}`).join("\n");

    const cancelled = (one, i) => {
      const whole = Math.abs(one.credit[i] || 0);
      return whole > 0 ? 1 - (one.net[i] || 0) / whole : 0;
    };
    const carried = (one, i, group) => {
      const percent = Math.round(100 * cancelled(one, i));
      return `\nwritten by ${one.sharers[i]} of ${group}` + (one.sharers[i] > 1 && one.credit[i] ? `, ${percent}% of its credit cancels` : "");
    };
    const marks = (span, one, i, group) => {
      span.title += carried(one, i, group);
      if (one.sharers[i] > 1) span.classList.add(one.sharers[i] === group ? "common" : "shared");
      if (cancelled(one, i) >= CANCELLED) span.classList.add("cancelled");
    };

    const answer = (one, best, group) => {
      const reward = typeof one.reward === "number" ? Number(one.reward.toPrecision(4)) : one.reward;
      const about = [one.count && `${one.count.toLocaleString("en")} token${one.count === 1 ? "" : "s"}`, one.truncated && "truncated"].filter(Boolean).join(" · ");
      const head = make("header", {}, make("b", { text: `reward ${reward}` }), make("span", { text: about }));
      let body;
      if (one.tokens) {
        body = make("div", { class: "text", dir: "auto", tabindex: "0" });
        one.tokens.forEach((token, i) => {
          const span = marked(token, make("span", { title: said(one, i) }));
          paint(span, strength((one[state.shade] || [])[i]));
          if (one.sharers) marks(span, one, i, group);
          body.append(span);
        });
        if (one.cut) body.append(make("span", { class: "cut", text: one.cut }));
      } else body = plain(one.text);
      return make("article", { class: best ? "answer best" : "answer", "aria-label": `Completion ${one.index + 1}, reward ${reward}` }, head, body);
    };

    const select = (label, onChange) => {
      const box = make("select");
      box.addEventListener("change", () => { onChange(box.selectedIndex); draw(); });
      return [box, make("label", {}, make("span", { text: label }), box)];
    };
    const [runs, runLabel] = select("run", i => { state.run = i; state.step = Math.min(state.step, steps().length - 1); state.problem = 0; });
    const [stepBox, stepLabel] = select("step ← →", i => { state.step = i; });
    const [problemBox, problemLabel] = select("problem ↑ ↓", i => { state.problem = i; });
    const steps = () => data.runs[state.run].steps;
    const problems = () => steps()[state.step].problems;

    const pick = make("div", { class: "pick" });
    const probed = data.runs.some(run => run.probe);
    for (const [key, about] of Object.entries(SHADES).filter(([, about]) => probed || !about.probe)) {
      const input = make("input", { type: "radio", name: "shade", value: key });
      input.checked = key === state.shade;
      input.addEventListener("change", () => { state.wanted = key; draw(); });
      pick.append(make("label", {}, input, document.createTextNode(about.name)));
    }
    const shadeLabel = make("fieldset", {}, make("legend", { text: "shading" }), pick);
    const scale = make("div", { class: "scale" });
    const where = make("p", { class: "where", role: "status", "aria-live": "polite" });
    const key = make("p", { class: "key" }, make("span", { class: "shared", text: "dotted" }), " shared with another completion, ",
      make("span", { class: "common", text: "underlined" }), " with all; ", make("span", { class: "cancelled", text: "struck through" }),
      ` at least ${100 * CANCELLED}% of the credit cancels`);
    const prompt = make("div", { class: "prompt" });
    const answers = make("div", { class: "answers" });
    const notes = make("p", { class: "note" });

    const options = (box, names, chosen) => {
      box.replaceChildren(...names.map(name => make("option", { text: name })));
      box.selectedIndex = chosen;
    };
    const draw = () => {
      state.step = Math.max(0, Math.min(state.step, steps().length - 1));
      state.problem = Math.max(0, Math.min(state.problem, problems().length - 1));
      const step = steps()[state.step], problem = problems()[state.problem];
      options(runs, data.runs.map(run => run.run), state.run);
      options(stepBox, steps().map(s => s.step === null ? "probe" : s.step.toLocaleString("en")), state.step);
      options(problemBox, problems().map((p, i) => `${i + 1}. ${clean(p.problem.text)}`), state.problem);
      const offered = key => problem.rollouts.some(one => one[key]);
      const fallback = problem.rollouts.some(one => one.credit) ? "credit" : "logp";
      state.shade = offered(state.wanted) ? state.wanted : fallback;
      for (const label of pick.children) {
        const input = label.firstChild;
        input.disabled = !offered(input.value);
        input.checked = input.value === state.shade;
        label.className = input.disabled ? "off" : "";
      }
      measure(problem);
      const about = SHADES[state.shade], bar = make("i");
      const tint = (name, part) => `rgb(var(${name}) / ${part})`;
      bar.style.background = about.signed
        ? `linear-gradient(90deg, ${tint("--minus", .62)}, transparent, ${tint("--plus", .62)})`
        : `linear-gradient(90deg, transparent, ${tint("--shade", .62)})`;
      const sign = about.signed ? "± " : state.shade === "logp" ? "≤ −" : "≥ ";
      scale.replaceChildren(make("span", { text: about.signed ? "made less likely" : about.low }), bar,
        make("span", { text: `${about.signed ? "made more likely" : about.high} (${sign}${Number(largest.toPrecision(2))}${about.unit && " " + about.unit})` }));
      const rewards = problem.rollouts.map(one => Number(one.reward)), best = Math.max(...rewards);
      const when = step.step === null ? "Probe" : `Step ${step.step.toLocaleString("en")}, ${state.step + 1} of ${steps().length} shown`;
      where.textContent = `${when}; problem ${state.problem + 1} of ${problems().length}; ` +
        `${problem.rollouts.length} completions, mean reward ${Number((rewards.reduce((a, b) => a + b, 0) / rewards.length).toPrecision(3))}`;
      prompt.replaceChildren(plain(problem.prompt));
      const uneven = Math.min(...rewards) < best;
      answers.replaceChildren(...problem.rollouts.map((one, i) => answer(one, uneven && rewards[i] === best, problem.rollouts.length)));
      key.hidden = !problem.rollouts.some(one => one.sharers);
      const left = step.left_out ? [`${step.left_out} further problems of this ${step.step === null ? "probe" : "step"} are in the record.`] : [];
      if (problem.dead) left.unshift("All rewards of this group are equal: no token of it has credit.");
      notes.textContent = [...data.runs[state.run].notes, ...left].join(" ");
    };
    const clean = text => text.split(unseen).map(part => unseen.test(part) && part.length <= 2 ? "␣" : part).join("").slice(0, 60);

    const viewer = make("div", { class: "block viewer", tabindex: "0", role: "group", "aria-roledescription": "rollout viewer",
      "aria-label": "Rollouts. Left and right arrow keys change the step, up and down the problem.", id: "viewer" },
    make("div", { class: "controls" }, data.runs.length > 1 && runLabel, stepLabel, problemLabel, shadeLabel, scale),
    where, prompt, key, answers, notes);
    viewer.addEventListener("keydown", event => {
      if (["SELECT", "INPUT"].includes(event.target.tagName) || event.ctrlKey || event.altKey || event.metaKey) return;
      const moves = { ArrowLeft: ["step", -1], ArrowRight: ["step", 1], ArrowUp: ["problem", -1], ArrowDown: ["problem", 1] };
      if (!(event.key in moves)) return;
      event.preventDefault();
      const [what, by] = moves[event.key];
      state[what] += by;
      draw();
    });
    draw();
    return viewer;
  };
  window.grposcope = Object.assign(window.grposcope || {}, { rollouts });
})();
