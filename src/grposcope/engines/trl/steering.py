"""An autopilot in TRL: it advises, or goes back to a sound checkpoint within the run, or ends the run.

Going back puts the weights and the optimiser of a checkpoint back; data, steps and schedule go on as they are, with the
learning rate that was decided, and a checkpoint is taken at once. Where TRL has sharded the weights (DeepSpeed, FSDP),
or the checkpoint is without the optimiser, the run ends instead, with the line that goes on. Every process sees the
same rewards and decides the same. Each checkpoint keeps what the monitors have seen, so that a resumed run decides the
same.
"""

from __future__ import annotations

import logging
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from grposcope.core.errors import UserError
from grposcope.core.files import versioned_json, write_json
from grposcope.engines.trl import probing
from grposcope.engines.trl.processes import say
from grposcope.instruments import has, needed

if TYPE_CHECKING:
    from grposcope.instruments.autopilot.pilot import Decision, FollowUp

BOUNDS = (
    "the autopilot goes back to checkpoints, changes the learning rate and stops; the refresh interval, corrections "
    "and token limit of TRL are set when a run begins, and are left as they are"
)
NO_CHECKPOINTS = "the autopilot cannot go back, because no checkpoints are saved; set save_strategy and save_steps"
"""What is said before the first step."""

OPTIMIZER = "optimizer.pt"
"""File of a checkpoint with the state of the optimiser, as the Trainer writes it."""

CHECKPOINT = "grposcope_autopilot.json"
"""File of a checkpoint that keeps what the monitors have seen."""
FORMAT = 1


class Steering(TrainerCallback):
    """The autopilot of a trainer, by a policy as `grposcope train` takes it. UserError for one that cannot be read."""

    def __init__(self, trainer: Any, text: str):
        if not has("autopilot"):
            raise UserError(needed(["autopilot"]))
        from grposcope.instruments.autopilot.pilot import Pilot
        from grposcope.instruments.autopilot.policy import parse

        self.trainer, self.policy = trainer, parse(text)
        self.pilot = Pilot(self.policy)

    def take(self, step: int, rewards: Tensor, cut: Tensor) -> None:
        """Take a batch for optimiser step `step`: rewards (P, G), and which completions were cut (P, G)."""
        self.pilot.batch(step, rewards.double().numpy(force=True), cut.double().numpy(force=True))

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Say what cannot be done here; take out of the record what was decided after the checkpoint gone on from."""
        if self.policy.acts and self.trainer.is_world_process_zero():
            saves = getattr(args.save_strategy, "value", args.save_strategy) != "no"
            say(f"grposcope: {BOUNDS if saves else NO_CHECKPOINTS}")
        folder = self._record()
        if folder is not None:
            from grposcope.instruments.autopilot import events

            events.cut_back(folder, state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        """Take the gradient norm that was logged."""
        norm = (logs or {}).get("grad_norm")
        if norm is not None:
            self.pilot.update(float(norm) if isinstance(norm, int | float) else math.nan)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Decide where a batch ends; go back, change the rate or end the run where the policy is to act."""
        interval = probing.interval(args)
        if state.global_step % interval:
            return
        if (outcome := self.pilot.followed(state.global_step)) is not None:
            self._write(outcome)
        alarm = self.pilot.alarm(state.global_step)
        if alarm is None:
            return
        from grposcope.instruments.autopilot import wording
        from grposcope.instruments.autopilot.pilot import Situation

        before = self.pilot.counts.factor
        decision = self.pilot.decide(
            alarm, Situation(state.global_step, interval, interval, before, self._checkpoints(args))
        )
        acts, optimizer = decision.done and decision.action != "tell", None
        if acts and decision.action == "rollback":
            optimizer = self._optimizer_of(args, decision.to)
        ends = acts and (decision.action == "stop" or (decision.action == "rollback" and optimizer is None))
        if ends:
            decision = replace(decision, action="stop")
            control.should_training_stop = True
        elif acts:
            if optimizer is not None:
                self.trainer._load_from_checkpoint(str(_folder(args, decision.to)))
            self._go_on(optimizer, decision.factor / before)
            control.should_save = True
        self._write(decision)
        if self.trainer.is_world_process_zero():
            say(f"grposcope: {wording.sentence(decision)}", logging.WARNING)
            if ends:
                say(f"grposcope: {_resuming(args, decision.to, decision.factor)}", logging.WARNING)

    def _write(self, event: Decision | FollowUp) -> None:
        folder = self._record()
        if folder is not None:
            from grposcope.instruments.autopilot import events

            events.append(folder, event)

    def _record(self) -> Path | None:
        """Folder of the record, of the process that writes it."""
        folder: Path | None = self.trainer._scope_record.record_folder
        return folder if self.trainer.is_world_process_zero() else None

    def _checkpoints(self, args: Any) -> list[int]:
        """Steps of the checkpoints that are there."""
        names = [path.name.rpartition("-")[2] for path in Path(args.output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")]
        return [int(name) for name in names if name.isdecimal()]

    def _optimizer_of(self, args: Any, step: int) -> dict[str, Any] | None:
        """The optimiser's state of a checkpoint; None where it cannot be put back within this run."""
        trainer = self.trainer
        path = _folder(args, step) / OPTIMIZER
        if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled or not path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, pickle.UnpicklingError):
            return None
        return state

    def _go_on(self, optimizer: dict[str, Any] | None, ratio: float) -> None:
        """Go on with this state of the optimiser, None for its own, and `ratio` times the learning rate of now."""
        trainer = self.trainer
        rates = [group["lr"] for group in trainer.optimizer.param_groups]
        if optimizer is not None:
            trainer.optimizer.load_state_dict(optimizer)
        for group, rate in zip(trainer.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * ratio
        schedule = getattr(trainer.lr_scheduler, "scheduler", trainer.lr_scheduler)
        if hasattr(schedule, "base_lrs"):
            schedule.base_lrs = [rate * ratio for rate in schedule.base_lrs]
            schedule._last_lr = [rate * ratio for rate in schedule.get_last_lr()]  # what is logged

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Keep what the monitors have seen in the checkpoint that was just written."""
        if state.is_world_process_zero:
            write_json(_folder(args, state.global_step) / CHECKPOINT, {"format": FORMAT, "pilot": self.pilot.state()})

    def restore(self, checkpoint: Path) -> None:
        """Go on from a checkpoint; from one without what was seen, the monitors begin anew."""
        from grposcope.instruments.autopilot.pilot import Pilot

        path = checkpoint / CHECKPOINT
        if path.exists():
            content = versioned_json(path, FORMAT, "GRPOscopeTrainer", "delete it to start the monitors again")
            self.pilot = Pilot(self.policy, content["pilot"])


def _folder(args: Any, step: int) -> Path:
    return Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{step}"


def _resuming(args: Any, to: int, factor: float) -> str:
    """How a person goes on after a stop."""
    rate = f"learning_rate={args.learning_rate * factor:.3g}"
    if to < 0:
        return f"the run was ended; no checkpoint is shown to be sound; start a new run with {rate}"
    path = _folder(args, to)
    return (
        f"the run was ended; to continue with the weights of step {to:,}, give {path} as the model of a new run, with "
        f"{rate}"
    )
