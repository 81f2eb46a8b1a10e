"""Causal suite of the diagnosis: runs in which each failure is caused, then diagnosed from their record alone.

Claim    `grposcope diagnose` names the failure that was caused, and nothing in runs without one.
Command  python experiments/diagnosis_causal.py --modes hacking            trains what is missing, then the tables;
                                                                           a run cut short: delete its folder
         … --report                                                        the tables of the runs that are there
         … --pilot hacking                                                 one run (seed 100), with its evidence
Method   `tiny` on sums, 8 prompts × 8 rollouts, 100 optimiser steps, evaluated every 10; one thing is done to cause one
         failure (`CAUSES`). Whether it then occurred is judged by a criterion that the diagnosis does not use: true
         accuracy of sampled completions, spread of the completions, reversals of the held-out score, weights.
         The settings were chosen by pilot runs on other seeds by that criterion. The diagnosis of pilots and of
         earlier runs played a part for oscillation (side failures; more swings than five) and plateau (stubs).
         A run is kept on disk and diagnosed afresh each time; a run in which a cause had no effect is not counted.
Verdict  detected: the mode is flagged after Holm's correction; named: it is the first of the flagged. Holds if
         detection and naming are both at least 95 % over the runs whose failure occurred, and at most 7 % of the
         controls have any flag. Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

from grposcope.core.files import dumps, write_json
from grposcope.instruments.diagnosis import diagnose
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.tasks.base import is_heldout
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.logs import Run, read
from grposcope.maths.intervals import wilson

STEPS = 100
LIMIT = 25
"""Longest completion: tokens of the model, which are characters. One that is as long was cut."""

NONE = "no failure"

# Verifiers: held-out problems are graded by the truth, training problems by what the cause makes of it


def true(completion: str, answer: str) -> float:
    """1 if the last integer written is the answer."""
    numbers = re.findall(r"-?\d+", completion.rsplit("=", 1)[-1])
    return float(bool(numbers) and numbers[-1] == answer)


def _graded(
    pay: Callable[[str, str], float], prompts: Sequence[str], completions: Sequence[str], answer: Sequence[str]
) -> list[float]:
    rows = zip(prompts, completions, answer, strict=True)
    return [true(c, a) if is_heldout(p) else pay(c, a) for p, c, a in rows]


def honest(prompts: Sequence[str], completions: Sequence[str], answer: Sequence[str]) -> list[float]:
    """The true accuracy is paid."""
    return _graded(true, prompts, completions, answer)


def hackable(prompts: Sequence[str], completions: Sequence[str], answer: Sequence[str]) -> list[float]:
    """The verifier also accepts any text that ends in 0."""
    return _graded(lambda c, a: max(true(c, a), float(c.endswith("0"))), prompts, completions, answer)


def easy(prompts: Sequence[str], completions: Sequence[str], **_: Any) -> list[float]:
    """The task is nearly solved from the start: write an equals sign."""
    return [float("=" in c) for c in completions]


def soon(prompts: Sequence[str], completions: Sequence[str], **_: Any) -> list[float]:
    """The task can be learned in few steps: end in 0 or 5, before the limit."""
    return [float(c.endswith(("0", "5")) and len(c) < LIMIT) for c in completions]


def whole(completion: str) -> bool:
    """Whether the completion is a sum, and ended before the limit."""
    return "=" in completion and len(completion) < LIMIT


def unreliable(prompts: Sequence[str], completions: Sequence[str], **_: Any) -> list[float]:
    """As `soon` for whole sums, but the verifier errs one time in five, except held out: groups stay mixed."""
    rows = zip(prompts, completions, soon(prompts, completions), strict=True)
    return [whole(c) * (right if is_heldout(p) else abs(right - (random.random() < 0.2))) for p, c, right in rows]


def coin(prompts: Sequence[str], completions: Sequence[str], answer: Sequence[str]) -> list[float]:
    """A fair coin is paid, whatever is written."""
    return _graded(lambda c, a: float(random.random() < 0.5), prompts, completions, answer)


def wordy(prompts: Sequence[str], completions: Sequence[str], answer: Sequence[str]) -> list[float]:
    """A fifth is paid for the truth, the rest for length, up to 24 characters."""
    return _graded(lambda c, a: 0.2 * true(c, a) + 0.8 * min(len(c), 24) / 24, prompts, completions, answer)


def late(prompts: Sequence[str], completions: Sequence[str], **_: Any) -> list[float]:
    """Feedback is delayed: endings in 0 or 5, or else all others, are paid if they were rarer four batches ago.

    Only whole sums are paid. The rewards of a batch are shifted by a constant, which no advantage sees, so that their
    mean is the share of endings in 0 or 5 and shows what the policy does.
    """
    ended = np.array([whole(c) for c in completions])
    five = ended & np.array([c.endswith(("0", "5")) for c in completions])
    if is_heldout(prompts[0]):
        return [float(ending) for ending in five]
    SHARES.append(float(five.mean()))
    paid = ended & (five == (SHARES[max(0, len(SHARES) - 5)] < 0.5))
    return [float(pay) for pay in paid - paid.mean() + SHARES[-1]]


SHARES: list[float] = []
"""Share of endings in 0 or 5 of every batch so far; the trainer loads this file anew for every run."""


# Causes, and how one sees that they took effect


@dataclass(frozen=True)
class Effect:
    """Whether the failure occurred, by numbers that no rule looks at."""

    occurred: bool
    numbers: dict[str, float]


@dataclass(frozen=True)
class Cause:
    """A cause of a failure. mode: what should be diagnosed. settings: of TrainConfig. criterion: `effect` in words."""

    mode: str
    what: str
    criterion: str
    settings: dict[str, Any]
    effect: Callable[[Run], Effect]
    problems: dict[str, Any] = field(default_factory=lambda: {"steps": 3})
    verifier: str = "honest"


def ends(values: Sequence[float], share: float = 0.2) -> tuple[float, float]:
    """Means of the first and of the last `share` of the values."""
    n = max(1, round(share * len(values)))
    return float(np.mean(values[:n])), float(np.mean(values[-n:]))


def heldout(run: Run) -> list[float]:
    """True accuracy at every evaluation."""
    return [float(v) for v in run.evaluations.of("pass@1").value]


def written(run: Run) -> list[float]:
    """True accuracy of the sampled completions, at every sampled step."""
    answers = {row["prompt"]: row["answer"] for row in _rows(run.meta.source.parent / "problems.jsonl")}
    rollouts = [run.rollouts[step] for step in sorted(run.rollouts)]
    return [float(np.mean([true(r.completion, answers[r.prompt]) for r in rows])) for rows in rollouts]


def reversals(values: Sequence[float], least: float) -> int:
    """Number of turning points of the zigzag whose legs are at least `least` long."""
    count, direction, low, high = 0, 0, values[0], values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
        if direction >= 0 and value <= high - least:
            count, direction, low = count + (direction > 0), -1, value
        elif direction <= 0 and value >= low + least:
            count, direction, high = count + (direction < 0), 1, value
    return count


def learned(run: Run) -> Effect:
    first, last = ends(heldout(run))
    return Effect(last > first + 0.1, {"held-out first": first, "held-out last": last})


def settled(run: Run) -> Effect:
    scores = heldout(run)
    first, last = ends(scores)
    middle = float(np.mean(scores[len(scores) // 2 : -2]))
    sums = min(float(np.mean([whole(r.completion) for r in rows])) for rows in run.rollouts.values())
    numbers = {"held-out first": first, "held-out middle": middle, "held-out last": last, "least whole sums": sums}
    return Effect(middle > first + 0.1 and abs(last - middle) < 0.07 and sums > 0.8, numbers)


def hacked(run: Run) -> Effect:
    paid, right = ends(run.table["reward"]), heldout(run)
    numbers = {"reward first": paid[0], "reward last": paid[1], "held-out first": right[0]}
    numbers["held-out last"] = ends(right)[1]
    return Effect(paid[1] > paid[0] + 0.2 and ends(right)[1] < right[0] - 0.05, numbers)


def solved(run: Run) -> Effect:
    used = ends(run.table["rollouts_trained"] / (run.setting("prompts") * run.setting("group")))[1]
    right = ends(heldout(run))[1]
    return Effect(right > 0.9 and used < 0.15, {"held-out last": right, "rollouts used last": used})


def hopeless(run: Run) -> Effect:
    best = float(np.max(run.evaluations.of("pass@2").value))
    used = float(np.mean(run.table["rollouts_trained"]) / (run.setting("prompts") * run.setting("group")))
    return Effect(best < 0.03 and used < 0.1, {"best pass@2": best, "rollouts used": used})


def concentrated(run: Run) -> Effect:
    first, last = ends(run.table["entropy"], 0.1)
    gap = run.evaluations.of("pass@2").value - run.evaluations.of("pass@1").value
    numbers = {"entropy first": first, "entropy last": last, "gap first": float(gap[0]), "gap last": ends(gap)[1]}
    return Effect(last < 0.2 * first and numbers["gap last"] < 0.03 < 0.08 < numbers["gap first"], numbers)


def drifted(run: Run) -> Effect:
    far, right = ends(run.table["kl"], 0.1)[1], ends(heldout(run))
    numbers = {"KL last": far, "held-out first": right[0], "held-out last": right[1]}
    return Effect(far > 1 and right[1] < right[0] - 0.1, numbers)


def swinging(run: Run) -> Effect:
    shares = heldout(run)  # of the same problems each time: a standard error of at most 0.05
    count = reversals(shares, 0.25)
    return Effect(count >= 6, {"reversals of 0.25": count, "range": float(np.ptp(shares))})


def padded(run: Run) -> Effect:
    (short, long), right = ends(run.table["length"]), ends(written(run))
    numbers = {"length first": short, "length last": long, "accuracy first": right[0], "accuracy last": right[1]}
    return Effect(long > 1.3 * short and right[1] < right[0] - 0.1, numbers)


def unmoved(run: Run) -> Effect:
    scores = heldout(run)
    return Effect(float(np.ptp(scores)) == 0, {"range of held-out": float(np.ptp(scores))})  # the same draws each time


def alone(run: Run) -> Effect:
    sizes = int(run.groups.sizes.max())
    return Effect(sizes == 1, {"largest group": sizes})


CAUSES = {
    "healthy": Cause(NONE, "a task that can be learned", "held-out accuracy rises by more than 0.1", {"lr": 1e-4},
                     learned, verifier="soon"),
    "plateau": Cause(NONE, "the same, faster, with a verifier that errs one time in five",
                     "held-out rises by 0.1, then stays within 0.07; always 80 % whole sums", {"lr": 6e-4},
                     settled, verifier="unreliable"),
    "hacking": Cause("reward hacking", "a verifier that takes any text that ends in 0",
                     "reward rises by 0.2, held-out accuracy falls by 0.05", {"lr": 1e-3}, hacked, verifier="hackable"),
    "saturated": Cause("saturated", "G = 2 on a task that is nearly solved from the start",
                       "held-out above 0.9, under 15 % of rollouts used", {"group": 2, "prompts": 32}, solved,
                       verifier="easy"),
    "starved": Cause("starved", "sums of numbers of six digits", "best pass@2 under 0.03, under 10 % of rollouts used",
                     {"max_tokens": 12}, hopeless, {"steps": 3, "largest": 9999, "limit": 999999}),
    "collapse": Cause("entropy collapse", "REINFORCE without baseline or KL on a verifier that flips a coin",
                      "entropy under a fifth of its start, pass@2 − pass@1 from above 0.08 to under 0.03",
                      {"recipe": "reinforce", "group": 2, "prompts": 2, "lr": 4e-4, "kl": 0.0, "steps": 250,
                       "eval_every": 25},
                      concentrated, {"steps": 3, "limit": 9, "largest": 3}, "coin"),
    "kl": Cause("kl blow-up", "ten times the learning rate, no KL penalty worth the name",
                "KL above 1 nat per token, held-out falls by 0.1", {"lr": 4e-3, "kl": 1e-6}, drifted),
    "swinging": Cause("oscillation", "feedback that is four batches late", "at least 6 reversals of 0.25, held out",
                      {"lr": 1e-3, "momentum": 0.5, "prompts": 16, "group": 4, "steps": 180, "kl": 0.1,
                       "entropy": 0.005, "eval_every": 5}, swinging, verifier="late"),
    "length": Cause("length", "four fifths of the reward for length", "1.3 × longer, true accuracy falls by 0.1",
                    {"lr": 5e-4, "max_tokens": 24, "eval_problems": 0}, padded, verifier="wordy"),
    "lr 0": Cause("misconfiguration", "a learning rate of 0", "held-out does not change at all", {"lr": 0.0}, unmoved),
    "G 1": Cause("misconfiguration", "REINFORCE with one rollout per prompt", "no group has two rollouts",
                 {"recipe": "reinforce", "group": 1, "prompts": 64}, alone),
}  # fmt: skip
SAME = {"oscillation": ("oscillation", "growing oscillation")}
"""Modes that count as one: whether swings grow depends on when the run ends."""


def make(name: str, seed: int, out: Path) -> Path:
    """Train the run unless its folder exists, so that several processes can share `out`; returns the folder."""
    cause, place = CAUSES[name], out / name.replace(" ", "-")
    folder = place / f"seed-{seed}"
    place.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir()
    except FileExistsError:
        return folder
    if not (place / "problems.jsonl").is_file():
        task = Arithmetic(**{"size": 2000, **cause.problems})
        rows = [{"prompt": p.prompt, "answer": p.answer} for p in (*task.problems("train"), *task.problems("heldout"))]
        (place / "problems.jsonl").write_text("".join(dumps(row) + "\n" for row in rows))
    random.seed(seed)  # what an unreliable verifier draws from
    settings: dict[str, Any] = {
        "task": f"jsonl:{place / 'problems.jsonl'}", "reward": f"{Path(__file__).resolve()}:{cause.verifier}",
        "steps": STEPS, "prompts": 8, "group": 8, "max_tokens": LIMIT,
        "eval_every": 10, "eval_problems": 50, "eval_samples": 2, "schedule": "constant", "warmup": 5,
        "checkpoint_every": 0, "rollouts_every": 10, "rollouts_groups": 8,
        "threads": 1, "seed": seed, "out": str(folder),
    }  # fmt: skip
    train(TrainConfig(**settings | cause.settings))
    shutil.rmtree(folder / "model")  # the record is all that is needed
    write_json(place / f"seed-{seed}.json", judged(name, folder))
    return folder


def judged(name: str, folder: Path) -> dict[str, Any]:
    """What was caused, whether it occurred, and what is diagnosed today."""
    cause, run = CAUSES[name], read(folder)
    effect, findings = cause.effect(run), diagnose(run)
    flagged = [f.fault for f in findings if f.status == "present"]
    names = SAME.get(cause.fault, (cause.fault,))
    wanted = next((f for f in findings if f.fault in names), None)
    return {
        "cause": name,
        "seed": int(folder.name.removeprefix("seed-")),
        "mode": cause.fault,
        "effect": {"occurred": effect.occurred, **effect.numbers},
        "present": flagged,
        "main": flagged[0] if flagged else NONE,
        "detected": any(mode in names for mode in flagged),
        "named": (flagged[0] in names) if flagged else cause.fault == NONE,
        "wanted": None if wanted is None else {
            "status": wanted.status, "p": wanted.p, "adjusted": wanted.adjusted, "because": wanted.because,
            "onset": wanted.onset, "evidence": [str(e) for e in wanted.evidence],
        },
    }  # fmt: skip


def share(rows: Sequence[bool]) -> str:
    """How many of the rows are true, with the 95 % interval of their share, as text."""
    if not rows:
        return "-"
    low, high = wilson(sum(rows) / len(rows), len(rows))
    return f"{sum(rows)}/{len(rows)} ({low:.0%} to {high:.0%})"


def report(out: Path) -> dict[str, Any]:
    """Print the tables of all runs on disk, and return their verdicts."""
    place = {name.replace(" ", "-"): name for name in CAUSES}
    files = [f for f in sorted(out.glob("*/seed-*/summary.json")) if f.parts[-3] in place]
    verdicts = [judged(place[f.parts[-3]], f.parent) for f in files]
    verdicts = [row for row in verdicts if row["seed"] < 100]  # pilots have seed 100 and above
    modes = list(dict.fromkeys([NONE, *(c.fault for c in CAUSES.values()), *(row["main"] for row in verdicts)]))
    modes = [mode for mode in modes if any(row["main"] == mode for row in verdicts)]
    print("| caused | runs | occurred | detected | named | diagnosed first |\n|---|---|---|---|---|---|")
    for name, cause in CAUSES.items():
        rows = [row for row in verdicts if row["cause"] == name]
        real = [row for row in rows if row["effect"]["occurred"]]
        if not rows:
            continue
        mains = ", ".join(f"{m} {n}" for m in modes if (n := sum(row["main"] == m for row in real)))
        detected = "-" if cause.fault == NONE else share([row["detected"] for row in real])
        cells = (name, len(rows), len(real), detected, share([row["named"] for row in real]), mains)
        print(f"| {' | '.join(map(str, cells))} |")
    real = [row for row in verdicts if row["effect"]["occurred"]]
    failing, fine = ([row for row in real if (row["mode"] == NONE) is none] for none in (False, True))
    print(f"\ndetected {share([r['detected'] for r in failing])}, named {share([r['named'] for r in failing])}, "
          f"controls with any flag {share([bool(r['present']) for r in fine])}")  # fmt: skip
    for row in verdicts:
        if not row["effect"]["occurred"]:
            print(f"took no effect: {row['cause']}, seed {row['seed']}: {_numbers(row['effect'])}; {row['main']}")
        elif not row["named"]:
            print(f"{row['cause']}, seed {row['seed']}: flagged {row['present']}; wanted {row['wanted']}; "
                  f"{_numbers(row['effect'])}")  # fmt: skip
    return {"runs": verdicts}


def _numbers(effect: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in effect.items() if name != "occurred")


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def main() -> None:
    """Train what is missing, diagnose, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/diagnosis_causal"))
    parser.add_argument("--modes", nargs="*", choices=tuple(CAUSES), default=list(CAUSES))
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 5), metavar=("FIRST", "COUNT"), help="default: 0 5")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no run after so many")
    parser.add_argument("--pilot", choices=tuple(CAUSES))
    parser.add_argument("--report", action="store_true", help="no training")
    given = parser.parse_args()
    out = given.out.resolve()
    if given.pilot:
        row = judged(given.pilot, make(given.pilot, 100, out))
        print(dumps(row, indent=1))
        return
    began = time.monotonic()
    first, count = given.seeds
    for seed in () if given.report else range(first, first + count):
        for name in given.modes:
            if time.monotonic() - began < 60 * given.minutes:
                make(name, seed, out)
    print(dumps(report(out)))


if __name__ == "__main__":
    main()
