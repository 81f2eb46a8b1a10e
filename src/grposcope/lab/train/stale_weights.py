"""Rollouts of earlier weights: an asynchronous trainer, exactly, on one machine.

The version of weights is the number of optimiser steps that made them. Weights are kept where a batch of rollouts
begins, as trainers send them to their samplers, and each group is drawn by the newest that are at least its lag in
steps behind; before there are any, by those that the run began with.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.no_gradient import no_gradient
from grposcope.lab.policies import Policy, available_memory
from grposcope.lab.sampling.rollouts import SomeGroups, generator

FILE = "stale_weights.safetensors"
"""Name of the file with the kept weights, in a checkpoint."""

MOST = 10_000
"""Largest lag in steps."""


@dataclass(frozen=True)
class Staleness:
    """Lags in optimiser steps, drawn for each group evenly from `least` to `most`."""

    least: int = 0
    most: int = 0

    @staticmethod
    def parse(text: str) -> Staleness:
        """The lags of "4" or "0-8"; UserError for anything else."""
        first, dash, last = str(text).partition("-")
        whole = first.isdecimal() and (last.isdecimal() if dash else not last)
        if not whole or not int(first) <= int(last or first) <= MOST:
            raise UserError(
                f"staleness is {text!r}; give a lag in optimiser steps, such as 4, or a range, such as 0-8, of at most "
                f"{MOST:,}"
            )
        return Staleness(int(first), int(last or first))

    def lags(self, count: int, seed: int, position: int) -> list[int]:
        """The lag of each of `count` groups, those of the batch at `position` of the data."""
        stream = generator(seed, "lags", position)
        return torch.randint(self.least, self.most + 1, (count,), generator=stream).tolist()


class StaleWeights:
    """The weights that are still to draw batches, in the host's memory, and a model that samples by them."""

    def __init__(self, policy: Policy, staleness: Staleness, interval: int):
        """interval: optimiser steps on each batch. UserError where the memory does not hold the weights."""
        self.trained, self.staleness = policy, staleness
        self.snapshots = -(-staleness.most // interval) + 1
        weights = sum(p.numel() * p.element_size() for p in policy.model.parameters() if p.requires_grad)
        self.bytes = self.snapshots * weights
        free = available_memory(torch.device("cpu"))
        if self.bytes > free:
            raise UserError(
                f"staleness {staleness.most} with interval {interval} keeps {self.snapshots} copies of the weights "
                f"that are trained, {self.bytes / 1e9:.1f} GB, and {free / 1e9:.1f} GB of memory are free; lower the "
                "staleness, raise the interval, or train a smaller model"
            )
        self.sampler = replace(policy, model=copy.deepcopy(policy.model).requires_grad_(False).eval())
        self.kept: dict[int, dict[str, Tensor]] = {}
        self.version = 0

    def keep(self, version: int) -> None:
        """Keep the weights as they are now, after `version` optimiser steps, and drop those that are not needed."""
        self.version = version
        self.kept[version] = {name: p.detach().to("cpu", copy=True) for name, p in _trained(self.trained).items()}
        oldest = self.of_lag(self.staleness.most)
        self.kept = {number: weights for number, weights in self.kept.items() if number >= oldest}

    def of_lag(self, lag: int) -> int:
        """The newest version that is at least `lag` steps old, the oldest where none is."""
        old = [version for version in self.kept if self.version - version >= lag]
        return max(old) if old else min(self.kept)

    def groups(self, count: int, seed: int, position: int) -> Iterator[SomeGroups]:
        """Policies that draw the `count` groups from `position` on, each valid until the next is asked for."""
        versions = [self.of_lag(lag) for lag in self.staleness.lags(count, seed, position)]
        for version in sorted(set(versions)):
            self._load(version)
            yield self.sampler, version, [i for i, own in enumerate(versions) if own == version]

    def state(self) -> dict[str, Tensor]:
        """The kept weights, by "version.name"."""
        return {f"{version}.{name}": tensor for version, of in self.kept.items() for name, tensor in of.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take the kept weights as `state` has them."""
        self.kept = {}
        for key, tensor in state.items():
            version, name = key.split(".", 1)
            self.kept.setdefault(int(version), {})[name] = tensor

    @no_gradient
    def _load(self, version: int) -> None:
        names = dict(self.sampler.model.named_parameters())
        for name, tensor in self.kept[version].items():
            names[name].copy_(tensor)


def _trained(policy: Policy) -> dict[str, Tensor]:
    """The parameters that are trained, by name."""
    return {name: parameter for name, parameter in policy.model.named_parameters() if parameter.requires_grad}
