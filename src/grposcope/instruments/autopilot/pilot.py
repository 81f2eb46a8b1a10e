"""From alarms to decisions: a pure machine that a training loop, a replay of a record and `watch` feed alike.

Every decision names its evidence, what is expected of it, and is followed up: whether that came true.

What is done, the mildest first. Nothing but words, where the reward fell and held-out accuracy did not: then the
reward or the data changed, and no setting cures that. A longer token limit, where most completions are cut. Back to the
last sound checkpoint with one setting changed, where the policy got worse: an importance correction if its rollouts are
of earlier weights and have none, then the refresh interval if it is above one, else the learning rate. Stopped, with
the best weights kept, where that was done as often as is allowed, or where going on would repeat the fall: held-out
accuracy fell while the reward did not.

A checkpoint is sound where that was shown: the held-out accuracy at it is not below the best by more than δ; or, where
there was no evaluation at it, batches drawn after it and before the fall began have a mean whose lower limit is above
what the mean fell below. Each further cut of the learning rate is as large as all before it together, and once more; a
change with which a run goes back to its first weights, past later checkpoints or evaluations, is as large as two:
nothing was gained with the setting.
Where the reward holds afterwards, the rate is raised again step by step, so that a fault that passes does not leave a
run that hardly learns; where a raise is followed by a fall, the rate before it is the last. What is bet against then is
that the mean stays above the level just before the raise less half of δ, with α of its own: only a run that had an
alarm has a rate to raise, so that the chance of a first needless alarm is not touched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import Estimate
from grposcope.core.finding import Finding, Sign, document, of_document
from grposcope.core.text import number, span
from grposcope.instruments.autopilot import alarm as alarms
from grposcope.instruments.autopilot import monitors
from grposcope.instruments.autopilot.alarm import FAULTS, LIMIT, explained, monitor_of, sign
from grposcope.instruments.autopilot.monitors import Fall, HeldoutFall, Hypothesis, Share
from grposcope.instruments.autopilot.policy import AutopilotPolicy
from grposcope.maths import betting

if TYPE_CHECKING:
    from grposcope.instruments.group_size.moves import GroupMove

Floats = NDArray[np.float64]

SAVING = "rollouts of the old group size over those of the new"
"""What the sign of a saving is called."""

PARTS = {"reward": 0.4, "heldout": 0.4, "cut": 0.1, "dead": 0.1, "not_finite": 0.0}
"""How the chance of a needless alarm is shared out; a gradient that is not finite is seen, not inferred."""

ONE_SIDED = 1.645
"""Standard errors below the mean of batches at a checkpoint that must stay above the limit."""

CHANGED = "the reward function or the data changed, not the policy"
FOLLOWED = "the reward changed and the policy follows it"
APART = "held-out accuracy falls while the reward does not"
WORSE = "the policy got worse"
OR_HARDER = "the policy got worse, or its prompts got harder"
"""Causes that the monitors tell apart, in words; the last where no held-out accuracy tells it from the one before."""

COMPARE_REWARDS = "compare the reward function and the data before and after that step; the policy needs no change"
COMPARE_TEXTS = (
    "compare completions of the best and of the last checkpoint: what do the later ones do that is rewarded wrongly?"
)
"""What a person does about the first cause, and about the two after it."""

LATEST = 3
"""Batches that say whether the reward fell with held-out accuracy."""

FOLLOW = 8
"""Batches after which it is said whether what was expected came true."""


@dataclass(frozen=True)
class _Calm:
    """No alarm: the reward has held since step `since`, after the learning rate was cut. value: its mean since then;
    limit: what it may not fall below."""

    step: int
    since: int
    limit: float
    value: float


@dataclass(frozen=True)
class Situation:
    """What can be done at a step. interval: optimiser steps per batch, of which there are `parts` minibatches. factor:
    on the learning rate, as decided before. checkpoints: steps that can be gone back to. tokens, tokens_most: longest
    completion now, and at most; 0 where that cannot be changed. correctable: whether rollouts are of earlier weights
    and have no importance correction. lag: steps by which all rollouts are late when a batch begins, 0 where any is
    fresh."""

    step: int
    interval: int = 1
    parts: int = 1
    factor: float = 1.0
    checkpoints: Sequence[int] = ()
    tokens: int = 0
    tokens_most: int = 0
    correctable: bool = False
    lag: int = 0


@dataclass(frozen=True)
class Decision:
    """What is done at `step` about a finding, or because the reward has held (`_Calm`).

    action: "tell", "change", "rollback" or "stop". to: step of the checkpoint that is gone back to, -1 for none.
    setting: what is changed, "interval", "rate", "tokens", "correction", "group", or empty. interval, factor: refresh
    interval and factor on the learning rate from here on; tokens, correction: new token limit and new importance
    correction, group, prompts: new rollouts per prompt and prompts of a batch, 0 and empty where they stay. expected:
    lowest mean that is expected of the next batches, NaN where nothing is. done: whether it was done, not only said.
    lag: as in `Situation`.
    """

    step: int
    action: str
    why: Finding | _Calm
    to: int = -1
    interval: int = 1
    factor: float = 1.0
    expected: float = math.nan
    done: bool = False
    setting: str = ""
    tokens: int = 0
    correction: str = ""
    group: int = 0
    prompts: int = 0
    lag: int = 0

    @property
    def fault(self) -> str:
        """The fault that it is about; empty where there is none."""
        return self.why.fault if isinstance(self.why, Finding) else ""


@dataclass(frozen=True)
class FollowUp:
    """What became of the decision at step `of`: the mean of the batches since, and whether it is as expected."""

    step: int
    of: int
    mean: Estimate
    came_true: bool


@dataclass
class _Counts:
    """What was decided so far.

    alarms: times that each monitor began anew, after an alarm of its own or a rollback. changed: whether reward or data
    were said to have changed; worse: whether the policy was said to have got worse, and nothing put it back. told:
    monitors that have nothing more to say. since: step of the last action. factor: on the learning rate. before: that
    before it was raised again, 0 if it was not; ceiling: whether a fall followed that. advised: limit of a fall that
    was told to somebody else, and has not been made good; then there is nothing new to tell. NaN for none.
    """

    alarms: dict[str, int] = field(default_factory=dict)
    rollbacks: int = 0
    changes: int = 0
    changed: bool = False
    worse: bool = False
    ended: bool = False
    bad_steps: int = 0
    told: list[str] = field(default_factory=list)
    since: int = -1
    factor: float = 1.0
    before: float = 0.0
    ceiling: bool = False
    advised: float = math.nan


class Pilot:
    """The monitors of a policy, and its decisions.

    accuracies: held-out accuracy by step. shown: steps of checkpoints that were gone back to, as they were shown to be
    sound. dropped: steps, from and to, whose weights were given up by a rollback.
    """

    def __init__(self, policy: AutopilotPolicy, state: Mapping[str, Any] | None = None):
        """state: what `state` returned where the run is gone on with, else None."""
        self.policy = policy
        self.reward, self.heldout = Fall(policy.fall), HeldoutFall(policy.fall)
        self.cut, self.dead = Share(monitors.CUT), Share(monitors.DEAD)
        self.trial: Hypothesis | None = None
        self.counts = _Counts()
        self.waiting: Decision | None = None
        self.accuracies: dict[int, float] = {}
        self.dropped: list[tuple[int, int]] = []
        self.shown: list[int] = []
        self._loudest: dict[str, float] = {}
        self._highest = -math.inf
        if state is not None:
            self._restore(state)

    def batch(self, step: int, rewards: Floats, truncated: Floats | None = None) -> None:
        """Take a batch that is fresh at `step`: rewards (P, G), NaN where there is none, and which were cut (P, G)."""
        groups = [row[np.isfinite(row)] for row in np.asarray(rewards, np.float64)]
        groups = [row for row in groups if len(row)]
        if not groups:
            return
        means = np.array([row.mean() for row in groups])
        self._note("reward", self.reward.take(step, means))
        if self.trial is not None:
            self.trial.take(means)
        if not math.isnan(self.counts.advised):
            self._made_good(step)
        self._highest = max(self._highest, *(float(row.max()) for row in groups))
        dead = [float(np.ptp(row) == 0 and row[0] < self._highest) for row in groups if len(row) > 1]
        if dead:  # a group of one, as the mean of a batch is, has nothing to be equal to
            self._note("dead", self.dead.take(np.array(dead)))
        if truncated is not None:
            self._note("cut", self.cut.take(np.asarray(truncated, np.float64).mean(1)))

    def _made_good(self, step: int) -> None:
        """Begin anew where the level is back above the limit of a fall that was told."""
        last = monitors.level_of(self.reward.batches[-FOLLOW:])
        if len(self.reward.batches) >= FOLLOW and last.value - ONE_SIDED * last.se >= self.counts.advised:
            self.reward = Fall(self.policy.fall, hypotheses=self._same_limit(step))
            self.heldout = self.heldout.anew()
            self.counts.advised = math.nan
            for name in ("reward", "heldout"):
                self._loudest.pop(name, None)

    def update(self, grad_norm: float) -> None:
        """Take the gradient norm of an optimiser step."""
        self.counts.bad_steps = 0 if math.isfinite(grad_norm) else self.counts.bad_steps + 1

    def evaluation(self, step: int, found: Estimate) -> None:
        """Take a held-out accuracy."""
        self.accuracies[step] = found.value
        self._note("heldout", self.heldout.take(step, found))

    def alarm(self, step: int) -> Finding | _Calm | None:
        """What holds now and asks for a decision, None for nothing; the gravest first."""
        if self.counts.ended:
            return None
        if "not_finite" in self.policy.watched and self.counts.bad_steps >= monitors.NOT_FINITE:
            return alarms.not_finite(step, step - self.counts.bad_steps + 1)
        if self.trial is not None and self.trial.log_e >= -math.log(self.policy.alpha):
            one, since = self.trial, self.trial.step + 1
            now = self.reward.mean(since).value
            return alarms.fall("reward", step, one.log_e, since, one.level, one.limit, now)
        for name in ("reward", "heldout", "cut", "dead"):
            if name in self.counts.told or (name in ("reward", "heldout") and not math.isnan(self.counts.advised)):
                continue  # it is no news later
            if name in self.policy.watched and self._loudest.get(name, -math.inf) >= self._threshold(name):
                return self._described(name, step)
        return self._calm(step)

    def _calm(self, step: int) -> _Calm | None:
        """That a rate that was cut may be tried higher, as the reward has held since; None if not."""
        counts, patience = self.counts, self.policy.raise_after
        if not (self.policy.acts and patience and counts.factor < 1) or counts.ceiling or self.waiting is not None:
            return None
        held = [batch for batch in self.reward.batches if batch[0] > counts.since]
        if len(held) < patience:
            return None
        held = held[-patience:]
        mean, limit = monitors.level_of(held), self._limit()
        if mean.value - ONE_SIDED * mean.se < limit:
            return None
        return _Calm(step, held[0][0], limit, mean.value)

    def decide(self, alarm: Finding | _Calm, now: Situation) -> Decision:
        """What follows from an alarm. The monitor begins anew, with what is left of its chance of being wrong."""
        if isinstance(alarm, _Calm):
            factor = min(now.factor / self.policy.lr_cut, 1.0)
            raised = Decision(alarm.step, "change", alarm, interval=now.interval, factor=factor, done=self.policy.acts,
                              setting="rate")  # fmt: skip
            self._raised(alarm, raised)
            return raised
        decision = self._decided(alarm, now)
        self._counted(alarm, decision)
        return decision

    def followed(self, step: int) -> FollowUp | None:
        """Whether what the last decision expected came true, once there are batches enough; said once."""
        one = self.waiting
        if one is None or math.isnan(one.expected):
            return None
        since = [batch for batch in self.reward.batches if batch[0] > one.step]
        if len(since) < FOLLOW:
            return None
        self.waiting = None
        mean = monitors.level_of(since[:FOLLOW])
        return FollowUp(step, one.step, mean, bool(mean.value + 2 * mean.se >= one.expected))

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "reward": monitors.state(self.reward),
            "heldout": monitors.state(self.heldout),
            "cut": asdict(self.cut.bets),
            "dead": asdict(self.dead.bets),
            "trial": None if self.trial is None else asdict(self.trial),
            "counts": asdict(self.counts),
            "waiting": None if self.waiting is None else decision_document(self.waiting),
            "loudest": dict(self._loudest),
            "highest": self._highest,
            "accuracies": {str(step): value for step, value in self.accuracies.items()},
            "shown": list(self.shown),
            "dropped": [list(steps) for steps in self.dropped],
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.reward = monitors.fall_of(state["reward"])
        self.heldout = monitors.heldout_of(state["heldout"])
        self.cut.bets, self.dead.bets = monitors.bets_of(state["cut"]), monitors.bets_of(state["dead"])
        trial = state.get("trial")
        self.trial = None if trial is None else monitors.hypothesis_of(trial)
        counts = state["counts"]
        self.counts = _Counts(**{**counts, "advised": float(counts.get("advised", math.nan))})
        self.waiting = None if state["waiting"] is None else decision_of(state["waiting"])
        self._loudest = {name: float(value) for name, value in state["loudest"].items()}
        self._highest = float(state["highest"])
        self.accuracies = {int(step): value for step, value in state["accuracies"].items()}
        self.shown = [int(step) for step in state["shown"]]
        self.dropped = [(int(first), int(last)) for first, last in state["dropped"]]

    def _note(self, name: str, log_e: float) -> None:
        self._loudest[name] = max(self._loudest.get(name, -math.inf), log_e)

    def _share(self, name: str) -> float:
        """Share of the chance of a needless alarm that the next alarm of a monitor has."""
        return PARTS[name] * betting.share(self.counts.alarms.get(name, 0) + 1)

    def _threshold(self, name: str) -> float:
        return -math.log(self.policy.alpha * self._share(name))

    def _described(self, name: str, step: int) -> Finding:
        log_e, share = self._loudest[name], self._share(name)
        if name == "reward":
            begun, worst = self.reward.onset(), self.reward.worst
            assert worst is not None
            now = self.reward.mean(begun).value
            return alarms.fall(name, step, log_e, begun if begun >= 0 else None, worst.level, worst.limit, now, share)
        if name == "heldout" and self.heldout.now is not None:
            at, value, _, _ = self.heldout.now
            return alarms.fall(name, step, log_e, at, self.heldout.best, self.heldout.limit, value, share)
        return alarms.too_many(name, step, log_e, share)

    def _decided(self, alarm: Finding, now: Situation) -> Decision:
        told = Decision(
            alarm.seen or 0, "tell", alarm, interval=now.interval, factor=now.factor, done=self.policy.acts, lag=now.lag
        )  # fmt: skip
        monitor = monitor_of(alarm.fault)
        if monitor == "cut":
            longer = min(2 * now.tokens, now.tokens_most)
            told = replace(told, why=explained(alarm, "most completions are cut at the token limit"))
            return replace(told, action="change", setting="tokens", tokens=longer) if longer > now.tokens else told
        if monitor == "dead":
            return replace(told, why=explained(alarm, "nearly all groups have equal rewards below the highest"))
        if monitor == "reward" and not self.counts.before and self._held_since(alarm.onset or 0):
            return replace(told, why=explained(alarm, CHANGED, COMPARE_REWARDS))
        sound = self.sound(alarm, now.checkpoints)
        if monitor == "heldout":
            changed = self.counts.changed
            again = self.counts.rollbacks > 0 and len(self.reward.batches) <= FOLLOW
            fell_too = self.counts.worse or again or self.reward.log_e > 1 or self._reward_fell_beside()
            if not fell_too or changed:
                why = explained(alarm, FOLLOWED if changed else APART, COMPARE_TEXTS)
                return self._ended(replace(told, why=why), self.best(sound, now.checkpoints))
        unsure = monitor == "reward" and self.heldout.verdict() == "unknown"
        cause = "the gradient is not finite" if monitor == "not_finite" else OR_HARDER if unsure else WORSE
        why = explained(alarm, cause)
        return self._mended(replace(told, why=why), now, sound)

    def _mended(self, told: Decision, now: Situation, sound: int) -> Decision:
        """A policy that got worse: a setting is changed, with the weights of a sound checkpoint, or the run ends."""
        change = self._changed(now, 2 if sound == 0 and self._gained_nothing(now.checkpoints) else 1)
        if self.counts.before > 0 or self.counts.rollbacks < self.policy.rollbacks:
            if sound >= 0:
                expected = sign(told.why, LIMIT) if isinstance(told.why, Finding) else math.nan
                return replace(told, action="rollback", to=sound, expected=expected, **change)
            if change:
                return replace(told, action="change", **change)
        return self._ended(told, self.best(sound, now.checkpoints))

    def _reward_fell_beside(self) -> bool:
        """Whether the last batches since the evaluation before the last are clearly below those before it."""
        known = self.heldout.evaluations[:-1]
        reference = self.heldout.reference
        since = known[-1][0] if known else reference[0] if reference is not None else -1
        after = [batch for batch in self.reward.batches if batch[0] > since][-LATEST:]
        before = [batch for batch in self.reward.batches if batch[0] <= since][-monitors.WINDOW :]
        then, now = monitors.level_of(before), monitors.level_of(after)
        drop = then.value - now.value
        least = self.policy.fall * (self.reward.high - self.reward.low) / 2
        return bool(drop >= least and drop > monitors.SURE * math.hypot(then.se, now.se))

    def _held_since(self, since: int) -> bool:
        """Whether held-out accuracy was taken since the fall of the reward began, and has not fallen with it."""
        last = self.heldout.now
        return last is not None and last[0] >= since and self.heldout.verdict() == "held"

    def _ended(self, one: Decision, sound: int) -> Decision:
        """That a run ends, at its last sound checkpoint; only told where ending is not allowed."""
        return replace(one, action="stop", to=sound) if self.policy.stop else one

    def best(self, sound: int, checkpoints: Sequence[int]) -> int:
        """What a stop keeps: the checkpoint with the best held-out accuracy, else the sound one."""
        known = [step for step in checkpoints if step in self.accuracies]
        return max(known, key=lambda step: (self.accuracies[step], step), default=sound)

    def _gained_nothing(self, checkpoints: Sequence[int]) -> bool:
        """Whether there are weights after the first to judge the setting by, and no held-out accuracy of them is above
        that of the first by what it may fall."""
        later = [value for step, value in self.accuracies.items() if step]
        first = self.accuracies.get(0, math.inf)
        return (any(checkpoints) or bool(later)) and not any(value > first + self.policy.fall for value in later)

    def _changed(self, now: Situation, times: int = 1) -> dict[str, Any]:
        """The next change, as fields of a decision; empty where none is allowed, or none is left.

        times: how many changes it is as large as.
        """
        if self.counts.before:
            return {"setting": "rate", "factor": self.counts.before}
        if self.counts.changes >= self.policy.changes:
            return {}
        if now.correctable and self.policy.correction:
            return {"setting": "correction", "correction": self.policy.correction}
        if self.policy.interval and now.interval > now.parts:
            smaller = [n for n in range(now.parts, now.interval, now.parts) if now.interval % n == 0]
            at_most = [n for n in smaller if n * 4**times <= now.interval] or smaller[:1]
            return {"setting": "interval", "interval": max(at_most)}
        cut = self.policy.lr_cut ** (self.counts.changes + times)
        factor = max(now.factor * cut, min(self.policy.lr_least, now.factor))
        return {"setting": "rate", "factor": factor} if factor < now.factor else {}

    def in_doubt(self, alarm: Finding | _Calm) -> bool:
        """Whether a held-out evaluation would tell what an alarm means: the reward fell, and perhaps it alone."""
        return isinstance(alarm, Finding) and alarm.fault == FAULTS["reward"]

    def sound(self, alarm: Finding, checkpoints: Sequence[int]) -> int:
        """The newest checkpoint that is shown to be sound, in spite of an alarm; -1 for none."""
        limit, by_scores = sign(alarm, LIMIT), alarm.fault == FAULTS["heldout"]
        return self.newest_sound(checkpoints, alarm.onset, limit, by_scores)

    def newest_sound(
        self, checkpoints: Sequence[int], onset: int | None = None, limit: float = math.nan, by_scores: bool = False
    ) -> int:
        """The newest checkpoint that is shown to be sound, -1 for none.

        onset: step from which the run is not. limit: what the mean after it must be above, NaN for that of the worst
        hypothesis. by_scores: whether held-out accuracy alone can show it.
        """
        before = [step for step in checkpoints if onset is None or step < onset]
        before = [step for step in before if not any(first < step <= last for first, last in self.dropped)]
        highest = max(self.accuracies.values(), default=math.nan)
        lowest = highest - min(self.policy.fall, monitors.REACHED * highest)
        for step in sorted(before, reverse=True):
            if step in self.shown:
                return step
            if step in self.accuracies:
                if self.accuracies[step] >= lowest:
                    return step
                continue
            if by_scores:
                continue
            lowest_mean = limit if math.isfinite(limit) else self._limit()
            shown = self.reward.mean(step + 1, math.inf if onset is None else onset - 1)
            if shown.n >= 2 and shown.value - ONE_SIDED * shown.se >= lowest_mean:
                return step
        return -1

    def _limit(self) -> float:
        worst = self.reward.worst
        return worst.limit if worst is not None else -math.inf

    def _same_limit(self, step: int) -> list[Hypothesis]:
        """After weights are put back, their level is known: the mean may not fall below the same limit again."""
        worst = self.reward.worst
        return [] if worst is None else [Hypothesis(step, worst.level, worst.limit, worst.low, worst.high)]

    def _raised(self, calm: _Calm, found: Decision) -> None:
        """Take note that the rate is raised again, which is judged by the level just before."""
        counts = self.counts
        counts.before, counts.factor, counts.since = counts.factor, found.factor, found.step
        self.shown.append(found.step)
        reward, drop = self.reward, self.policy.fall * (self.reward.high - self.reward.low) / 2
        drop = min(drop, monitors.REACHED * (calm.value - reward.low) / 2)
        self.trial = Hypothesis(found.step, calm.value, calm.value - drop, reward.low, reward.high)

    def _counted(self, alarm: Finding, found: Decision) -> None:
        counts, name = self.counts, monitor_of(alarm.fault)
        back, changed = found.action == "rollback", found.action in ("rollback", "change")
        for one in {name, "reward", "heldout"} if back else {name}:  # what begins anew has less of the chance of error
            counts.alarms[one] = counts.alarms.get(one, 0) + 1
        counts.bad_steps = 0
        counts.changed |= found.action == "tell" and name == "reward"
        counts.ended = found.action == "stop"
        self._loudest.pop(name, None)
        if name in ("cut", "dead"):
            counts.told += [name] * (found.action == "tell")
            self.cut = Share(monitors.CUT) if name == "cut" else self.cut
            return
        counts.worse = found.action == "change" or (counts.worse and not back)
        raised = changed and counts.before > 0
        counts.ceiling |= raised
        counts.rollbacks += back and not raised
        counts.changes += changed and not raised
        if changed:
            counts.before, counts.since = 0.0, found.step
            counts.factor = found.factor
        self.waiting = found if back else self.waiting
        if changed and not found.done and name == "reward":
            counts.advised = sign(alarm, LIMIT)
        self.trial = None
        self._begin_anew(name, found)

    def _begin_anew(self, name: str, decision: Decision) -> None:
        """Begin anew what a decision about the monitor `name` is of; after a rollback, reward and held-out accuracy."""
        back = decision.action == "rollback"
        if back:
            self.dropped.append((decision.to, decision.step - 1))
            self.shown.append(decision.to)
        if name == "reward" or back:
            same = [] if decision.action == "tell" else self._same_limit(decision.step)
            self.reward = Fall(self.policy.fall, hypotheses=same)
            self._loudest.pop("reward", None)
        if name == "heldout" or back:
            self.heldout = self.heldout.anew()
            self._loudest.pop("heldout", None)


def group_move(step: int, move: GroupMove, steps: Sequence[int], prompts: int, levers: tuple[int, float]) -> Decision:
    """The decision for a move of the group size, by probes of these steps.

    prompts: of a batch from here on. levers: refresh interval and factor on the learning rate, which stay.
    """
    low, high = move.interval
    because = (
        f"for the same error of the gradient G = {move.used} needs {number(move.saving)} times the rollouts of "
        f"G = {move.group} (95% {span(low, high)}, {move.prompts:,} prompts probed at steps {steps[0]:,} to "
        f"{steps[-1]:,})"
    )
    signs = (Sign(SAVING, move.saving), Sign(f"{SAVING}, at least", low), Sign(f"{SAVING}, at most", high))
    why = Finding("", because=because, brief="another group size needs fewer rollouts", evidence=signs, seen=step)
    return Decision(step, "change", why, interval=levers[0], factor=levers[1], done=True, setting="group",
                    group=move.group, prompts=prompts)  # fmt: skip


def decision_document(decision: Decision) -> dict[str, Any]:
    """A decision as JSON has it: what is done, and the finding, or what has held."""
    why = decision.why
    content = {key: value for key, value in vars(decision).items() if key != "why"}
    return {**content, **({"finding": document(why)} if isinstance(why, Finding) else {"calm": asdict(why)})}


def decision_of(content: Mapping[str, Any], where: str = "decision") -> Decision:
    """The decision that JSON has, in which numbers that are not finite are strings, or that of an earlier version."""
    numbers = {name: float(content[name]) for name in ("factor", "expected")}
    names = [field.name for field in fields(Decision) if field.name in content]
    return Decision(**{**{name: content[name] for name in names}, **numbers, "why": _why(content, where)})


def _why(content: Mapping[str, Any], where: str) -> Finding | _Calm:
    if "finding" in content:
        return of_document(content["finding"], where)
    calm = content.get("calm") or (content if content["monitor"] == "calm" else None)
    if calm is None:
        return alarms.of_earlier_version(content)
    return _Calm(calm["step"], calm["since"], float(calm["limit"]), float(calm["value"]))
