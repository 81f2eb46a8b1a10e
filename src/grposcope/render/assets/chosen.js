"use strict";
// Which completions of a run the reader wants to see: by words, and by what became of them.
(() => {
  const mean = values => values.reduce((a, b) => a + b, 0) / values.length;
  const textOf = one => one.tokens ? one.tokens.join("") : one.text.text;

  // Whether some components of the reward are above the group's mean, and others below it.
  const disagrees = (one, problem) => {
    if (!one.components) return false;
    const signs = Object.entries(one.components).map(([name, value]) => {
      const others = problem.rollouts.map(rollout => rollout.components?.[name]).filter(Number.isFinite);
      return Number.isFinite(value) && others.length ? Math.sign(value - mean(others)) : 0;
    });
    return signs.includes(1) && signs.includes(-1);
  };

  // The kinds of completions that a run has: name -> { title, holds }.
  const kindsOf = run => {
    const all = run.steps.flatMap(step => step.problems.flatMap(problem => problem.rollouts));
    const rewards = [...new Set(all.map(one => Number(one.reward)).filter(Number.isFinite))];
    const highest = Math.max(...rewards);
    const two = rewards.length <= 2;
    const level = problem => mean(problem.rollouts.map(one => Number(one.reward)).filter(Number.isFinite));
    const kinds = {
      all: { title: "all", holds: () => true },
      right: two ? { title: "right", holds: one => Number(one.reward) === highest && highest > 0 }
        : { title: "reward above the group's mean", holds: (one, problem) => Number(one.reward) > level(problem) },
      wrong: two ? { title: "wrong", holds: one => !(Number(one.reward) === highest && highest > 0) }
        : { title: "reward below the group's mean", holds: (one, problem) => Number(one.reward) < level(problem) },
    };
    if (all.some(one => one.truncated)) kinds.truncated = { title: "truncated", holds: one => one.truncated };
    if (all.some(one => one.components)) kinds.disagree = { title: "components disagree", holds: disagrees };
    return kinds;
  };

  const words = typed => typed.toLowerCase().split(/\s+/).filter(Boolean);

  // The steps of a run with the problems, and in them the completions (`chosen`), that hold; others are left out.
  const chosen = (run, kind, typed) => {
    const wanted = words(typed);
    const holds = (one, problem) => {
      if (!kind.holds(one, problem)) return false;
      const text = wanted.length ? `${problem.prompt.text}\n${textOf(one)}`.toLowerCase() : "";
      return wanted.every(word => text.includes(word));
    };
    return run.steps.map((step, place) => {
      const problems = step.problems.map((problem, number) => ({ problem, number, chosen: problem.rollouts.filter(one => holds(one, problem)) }));
      return { step, place, problems: problems.filter(one => one.chosen.length) };
    }).filter(one => one.problems.length);
  };

  window.grposcope = Object.assign(window.grposcope || {}, { kindsOf, chosen, textOf, words });
})();
