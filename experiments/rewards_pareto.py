"""Which way of combining three rewards keeps the trade-off that was asked for, and whose front lies ahead?

The shipped model on sums of three operations, with three rewards: right (1 for the right answer), form (1 where every
operation is written out, in turn), short (1 − characters/34). Working costs characters, so form and short pull apart.
The shipped model writes out all its working, so a lesson of 200 batches first teaches it to write all of it, to leave
out the first line, and to give the answer alone (one half, a quarter, a quarter; the slips of its own last lesson).
Weights: right 1, form 0.5, short s = 0.1, 0.5, 2. Combined as a sum that is then standardized within groups
(sum_then_normalize), as GDPO (normalize_then_sum), and as a sum of rewards that are each standardized within groups
(standardized_components). 16 prompts x 8 rollouts, learning rate 4e-4 after 5 steps of warm-up, then constant. Every
run ends with the batch that brings it to 120,000 generated tokens (or after 400 batches), so runs that write shorter
take more steps. Seeds 0 to 7, paired: runs of a seed see the same problems. Then 200 held-out problems, 4 answers each.

What was asked for has two readings. In units of the rewards, U = Σ λ r̄. In units of standardized rewards,
V = Σ λ (r̄ − r̄₀)/σ₀, with mean r̄₀ and deviation σ₀ within problems of the model after the lesson, on the same problems.

Rules, before the first run. Differences are paired by seed, with 95 % t intervals.
1. In a reading, a way loses at a weight if another way's value is larger there, with the whole interval. It keeps the
   trade-off if it loses at none of the three weights. The reading has a winner if one way alone keeps it.
2. Fronts: for each way and seed, the area that its three points (mean length in characters, accuracy) dominate, of
   lengths up to 20 and accuracies from 0. A front lies ahead of another if the difference of the areas has an interval
   above 0 at 1 − 0.05/3 (three pairs).
Budget: 72 runs, 35 CPU-minutes, one process, one thread. Before the rules, for the time, two runs to 24,000 tokens
on seed 1000 with s = 4: the first showed that form was 1 on every answer of the shipped model, whence the lesson; the
second soon answered nothing at all, whence no weight above 2.

    python experiments/rewards_pareto.py OUT --minutes 8        trains what is missing, and starts no run after that
    python experiments/rewards_pareto.py OUT --report --picture docs/pictures/rewards_pareto.png
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from grposcope.lab.tasks.arithmetic import Arithmetic, _operations, _value
from grposcope.lab.tasks.base import Problem

Floats = NDArray[np.float64]

NAMES = ("right", "form", "short")
LONGEST = 34  # tokens of a completion at most, a character each
FORM = 0.5
WEIGHTS = (0.1, 0.5, 2.0)
WAYS = {
    "sum_then_normalize": "sum, standardized",
    "normalize_then_sum": "GDPO",
    "standardized_components": "standardized, then summed",
}
SEEDS, BUDGET, STEPS = range(8), 120_000, 400
TASK = Arithmetic()


def right(completions: Sequence[str], prompts: Sequence[str], answer: Sequence[str], **_: Any) -> list[float]:
    """1 if the last integer written is the answer."""
    given = zip(prompts, answer, completions, strict=True)
    return [TASK.reward(Problem(prompt, prompt, known), text) for prompt, known, text in given]


def form(completions: Sequence[str], prompts: Sequence[str], **_: Any) -> list[float]:
    """1 if each operation is written out, right or wrong: expressions with one operation fewer each, down to none."""
    return [float(counted(prompt, text)) for prompt, text in zip(prompts, completions, strict=True)]


def counted(prompt: str, text: str) -> bool:
    """Whether the segments of a completion have one operation fewer each."""
    written = text.split("=")
    left = _operations(prompt.rstrip("="))
    wanted = list(range(left - 1, -1, -1))
    return all(_value(one) is not None for one in written) and [_operations(one) for one in written] == wanted


def short(completions: Sequence[str], **_: Any) -> list[float]:
    """1 less the share of the longest completion that was written."""
    return [1 - len(text) / LONGEST for text in completions]


def problems(out: Path) -> Path:
    """The file of the problems, those of the task on both sides."""
    path = out / "problems.jsonl"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        every = [*TASK.problems("train"), *TASK.problems("heldout")]
        path.write_text("".join(json.dumps({"prompt": p.prompt, "answer": p.answer}) + "\n" for p in every))
    return path


def lesson(out: Path) -> Path:
    """The folder of the model that every run starts from, made where it is not there."""
    import random

    import torch

    from grposcope.lab import policies
    from grposcope.lab.train import pretrain

    folder = out / "start"
    if (folder / "config.json").exists():
        return folder
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng, policy, tokens = random.Random(0), policies.load("tiny"), pretrain._tokenizer()
    optimizer, asked = torch.optim.AdamW(policy.model.parameters(), lr=3e-4), TASK.problems("train")
    for _ in range(200):
        texts = []
        for problem in rng.sample(asked, 128):
            written = pretrain._careless(problem.prompt.rstrip("="), pretrain.LESSONS[-1], rng)
            left_out = rng.choice([0, 0, 1, len(written) - 1])
            texts.append((tokens(problem.prompt).input_ids,
                          [*tokens("=".join(written[left_out:])).input_ids, pretrain.EOS]))  # fmt: skip
        ids = torch.full((len(texts), max(len(p) + len(a) for p, a in texts)), pretrain.PAD)
        labels = torch.full_like(ids, -100)
        for i, (prompt, written_ids) in enumerate(texts):
            end = len(prompt) + len(written_ids)
            ids[i, :end] = torch.tensor([*prompt, *written_ids])
            labels[i, len(prompt) : end] = torch.tensor(written_ids)
        optimizer.zero_grad()
        policy.model(ids, labels=labels).loss.backward()
        optimizer.step()
    policy.model.save_pretrained(folder)
    pretrain._save_tokenizer(folder)
    return folder


def measured(model: str, out: Path) -> Floats:
    """Rewards of answers to held-out problems, (200, 4, 3), and their lengths as a fourth column."""
    from grposcope.lab import policies
    from grposcope.lab.policies import encode
    from grposcope.lab.sampling.rollouts import generator
    from grposcope.lab.sampling.sampler import Sampling, sample

    policy, asked = policies.load(model), TASK.problems("heldout")[:200]
    ids, mask = encode(policy, [p.prompt for p in asked], "", LONGEST)
    drawn = sample(
        policy.model, (ids, mask), 4, Sampling(LONGEST, 1.0), policy.eos, policy.pad, generator(0, "evaluation")
    )
    texts = policy.tokenizer.batch_decode(drawn.tokens, skip_special_tokens=True)
    given = {"completions": texts, "prompts": [p.prompt for p in asked for _ in range(4)],
             "answer": [p.answer for p in asked for _ in range(4)]}  # fmt: skip
    columns = [*(one(**given) for one in (right, form, short)), [float(len(text)) for text in texts]]
    return np.array(columns).T.reshape(len(asked), 4, 4)


def run(out: Path, way: str, weight: float, seed: int) -> dict[str, Any]:
    """Train to the budget; returns the row of the run."""
    from grposcope.instruments.rewards import RewardSettings, found, source
    from grposcope.lab.train import loop
    from grposcope.lab.train.allocate import Allocated, RolloutAllocation
    from grposcope.lab.train.config import TrainConfig
    from grposcope.logs import read

    class UpTo(RolloutAllocation):
        """Batches until the budget is spent; then the run is ended as by Ctrl-C, which keeps what is done."""

        spent = 0

        def draw(self, position: int) -> Allocated:
            """The next batch."""
            if self.spent >= BUDGET:
                raise KeyboardInterrupt
            made = super().draw(position)
            self.spent += made.batch.tokens
            return made

    folder, began = out / f"{way}-{weight:g}-{seed}", time.process_time()
    shutil.rmtree(folder, ignore_errors=True)
    here = f"{Path(__file__).resolve()}:right,form={FORM},short={weight:g}"
    loop.train(TrainConfig(
        model=str(lesson(out)), task=f"jsonl:{problems(out)}", reward=here, aggregation=way, seed=seed, steps=STEPS,
        prompts=16, group=8, max_tokens=LONGEST, lr=4e-4, warmup=5, schedule="constant", eval_problems=0,
        checkpoint_every=0, rollouts_every=0, threads=1, out=str(folder),
    ), UpTo)  # fmt: skip
    rollouts = source.of_run(read(folder), RewardSettings())
    assert rollouts is not None
    shares = {one.name: one.share.value for one in found.of_rollouts(rollouts).weights.components}
    steps = (folder / "steps.jsonl").read_text().splitlines()
    values = measured(str(folder / "model"), out).mean((0, 1))
    row = {
        "way": way, "weight": weight, "seed": seed, "steps": len(steps), "shares": [shares[name] for name in NAMES],
        "tokens": sum(json.loads(line)["tokens_generated"] for line in steps), "values": values.tolist(),
        "seconds": time.process_time() - began,
    }  # fmt: skip
    shutil.rmtree(folder)
    return row


def rows(out: Path) -> dict[tuple[str, float, int], dict[str, Any]]:
    """The rows that are there."""
    path = out / "rows.jsonl"
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(row["way"], row["weight"], row["seed"]): row for row in known}


def interval(values: Floats, level: float = 0.95) -> tuple[float, float]:
    """Mean, and half of its t interval."""
    return float(values.mean()), float(stats.t.ppf((1 + level) / 2, len(values) - 1) * stats.sem(values))


def area(points: Floats) -> float:
    """What points (length, accuracy) dominate, of lengths up to 20."""
    found, right_end = 0.0, 20.0
    for length, accuracy in sorted(points.tolist(), key=lambda one: -one[1]):
        if length < right_end:
            found += (right_end - max(length, 0.0)) * accuracy
            right_end = max(length, 0.0)
    return found


def report(out: Path, base: Mapping[str, list[float]]) -> None:
    """Print the tables and the verdicts."""
    have = rows(out)
    values = {
        (way, s): np.array([have[way, s, seed]["values"] for seed in SEEDS]) for way, s in product(WAYS, WEIGHTS)
    }  # (8, 4)
    start, spread = np.array(base["means"])[:3], np.array(base["deviations"])[:3]
    print(f"at the start: right, form, short, characters {np.round(base['means'], 3).tolist()}; deviations within "
          f"problems {np.round(base['deviations'], 3).tolist()}\n")  # fmt: skip
    print("| combined | s | right | form | characters | steps | share of right, form, short (asked for) | U | V |")
    print("|---|---|---|---|---|---|---|---|---|")
    readings: dict[str, dict[tuple[str, float], Floats]] = {"U": {}, "V": {}}
    for (way, s), found in values.items():
        scale = np.array([1.0, FORM, s])
        readings["U"][way, s] = found[:, :3] @ scale
        readings["V"][way, s] = ((found[:, :3] - start) / spread) @ scale
        cells = [interval(found[:, j]) for j in (0, 1)] + [interval(found[:, 3])]
        shares = np.mean([have[way, s, seed]["shares"] for seed in SEEDS], 0)
        steps = np.mean([have[way, s, seed]["steps"] for seed in SEEDS])
        asked = scale / scale.sum()
        weighed = ", ".join(f"{a:.2f} ({b:.2f})" for a, b in zip(shares, asked, strict=True))
        shown = [f"{m:.2f} ± {h:.2f}" for m, h in cells[:2]] + [f"{cells[2][0]:.1f} ± {cells[2][1]:.1f}"]
        totals = [f"{m:.2f} ± {h:.2f}" for m, h in (interval(readings[name][way, s]) for name in "UV")]
        print(f"| {WAYS[way]} | {s:g} | {' | '.join(shown)} | {steps:.0f} | {weighed} | {' | '.join(totals)} |")
    for name, of in readings.items():
        lost: dict[str, list[str]] = {way: [] for way in WAYS}
        for s, (way, other) in product(WEIGHTS, product(WAYS, WAYS)):
            if way != other:
                mean, half = interval(of[other, s] - of[way, s])
                if mean - half > 0:
                    lost[way].append(f"at {s:g} to {WAYS[other]} by {mean:.2f} ± {half:.2f}")
        keeping = [WAYS[way] for way in WAYS if not lost[way]]
        print(
            f"\n{name}: kept by {', '.join(keeping) or 'none'}; winner: {keeping[0] if len(keeping) == 1 else 'none'}"
        )
        for way in WAYS:
            print(f"  {WAYS[way]} loses {'; '.join(lost[way]) or 'nowhere'}")
    areas = {
        way: np.array([area(np.stack([values[way, s][i, [3, 0]] for s in WEIGHTS])) for i in range(len(SEEDS))])
        for way in WAYS
    }
    print("\n" + "; ".join("area of {}: {:.2f} ± {:.2f}".format(WAYS[w], *interval(a)) for w, a in areas.items()))
    for one, other in combinations(WAYS, 2):
        mean, half = interval(areas[one] - areas[other], 1 - 0.05 / 3)
        said = "ahead" if mean - half > 0 else "behind" if mean + half < 0 else "not told apart"
        print(f"{WAYS[one]} less {WAYS[other]}: {mean:.2f} ± {half:.2f}, {said}")


def untrained(out: Path) -> dict[str, list[float]]:
    """Means and deviations within problems of the model that every run starts from."""
    path = out / "untrained.json"
    if not path.exists():
        drawn = measured(str(lesson(out)), out)
        centred = drawn - drawn.mean(1, keepdims=True)
        spread = np.sqrt((centred**2).sum((0, 1)) / (centred.shape[0] * (centred.shape[1] - 1)))
        path.write_text(json.dumps({"means": drawn.mean((0, 1)).tolist(), "deviations": spread.tolist()}))
    known: dict[str, list[float]] = json.loads(path.read_text())
    return known


def picture(out: Path, path: Path) -> None:
    """Draw the fronts: mean over seeds with 95 % intervals both ways, a line a way."""
    import altair as alt

    from grposcope.core.answer import Columns
    from grposcope.render import charts as base

    have = rows(out)
    made = []
    for way, s in product(WAYS, WEIGHTS):
        found = np.array([have[way, s, seed]["values"] for seed in SEEDS])
        (length, wide), (accuracy, high) = interval(found[:, 3]), interval(found[:, 0])
        made.append((WAYS[way], f"{s:g}", s, length, length - wide, length + wide, accuracy, accuracy - high,
                     accuracy + high))  # fmt: skip
    keys = ("name", "s", "order", "length", "x1", "x2", "accuracy", "y1", "y2")
    data: dict[str, Columns] = {"rows": {key: [row[i] for row in made] for i, key in enumerate(keys)}}
    colour = base.colours("name", base.palette(list(WAYS.values())), alt.Legend(columns=3))
    drawn = base.dataset("rows")
    x = alt.X("length:Q", title="characters of a completion, held out", scale=alt.Scale(zero=False))
    y = alt.Y("accuracy:Q", title="held-out accuracy")
    layers = [
        drawn.mark_line(strokeDash=[4, 3]).encode(x, y, colour, order="order:Q"),
        drawn.mark_rule().encode(alt.X("x1:Q"), y, colour, x2="x2:Q"),
        drawn.mark_rule().encode(x, alt.Y("y1:Q"), colour, y2="y2:Q"),
        drawn.mark_point(filled=True, size=60, opacity=1).encode(x, y, colour),
        drawn.mark_text(dy=-10, dx=8).encode(x, y, colour, text="s:N"),
    ]
    title = "Accuracy against length at 120,000 tokens, by the weight of short"
    path.write_bytes(base.drawn(base.figure("rewards_pareto", title, layers, data), "png"))


def main() -> None:
    """Train what is missing, or report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    problems(given.out)
    base, began = untrained(given.out), time.monotonic()
    for seed, s, way in product(SEEDS, WEIGHTS, WAYS):
        if given.report or (way, s, seed) in rows(given.out):
            continue
        if time.monotonic() - began > 60 * given.minutes:
            return
        row = run(given.out, way, s, seed)
        with (given.out / "rows.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)
    report(given.out, base)
    if given.picture:
        picture(given.out, given.picture)


if __name__ == "__main__":
    main()
