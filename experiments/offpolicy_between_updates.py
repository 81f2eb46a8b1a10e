"""Between updates of one batch of rollouts, does the squared bias of the gradient grow as ‖θ − θ_old‖²?

Claim    Theorem 12 of arXiv:2603.01162: the updates since the rollouts were drawn add O(‖θ − θ_old‖²) to the error.
         Enumerated (`grposcope claims batch-reuse`) the slope is 1.98 to 2.04; here on a network.
Command  python experiments/offpolicy_between_updates.py --out runs/between_updates        some 6 minutes of one core
Method   `tiny` on `arithmetic`. Seeds 0 … 7: 64 prompts × 8 rollouts of the model as shipped, then updates on them with
         AdamW at 2e-4, leave-one-out advantages, no ratio. After 1, 2, 4 and 8 updates ‖bias‖² of the gradient at these
         weights, against full weights, as `grposcope offpolicy` has it (a U-statistic over prompts): without a ratio,
         and with one per token. It is taken on 64 × 8 further rollouts of the same old model, since the weights have
         seen those that they were updated on. Units are seeds; ‖θ − θ_old‖ is over all parameters.
Verdict  written before the first run. Slope of the logarithm of the mean of ‖bias‖² over seeds on that of the distance,
         its 95 % interval by jackknife over seeds. Holds for a ratio if the interval contains 2 and reaches at most 0.5
         from its middle; does not hold if it excludes 2; else cannot tell. The steps of an optimizer turn, so that no
         more than that is asked. A smoke run of 16 prompts with another seed said that it runs.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from numpy.typing import NDArray
from ustat_gradients import draw

from grposcope.core.files import dumps, write_json
from grposcope.instruments.offpolicy import estimates, from_model, probing
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import advantages
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.logprobs import token_logprobs
from grposcope.maths import resampling
from grposcope.maths.corrections import named

AFTER, SHAPE = (1, 2, 4, 8), (64, 8)
RATIOS = {"no ratio": named("none"), "token ratio": named("token_ratio")}


def step(policy: policies.Policy, rollouts: RolloutBatch, optimizer: torch.optim.Optimizer) -> None:
    """One update on the whole batch, without a ratio."""
    credit = (advantages.leave_one_out(rollouts.rewards) / rollouts.rewards.numel()).reshape(-1).float()
    optimizer.zero_grad()
    for part in credit.nonzero()[:, 0].split(64):
        logp, _ = token_logprobs(policy.model, rollouts, part)
        (-credit[part] @ logp.sum(-1)).backward()
    optimizer.step()
    optimizer.zero_grad()


def squared_bias(policy: policies.Policy, rollouts: RolloutBatch) -> dict[str, float]:
    """Unbiased ‖bias‖² at the present weights, by ratio."""
    trainer = frozen_logprobs(policy.model, rollouts, 1.0, 64)
    drawn = from_model.mismatched(rollouts, trainer)
    found = estimates.measure(policy.model, rollouts, drawn.ratios, tuple(RATIOS.values()), check=False)
    squares = {}
    for name, correction in RATIOS.items():
        difference = found.products[correction.name].difference
        squares[name] = float(resampling.pair_mean(difference, resampling.point(len(difference)))[0])
    return squares


def of_seed(seed: int) -> tuple[list[float], dict[str, list[float]]]:
    """Distances and ‖bias‖² after the updates of AFTER."""
    policy, task = policies.load("tiny"), tasks.load("arithmetic")
    generator = torch.Generator().manual_seed(seed)
    rollouts, further = (fresh(policy, task, generator) for _ in range(2))
    start = [parameter.detach().clone() for parameter in policy.model.parameters()]
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=2e-4, weight_decay=0.0)
    distances: list[float] = []
    squares: dict[str, list[float]] = {name: [] for name in RATIOS}
    for number in range(1, max(AFTER) + 1):
        step(policy, rollouts, optimizer)
        if number not in AFTER:
            continue
        moved = sum(float(((p.detach() - q) ** 2).sum()) for p, q in zip(policy.model.parameters(), start, strict=True))
        distances.append(math.sqrt(moved))
        for name, value in squared_bias(policy, further).items():
            squares[name].append(value)
    return distances, squares


def fresh(policy: policies.Policy, task: tasks.Task, generator: torch.Generator) -> RolloutBatch:
    """Rollouts with the log-probabilities of the weights that drew them, computed as the trainer's are."""
    drawn = draw(policy, task, task.problems("train"), SHAPE, generator)
    rollouts = drawn.each(lambda name, array: array.clone())
    return probing.drawn_by(rollouts, frozen_logprobs(policy.model, rollouts, 1.0, 64))


def slope(distances: NDArray, squares: NDArray) -> float:
    """Of ln mean ‖bias‖² on ln mean distance, both (seeds, stages); NaN where a mean is not above 0."""
    means = squares.mean(0)
    if not (means > 0).all():
        return math.nan
    return float(np.polyfit(np.log(distances.mean(0)), np.log(means), 1)[0])


def main() -> None:
    """Measure, print, decide."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for seed in range(given.seeds):
        rows.append(of_seed(seed))
        print(dumps({"seed": seed, "distance": rows[-1][0], **rows[-1][1]}), flush=True)
    distances, found = np.array([row[0] for row in rows]), {}
    for name in RATIOS:
        squares = np.array([row[1][name] for row in rows])
        left_out = np.array([slope(np.delete(distances, i, 0), np.delete(squares, i, 0)) for i in range(len(rows))])
        middle, reach = slope(distances, squares), 2.365 * resampling.standard_error(left_out)
        inside, narrow = abs(middle - 2) <= reach, reach <= 0.5
        verdict = "does not hold" if abs(middle - 2) > reach else "holds" if inside and narrow else "cannot tell"
        found[name] = {"slope": middle, "interval": (middle - reach, middle + reach), "verdict": verdict,
                       "squared bias": squares.mean(0).tolist()}  # fmt: skip
    given.out.mkdir(parents=True, exist_ok=True)
    result = {"after": AFTER, "distance": distances.mean(0).tolist(), **found}
    write_json(given.out / "report.json", result)
    print(dumps(result))


if __name__ == "__main__":
    main()
