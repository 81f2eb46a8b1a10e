"""Allocated draws in TRL: a sampler that draws prompts by their forecast success rates, and weights that undo it.

TRL gives every prompt of a batch `num_generations` rollouts, so group sizes stay as they are: what can be allocated is
the draw, of an allocator that keeps the size: optimal, with weights 1/q on the advantages (or none), or filter. Draws
are made when the data loader asks for a batch, which may be while the batch before is still to be generated; the
forecast then lags by a batch, and a gradient that was unbiased stays so.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from grposcope.allocation import ALLOCATORS, ChosenAllocator, chosen
from grposcope.allocation.forecast import Forecaster
from grposcope.allocation.picks import Offer
from grposcope.errors import UserError
from grposcope.tasks.base import number


def allocator(text: str) -> ChosenAllocator | None:
    """What `allocate` asks for, None for uniform draws; UserError for what TRL's batches cannot do."""
    asked = chosen(text)
    if asked.text == "uniform":
        return None
    needed = asked.allocator.given_size or {}
    added = "".join(f",{key}={value}" for key, value in needed.items() if f"{key}=" not in text)
    asked = chosen(text + (added if ":" in text else added.replace(",", ":", 1)))
    if asked.allocator.given_size is None or any(asked.values[key] != value for key, value in needed.items()):
        able = [name for name, known in ALLOCATORS.items() if known.given_size is not None]
        raise UserError(
            f"allocate {text}: TRL's batches have num_generations rollouts of every prompt, so only the draw can be "
            f"allocated; use one that keeps the group size here, {' or '.join(able)}, or grposcope train"
        )
    if asked.values.get("history"):
        raise UserError(f"allocate {text}: history is not read in TRL; leave it out")
    return asked


class PromptDraws(Sampler[int]):
    """Row numbers of a dataset: batches of P prompts, each prompt G times and each batch `repeats` times, as in TRL.

    After a batch was rewarded, `learn` takes its rewards and returns its prompts' weights.
    """

    def __init__(self, asked: ChosenAllocator, dataset: Any, prompts: int, group: int, repeats: int, seed: int):
        """UserError for a dataset without a length, or of fewer prompts than a batch."""
        if not hasattr(dataset, "__len__") or len(dataset) < prompts:
            raise UserError(f"allocate {asked.text} needs a dataset with a length, of {prompts} prompts or more")
        self.asked, self.dataset, self.shape, self.repeats, self.seed = asked, dataset, (prompts, group), repeats, seed
        rows = [dataset[i] for i in range(len(dataset))]
        self.prompts = [row["prompt"] for row in rows]
        self.forecaster = Forecaster(
            [str(i) for i in range(len(rows))],
            [number(row.get("difficulty")) for row in rows],
            [len(str(prompt)) for prompt in self.prompts],
        )
        self.drawn: deque[tuple[NDArray[np.int64], NDArray[np.float64], float]] = deque()
        self.count = 0

    def __len__(self) -> int:
        prompts, group = self.shape
        return len(self.prompts) // prompts * prompts * group * self.repeats

    def __iter__(self) -> Iterator[int]:
        prompts, group = self.shape
        for _ in range(len(self.prompts) // prompts):
            which = self._draw()
            for _ in range(self.repeats):
                for row in which.tolist():
                    yield from [row] * group

    def _draw(self) -> NDArray[np.int64]:
        """The prompts of the next batch, remembered with their weights and the promised share of live groups."""
        digest = hashlib.sha256(f"{self.seed}:{self.count}".encode()).digest()
        random = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        self.count += 1
        assert self.asked.allocator.picks is not None
        prompts, group = self.shape
        pool = random.permutation(len(self.prompts))[: self.asked.candidates(prompts)]
        offer = Offer(self.forecaster.rates(pool), prompts, group, random.random(len(pool)))
        taken = self.asked.allocator.picks(offer, self.asked.values)
        if taken.sizes.tolist() != [group] * prompts:
            raise ValueError(f"allocator {self.asked.name} picks other groups than P of G; it can have no `given_size`")
        which = pool[taken.candidates]
        self.drawn.append((which, taken.weights, taken.live))
        return np.asarray(which)

    def learn(self, first: Any, rewards: NDArray[np.float64]) -> tuple[NDArray[np.float64], dict[str, float]]:
        """The weights (P,) of the oldest batch not learned from, and its metrics; the forecast takes in its rewards.

        first: prompt of the batch's first rollout; rewards (P, G), NaN where there is none. UserError where the batch
        is not the one that was drawn.
        """
        which, weights, promised = self.drawn.popleft() if self.drawn else (np.empty(0, int), np.empty(0), 0.0)
        if len(which) != len(rewards) or self.prompts[which[0]] != first:
            raise UserError("the batches of this trainer are not those that allocate drew; leave allocate out")
        present = ~np.isnan(rewards)
        live = np.array([len(set(group[kept])) > 1 for group, kept in zip(rewards, present, strict=True)])
        self.forecaster.learn(which, np.nansum(rewards, 1), present.sum(1))
        carried = weights[live]
        effective = float(carried.sum() ** 2 / (carried**2).sum()) if len(carried) else 0.0
        return weights, {
            "allocation/live": float(live.mean()),
            "allocation/live_promised": promised,
            "allocation/effective_prompts": effective,
        }
