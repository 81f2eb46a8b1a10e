"""A run of TRL that sets its own group size, at equal rollouts a step: it moves where a pass over the data begins.

The probes of the record since the last move are pooled, and `instruments.group_size.moves` says whether to move. TRL's
sampler fixes the group when a pass begins, so that a move waits for the next one, and a run of one pass stays as it is,
which is said. The draws are ours: passes keep their number of batches, whatever the group, so that steps, schedule and
end of the run stay; a pass with smaller groups goes through the data more than once. Each checkpoint keeps the size.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from grposcope.core.errors import UserError
from grposcope.core.files import versioned_json, write_json
from grposcope.engines.trl.processes import say
from grposcope.instruments import has, needed
from grposcope.lab.train.group_moves import NEEDS

CHECKPOINT = "grposcope_group.json"
"""File of a checkpoint that keeps the group size."""
FORMAT = 1

PROBED = 5
"""Steps between probes, where none were asked for."""


class _GroupDraws(Sampler[int]):
    """Row numbers of a dataset: batches of `whole` rollouts, each prompt `group` times, each batch `repeats` times.

    batches: of a pass, which stay when `group` changes. passed: number of the pass that begins next, which decides the
    order of the rows; not shuffled, they come in turn.
    """

    def __init__(self, rows: int, group: int, whole: int, repeats: int, seed: int | None):
        """seed: of the order, None for rows in turn."""
        self.rows, self.group, self.whole, self.repeats, self.seed = rows, group, whole, repeats, seed
        self.batches, self.passed = rows // (whole // group), 0

    def __len__(self) -> int:
        return self.batches * self.whole * self.repeats

    def __iter__(self) -> Iterator[int]:
        group, prompts = self.group, self.whole // self.group
        needed = self.batches * prompts
        order = np.concatenate([self._order(number) for number in range(-(-needed // self.rows))])
        for batch in order[:needed].reshape(-1, prompts).tolist():
            for _ in range(self.repeats):
                for row in batch:
                    yield from [row] * group

    def _order(self, number: int) -> np.ndarray:
        """The rows of the data, once, for a time that a pass goes through them."""
        if self.seed is None:
            return np.arange(self.rows)
        digest = hashlib.sha256(f"{self.seed}:{self.passed}:{number}".encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "big")).permutation(self.rows)


class GroupSteering(TrainerCallback):
    """Moves the group size of a trainer where a pass over the data begins, at most once in `every` steps."""

    def __init__(self, trainer: Any, every: int):
        """UserError for settings with which it is not known what another group size would save."""
        _check(trainer)
        args = trainer.args
        self.trainer, self.every, self.since = trainer, every, 0
        self.draws = _GroupDraws(
            len(trainer.train_dataset), trainer.num_generations, args.generation_batch_size,
            trainer.num_iterations * args.steps_per_generation,
            args.seed if getattr(trainer, "shuffle_dataset", True) else None,
        )  # fmt: skip

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Say when the group size can move."""
        steps = self._steps_of_a_pass(args)
        moves = (
            f"moves at the earliest every {self.every} steps, where a pass over the data begins (every {steps})"
            if state.max_steps > steps
            else f"stays at {self.draws.group}: in TRL it moves where a pass over the data begins, and this run has one"
        )
        self._say(f"the group size {moves}")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Decide where a pass begins; not where a resumed run goes on within one."""
        epoch = float(state.epoch or 0.0)
        whole = abs(epoch - round(epoch)) < 1e-6
        self.draws.passed = round(epoch) if whole else math.floor(epoch)
        if whole and state.global_step >= self.since + self.every:
            self._decide(state.global_step)
        self.trainer.num_generations = self.draws.group
        self.trainer._scope_record.regrouped(state.global_step + 1, self.draws.group)

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Keep the size in the checkpoint that was just written."""
        if state.is_world_process_zero:
            kept = {"format": FORMAT, "group": self.draws.group, "since": self.since}
            write_json(Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}" / CHECKPOINT, kept)

    def restore(self, checkpoint: Path) -> None:
        """Go on with the size of a checkpoint; UserError for one without."""
        path = checkpoint / CHECKPOINT
        if not path.exists():
            raise UserError(f"{checkpoint} holds no {CHECKPOINT}; resume without num_generations='auto'")
        content = versioned_json(path, FORMAT, "GRPOscopeTrainer", "resume from another checkpoint")
        self.draws.group, self.since = int(content["group"]), int(content["since"])

    def _decide(self, step: int) -> None:
        """Move, if that pays; the main process looks at its record, and all take what it decides."""
        looked = self._looked(step) if self.trainer.is_world_process_zero() else 0
        found = torch.tensor([looked], device=self.trainer.args.device)
        if self.trainer.accelerator.num_processes > 1:
            torch.distributed.broadcast(found, 0)
        if int(found):
            self.draws.group, self.since = int(found), step

    def _looked(self, step: int) -> int:
        """The group size to go on with, recorded and said; 0 where it stays."""
        from grposcope.instruments.autopilot import events, wording
        from grposcope.instruments.autopilot.pilot import group_move
        from grposcope.instruments.gradient import probe_record
        from grposcope.instruments.group_size import moves, probe_pool

        folder: Path | None = self.trainer._scope_record.record_folder
        if folder is None:
            return 0
        events.cut_back(folder, step)
        kept = [one for one in probe_record.in_folder(folder) if one.gram_bytes() and one.group == self.draws.group]
        kept = [one for one in kept if self.since <= (-1 if one.step is None else one.step) < step]
        if not kept:
            return 0
        pool = probe_pool.of_files([one.read_gram() for one in kept], [int(one.step or 0) + 1 for one in kept])
        among = moves.sizes(self.draws.whole, problems=self.draws.rows)
        move = moves.of_pool(pool.files, self.draws.group, among)
        if not move.moves:
            self._say(f"step {step}: the group size stays at {self.draws.group}: {move.reason}")
            return 0
        steering = self.trainer._scope_steering
        levers = 1, 1.0 if steering is None else steering.pilot.counts.factor
        decision = group_move(step, move, pool.steps, self.draws.whole // move.group, levers)
        events.append(folder, decision)
        self._say(wording.sentence(decision))
        return move.group

    def _steps_of_a_pass(self, args: Any) -> int:
        loaded = self.draws.batches * self.draws.repeats
        return max(1, loaded // args.gradient_accumulation_steps)

    def _say(self, line: str) -> None:
        if self.trainer.is_world_process_zero():
            say(f"grposcope: {line}")


def _check(trainer: Any) -> None:
    """UserError where the group size of a trainer cannot move."""
    lacking = [name for name in NEEDS if not has(name)]
    if lacking:
        raise UserError(needed(lacking))
    kind = None if trainer._scope_objective is None else trainer._scope_objective.comparison
    reasons = {
        "a dataset with a length": hasattr(trainer.train_dataset, "__len__"),
        "TRL's own draws: leave out allocate": trainer._scope_draws is None,
        "no constraints": trainer._scope_limits is None,
        "credit outcome": trainer._scope_credit.source.whole,
        "advantages without a scale of each group (scale_rewards='none' or 'batch')": kind == "leave-one-out",
    }
    missing = next((what for what, there in reasons.items() if not there), "")
    if missing:
        raise UserError(f"num_generations='auto' needs {missing}")
