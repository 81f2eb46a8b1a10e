"""A run that sets its own group size: probes of its batches, and moves to a size that needs fewer rollouts.

A probe is the Gram matrix of the scores of a fresh batch's first prompts, without the rest of the geometry, kept in
RUN/group_probes/step-…/gram.npz; of large groups the first rollouts do. Groups whose
rewards are all equal have no gradient, so that their scores are not taken and stand as 0. From `auto_group` steps after
the last move on, the probes since then are pooled where a batch ends, and `instruments.group_size.moves` says whether
to move. The first move of a run may come earlier: from PROMPTS probed prompts on, where the pool names the same size
with its last probe and without it. Prompts × group stays what it was. Moves are events of the autopilot in the record,
which a resumed run takes its size from.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from grposcope.core.errors import UserError
from grposcope.instruments import has, needed
from grposcope.lab.objectives import advantages
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.rollouts import Batch
from grposcope.lab.train.setup import Setup

if TYPE_CHECKING:
    from grposcope.core.run import Floats
    from grposcope.instruments.autopilot.pilot import Decision

FOLDER = "group_probes"
"""Subfolder of a run with the probes."""

PROMPTS = 8
"""Prompts of a probe, where the batch has as many."""

POOLED = 24
"""Prompts that the probes between two moves have, at least about."""

ROLLOUTS = 16
"""Rollouts of a prompt from which the moments are taken: they are those of any group size."""

NEEDS = ("gradient", "group_size", "autopilot")
"""Instruments that a moving group size takes."""


class _GroupMoves:
    """The group size of a run whose record is in `folder`.

    group, prompts: as decided so far. since: step of the last move, 0 for none. rollouts: of a step, which stay.
    looked: the last probe that was looked at. told: whether it was said since the last move that the size stays.
    """

    def __init__(self, setup: Setup, folder: Path, done: int):
        """done: steps that the run has made; what was recorded after them is taken out."""
        from grposcope.instruments.autopilot import events

        config = setup.config
        self.setup, self.folder, self.every = setup, folder, config.auto_group
        self.rollouts, self.group, self.since = config.prompts * config.group, config.group, 0
        self.looked, self.told = "", False
        events.cut_back(folder, done)
        story = events.read(folder)
        for decision in () if story is None else story.decisions:
            if decision.setting == "group" and decision.done:
                self.group, self.since = decision.group, decision.step
        for place in self._probes(0):
            if _step(place) > done:
                shutil.rmtree(place)

    @property
    def prompts(self) -> int:
        """Prompts of a batch."""
        return self.rollouts // self.group

    def steered(self, setup: Setup) -> Setup:
        """The setup with the group size as decided so far."""
        if setup.config.group == self.group:
            return setup
        return replace(setup, config=replace(setup.config, group=self.group, prompts=self.prompts))

    def probe(self, step: int, batch: Batch, say: Callable[[str], None]) -> dict[str, float]:
        """Probe a batch that is fresh at `step`, if that is due: the seconds that it took, as a metric.

        A probe draws no random number of the run and changes neither weights nor gradients.
        """
        count = min(PROMPTS, self.prompts)
        pause = max(self.setup.config.interval, self.every * count // POOLED)
        if (step - 1) % pause >= self.setup.config.interval:
            return {}
        from grposcope.instruments.gradient.probe_record import ProbeGram, write_gram

        began, rollouts = time.perf_counter(), batch.rollouts.take(torch.arange(count, device=batch.graded.device))
        if self.group > ROLLOUTS:
            rollouts = rollouts.columns(slice(ROLLOUTS))
        try:
            gram = _gram_of(self.setup, rollouts, check=step == 1)
        except UserError as error:
            say(f"step {step}: no probe of the group size: {error}")
            return {}
        rewards = rollouts.rewards.double().numpy(force=True)
        truncated = rollouts.truncated.reshape(rollouts.rewards.shape).numpy(force=True)
        write_gram(self.folder / FOLDER / f"step-{step:06d}", ProbeGram(gram, rewards, truncated))
        return {"seconds_probe": time.perf_counter() - began}

    def decide(self, step: int, levers: tuple[int, float], say: Callable[[str], None]) -> Decision | None:
        """The move after the batch that ended with `step`, recorded and said; None for none.

        levers: refresh interval and factor on the learning rate, which stay.
        """
        early = step - self.since < self.every
        if early and self.since:
            return None
        found = self._probes(self.since)
        if not found or found[-1].name == self.looked:
            return None
        self.looked = found[-1].name
        from grposcope.instruments.autopilot import events, wording
        from grposcope.instruments.autopilot.pilot import group_move
        from grposcope.instruments.gradient.probe_record import read_gram
        from grposcope.instruments.group_size import moves, probe_pool

        pool = probe_pool.of_files([read_gram(place) for place in found], [_step(place) for place in found])
        before = pool.files[:-1]
        if early and sum(len(file.rewards) for file in before) < PROMPTS:
            return None
        config = self.setup.config
        among = moves.sizes(self.rollouts, config.minibatches, len(self.setup.train_set))
        move = moves.of_pool(pool.files, self.group, among)
        if early and not (move.moves and moves.of_pool(before, self.group, among).group == move.group):
            return None
        if not move.moves:
            if not self.told:
                say(f"step {step}: the group size stays at {self.group}: {move.reason}")
            self.told = True
            return None
        decision = group_move(step, move, pool.steps, self.rollouts // move.group, levers)
        events.append(self.folder, decision)
        say(wording.sentence(decision))
        self.group, self.since, self.told = move.group, step, False
        return decision

    def _probes(self, after: int) -> list[Path]:
        """Folders of the probes of steps after this one, in order."""
        every = sorted((self.folder / FOLDER).glob("step-*"), key=_step)
        return [place for place in every if _step(place) > after]


def _gram_of(setup: Setup, rollouts: RolloutBatch, check: bool) -> Floats:
    """Inner products of the rollouts' scores (B, B), 0 in groups with equal rewards; UserError as from a probe.

    check: compare with autograd on a few tokens first.
    """
    from grposcope.instruments.gradient import copies

    group = rollouts.groups[1]
    live = (~advantages.dead(rollouts.rewards)).nonzero()[:, 0]
    gram = np.zeros((len(rollouts.mask),) * 2)
    if len(live):
        few = rollouts.take(live)
        no_copies = torch.zeros(0, dtype=torch.long, device=few.mask.device)
        weights = torch.zeros(0, few.mask.shape[1], dtype=torch.float64, device=few.mask.device)
        none = copies.Copies(no_copies, weights, no_copies)
        products, *_ = copies.measure(setup.policy.model, few, none, setup.config.temperature, check)
        rows = (live[:, None].numpy(force=True) * group + np.arange(group)).reshape(-1)
        gram[np.ix_(rows, rows)] = products
    return gram


def opened(setup: Setup, folder: Path, done: int, say: Callable[[str], None]) -> _GroupMoves | None:
    """What moves the group size of a run; None where that is not asked for, or cannot be, which is said."""
    if not setup.config.auto_group:
        return None
    lacking = [name for name in NEEDS if not has(name)]
    if lacking:
        say("the group size stays: " + needed(lacking))
        return None
    return _GroupMoves(setup, folder, done)


def _step(place: Path) -> int:
    named = re.fullmatch(r"step-(\d+)", place.name)
    return int(named[1]) if named else -1
