"""Experiment: does TRL, run by `grposcope train --engine trl`, learn as our own loop does?

The same task, model, recipe and settings, eight seeds each: `tiny` on arithmetic, recipe grpo, 64 steps of 16 prompts ×
8 rollouts, AdamW at the demo's peak learning rate 4e-4 with 5 steps of warm-up and linear decay, temperature 1. The two
draw different rollouts from the same seed, so seeds are independent replicates, not pairs.

The rule, written before the first run. A curve is four numbers per seed: the mean training reward over steps 1-16,
17-40 and 41-64, and held-out pass@1 after the last step (200 problems × 4 completions). For each of them two one-sided
Welch t tests at level 0.05 ask whether the difference of the means over seeds, TRL minus ours, lies inside ±0.05 (5
points of success rate; equivalently, whether its 90 % interval does).

    same         all four are inside: equivalent within that margin (an intersection-union test, level 0.05)
    different    one of the four has a 95 % interval that excludes 0 and is not inside the margin
    cannot tell  otherwise

The test says something only if the margin is small next to what is learned: the mean gain of both engines, reward of
steps 41-64 less that of steps 1-16, must be at least twice the margin, else the verdict is `cannot tell`. As a control
that the test can fail, eight further runs of ours at half the learning rate are judged against ours in the same way.

The length was chosen on runs of ours alone, before TRL had run: in 50 steps six seeds gained 0.097, just short of what
the rule asks for, and with 8 prompts a batch one seed gained 0.02 in 80. Those runs are not used.

    python experiments/trl_equivalence.py --out FOLDER           about a quarter of an hour on one core
    python experiments/trl_equivalence.py --out FOLDER --only trl --seeds 0 1 2     some of the runs; the rest later

Result: `same`. Means (standard deviation over seeds) of ours and TRL's, and TRL − ours with its 90 % interval:
reward of steps 1-16 0.315 (0.026), 0.318 (0.016), +0.003 (−0.016 to 0.022);
reward of steps 17-40 0.367 (0.019), 0.361 (0.018), −0.005 (−0.021 to 0.011);
reward of steps 41-64 0.437 (0.034), 0.425 (0.016), −0.012 (−0.036 to 0.012);
held-out pass@1 0.441 (0.025), 0.417 (0.032), −0.024 (−0.049 to 0.002).
The control's last two numbers differ by −0.031 (−0.056 to −0.006) and −0.037 (−0.056 to −0.018).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

from grposcope.lab.train.config import TrainConfig
from grposcope.logs import read

MARGIN, LEVEL, SEEDS = 0.05, 0.05, 8
SETTINGS = TrainConfig(
    model="tiny", task="arithmetic", recipe="grpo", steps=64, prompts=16, group=8, lr=4e-4, warmup=5, schedule="linear",
    eval_every=0, eval_problems=200, eval_samples=4, checkpoint_every=0, rollouts_every=0, threads=1,
)  # fmt: skip
SIDES = ("grposcope", "trl", "half")
WINDOWS = {"reward 1-16": (0, 16), "reward 17-40": (16, 40), "reward 41-64": (40, 64)}


def train(side: str, seed: int, folder: Path) -> None:
    """One run, unless it is there already."""
    if (folder / "summary.json").exists():
        return
    config = replace(SETTINGS, seed=seed, out=str(folder), lr=SETTINGS.lr / 2 if side == "half" else SETTINGS.lr)  # type: ignore[operator]
    if side == "trl":
        from grposcope.engines.trl import run

        run.train(replace(config, rollouts_every=TrainConfig().rollouts_every), {})
    else:
        from grposcope.lab.train import loop

        loop.train(config)


def curve(folder: Path) -> dict[str, float]:
    """The four numbers of a run."""
    reward = read(folder).table["reward"]
    assert len(reward) == SETTINGS.steps
    last = json.loads((folder / "evals.jsonl").read_text().splitlines()[-1])
    assert last["step"] == SETTINGS.steps
    return {name: float(reward[a:b].mean()) for name, (a, b) in WINDOWS.items()} | {
        "held-out pass@1": float(last["pass@1"]["value"])
    }


def compared(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float | bool]:
    """Difference of the means with its Welch intervals, and the larger p of the two one-sided tests."""
    difference = float(theirs.mean() - ours.mean())
    parts = ours.var(ddof=1) / len(ours), theirs.var(ddof=1) / len(theirs)
    error = float(np.sqrt(sum(parts)))
    freedom = sum(parts) ** 2 / sum(p**2 / (n - 1) for p, n in zip(parts, (len(ours), len(theirs)), strict=True))
    p = max(stats.t.sf((difference + MARGIN) / error, freedom), stats.t.cdf((difference - MARGIN) / error, freedom))
    wide = float(stats.t.ppf(1 - LEVEL / 2, freedom)) * error
    narrow = float(stats.t.ppf(1 - LEVEL, freedom)) * error
    return {
        "ours": float(ours.mean()), "sd ours": float(ours.std(ddof=1)), "theirs": float(theirs.mean()),
        "sd theirs": float(theirs.std(ddof=1)), "difference": difference, "low 90": difference - narrow,
        "high 90": difference + narrow, "p": float(p), "inside": bool(p < LEVEL), "excludes 0": abs(difference) > wide,
    }  # fmt: skip


def verdict(rows: dict[str, dict[str, float | bool]]) -> str:
    """The rule of the docstring."""
    gains = [rows["reward 41-64"][side] - rows["reward 1-16"][side] for side in ("ours", "theirs")]
    if min(gains) < 2 * MARGIN:
        return "cannot tell"
    if all(row["inside"] for row in rows.values()):
        return "same"
    return "different" if any(row["excludes 0"] and not row["inside"] for row in rows.values()) else "cannot tell"


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--out", type=Path, required=True, help="folder for the runs")
    flags.add_argument("--only", choices=SIDES, help="one side's runs alone")
    flags.add_argument("--seeds", type=int, nargs="*", default=range(SEEDS))
    given = flags.parse_args()
    for seed in given.seeds:
        for side in SIDES if given.only is None else (given.only,):
            train(side, seed, given.out / f"{side}-{seed}")
    found = {
        side: [curve(folder) for seed in range(SEEDS) if (folder := given.out / f"{side}-{seed}").exists()]
        for side in SIDES
    }
    if any(len(curves) < SEEDS for curves in found.values()):
        print({side: len(curves) for side, curves in found.items()})
        return
    numbers = {
        side: {name: np.array([c[name] for c in curves]) for name in curves[0]} for side, curves in found.items()
    }
    for side in SIDES[1:]:
        rows = {name: compared(values, numbers[side][name]) for name, values in numbers["grposcope"].items()}
        print(json.dumps({"against": side, "verdict": verdict(rows), "n": SEEDS, "margin": MARGIN, **rows}, indent=1))


if __name__ == "__main__":
    main()
