"""verl's training worker with its FSDP2 engine on the CPU, as an actor of Ray."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grposcope.lab.policies.load import TINY
from grposcope.lab.rollout_batch import RolloutBatch

TEMPERATURE = 0.7


class Bench:
    """A `TrainingWorker` of verl with the model `tiny`, whose gradients can be looked at.

    Started as a Ray actor with the environment of `RUNTIME`, so that `import verl` finds the CPU and our estimators.
    """

    def __init__(self) -> None:
        from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
        from verl.workers.engine_workers import TrainingWorker, TrainingWorkerConfig

        torch.set_num_threads(1)
        engine = FSDPEngineConfig(
            strategy="fsdp2",
            dtype="float32",
            use_dynamic_bsz=False,
            micro_batch_size_per_gpu=3,  # 12 rollouts are four micro-batches
            infer_micro_batch_size_per_gpu=4,
            use_torch_compile=False,
            mixed_precision={"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
        )
        model = HFModelConfig(
            path=str(TINY),
            use_remove_padding=False,
            override_config={"attn_implementation": "sdpa"},
            enable_gradient_checkpointing=False,
        )
        optimizer = FSDPOptimizerConfig(lr=0.0, clip_grad=1e9, weight_decay=0.0)
        self.worker = TrainingWorker(
            TrainingWorkerConfig(
                model_type="language_model", model_config=model, engine_config=engine, optimizer_config=optimizer
            )
        )
        self.worker.reset()
        self.seen = torch.empty(0)
        self.step, self.worker.engine.optimizer_step = self.worker.engine.optimizer_step, self._look_and_step

    def _look_and_step(self) -> float:
        """In place of the engine's `optimizer_step`: keep the gradient, which the engine clears afterwards."""
        self.seen = torch.cat([p.grad.full_tensor().reshape(-1) for p in self.worker.engine.module.parameters()])
        return self.step()

    def estimators(self) -> list[str]:
        """What is in verl's registry here."""
        from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

        return sorted(ADV_ESTIMATOR_REGISTRY)

    def engine(self) -> tuple[str, str, str]:
        """The kinds of the engine, the sharded model and its parameters."""
        first = next(self.worker.engine.module.parameters())
        return type(self.worker.engine).__name__, type(self.worker.engine.module).__name__, type(first.data).__name__

    def advantages(self, name: str, rewards: np.ndarray, mask: np.ndarray, uid: np.ndarray) -> np.ndarray:
        """(B, T) by verl's `compute_advantage`."""
        from verl import DataProto
        from verl.trainer.config import AlgoConfig
        from verl.trainer.ppo.ray_trainer import compute_advantage

        tensors = {"token_level_rewards": torch.tensor(rewards), "response_mask": torch.tensor(mask).long()}
        data = DataProto.from_dict(tensors=tensors, non_tensors={"uid": uid})
        return compute_advantage(data, name, config=AlgoConfig(adv_estimator=name)).batch["advantages"].numpy()

    def log_probs(self, rollouts: RolloutBatch) -> np.ndarray:
        """log π of the tokens (B, T), 0 where masked, by `infer_batch`."""
        from verl.workers.utils.padding import no_padding_2_padding

        data = self._data(rollouts, {})
        output = self.worker.infer_batch(data)
        padded = no_padding_2_padding(output["log_probs"], data)
        return (padded * rollouts.mask[:, : padded.shape[1]]).numpy()

    def gradient(self, rollouts: RolloutBatch, told: dict[str, Any], **tensors: np.ndarray) -> tuple[float, np.ndarray]:
        """Loss and flat gradient of one `train_batch` under settings of the actor; tensors are (B, T)."""
        from omegaconf import OmegaConf
        from verl.workers.config import FSDPActorConfig
        from verl.workers.utils.losses import ppo_loss

        nested: dict[str, Any] = {"policy_loss": {}}
        for path, value in told.items():
            place, _, name = path.rpartition(".")
            (nested[place] if place else nested)[name] = value
        config = FSDPActorConfig(
            strategy="fsdp2", rollout_n=4, ppo_mini_batch_size=12, ppo_micro_batch_size_per_gpu=3, **{
                **nested, "policy_loss": OmegaConf.create({"loss_mode": "vanilla", **nested["policy_loss"]})
            }
        )  # fmt: skip
        self.worker.set_loss_fn(partial(ppo_loss, config=config))
        data = self._data(rollouts, {name: torch.tensor(value) for name, value in tensors.items()})
        metrics = self.worker.train_batch(data)["metrics"]
        return metrics["loss"], self.seen.numpy()

    def names(self) -> list[str]:
        """Parameters in the order of `gradient`."""
        return [name for name, _ in self.worker.engine.module.named_parameters()]

    def _data(self, rollouts: RolloutBatch, tensors: dict[str, Tensor]) -> Any:
        """A batch as verl's trainer hands it to its workers: nothing is padded."""
        from verl.utils import tensordict_utils as tu

        lengths = rollouts.lengths.tolist()
        prompts = [ids[kept] for ids, kept in zip(rollouts.prompt_ids, rollouts.prompt_mask, strict=True)]
        responses = [ids[:n] for ids, n in zip(rollouts.tokens, lengths, strict=True)]
        whole = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
        rows = {
            "prompts": prompts,
            "responses": responses,
            "input_ids": whole,
            "position_ids": [torch.arange(len(ids)) for ids in whole],
            "response_mask": [torch.ones(n, dtype=torch.long) for n in lengths],
            "loss_mask": [torch.ones(n, dtype=torch.long) for n in lengths],
            **{
                name: [row[:n].float() for row, n in zip(value, lengths, strict=True)]
                for name, value in tensors.items()
            },
        }
        return tu.get_tensordict(
            {name: torch.nested.as_nested_tensor(parts, layout=torch.jagged) for name, parts in rows.items()},
            {
                "temperature": TEMPERATURE,
                "global_batch_size": len(lengths),
                "compute_loss": False,
                "calculate_entropy": True,
            },
        )
