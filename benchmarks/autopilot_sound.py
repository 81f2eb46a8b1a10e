"""Sound logs through `grposcope advise`: in how many of them is anything told?

    python benchmarks/autopilot_sound.py [--seeds 50]

Made logs of 40 to 400 steps, of mean rewards alone and of the rewards of groups, with the noise of their own: prompts
whose success rates are spread around the level of the step (Beta), and rollouts that are right or not. Kinds: a level,
near zero, rising, a late rise; rewards times 10; prompts of a finite data set in repeated epochs; a level whose logged
mean is a moving average, with weight 0.9 on what came before; prompts of a data set sorted from easy to hard in each
epoch; a curriculum whose prompts get harder in stages. In the last two the reward falls though the policy gets better:
they are counted apart. Printed are counts with Wilson's 95 % interval and what was told.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import numpy as np

from grposcope.core.run import Groups, Meta, Run, no_evaluations, no_groups
from grposcope.instruments.autopilot.policy import AutopilotPolicy
from grposcope.instruments.autopilot.replay import replay
from grposcope.maths.intervals import wilson

KINDS = ("level", "near zero", "rising", "late rise", "times 10", "repeated epochs", "smoothed")
HARDER = ("sorted by difficulty", "curriculum")
WANDERING = "wandering by 0.05"
"""A level about which that of each step wanders slowly with this standard deviation; for `faults/live_sound.py`."""


def rates(kind: str, steps: int, prompts: int, random: np.random.Generator) -> np.ndarray:
    """Success rates (T, P) of the prompts of each step."""
    share = np.linspace(0, 1, steps)
    level = {
        "level": np.full(steps, random.uniform(0.2, 0.8)), "times 10": np.full(steps, random.uniform(0.2, 0.8)),
        "smoothed": np.full(steps, random.uniform(0.2, 0.8)),
        "near zero": np.full(steps, 0.02), "late rise": 0.1 + 0.7 / (1 + np.exp(-12 * (share - 0.5))),
    }.get(kind, 0.2 + 0.5 * (1 - np.exp(-4 * share)))  # fmt: skip
    if kind in ("repeated epochs", "sorted by difficulty"):
        data = random.beta(1.0, 1.0, prompts * 8)
        if kind == "sorted by difficulty":
            data = np.sort(data)[::-1]
        order = [data if kind == "sorted by difficulty" else random.permutation(data) for _ in range(steps // 8 + 1)]
        drawn = np.concatenate(order).reshape(-1, prompts)[:steps]
        return np.clip(drawn + 0.3 * share[:, None], 0, 1)
    if kind == "curriculum":
        level = level - 0.2 * (np.arange(steps) * 4 // steps % 2)
    if kind == WANDERING:
        slow = np.zeros(steps)
        for step in range(1, steps):
            slow[step] = 0.95 * slow[step - 1] + np.sqrt(1 - 0.95**2) * random.normal(0, 0.05)
        level = random.uniform(0.2, 0.8) + slow
    level = np.clip(level, 0.01, 0.99)[:, None]
    spread = 2.0
    return random.beta(spread * level, spread * (1 - level), (steps, prompts))


def log(kind: str, seed: int, grouped: bool) -> Run:
    """A made log; grouped: with the rewards of every rollout."""
    random = np.random.default_rng((seed, (*KINDS, *HARDER, WANDERING).index(kind)))
    steps, prompts = int(random.integers(40, 400)), int(random.choice([4, 8, 16, 32]))
    size, scale = int(random.choice([4, 8, 16])), 10.0 if kind == "times 10" else 1.0
    rewards = scale * (random.random((steps, prompts, size)) < rates(kind, steps, prompts, random)[..., None])
    means = rewards.mean((1, 2))
    if kind == "smoothed":
        for step in range(1, steps):
            means[step] = 0.9 * means[step - 1] + 0.1 * means[step]
    table = {"step": np.arange(1, steps + 1.0), "reward": means}
    groups = no_groups()
    if grouped:
        names = [f"{step} {prompt}" for step in range(1, steps + 1) for prompt in range(prompts)]
        numbers = np.repeat(np.arange(1, steps + 1), prompts).tolist()
        groups = Groups.of(numbers, names, list(rewards.reshape(-1, size)))
    return Run(Meta(Path("log"), "trl", "log", "finished"), {"settings": {}}, table, groups, no_evaluations())


def main() -> None:
    """Print the counts, and as the last line JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50, help="logs of each kind")
    seeds = parser.parse_args().seeds
    found: dict[str, dict[str, int]] = {}
    for grouped in (False, True):
        for kind in (*KINDS, *HARDER):
            told: Counter[str] = Counter()
            for seed in range(seeds):
                decisions = replay(log(kind, seed, grouped), AutopilotPolicy(mode="advise")).decisions
                told["anything"] += bool(decisions)
                told.update(
                    {f"{one.fault} ({one.why.brief if hasattr(one.why, 'brief') else ''})" for one in decisions}
                )
            name = f"{kind}, {'groups' if grouped else 'means'}"
            found[name] = dict(told)
            low, high = wilson(told["anything"] / seeds, seeds)
            print(f"{name:32} {told['anything']:3} of {seeds} ({low:.1%} to {high:.1%})  {dict(told)}", flush=True)
    sound = sum(told["anything"] for name, told in found.items() if not name.startswith(HARDER))
    total = seeds * 2 * len(KINDS)
    low, high = wilson(sound / total, total)
    print(f"sound logs told anything: {sound} of {total} ({low:.1%} to {high:.1%})")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
