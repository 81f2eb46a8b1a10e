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

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.instruments import has, needed
from grposcope.lab import batch_memory, policies
from grposcope.lab.sampling.rollouts import Batch
from grposcope.lab.train import checkpoint
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.setup import Setup, cache_bytes, micro_batch
from grposcope.lab.train.stale_weights import Staleness

if TYPE_CHECKING:
    from grposcope.instruments.autopilot.pilot import Decision


class _RunAutopilot:
    """The autopilot of a run whose record is in `folder`.

    interval, factor, tokens, correction: refresh interval, factor on the learning rate, token limit and importance
    correction, as decided so far. longest: tokens of the longest prompt so far. acted: whether the last batch was
    followed by an action.
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
        self.tokens = (
            setup.sampling.max_tokens if state is None else int(state.get("tokens", setup.sampling.max_tokens))
        )
        self.correction = config.correction if state is None else state.get("correction", config.correction)
        self.longest = 0 if state is None else int(state.get("longest", 0))
        self.acted = False
        events.cut_back(folder, done)

    @property
    def acts(self) -> bool:
        """Whether it does more than say."""
        return self.policy.acts

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        levers = {name: getattr(self, name) for name in ("interval", "factor", "tokens", "correction", "longest")}
        return {"pilot": self.pilot.state(), **levers}

    def steered(self) -> Setup:
        """The setup with the settings as decided so far."""
        setup, own = self.setup, self.setup.config
        limit = own.max_tokens if self.tokens == setup.sampling.max_tokens else self.tokens
        config = replace(own, interval=self.interval, correction=self.correction, max_tokens=limit)
        if config == own:
            return setup
        sampling = replace(setup.sampling, max_tokens=self.tokens, processed=config.correction is not None)
        size = own.micro_batch or micro_batch(setup.policy, self.tokens)
        return replace(setup, config=config, sampling=sampling, micro_batch=size)

    def batch(self, step: int, batch: Batch) -> None:
        """Take a batch that is fresh at `step`."""
        rewards = batch.graded.numpy(force=True)
        self.longest = max(self.longest, batch.rollouts.prompt_ids.shape[1])
        cut = batch.rollouts.truncated.numpy(force=True)
        self.pilot.batch(step, rewards, cut.reshape(1, -1) if cut.size != rewards.size else cut.reshape(rewards.shape))

    def update(self, grad_norm: float) -> None:
        """Take the gradient norm of an optimiser step."""
        self.pilot.update(grad_norm)

    def evaluated(self, step: int, estimate: Estimate) -> None:
        """Take a held-out accuracy."""
        self.pilot.evaluation(step, estimate)

    def anchor(self, step: int) -> int:
        """The newest checkpoint that is shown to be sound, which is kept; -1 for none."""
        return self.pilot.newest_sound(checkpoint.steps(self.folder))

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
        if self.pilot.in_doubt(alarm) and self.acts:  # advice must not change the run
            evaluate()
        steps = [one for one in checkpoint.steps(self.folder) if one < step]
        parts, before = self.setup.config.minibatches, (self.interval, self.factor)
        correctable = self.setup.stale is not None and self.correction is None
        lag = Staleness.parse(self.setup.config.staleness).least
        levers = self.interval, parts, self.factor, steps, self.tokens, self._most_tokens(), correctable, lag
        found = self.pilot.decide(alarm, Situation(step, *levers))
        events.append(self.folder, found)
        say(("" if found.done else "the autopilot would: ") + wording.sentence(found, before))
        if not found.done or found.action == "tell":
            return None
        self.acted = True
        self.interval, self.factor = found.interval, found.factor
        self.tokens, self.correction = found.tokens or self.tokens, found.correction or self.correction
        if found.to >= 0:
            setup = self.setup
            checkpoint.restore(
                checkpoint.folder_of(self.folder, found.to), setup.policy, setup.optimizer, setup.critic, setup.stale
            )
        return found

    def _most_tokens(self) -> int:
        """The longest completion that the policy, the context of the model and the memory allow."""
        setup, config = self.setup, self.setup.config
        most = min(int(setup.sampling.max_tokens * self.policy.tokens), setup.policy.context - 2 * self.longest)
        free = policies.available_memory(setup.policy.model.device)
        try:
            batch_memory.check({"prompts": config.prompts, "group": config.group}, most, cache_bytes(setup.policy),
                               free=free)  # fmt: skip
        except UserError:
            return self.tokens
        return most


def opened(
    setup: Setup, folder: Path, state: Mapping[str, Any] | None, done: int, say: Callable[[str], None]
) -> _RunAutopilot | None:
    """The autopilot of a run; None where none is asked for, or the instrument is not there, which is said."""
    config = setup.config
    if config.autopilot == "off":
        return None
    if not has("autopilot"):
        say("no autopilot: " + needed(["autopilot"]))
        return None
    made = _RunAutopilot(setup, folder, state, done)
    if made.policy.mode == "off":
        return None
    if made.policy.acts and not config.checkpoint_every:
        say("the autopilot cannot go back, as no checkpoints are taken: give checkpoint_every")
    return made


def check(config: TrainConfig) -> None:
    """UserError for a policy that cannot be read."""
    if config.autopilot != "off" and has("autopilot"):
        from grposcope.instruments.autopilot.policy import parse

        parse(config.autopilot)


def steered(setup: Setup, autopilot: _RunAutopilot | None) -> Setup:
    """The setup with the settings that an autopilot has decided."""
    return setup if autopilot is None else autopilot.steered()
