"""An autopilot in our own loop: it is fed what the run makes, and its decisions are carried out here.

A rollback puts the weights, the optimiser and the random states of a checkpoint back. The data is not drawn again: the
next batch is the one that would have come, so that a poisoned batch is passed over. Steps, tokens and the record go on
as they are, and a checkpoint is taken at once. All that decides is in that checkpoint: a run that is killed at any
moment decides the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.core.estimate import Estimate
from grposcope.instruments import has, needed
from grposcope.lab.sampling.rollouts import Batch
from grposcope.lab.train import checkpoint
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.setup import Setup

if TYPE_CHECKING:
    from grposcope.instruments.autopilot.pilot import Decision


class RunAutopilot:
    """The autopilot of a run whose record is in `folder`.

    interval, factor: refresh interval, and factor on the learning rate, as decided so far. acted: whether the last
    batch was followed by an action.
    """

    def __init__(self, setup: Setup, folder: Path, state: Mapping[str, Any] | None, done: int):
        """state: what `state` returned at the checkpoint gone on from, after `done` steps, else None."""
        from grposcope.instruments.autopilot import events
        from grposcope.instruments.autopilot.pilot import Pilot
        from grposcope.instruments.autopilot.policy import parse

        config = setup.config
        self.setup, self.folder = setup, folder
        self.policy = parse(config.autopilot)
        self.pilot = Pilot(self.policy, None if state is None else state["pilot"])
        self.interval = config.interval if state is None else int(state["interval"])
        self.factor = 1.0 if state is None else float(state["factor"])
        self.acted = False
        events.cut_back(folder, done)

    @property
    def acts(self) -> bool:
        """Whether it does more than say."""
        return self.policy.acts

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"pilot": self.pilot.state(), "interval": self.interval, "factor": self.factor}

    def batch(self, step: int, batch: Batch) -> None:
        """Take a batch that is fresh at `step`."""
        rewards = batch.graded.numpy(force=True)
        cut = batch.rollouts.truncated.numpy(force=True)
        self.pilot.batch(step, rewards, cut.reshape(1, -1) if cut.size != rewards.size else cut.reshape(rewards.shape))

    def update(self, grad_norm: float) -> None:
        """Take the gradient norm of an optimiser step."""
        self.pilot.update(grad_norm)

    def evaluated(self, step: int, found: Estimate) -> None:
        """Take a held-out accuracy."""
        self.pilot.evaluation(step, found)

    def anchor(self, step: int) -> int:
        """The newest checkpoint that is shown to be sound, which is kept; -1 for none."""
        from grposcope.instruments.autopilot.pilot import PilotAlarm

        return self.pilot.sound(PilotAlarm("reward", step, 0.0), checkpoint.steps(self.folder))

    def decide(self, step: int, evaluate: Callable[[], None], say: Callable[[str], None]) -> Decision | None:
        """What is to be done after the batch that ended with `step`, recorded and said; None for nothing.

        evaluate: makes a held-out evaluation, which is asked for where the reward fell.
        """
        from grposcope.instruments.autopilot import events, wording
        from grposcope.instruments.autopilot.pilot import Situation

        self.acted = False
        if (outcome := self.pilot.followed(step)) is not None:
            events.append(self.folder, outcome)
        alarm = self.pilot.alarm(step)
        if alarm is None:
            return None
        if alarm.monitor == "reward":
            evaluate()
        steps = [one for one in checkpoint.steps(self.folder) if one < step]
        parts = self.setup.config.minibatches
        before = self.interval, self.factor
        found = self.pilot.decide(alarm, Situation(step, self.interval, parts, self.factor, steps))
        events.append(self.folder, found)
        say(("" if found.done else "the autopilot would: ") + wording.sentence(found, before))
        if not found.done or found.action == "tell":
            return None
        self.acted = True
        self.interval, self.factor = found.interval, found.factor
        if found.to >= 0:
            setup = self.setup
            checkpoint.restore(
                checkpoint.folder_of(self.folder, found.to), setup.policy, setup.optimizer, setup.critic, setup.stale
            )
        return found


def opened(
    setup: Setup, folder: Path, state: Mapping[str, Any] | None, done: int, say: Callable[[str], None]
) -> RunAutopilot | None:
    """The autopilot of a run; None where none is asked for, or the instrument is not there, which is said."""
    config = setup.config
    if config.autopilot == "off":
        return None
    if not has("autopilot"):
        say("no autopilot: " + needed(["autopilot"]))
        return None
    made = RunAutopilot(setup, folder, state, done)
    if made.policy.acts and not config.checkpoint_every:
        say("the autopilot cannot go back, as no checkpoints are taken: give checkpoint_every")
    return made


def check(config: TrainConfig) -> None:
    """UserError for a policy that cannot be read."""
    if config.autopilot != "off" and has("autopilot"):
        from grposcope.instruments.autopilot.policy import parse

        parse(config.autopilot)


def steered(config: TrainConfig, autopilot: RunAutopilot | None) -> TrainConfig:
    """The settings with the refresh interval as the autopilot has decided."""
    return config if autopilot is None else replace(config, interval=autopilot.interval)
