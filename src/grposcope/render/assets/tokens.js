"use strict";
// The text of a completion: each token shaded by a number of its own, and unseen characters by name.
(() => {
  const SHADES = {
    logp: { name: "log-probability", low: "likely", high: "unlikely", unit: "nats" },
    entropy: { name: "entropy", low: "certain", high: "open", unit: "nats" },
    weight: { name: "weight in the loss", low: "less likely", high: "more likely", unit: "", signed: true },
    credit: { name: "credit", low: "less likely", high: "more likely", unit: "", signed: true, probe: true },
    given: { name: "credit", low: "less likely", high: "more likely", unit: "", signed: true, rises: true, compared: true },
    net: { name: "credit left after cancelling", low: "none", high: "much", unit: "", probe: true },
  };
  const CANCELLED = 0.9; // share of a token's credit that cancels, from which it is struck through

  const tokens = data => {
    const { make } = window.grposcope;
    const unseen = new RegExp(`([${data.unseen}]|[\\u{e0000}-\\u{e007f}]|\\n|\\t)`, "u");

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
    const clean = text => text.split(unseen).map(part => unseen.test(part) && part.length <= 2 ? "␣" : part).join("").slice(0, 60);
    const block = () => make("div", { class: "text", dir: "auto", tabindex: "0" });
    const plain = content => {
      const host = marked(content.text, block());
      if (content.cut) host.append(make("span", { class: "cut", text: content.cut }));
      return host;
    };

    // The number that has the full shade: the 98th percentile of its size in the group.
    const largestOf = (problem, shade) => {
      const found = problem.rollouts.flatMap(one => (one[shade] || []).filter(v => v !== null).map(Math.abs)).sort((a, b) => a - b);
      return found.length ? Math.max(found[Math.floor(0.98 * (found.length - 1))], 1e-12) : 1;
    };
    const strength = (value, shade, largest) => {
      if (value === null || value === undefined) return 0;
      if (SHADES[shade].signed) return Math.max(-1, Math.min(1, value / largest));
      return Math.min(1, (shade === "logp" ? -value : value) / largest);
    };
    const paint = (span, amount, shade) => {
      const part = (0.62 * Math.abs(amount)).toFixed(3);
      const tint = !SHADES[shade].signed ? "--shade" : (amount < 0) !== Boolean(SHADES[shade].rises) ? "--plus" : "--minus";
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
    const shaded = (one, shade, largest, group) => {
      if (!one.tokens) return plain(one.text);
      const body = block();
      one.tokens.forEach((token, i) => {
        const span = marked(token, make("span", { title: said(one, i) }));
        paint(span, strength((one[shade] || [])[i], shade, largest), shade);
        if (one.sharers) marks(span, one, i, group);
        body.append(span);
      });
      if (one.cut) body.append(make("span", { class: "cut", text: one.cut }));
      return body;
    };

    const scale = (shade, largest) => {
      const about = SHADES[shade], bar = make("i");
      const tint = (name, part) => `rgb(var(${name}) / ${part})`;
      bar.style.background = about.signed
        ? `linear-gradient(90deg, ${tint("--minus", .62)}, transparent, ${tint("--plus", .62)})`
        : `linear-gradient(90deg, transparent, ${tint("--shade", .62)})`;
      const sign = about.signed ? "± " : shade === "logp" ? "≤ −" : "≥ ";
      return [make("span", { text: about.signed ? "made less likely" : about.low }), bar,
        make("span", { text: `${about.signed ? "made more likely" : about.high} (${sign}${Number(largest.toPrecision(2))}${about.unit && " " + about.unit})` })];
    };
    const key = () => make("p", { class: "key" }, make("span", { class: "shared", text: "dotted" }), " shared with another completion, ",
      make("span", { class: "common", text: "underlined" }), " with all; ", make("span", { class: "cancelled", text: "struck through" }),
      ` at least ${100 * CANCELLED}% of the credit cancels`);

    return { SHADES, marked, clean, plain, shaded, largestOf, scale, key };
  };
  window.grposcope = Object.assign(window.grposcope || {}, { tokens });
})();
