"""Why does the mismatch of a rounded sampler grow while a policy trains, although no weight is stale?

Question Trainers report a KL between sampler and trainer that grows through training at lag 0. Which property of the
         policy does it follow, and is that property its cause?
Command  python experiments/offpolicy_growth.py --out runs/offpolicy_growth        resumable; --report prints
Method   `tiny` on `arithmetic`, rloo, `--correction none` (the mismatch takes no part in the training but for the
         draws), 120 steps of 12 × 8. Every tenth batch: var(log ρ) and k3 per token between the int8 (or bfloat16)
         sampler and the float32 trainer, and of the same tokens the entropy, the logit scale L (root mean square over
         the vocabulary of centred logits), F = mean(1 − 2π_y + Σ π²), the weights' norm, the length, the mean −log π_y,
         and the share of var(log ρ) on the tokens with π_y < 0.1. Arms, 8 paired seeds: int8; int8 with an entropy
         bonus of 0.01; with weight decay 0.1; at temperature 0.7; and bfloat16.
Theory   Rounding moves logits by independent errors of a size c L in proportion to the logits, so that to first order
         log ρ = −(ε_y − Σ π ε) and var(log ρ) = c² L² F: it grows with the scale of the logits, and falls as the policy
         becomes sure, where F goes to 0.
Rule     Written before the first run; first and last: means of the first and the last three measurements; ± are 95 % t
         intervals over seeds. (1) growth: ln(k3 last ÷ first) of int8 is above 0. (2) formula: of int8 and of bfloat16,
         the mean |ln of last ÷ first| of var/(L² F) is below half of that of var. (3) entropy bonus: raises F and k3 of
         the last measurements over int8's, paired. (4) weight decay lowers L and k3, paired. (5) temperature 0.7 raises
         L and k3, paired. A property is the cause as far as an intervention that moves it moves k3 as the formula says.
Budget   40 trainings of some 15 s of one core.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from scipy import stats

from grposcope.core.files import write_json
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.logprobs import hidden_states, token_collisions
from grposcope.lab.train.allocate import Allocated, RolloutAllocation
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train

ARMS: dict[str, dict[str, Any]] = {
    "int8": {}, "int8, entropy bonus": {"entropy": 0.01}, "int8, weight decay": {"weight_decay": 0.1},
    "int8, temperature 0.7": {"temperature": 0.7}, "bfloat16": {"sampler_precision": "bfloat16"},
}  # fmt: skip
EVERY, ENDS = 10, 3
MEASURES = ("var", "k3", "entropy", "L", "F", "norm", "length", "surprise", "rare")


class Following(RolloutAllocation):
    """Draws as the run's settings say, and measures every EVERY-th batch."""

    def __init__(self, setup: Any, state: Any, rows: list[dict[str, float]]):
        super().__init__(setup, state)
        self.batches, self.rows = 0, rows

    def draw(self, position: int) -> Allocated:
        """The batch at `position`, measured where it is its turn."""
        drawn = super().draw(position)
        if self.batches % EVERY == 0:
            self.rows.append({"step": self.batches + 1} | self.measured(drawn.batch.rollouts))
        self.batches += 1
        return drawn

    @torch.no_grad()
    def measured(self, rollouts: Any) -> dict[str, float]:
        """The quantities of MEASURES."""
        model, temperature, mask = self.setup.policy.model, self.config.temperature, rollouts.mask
        own = frozen_logprobs(model, rollouts, temperature, self.setup.micro_batch).double()[mask]
        log = own - rollouts.logp.double()[mask]
        every = torch.arange(len(mask))
        collision = token_collisions(model, rollouts, every, temperature).double()
        collision = collision[mask[:, : collision.shape[1]]]
        logits = model.lm_head(hidden_states(model, model.model, rollouts, every)).double() / temperature
        rare = own.exp() < 0.1
        return {
            "var": float(log.var()),
            "k3": float((log.exp() - 1 - log).mean()),
            "entropy": float(rollouts.entropy[mask].mean()),
            "L": float(logits.var(-1, correction=0).mean().sqrt()),
            "F": float((1 - 2 * own.exp() + collision).mean()),
            "norm": float(sum(float(p.double().square().sum()) for p in model.parameters()) ** 0.5),
            "length": float(rollouts.lengths.double().mean()),
            "surprise": float(-own.mean()),
            "rare": float(log[rare].square().sum() / log.square().sum()),
        }


