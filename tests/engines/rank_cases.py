"""What tests/engines/test_distributed.py runs on every rank of torchrun: a probe of several processes against one.

Usage: torchrun … rank_cases.py FOLDER. Every rank writes FOLDER/rank-N.json, what it found by case.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from geometry_models import GROUPED, SIZE, batch, build, configured
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from grposcope.core.errors import UserError
from grposcope.engines import distributed
from grposcope.engines.distributed import _Processes
from grposcope.instruments.gradient import checkpointing, layers, probe, score
from grposcope.instruments.gradient.probe import Probe
from grposcope.lab.objectives import recipes
from grposcope.lab.rollout_batch import RolloutBatch

PROMPTS, GROUP = 3, 5  # of which the ranks have uneven shares
SETTINGS: dict[str, Any] = {
    "controls": True, "sweep": (2,), "also": [recipes.RLOO], "learning_rate": 1e-3, "leading": 2,
}  # fmt: skip


def shares() -> list[slice]:
    """The rows of each rank: uneven, with a group cut in two, and the last rows on the first rank."""
    size, count = dist.get_world_size(), PROMPTS * GROUP
    ends = [0, *(count * rank // size + 1 for rank in range(1, size)), count]
    return [slice(*pair) for pair in pairwise(ends)][::-1]


def share(rollouts: RolloutBatch) -> tuple[RolloutBatch, torch.Tensor]:
    """Rows of this rank, and the number of the prompt of each."""
    mine = shares()[dist.get_rank()]
    return rollouts.rows(mine), torch.arange(PROMPTS).repeat_interleave(GROUP)[mine]


def in_order(rollouts: RolloutBatch) -> RolloutBatch:
    """All rows by group, and within a group by rank."""
    rows = [row for part in shares() for row in range(part.start, part.stop)]
    rows.sort(key=lambda row: row // GROUP)
    sorted_rows = rollouts.rows(torch.tensor(rows))
    return replace(sorted_rows, rewards=sorted_rows.rewards.reshape(PROMPTS, GROUP))


def sharded(family: str) -> Any:
    """The model with every block, and the rest, sharded by FSDP2."""
    model, mesh = build(family), init_device_mesh("cpu", (dist.get_world_size(),))
    for block in checkpointing.blocks(model):
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def spread(family: str) -> Any:
    """The model in DistributedDataParallel."""
    return torch.nn.parallel.DistributedDataParallel(build(family))


def routed(_: str) -> Any:
    """A model with experts and routers."""
    settings = {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}
    model = configured("mixtral", settings, torch.float64)
    model.config._experts_implementation = "eager"  # grouped products are not for float64
    return model


def recurrent(_: str) -> Any:
    """A state-space model, parts of which are measured apart."""
    return configured("mamba", {**SIZE, "state_size": 4}, torch.float64)


def off(one: Any, other: Any) -> float:
    """Largest difference, relative to the largest number."""
    one, other = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    return float(np.abs(one - other).max() / max(float(np.abs(other).max()), 1e-300))


def differences(got: Probe, wanted: Probe) -> dict[str, float]:
    """Relative errors of everything that a probe measures."""
    assert [layer.name for layer in got.layers] == [layer.name for layer in wanted.layers]
    assert [layer.shape for layer in got.layers] == [layer.shape for layer in wanted.layers]
    pairs = list(zip(got.layers, wanted.layers, strict=True))
    spectra = [(a.spectra[name], b.spectra[name]) for a, b in pairs for name in b.spectra]
    spectra += [(got.token_spectra[name], wanted.token_spectra[name]) for name in wanted.token_spectra]
    spectra += [(got.rollout_spectrum(name), wanted.rollout_spectrum(name)) for name in wanted.weightings]
    return {
        "gram": max(off(a.gram, b.gram) for a, b in pairs),
        "grams": max(off(got.rollout_grams[name], wanted.rollout_grams[name]) for name in wanted.weightings),
        "values": max(off(a.values, b.values) for a, b in spectra),
        "slack": max(float(np.abs(a.slack - b.slack).max() / b.frobenius) for a, b in spectra),
        "frobenius": max(off(a.frobenius, b.frobenius) for a, b in spectra),
        "sparsity": off(*([one.parameters[name].value for name in wanted.parameters] for one in (got, wanted))),
        "errors": max(abs(got.parameters[name].se - one.se) for name, one in wanted.parameters.items()),
        "norms": off(got.token_scores.norms, wanted.token_scores.norms),
        "credit": off(got.credit.net, wanted.credit.net),
        "self-check": abs(got.error - wanted.error),
    }


def equal(
    family: str, wrap: Callable[[str], Any], tier: str, large: int, plain: Callable[[str], Any] = build
) -> dict[str, float]:
    """The differences between the probe of all ranks and that of one process."""
    rollouts = batch(PROMPTS, GROUP)
    own, groups = share(rollouts)
    wanted = probe.probe(plain(family), in_order(rollouts), recipes.GRPO, tier=tier, **SETTINGS)
    score.LARGE = large
    model, split, parts = wrap(family), _Processes.split, []

    def counted(self: _Processes, *given: Any) -> Any:
        parts.append(split(self, *given))
        return parts[-1]

    _Processes.split = counted  # type: ignore[method-assign]
    got = distributed.probe(model, own, recipes.GRPO, groups=groups, pad=2, tier=tier, **SETTINGS)
    _Processes.split = split  # type: ignore[method-assign]
    score.LARGE = 2**24
    assert any(parts) == (large == 16), "which matrices are measured by rows"
    assert all(p.grad is None for p in model.parameters())
    return differences(got, wanted)


def said(work: Callable[[], object]) -> list[Any]:
    """The message of the error that ends this, and the seconds until then."""
    began = time.monotonic()
    try:
        work()
    except UserError as error:
        return [str(error), time.monotonic() - began]
    return ["", time.monotonic() - began]


def one_fails() -> object:
    """A probe in which the last rank fails while it measures a layer."""
    measure = layers.LayerMeasurements._contract

    def failing(self: Any, score: Any, combinations: Any) -> Any:
        if dist.get_rank() == dist.get_world_size() - 1:
            raise UserError("layer such and such: not finite")
        return measure(self, score, combinations)

    layers.LayerMeasurements._contract = failing  # type: ignore[method-assign]
    try:
        own, groups = share(batch(PROMPTS, GROUP))
        return distributed.probe(build("llama"), own, recipes.GRPO, groups=groups)
    finally:
        layers.LayerMeasurements._contract = measure  # type: ignore[method-assign]


def too_few() -> object:
    """A probe of fewer rollouts than processes, all of them on the last."""
    some = batch(1, 2).rows(slice(0, dist.get_world_size() - 1 if dist.get_rank() == dist.get_world_size() - 1 else 0))
    return distributed.probe(build("llama"), some, recipes.GRPO, groups=torch.zeros(len(some.mask)))


def uneven() -> object:
    """A probe of groups of different sizes."""
    own, groups = share(batch(PROMPTS, GROUP))
    return distributed.probe(build("llama"), own, recipes.GRPO, groups=groups // 2)


def main(folder: Path) -> None:
    """Run every case on this rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    everything = 2**24
    found: dict[str, Any] = {
        "replicated, fast": equal("llama", build, "fast", everything),
        "DDP, exact, matrices split": equal("qwen2", spread, "exact", 16),
        "FSDP2, fast, matrices split": equal("llama", sharded, "fast", 16),
        "FSDP2, exact": equal("gpt2", sharded, "exact", everything),
        "experts": equal("mixtral", routed, "fast", everything, routed),
        "parts apart": equal("mamba", recurrent, "fast", everything, recurrent),
        "a rank fails": said(one_fails),
        "too few rollouts": said(too_few),
        "groups of several sizes": said(uneven),
        "works again": equal("gpt_neox", build, "fast", 16),
    }
    (folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
