"""From alarms to decisions: a pure machine that a training loop, a replay of a record and `watch` feed alike.

Every decision names its evidence, what is expected of it, and is followed up: whether that came true.

What is done, the mildest first. Nothing but words, where the reward fell and held-out accuracy did not: then the
reward or the data changed, and no setting cures that. Back to the last sound checkpoint with one setting
changed, where the policy got worse: the refresh interval if it is above one, else the learning rate. Stopped, with the
best weights kept, where that was done as often as is allowed, or where going on would repeat the fall: held-out
accuracy fell while the reward did not.

A checkpoint is sound where that was shown: the held-out accuracy at it is not below the best by more than δ; or, where
there was no evaluation at it, batches drawn after it and before the fall began have a mean whose lower limit is above
what the mean fell below. Each further cut of the learning rate is as large as all before it together, and once more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import Estimate
from grposcope.instruments.autopilot import monitors
from grposcope.instruments.autopilot.monitors import Fall, HeldoutFall, Hypothesis, Share
from grposcope.instruments.autopilot.policy import AutopilotPolicy
from grposcope.maths import betting

Floats = NDArray[np.float64]

PARTS = {"reward": 0.4, "heldout": 0.4, "cut": 0.1, "dead": 0.1, "not_finite": 0.0}
"""How the chance of a needless alarm is shared out; a gradient that is not finite is seen, not inferred."""

ONE_SIDED = 1.645
"""Standard errors below the mean of batches at a checkpoint that must stay above the limit."""

FOLLOW = 8
"""Batches after which it is said whether what was expected came true."""


@dataclass(frozen=True)
class PilotAlarm:
    """A monitor that has enough evidence. e: its e-value, infinite for what is seen. since: the step it began with,
    -1 if unknown. level, limit: the best level, and what the mean fell below, NaN where there is none. value: the mean
    since then."""

    monitor: str
    step: int
    e: float
    since: int = -1
    level: float = math.nan
    limit: float = math.nan
    value: float = math.nan


@dataclass(frozen=True)
class Situation:
    """What can be done at a step. interval: optimiser steps per batch, of which there are `parts` minibatches. factor:
    on the learning rate, as decided before. checkpoints: steps that can be gone back to."""

    step: int
    interval: int = 1
    parts: int = 1
    factor: float = 1.0
    checkpoints: Sequence[int] = ()


@dataclass(frozen=True)
class Decision:
    """What is done at `step`, and why.

    action: "tell", "change", "rollback" or "stop". to: step of the checkpoint that is gone back to, -1 for none.
    interval, factor: refresh interval and factor on the learning rate from here on. expected: lowest mean that is
    expected of the next batches, NaN where nothing is. done: whether it was done, not only said.
    """

    step: int
    action: str
    cause: str
    monitor: str
    e: float
    since: int = -1
    level: float = math.nan
    limit: float = math.nan
    value: float = math.nan
    to: int = -1
    interval: int = 1
    factor: float = 1.0
    expected: float = math.nan
    done: bool = False


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

    alarms: of each monitor. changed: whether reward or data were said to have changed; worse: whether the policy was
    said to have got worse, and nothing put it back.
    """

    alarms: dict[str, int] = field(default_factory=dict)
    rollbacks: int = 0
    changes: int = 0
    changed: bool = False
    worse: bool = False
    ended: bool = False
    bad_steps: int = 0


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
        self._note("reward", self.reward.take(step, np.array([row.mean() for row in groups])))
        self._highest = max(self._highest, *(float(row.max()) for row in groups))
        dead = [float(np.ptp(row) == 0 and row[0] < self._highest) for row in groups]
        self._note("dead", self.dead.take(np.array(dead)))
        if truncated is not None:
            self._note("cut", self.cut.take(np.asarray(truncated, np.float64).mean(1)))

    def update(self, grad_norm: float) -> None:
        """Take the gradient norm of an optimiser step."""
        self.counts.bad_steps = 0 if math.isfinite(grad_norm) else self.counts.bad_steps + 1

    def evaluation(self, step: int, found: Estimate) -> None:
        """Take a held-out accuracy."""
        self.accuracies[step] = found.value
        self._note("heldout", self.heldout.take(step, found))

    def alarm(self, step: int) -> PilotAlarm | None:
        """The alarm that holds now, None for none; the gravest first."""
        if self.counts.ended:
            return None
        if "not_finite" in self.policy.watched and self.counts.bad_steps >= monitors.NOT_FINITE:
            return PilotAlarm("not_finite", step, math.inf, step - self.counts.bad_steps + 1)
        for name in ("reward", "heldout", "cut", "dead"):
            if name in ("cut", "dead") and name in self.counts.alarms:
                continue  # said once: it is no news later
            if name in self.policy.watched and self._loudest.get(name, -math.inf) >= self._threshold(name):
                return self._described(name, step)
        return None

    def decide(self, alarm: PilotAlarm, now: Situation) -> Decision:
        """What follows from an alarm. The monitor begins anew, with what is left of its chance of being wrong."""
        found = self._decided(alarm, now)
        self._counted(alarm, found)
        return found

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
            "counts": asdict(self.counts),
            "waiting": None if self.waiting is None else asdict(self.waiting),
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
        self.counts = _Counts(**state["counts"])
        self.waiting = None if state["waiting"] is None else decision_of(state["waiting"])
        self._loudest = {name: float(value) for name, value in state["loudest"].items()}
        self._highest = float(state["highest"])
        self.accuracies = {int(step): value for step, value in state["accuracies"].items()}
        self.shown = [int(step) for step in state["shown"]]
        self.dropped = [(int(first), int(last)) for first, last in state["dropped"]]

    def _note(self, name: str, log_e: float) -> None:
        self._loudest[name] = max(self._loudest.get(name, -math.inf), log_e)

    def _threshold(self, name: str) -> float:
        number = self.counts.alarms.get(name, 0) + 1
        return -math.log(self.policy.alpha * PARTS[name] * betting.share(number))

    def _described(self, name: str, step: int) -> PilotAlarm:
        e = math.exp(min(self._loudest[name], 700.0))
        if name == "reward":
            since, worst = self.reward.onset(), self.reward.worst
            assert worst is not None
            return PilotAlarm(name, step, e, since, worst.level, worst.limit, self.reward.mean(since).value)
        if name == "heldout" and self.heldout.now is not None:
            at, value, _, _ = self.heldout.now
            return PilotAlarm(name, step, e, at, self.heldout.best, self.heldout.limit, value)
        return PilotAlarm(name, step, e)

    def _decided(self, alarm: PilotAlarm, now: Situation) -> Decision:
        as_now = Decision(
            alarm.step, "tell", "", alarm.monitor, alarm.e, alarm.since, alarm.level, alarm.limit, alarm.value,
            interval=now.interval, factor=now.factor, done=self.policy.acts,
        )  # fmt: skip
        if alarm.monitor == "cut":
            return replace(as_now, cause="most completions are cut at the token limit")
        if alarm.monitor == "dead":
            return replace(as_now, cause="nearly all groups have equal rewards, and not the highest")
        if alarm.monitor == "reward" and self.heldout.verdict() == "held":
            return replace(as_now, cause="the reward or the data changed, and not the policy")
        sound = self.sound(alarm, now.checkpoints)
        if alarm.monitor == "heldout":
            changed = self.counts.changed
            cause = (
                "the policy follows a reward that changed" if changed else "the reward rises for what held-out does not"
            )
            again = self.counts.rollbacks > 0 and len(self.reward.batches) <= FOLLOW
            fell_too = self.counts.worse or again or self.reward.log_e > 1
            if not fell_too or changed:
                return self._ended(replace(as_now, cause=cause), self.best(sound, now.checkpoints))
        cause = "the gradient is not finite" if alarm.monitor == "not_finite" else "the policy got worse"
        interval, factor = self._changed(now)
        differs = (interval, factor) != (now.interval, now.factor) and self.counts.changes < self.policy.changes
        if sound >= 0 and self.counts.rollbacks < self.policy.rollbacks:
            kept = (interval, factor) if differs else (now.interval, now.factor)
            return replace(as_now, cause=cause, action="rollback", to=sound, interval=kept[0], factor=kept[1],
                           expected=alarm.limit)  # fmt: skip
        if sound < 0 and differs and self.counts.rollbacks < self.policy.rollbacks:
            return replace(as_now, cause=cause, action="change", interval=interval, factor=factor)
        return self._ended(replace(as_now, cause=cause), self.best(sound, now.checkpoints))

    def _ended(self, one: Decision, sound: int) -> Decision:
        """That a run ends, at its last sound checkpoint; only told where ending is not allowed."""
        return replace(one, action="stop", to=sound) if self.policy.stop else one

    def best(self, sound: int, checkpoints: Sequence[int]) -> int:
        """What a stop keeps: the checkpoint with the best held-out accuracy, else the sound one."""
        known = [step for step in checkpoints if step in self.accuracies]
        return max(known, key=lambda step: (self.accuracies[step], step), default=sound)

    def _changed(self, now: Situation) -> tuple[int, float]:
        """Refresh interval and factor on the learning rate after the next change."""
        if self.policy.interval and now.interval > now.parts:
            smaller = [n for n in range(now.parts, now.interval, now.parts) if now.interval % n == 0]
            at_most = [n for n in smaller if n * 4 <= now.interval] or smaller[:1]
            return max(at_most), now.factor
        cut = self.policy.lr_cut ** (self.counts.changes + 1)
        return now.interval, max(now.factor * cut, min(self.policy.lr_least, now.factor))

    def sound(self, alarm: PilotAlarm, checkpoints: Sequence[int]) -> int:
        """The newest checkpoint that is shown to be sound, -1 for none."""
        before = [step for step in checkpoints if alarm.since < 0 or step < alarm.since]
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
            if alarm.monitor == "heldout":
                continue
            limit = alarm.limit if math.isfinite(alarm.limit) else self._limit()
            shown = self.reward.mean(step + 1, alarm.since - 1 if alarm.since >= 0 else math.inf)
            if shown.n >= 2 and shown.value - ONE_SIDED * shown.se >= limit:
                return step
        return -1

    def _limit(self) -> float:
        worst = self.reward.worst
        return worst.limit if worst is not None else -math.inf

    def _same_limit(self, step: int) -> list[Hypothesis]:
        """After weights are put back, their level is known: the mean may not fall below the same limit again."""
        worst = self.reward.worst
        return [] if worst is None else [Hypothesis(step, worst.level, worst.limit, worst.low, worst.high)]

    def _counted(self, alarm: PilotAlarm, found: Decision) -> None:
        counts, name = self.counts, alarm.monitor
        counts.alarms[name] = counts.alarms.get(name, 0) + 1
        counts.bad_steps = 0
        counts.changed |= found.action == "tell" and name == "reward"
        counts.worse = found.action == "change" or (counts.worse and found.action != "rollback")
        counts.rollbacks += found.action == "rollback"
        counts.changes += found.action in ("rollback", "change") and found.interval >= 1
        counts.ended = found.action == "stop"
        self.waiting = found if found.action == "rollback" else self.waiting
        self._loudest.pop(name, None)
        if found.action == "rollback":
            self.dropped.append((found.to, found.step - 1))
            self.shown.append(found.to)
        if name == "reward" or found.action == "rollback":
            same = [] if found.action == "tell" else self._same_limit(found.step)
            self.reward = Fall(self.policy.fall, hypotheses=same)
            self._loudest.pop("reward", None)
        if name == "heldout" or found.action == "rollback":
            before = self.heldout
            self.heldout = HeldoutFall(self.policy.fall, best=before.best, best_step=before.best_step)
            self._loudest.pop("heldout", None)


def decision_of(content: Mapping[str, Any]) -> Decision:
    """The decision that JSON has, in which numbers that are not finite are strings."""
    numbers = {name: float(content[name]) for name in ("e", "level", "limit", "value", "factor", "expected")}
    return Decision(**{**content, **numbers})
