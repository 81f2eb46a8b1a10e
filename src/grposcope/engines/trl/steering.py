"""An autopilot in TRL: it advises, or ends the run and says from which checkpoint and with what it should go on.

TRL has no way back to earlier weights within a run, so that a rollback is a stop here, with the line that resumes it.
Every process sees the same rewards and decides the same. Each checkpoint keeps what the monitors have seen.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from grposcope.core.errors import UserError
from grposcope.core.files import versioned_json, write_json
from grposcope.engines.trl import probing
from grposcope.engines.trl.together import say
from grposcope.instruments import has, needed

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

    def take(self, step: int, rewards: Tensor) -> None:
        """Take the rewards (P, G) of a batch for optimiser step `step`."""
        self.pilot.batch(step, rewards.double().numpy(force=True))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        """Take the gradient norm that was logged."""
        norm = (logs or {}).get("grad_norm")
        if norm is not None:
            self.pilot.update(float(norm) if isinstance(norm, int | float) else math.nan)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Decide; end the run where the policy is to act."""
        alarm = self.pilot.alarm(state.global_step)
        if alarm is None:
            return
        from grposcope.instruments.autopilot import events, wording
        from grposcope.instruments.autopilot.pilot import Situation

        steps = [int(path.name.rpartition("-")[2]) for path in Path(args.output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")]
        interval = probing.interval(args)
        found = self.pilot.decide(alarm, Situation(state.global_step, interval, interval, 1.0, steps))
        ends = found.done and found.action != "tell"
        if self.trainer.is_world_process_zero():
            folder = self.trainer._scope_record.record_folder
            if folder is not None:
                events.append(folder, found)
            say(f"grposcope: {wording.sentence(found)}", logging.WARNING)
            if ends:
                say(f"grposcope: {resuming(args, found.to, found.factor)}", logging.WARNING)
        if ends:
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Keep what the monitors have seen in the checkpoint that was just written."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            write_json(folder / CHECKPOINT, {"format": FORMAT, "pilot": self.pilot.state()})

    def restore(self, checkpoint: Path) -> None:
        """Go on from a checkpoint; from one without what was seen, the monitors begin anew."""
        from grposcope.instruments.autopilot.pilot import Pilot

        path = checkpoint / CHECKPOINT
        if path.exists():
            content = versioned_json(path, FORMAT, "GRPOscopeTrainer", "delete it, and the monitors begin anew")
            self.pilot = Pilot(self.policy, content["pilot"])


def resuming(args: Any, to: int, factor: float) -> str:
    """How a person goes on after a stop."""
    rate = f"learning_rate={args.learning_rate * factor:.3g}"
    if to < 0:
        return f"the run was ended; no checkpoint is shown to be sound: begin anew, with {rate}"
    path = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{to}"
    return (
        f"the run was ended: to go on with the weights of step {to}, give {path} as the model of a new run, with {rate}"
    )