def one(arm: str, seed: int, out: Path) -> dict[str, Any]:
    """The result of one run, trained unless an earlier call left its file."""
    path = out / f"{arm.replace(',', '').replace(' ', '-')}-{seed}.json"
    if not path.exists():
        rows: list[dict[str, float]] = []
        folder = out / "runs" / path.stem
        while folder.exists():
            folder = folder.with_name(folder.name + "-again")
        config = TrainConfig(
            recipe="rloo", steps=120, prompts=12, group=8, seed=seed, out=str(folder), schedule="constant", warmup=10,
            eval_problems=0, threads=1, checkpoint_every=0, rollouts_every=0, correction="none",
            sampler_precision="int8",
        )  # fmt: skip
        train(replace(config, **ARMS[arm]), lambda setup, state: Following(setup, state, rows))
        write_json(path, {"arm": arm, "seed": seed, "rows": rows})
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def ends(run: dict[str, Any], name: str) -> tuple[float, float]:
    """Means of the first and of the last measurements."""
    values = [row["var"] / (row["L"] ** 2 * row["F"]) if name == "formula" else row[name] for row in run["rows"]]
    return float(np.mean(values[:ENDS])), float(np.mean(values[-ENDS:]))


def shown(values: list[float]) -> str:
    """Mean and 95 % t interval."""
    test = stats.ttest_1samp(values, 0.0)
    low, high = test.confidence_interval(0.95)
    return f"{np.mean(values):+.3f} ({low:+.3f} to {high:+.3f})"


def report(found: list[dict[str, Any]]) -> None:
    """Print levels, changes, interventions and correlations."""
    arms = {arm: sorted((run for run in found if run["arm"] == arm), key=lambda run: run["seed"]) for arm in ARMS}
    print("| arm | n | " + " | ".join(f"{name}, first → last" for name in MEASURES) + " | var/(L² F) |")
    print("|---" * (len(MEASURES) + 3) + "|")
    for arm, runs in arms.items():
        cells = []
        for name in (*MEASURES, "formula"):
            first, last = np.mean([ends(run, name) for run in runs], axis=0)
            cells.append(f"{first:.3g} → {last:.3g}")
        print(f"| {arm} | {len(runs)} | {' | '.join(cells)} |")
    print("\n| arm | ln(k3 last ÷ first) | mean abs ln of last ÷ first: var | var/(L² F) |\n|---|---|---|---|")
    for arm, runs in arms.items():
        logs = {name: [float(np.log(b / a)) for a, b in (ends(run, name) for run in runs)]
                for name in ("k3", "var", "formula")}  # fmt: skip
        sizes = [f"{np.mean(np.abs(logs[name])):.3f}" for name in ("var", "formula")]
        print(f"| {arm} | {shown(logs['k3'])} | {' | '.join(sizes)} |")
    print("\n| intervention | ln of last ÷ int8's last: k3 | L | F | entropy | expected of k3 by L² F |")
    print("|---|---|---|---|---|---|")
    for arm in list(ARMS)[1:4]:
        pairs = [(a, b) for a in arms[arm] for b in arms["int8"] if a["seed"] == b["seed"]]
        logs = {name: [float(np.log(ends(a, name)[1] / ends(b, name)[1])) for a, b in pairs]
                for name in ("k3", "L", "F", "entropy")}  # fmt: skip
        due = np.mean(2 * np.array(logs["L"]) + np.array(logs["F"]))
        print(f"| {arm[6:]} | {' | '.join(shown(logs[name]) for name in logs)} | {due:+.3f} |")
    print("\n| arm | " + " | ".join(f"rank correlation of k3 with {name}" for name in MEASURES[2:]) + " | with L² F |")
    print("|---" * (len(MEASURES)) + "|")
    for arm, runs in arms.items():
        cells = []
        for name in (*MEASURES[2:], "due"):
            each = [stats.spearmanr([row["k3"] for row in run["rows"]],
                                    [row["L"] ** 2 * row["F"] if name == "due" else row[name] for row in run["rows"]])
                    .statistic for run in runs]  # fmt: skip
            cells.append(f"{np.mean(each):+.2f}")
        print(f"| {arm} | {' | '.join(cells)} |")


def main() -> None:
    """Run what is missing, then print the tables of what is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(8)))
    parser.add_argument("--report", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        for seed in arguments.seeds:
            for arm in ARMS:
                one(arm, seed, arguments.out)
    report([json.loads(path.read_text()) for path in sorted(arguments.out.glob("*.json"))])


if __name__ == "__main__":
    main()
