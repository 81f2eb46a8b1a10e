"""Constraints in TRL: multipliers that a trainer learns, a step per batch of rollouts, and keeps in each checkpoint.

The multipliers and what they add to the advantages are those of our own loop (`lab.train.constrain`), from the rewards
that TRL gathered and the lengths of the completions before TRL masks any. Every process has the same rollouts before
it, and so the same multipliers. CHECKPOINT keeps them as they stand behind the batch, and where a batch is still in use
when the checkpoint is taken, as they stood before it: TRL answers its prompts again when it resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from grposcope.core.errors import UserError
from grposcope.core.files import versioned_json, write_json
from grposcope.core.text import visible
from grposcope.engines.trl.processes import say
from grposcope.engines.trl.scored_batch import Scored
from grposcope.lab.train.constrain import RunConstraints
from grposcope.maths.constraints import LENGTH, Dual, parse_all

CHECKPOINT = "grposcope_constraints.json"
"""File of a checkpoint that keeps the multipliers."""
FORMAT = 1

REWARD = "reward"
"""Name of the weighted sum of the rewards."""


class TrainerConstraints:
    """The constraints of a trainer, on the rewards `names`; UserError for one of another reward.

    group: rollouts of a prompt. repeats: forward and backward passes that a batch of rollouts is used for.
    """

    def __init__(self, dual: Dual, names: Sequence[str], group: int, repeats: int):
        for constraint in dual.constraints:
            if constraint.name not in (*names, LENGTH, REWARD):
                allowed = ", ".join(visible(name, 40) for name in (*names, LENGTH, REWARD))
                raise UserError(
                    f"constraint {visible(constraint.text, 60)}: there is no reward {visible(constraint.name, 40)!r}; "
                    f"choose among {allowed}"
                )
        self.names, self.group, self.repeats = tuple(names), group, repeats
        self.run = RunConstraints(dual)
        self._before = self.run.state()

    def take(self, batch: Scored, weights: Tensor, accelerator: Any) -> tuple[Tensor, dict[str, float]]:
        """What the constraints add to the advantage of each rollout of all processes, (B,), and the batch's metrics."""
        own = torch.tensor([len(ids) for ids in batch.ids], device=batch.rewards.device)
        lengths = accelerator.gather(own).double().reshape(-1, self.group)
        total, parts = batch.total(weights, self.group), batch.parts(self.group)

        def values(name: str) -> Tensor:
            if name in self.names:
                return parts[..., self.names.index(name)]
            return total if name == REWARD else lengths.where(~total.isnan(), torch.nan)

        penalties = self.run.penalties(values).reshape(-1).to(total).expand(total.numel())
        self._before = self.run.state()
        main = accelerator.is_main_process
        return penalties, self.run.learn(values, lambda line: say(f"grposcope: {line}") if main else None)

    def state(self, passes: int) -> dict[str, Any]:
        """What a checkpoint keeps behind so many passes."""
        dual = self._before if passes % self.repeats else self.run.state()
        return {
            "format": FORMAT,
            "constraints": [constraint.text for constraint in self.run.dual.constraints],
            "dual": dual,
        }

    def restore(self, checkpoint: Path) -> None:
        """Go on from a checkpoint; UserError for one without multipliers, or with those of other constraints."""
        path = checkpoint / CHECKPOINT
        if not path.exists():
            raise UserError(
                f"{checkpoint} holds no {CHECKPOINT}, the multipliers that its constraints continue from; resume "
                "from another checkpoint, leave the constraints out, or start a new run"
            )
        state = versioned_json(path, FORMAT, "GRPOscopeTrainer", "resume from another checkpoint")
        own = [constraint.text for constraint in self.run.dual.constraints]
        if state["constraints"] != own:
            raise UserError(
                f"{path} was written with the constraints {'; '.join(state['constraints']) or 'none'}, and this run "
                f"has {'; '.join(own)}; resume with the same ones"
            )
        self.run = RunConstraints(self.run.dual, _duals(path, state))
        self._before = self.run.state()

    def keeper(self) -> TrainerCallback:
        """What writes the multipliers into each checkpoint."""
        return _KeepMultipliers(self)


def _duals(path: Path, state: Mapping[str, Any]) -> Mapping[str, Any]:
    dual, count = state.get("dual"), len(state["constraints"])
    for name in ("integral", "multipliers"):
        listed = dual.get(name) if isinstance(dual, dict) else None
        if not isinstance(listed, list) or len(listed) != count or not all(isinstance(v, int | float) for v in listed):
            raise UserError(f"{path}: {name} is not a number for each constraint; resume from another checkpoint")
    assert isinstance(dual, dict)
    return dual


def dual(names: str | Sequence[str], rate: float, damping: float) -> Dual:
    """The constraints that a trainer is given, texts or one text with several, separated by semicolons, and how their
    multipliers learn; UserError for a rate or damping below 0."""
    if not rate >= 0 or not damping >= 0:
        raise UserError(f"dual_rate {rate} and dual_damping {damping} must be 0 or more")
    texts = names.split(";") if isinstance(names, str) else list(names)
    return Dual(parse_all([text for text in texts if text.strip()]), rate, damping)


class _KeepMultipliers(TrainerCallback):
    """Writes the multipliers into each checkpoint."""

    def __init__(self, constraints: TrainerConstraints):
        """constraints: those of the trainer."""
        self.constraints = constraints

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Behind TRL's own files, by the main process."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            passes = state.global_step * args.gradient_accumulation_steps
            write_json(folder / CHECKPOINT, self.constraints.state(passes))
