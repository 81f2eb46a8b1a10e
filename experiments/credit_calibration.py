"""Do the intervals of `grposcope credit` cover, on a model and not only in an enumerated world?

Claim    At 40, 80 and 160 prompts the 95 % intervals of the errors of exact credit, of merged rollouts, of
         continuations and of trees hold the value of a much larger sample of prompts in at least 92 % of samples.
Command  python experiments/credit_calibration.py draw --out POOL --pieces 8        a pool of 8 × 150 prompts of `tiny`
         python experiments/credit_calibration.py frontier --out POOL --json FILE   the pool's own frontier
         python experiments/credit_calibration.py cover --out POOL                  coverage of samples, a table
Method   Prompts of the pool are measured once: 8 rollouts each, 16 continuations from the end of every step, 16 further
         rollouts for the gradient; a prompt that is drawn twice counts once. The gradients are kept as short vectors,
         so that a sample of prompts is a choice of rows. `--subsets` samples of n prompts without replacement each
         give an interval; it covers if it holds the pool's value, whose distance is first divided by √(1 − n/N), since
         a sample of a finite pool varies less. A critic for the source `value` learns from 30 other batches of the
         frozen policy. `oracle` is 16 continuations per boundary that are not charged. `from four` are exact credit and
         continuations at K = 4 from the first four continuations, halves of two: whether few of them are biased.
Rule     Intervals are good if they cover at least 92 % for every one of the four sources at 80 prompts. Of several
         kinds, the narrowest of those that are good is taken.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from numpy.typing import NDArray

from grposcope.core.files import dumps, write_json
from grposcope.instruments.credit import error as credit_error
from grposcope.instruments.credit.answer import _frontier_chart, _savings_chart
from grposcope.instruments.credit.error import GradientSource, _CreditComparison
from grposcope.instruments.credit.frontier import CreditBudget, _collected, _CreditedBatch, _vectors
from grposcope.instruments.credit.record import CreditRecord, SourceRecord
from grposcope.instruments.credit.sources import HALVES, _plain
from grposcope.lab import credit, policies
from grposcope.lab.credit import placebo
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.annotation import AnnotationContext
from grposcope.lab.sampling.critic import Critic
from grposcope.lab.sampling.rollouts import collect, generator
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.tasks.base import Task
from grposcope.render.charts import export

GROUP, EACH, REFERENCE, WIDTH, PRICED = 8, 16, 16, 16_381, (2, 4, 8)
TREE = "tree:widths=2x2x2,at=step"
KEPT = ("outcome", "steps", "state", "prefix", "token_baseline", *HALVES, "placebo:of=exact")
"""Base vectors that are kept of those that the instrument makes."""

FOUR = tuple(f"{name} of four" for name in HALVES)
"""Base vectors from the halves of the first four continuations."""

BATCH = 16
"""Prompts of a step of the training experiment."""

ARMS = {
    "prefix": "prefix", "steps": "steps", "tree": TREE, "continuations": "continuations:k=2", "value": "value",
    "placebo": f"placebo:of={TREE}", "oracle": "oracle",
}  # fmt: skip
"""Its arms, by the names of the sources here."""

ASKED = ("exact", "prefix", "continuations:k=2", TREE)
"""Sources whose coverage decides."""


def critic_of(policy: Policy, task: Task, batches: int = 30) -> Critic:
    """A critic that has learned from `batches` of 16 × 8 rollouts of the frozen policy."""
    made = Critic(AnnotationContext(policy, 1.0, 64, task.instruction), credit.chosen("value").values)
    stream = generator(900, "critic")
    for step in range(batches):
        batch = collect(
            policy,
            task,
            task.problems("train"),
            recipes.RLOO,
            Sampling(task.max_tokens),
            (16, GROUP),
            901,
            step,
            label_steps=True,
        )
        made.learn(made(batch.rollouts), stream)
    return made


def complete(batch: _CreditedBatch, critic: Critic) -> None:
    """Leave the sources that are asked for, and add those of a critic and placebos of trees."""
    found = batch.found
    for name in [name for name in found.base if name not in KEPT]:
        del found.base[name]
        found.shown.pop(name, None)
    assert batch.values is not None
    parts = [batch.values.of(which, batch.rollouts) for which in (slice(0, 2), slice(2, 4))]
    for name, one in zip(FOUR, (*(own for own, _ in parts), *(others for _, others in parts)), strict=True):
        found.base[name] = one
    given = credit.chosen("value").assign(recipes.RLOO, critic(batch.rollouts))
    found.add("value", given, "iv", False)
    for name, (leaves, values, tokens) in list(found.trees.items()):
        fake = placebo.permuted(values, leaves.tokens, leaves.mask)
        found.trees[f"placebo:of={name}"] = leaves, fake, tokens


def draw(arguments: argparse.Namespace) -> None:
    """Draw the pieces that are missing."""
    task, policy = Arithmetic(arguments.operations), policies.load(arguments.model)
    critic = None
    for number in range(arguments.pieces):
        path = arguments.out / f"piece-{number:02d}.pt"
        if path.exists():
            continue
        critic = critic or critic_of(policy, task)
        budget = CreditBudget(arguments.prompts, GROUP, REFERENCE, EACH, True, PRICED, ("2x2x2",))
        sampling = Sampling(task.max_tokens)
        batch = _collected(policy, task, budget, sampling, 1000 + number, quiet=True)
        complete(batch, critic)
        names, kept = _vectors(policy, batch, 1.0, WIDTH, quiet=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({
            "names": names, "kept": kept, "tokens": batch.tokens, "extra": batch.extra,
            "trees": {name: one.tokens for name, one in batch.found.trees.items()},
            "problems": [problem.id for problem in batch.drawn.problems], "solved": batch.rollouts.rewards.mean(-1),
        }, path.with_suffix(".part"))  # fmt: skip
        path.with_suffix(".part").rename(path)
        print(f"piece {number}: solved {float(batch.rollouts.rewards.mean()):.3f}", flush=True)


class Pool:
    """All prompts of the pieces in a folder, each once: inner products (V, N, V, N), and tokens (N,)."""

    def __init__(self, folder: Path):
        pieces = [torch.load(path, weights_only=False) for path in sorted(folder.glob("piece-*.pt"))]
        problems = [name for piece in pieces for name in piece["problems"]]
        chosen = np.sort(np.unique(problems, return_index=True)[1])
        self.names: tuple[str, ...] = pieces[0]["names"]
        kept = torch.cat([piece["kept"] for piece in pieces], 1)[:, chosen]
        cached = folder / f"gram-{len(pieces)}.npy"
        if not cached.exists():
            flat = kept.flatten(0, 1)
            np.save(cached, (flat @ flat.T).reshape(*kept.shape[:2], *kept.shape[:2]).numpy())
        self.gram: NDArray = np.load(cached)
        self.tokens = np.concatenate([piece["tokens"] for piece in pieces])[chosen]
        self.extra = np.concatenate([piece["extra"] for piece in pieces])[chosen]
        self.solved = torch.cat([piece["solved"] for piece in pieces]).numpy()[chosen]
        self.trees = {
            name: np.concatenate([piece["trees"][name] for piece in pieces])[chosen] for name in pieces[0]["trees"]
        }

    def sources(self, rows: NDArray) -> list[GradientSource]:
        """The sources on some of the prompts."""
        count, unit = len(self.names), np.eye(len(self.names))
        tokens, extra = self.tokens[rows], self.extra[rows]
        at = [self.names.index(name) for name in HALVES + FOUR]
        found = []
        for name in self.names[:-1]:
            if name in HALVES + FOUR:
                continue
            charged = self.trees[name][rows] if name in self.trees else tokens
            unbiased = name in ("outcome", "prefix", "token_baseline", TREE)
            found.append(_plain(name, unit[self.names.index(name)], charged, unbiased))
        found.append(credit_error.crossed("exact", (at[0], at[1]), count, tokens))
        found.append(credit_error.crossed("exact from four", (at[4], at[5]), count, tokens))
        four = tokens + extra * 4 / EACH
        found.append(credit_error.continued("continuations:k=4 from four", (at[6], at[7]), count, 2, 4, four))
        halves = at[2], at[3]
        for k in PRICED:
            paid = tokens + extra * k / EACH
            found.append(credit_error.continued(f"continuations:k={k}", halves, count, EACH // 2, k, paid))
        found.append(credit_error.continued("oracle", halves, count, EACH // 2, EACH, tokens))
        return found

    def measured(self, rows: NDArray, replicates: int = 400) -> _CreditComparison:
        """What the instrument says of some of the prompts."""
        gram = self.gram[:, rows][:, :, :, rows].astype(np.float64)
        return credit_error.measure(gram, self.sources(rows), len(self.names) - 1, replicates)


def frontier(pools: list[Pool], path: Path | None, pictures: Path | None) -> None:
    """The frontier of every pool; `path` takes error × tokens of each arm of the training experiment over outcome's.

    Those are errors of BATCH prompts, where bias weighs less, and geometric means over the pools. pictures: folder for
    a picture of the first pool.
    """
    logs: dict[str, list[float]] = {}
    for pool in pools:
        prompts = len(pool.tokens)
        compared = pool.measured(np.arange(prompts), 300)
        print(f"{prompts} prompts that count as {compared.effective:.0f}, solved {pool.solved.mean():.3f}")
        if pictures is not None and pool is pools[0]:
            drawn = [_frontier_chart(_record(compared)), _savings_chart(_record(compared))]
            export([one for one in drawn if one is not None], pictures, "png")
        for one in compared.sources:
            print(f"{one.name:40s} tokens {one.tokens.value:5.2f} mse {_shown(one.mse)} saving {_shown(one.saving)} "
                  f"scale {_shown(one.scale)} bias {one.bias.value:.2f} {one.mse.flag}")  # fmt: skip
        found = {one.name: one for one in compared.sources}
        for arm, name in ARMS.items():
            one = found[name]
            bias = 0.0 if one.unbiased else one.bias.value**2 * (1 - BATCH / prompts)
            logs.setdefault(arm, []).append(float(np.log((one.mse.value - bias) * one.tokens.value)))
    known = {arm: float(np.exp(np.mean(values))) for arm, values in logs.items() if np.isfinite(values).all()}
    print(dumps({"error × tokens": known, "left out": [arm for arm in ARMS if arm not in known], "logs": logs}))
    if path is not None:
        write_json(path, known)


def _record(compared: _CreditComparison) -> CreditRecord:
    """The comparison as the charts take it, without what is shown twice."""
    kinds = {"continuations": "ii", "tree": "iii", "value": "iv", "steps": "v"}
    sources = [
        SourceRecord(
            one.name, kinds.get(one.name.partition(":")[0], "i"),
            not one.name.startswith(("exact", "oracle", "placebo", "outcome")), one.unbiased, one.tokens, one.mse,
            one.saving, one.scale, one.bias, log_error=one.log_error, effective=one.effective,
        )
        for one in compared.sources if "from four" not in one.name
    ]  # fmt: skip
    return CreditRecord(sources=tuple(sources))


def _shown(value: credit_error.Ranged) -> str:
    return f"{value.value:6.3f} ({value.low:6.3f} to {value.high:6.3f})"


def covered(pool: Pool, sizes: tuple[int, ...], subsets: int, seed: int = 0) -> dict[int, Mapping[str, float]]:
    """Shares of the samples whose interval of the error holds the pool's value, by size and source."""
    every = np.arange(len(pool.tokens))
    truth = {one.name: np.log(one.mse.value) for one in pool.measured(every, 2).sources}
    rng = np.random.default_rng(seed)
    found: dict[int, Mapping[str, float]] = {}
    for size in sizes:
        inside: dict[str, list[bool]] = {}
        shrink = np.sqrt(1 - size / len(every))
        for _ in range(subsets):
            for one in pool.measured(np.sort(rng.choice(every, size, replace=False))).sources[1:]:
                if np.isfinite(one.mse.low * one.mse.high):
                    centre = np.log(one.mse.value)
                    moved = centre + (truth[one.name] - centre) / shrink
                    inside.setdefault(one.name, []).append(np.log(one.mse.low) <= moved <= np.log(one.mse.high))
        found[size] = {name: float(np.mean(hits)) for name, hits in inside.items()}
        print(size, json.dumps({name: round(share, 3) for name, share in found[size].items()}), flush=True)
    return found


