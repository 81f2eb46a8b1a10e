"""What tests/engines/test_trl_ranks.py runs on every rank of torchrun: TRL's trainer with probes that the ranks share.

Usage: torchrun … trainer_cases.py FOLDER CASE…. Every rank writes FOLDER/CASE-N.json, what it found.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from rank_cases import differences

from engines import tiny_trl
from grposcope.engines import distributed
from grposcope.engines.trl import GRPOscopeTrainer
from grposcope.instruments.gradient import layers, without_hook
from grposcope.instruments.gradient import probe as probes

SIZE = {"per_device_train_batch_size": 6, "num_generations": 4, "max_completion_length": 6, "loss_type": "grpo"}
SHARDED = {"fsdp": True, "fsdp_config": {"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}}
CASES: dict[str, dict[str, Any]] = {
    "replicated": {},
    "replicated, accumulated": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3},
    "sharded": SHARDED,
    "sharded, bfloat16": {**SHARDED, "bf16": True},
    "sharded, accumulated": {**SHARDED, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 3},
}


def shard_on_cpus() -> None:
    """Let accelerate shard on CPUs as on every other kind of device; of itself it replicates there, silently."""
    inner = AcceleratorState.__init__

    def outer(self: Any, *given: Any, fsdp_plugin: Any = None, **more: Any) -> None:
        inner(self, *given, fsdp_plugin=fsdp_plugin, **more)
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)

    AcceleratorState.__init__ = outer  # type: ignore[method-assign]


def trained(folder: Path, options: dict[str, Any], every: int) -> dict[str, Any]:
    """A run of three steps: a digest of the weights and of the random state on this rank, and how it is sharded."""
    AcceleratorState._reset_state(reset_partial_state=True)
    os.environ.pop("ACCELERATE_USE_FSDP", None)  # which a sharded run before this one has set
    trainer = tiny_trl.trainer(
        folder, [], kind=GRPOscopeTrainer, ours={"probe_every": every}, **{**SIZE, "max_steps": 3, **options}
    )
    torch.manual_seed(5 + dist.get_rank())
    trainer.train()
    model = trainer.accelerator.unwrap_model(trainer.model)
    bits = b"".join(p.detach().to_local().numpy().tobytes() if without_hook.spread(p) else p.detach().numpy().tobytes()
                    for p in model.parameters())  # fmt: skip
    return {
        "weights": hashlib.sha256(bits).hexdigest(),
        "random": hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest(),
        "modules sharded": len(distributed.sharded(model)),
        "training": model.training,
    }


def whole_copy(model: Any) -> Any:
    """A model of its own with all the weights, on this rank alone; draws no random numbers that others would miss."""
    with torch.random.fork_rng():
        alone = type(model)(model.config)
    alone.load_state_dict({name: without_hook.whole(p.detach()) for name, p in model.state_dict().items()})
    return alone.train(model.training)


def compared(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """The run with probes and without, and every probe of all ranks beside that of this rank alone."""
    shared, off = probes.probe, []

    def both(model: Any, *given: Any, **more: Any) -> Any:
        workers = more.pop("workers")
        assert workers.size == dist.get_world_size()
        alone = whole_copy(model)
        got = shared(model, *given, **more, workers=workers)
        found = differences(got, shared(alone, *given, **more))
        off.append({name: value for name, value in found.items() if more["check"] or name != "self-check"})
        return got

    probes.probe = both  # type: ignore[assignment]
    try:
        probed = trained(folder / "probed", options, 2)
    finally:
        probes.probe = shared
    return {"probed": probed, "plain": trained(folder / "plain", options, 0), "differences": off}


def one_fails(folder: Path) -> dict[str, Any]:
    """A run in which the last rank fails while it measures a layer, at the first probe."""
    measure, calls = layers.LayerMeasurements._contract, []

    def failing(self: Any, score: Any, combinations: Any) -> Any:
        calls.append(score)
        if len(calls) == 1 and dist.get_rank() == dist.get_world_size() - 1:
            raise RuntimeError("such and such")
        return measure(self, score, combinations)

    layers.LayerMeasurements._contract = failing  # type: ignore[method-assign]
    try:
        return trained(folder / "failing", {}, 2)
    finally:
        layers.LayerMeasurements._contract = measure  # type: ignore[method-assign]


class Kept(GRPOscopeTrainer):
    """Keeps of every batch this rank's lengths and its part of the advantages, and the rewards of all ranks."""

    kept: list[dict[str, Any]]

    def _calculate_rewards(self, *given: Any, **more: Any) -> Any:
        rewards = super()._calculate_rewards(*given, **more)
        assert self._scope_batch is not None
        self._seen = rewards.tolist(), [len(ids) for ids in self._scope_batch.ids]
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        out: dict[str, Any] = super()._generate_and_score_completions(inputs)
        assert self._scope_limits is not None
        rewards, lengths = self._seen
        one = {"rewards": rewards, "lengths": lengths, "advantages": out["advantages"].tolist(),
               "multipliers": list(self._scope_limits.run.dual.multipliers)}  # fmt: skip
        self.kept = [*getattr(self, "kept", []), one]
        return out


def constrained(folder: Path) -> dict[str, Any]:
    """A run with two rewards, each standardized, two constraints and probes; what this rank saw of its batches."""
    AcceleratorState._reset_state(reset_partial_state=True)
    trainer = tiny_trl.trainer(
        folder, [], reward=[tiny_trl.reward_letters, tiny_trl.reward_length], kind=Kept,
        ours={"probe_every": 2, "probe_prompts": 3, "aggregation": "standardized_components", "dual_rate": 0.5,
              "constraints": ["length<=3", "reward_letters>=0.5"]},
        **{**SIZE, "max_steps": 3, "save_strategy": "steps", "save_steps": 2},
    )  # fmt: skip
    torch.manual_seed(5 + dist.get_rank())
    trainer.train()
    bits = b"".join(p.detach().numpy().tobytes() for p in trainer.accelerator.unwrap_model(trainer.model).parameters())
    return {"batches": trainer.kept, "weights": hashlib.sha256(bits).hexdigest()}


def main(folder: Path, cases: list[str]) -> None:
    """Run the cases on this rank."""
    torch.set_num_threads(1)
    shard_on_cpus()
    rank = os.environ["RANK"]
    for case in cases:
        place = folder / case
        apart_from_cases = {"a rank fails": one_fails, "constrained": constrained}
        found = apart_from_cases[case](place) if case in apart_from_cases else compared(place, CASES[case])
        place.mkdir(exist_ok=True)
        (place / f"rank-{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