def main() -> None:
    """Draw the pool, show its frontier, or tell how often intervals of its samples cover."""
    flags = argparse.ArgumentParser(description="Coverage of the intervals of grposcope credit on a model.")
    flags.add_argument("stage", choices=("draw", "frontier", "cover"))
    flags.add_argument("--out", type=Path, required=True, help="folder of the pool")
    flags.add_argument("--model", default="tiny")
    flags.add_argument("--operations", type=int, default=3)
    flags.add_argument("--pieces", type=int, default=8)
    flags.add_argument("--prompts", type=int, default=150, help="of a piece (default: 150)")
    flags.add_argument("--subsets", type=int, default=300, help="samples of each size (default: 300)")
    flags.add_argument("--sizes", type=int, nargs="+", default=[40, 80, 160])
    flags.add_argument("--more", type=Path, nargs="*", default=(), help="frontier: further pools")
    flags.add_argument("--pictures", type=Path, help="frontier: folder for pictures of the first pool")
    flags.add_argument("--json", type=Path, help="frontier: file for error × tokens of each trained arm")
    arguments = flags.parse_args()
    torch.set_num_threads(1)
    if arguments.stage == "draw":
        draw(arguments)
    elif arguments.stage == "frontier":
        frontier([Pool(folder) for folder in (arguments.out, *arguments.more)], arguments.json, arguments.pictures)
    else:
        found = covered(Pool(arguments.out), tuple(arguments.sizes), arguments.subsets)
        print(dumps({"coverage": {str(size): shares for size, shares in found.items()}}))


if __name__ == "__main__":
    main()
