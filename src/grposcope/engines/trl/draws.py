"""Allocated draws in TRL: a sampler that draws prompts by their forecast success rates.

Which prompts those are an allocator with a policy says, such as filter; TRL gives each `num_generations` rollouts.
Draws are made when the data loader asks for a batch, which may be while the batch before is still to be generated; the
forecast then lags by a batch. What was learned, and what was drawn but not yet used, lies in each of TRL's checkpoints
as CHECKPOINT, so that a resumed run draws as if it had never ended.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler
from transformers import TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from grposcope.core.errors import UserError
from grposcope.core.files import versioned_json, write_json
from grposcope.lab.allocation import ALLOCATORS, LOOKED_AT, ChosenAllocator, chosen
from grposcope.lab.allocation.forecast import Forecaster
from grposcope.lab.allocation.picks import CandidateProblems
from grposcope.lab.tasks.base import number
from grposcope.logs.trainers.trl import checkpoint_step

CHECKPOINT = "grposcope_allocation.json"
"""File of a checkpoint that keeps the draws' history."""
FORMAT = 2
"""Format 1 had weights of prompts too, which the allocators of today do not need."""


def allocator(text: str) -> ChosenAllocator | None:
    """What `allocate` asks for, None for uniform draws; UserError for what TRL's batches cannot do."""
    asked = chosen(text)
    if asked.name == "uniform":
        return None
    if asked.plain:
        able = [name for name, allocator in ALLOCATORS.items() if allocator.picks is not None]
        raise UserError(
            f"allocate {text}: TRL's batches have num_generations rollouts of every prompt, so only the draw can be "
            f"allocated; use {' or '.join(able)} here, or grposcope train"
        )
    if asked.values.get("history"):
        raise UserError(f"allocate {text}: history is not read in TRL; leave it out")
    return asked


_Drawn = tuple[NDArray[np.int64], float]
"""A batch: rows of the dataset (P,), and the share of live groups that was promised."""


class PromptDraws(Sampler[int]):
    """Row numbers of a dataset: batches of P prompts, each prompt G times and each batch `repeats` times, as in TRL.

    After a batch was rewarded, `learn` takes its rewards.
    """

    def __init__(self, asked: ChosenAllocator, dataset: Any, prompts: int, group: int, repeats: int, seed: int):
        """UserError for a dataset without a length, or of fewer prompts than a batch."""
        if not hasattr(dataset, "__len__") or len(dataset) < prompts:
            raise UserError(f"allocate {asked.text} needs a dataset with a length, of {prompts} prompts or more")
        self.asked, self.dataset, self.shape, self.repeats, self.seed = asked, dataset, (prompts, group), repeats, seed
        rows = [dataset[i] for i in range(len(dataset))]
        self.prompts = [row["prompt"] for row in rows]
        self.forecaster = Forecaster(
            [f"{i} {prompt}" for i, prompt in enumerate(self.prompts)],
            [number(row.get("difficulty")) for row in rows],
            [len(str(prompt)) for prompt in self.prompts],
        )
        self.drawn: deque[_Drawn] = deque()
        self.count = 0
        self._pass: list[_Drawn] = []  # batches of this pass over the data
        self._resumed: list[_Drawn] = []  # those with which the next pass begins

    def __len__(self) -> int:
        prompts, group = self.shape
        return len(self.prompts) // prompts * prompts * group * self.repeats

    def __iter__(self) -> Iterator[int]:
        prompts, group = self.shape
        resumed, self._resumed, self._pass = self._resumed, [], []
        for i in range(len(self.prompts) // prompts):
            self._pass.append(resumed[i] if i < len(resumed) else self._draw())
            for _ in range(self.repeats):
                for row in self._pass[i][0].tolist():
                    yield from [row] * group

    def _draw(self) -> _Drawn:
        """The next batch, remembered until its rewards are learned."""
        digest = hashlib.sha256(f"{self.seed}:{self.count}".encode()).digest()
        random = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        self.count += 1
        assert self.asked.allocator.picks is not None
        prompts, group = self.shape
        pool = random.permutation(len(self.prompts))[: LOOKED_AT * prompts]
        candidates = CandidateProblems(self.forecaster.rates(pool), prompts, group, random.random(len(pool)))
        taken = self.asked.allocator.picks(candidates, self.asked.values)
        self.drawn.append((pool[taken.chosen], taken.live))
        return self.drawn[-1]

    def learn(self, first: Any, rewards: NDArray[np.float64]) -> dict[str, float]:
        """The metrics of the oldest batch not learned from; the forecast takes in its rewards.

        first: prompt of the batch's first rollout; rewards (P, G), NaN where there is none. UserError where the batch
        is not the one that was drawn.
        """
        which, promised = self.drawn.popleft() if self.drawn else (np.empty(0, int), 0.0)
        if len(which) != len(rewards) or self.prompts[which[0]] != first:
            raise UserError("the batches of this trainer are not those that allocate drew; leave allocate out")
        present = ~np.isnan(rewards)
        live = np.array([len(set(group[inside])) > 1 for group, inside in zip(rewards, present, strict=True)])
        self.forecaster.learn_groups(which, rewards)
        return {
            "allocation/live": float(live.mean()),
            "allocation/live_promised": promised,
            "allocation/effective_prompts": float(live.sum()),
        }

    def state(self, step: int, accumulated: int) -> dict[str, Any]:
        """What a checkpoint keeps behind optimiser step `step`, each of which takes `accumulated` batches."""
        loaded = len(self) // (self.shape[0] * self.shape[1])  # batches of the data loader in a pass
        passed = step % -(-loaded // accumulated) * accumulated  # of these, as Trainer counts when it resumes
        used = passed // self.repeats
        waiting = self._pass[used:] if passed else []  # of a pass that ended nothing is left
        return {
            "format": FORMAT,
            "batch": [*self.shape, self.repeats],
            "count": self.count,
            "used": used,
            "left": [[which.tolist(), live] for which, live in waiting],
            "forecast": self.forecaster.state(),
        }

    def restore(self, checkpoint: Path, skipping: bool) -> None:
        """Go on from a checkpoint; UserError for one without a history, of other prompts, or of another batch.

        skipping: whether the trainer skips what it has used of the pass that the checkpoint is in, as it does unless
        told `ignore_data_skip`.
        """
        path = checkpoint / CHECKPOINT
        if not path.exists():
            raise UserError(
                f"{checkpoint} holds no {CHECKPOINT}, the history of success rates that allocate {self.asked.text} "
                "continues from; resume from another checkpoint, leave allocate out, or start a new run"
            )
        state = versioned_json(path, FORMAT, "GRPOscopeTrainer", "resume from another checkpoint")
        own = [*self.shape, self.repeats]
        if state["batch"] != own:
            was, now = (f"{p} prompts × {g} rollouts, each used {r} times" for p, g, r in (state["batch"], own))
            raise UserError(
                f"{path} was written for batches of {was}, and this run has batches of {now}; resume with the "
                "same arguments"
            )
        self.forecaster.restore(state["forecast"])
        self.count = state["count"]
        waiting = [(np.array(which), live) for which, *_, live in state["left"]]
        self.drawn = deque(waiting if skipping else [])
        skipped = (np.zeros(self.shape[0], int), 0.0)  # rows that nobody will look at
        self._resumed = [skipped] * state["used"] + waiting if skipping else []

    def keeper(self) -> TrainerCallback:
        """What writes the history of draws into each checkpoint."""
        return _KeepDraws(self)


class _KeepDraws(TrainerCallback):
    """Writes the history of draws into each checkpoint."""

    def __init__(self, draws: PromptDraws):
        """draws: those of the trainer."""
        self.draws = draws

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Behind TRL's own files."""
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        write_json(folder / CHECKPOINT, self.draws.state(state.global_step, args.gradient_accumulation_steps))


def checkpoint(output: str | None, asked: str | bool) -> Path | None:
    """The checkpoint that `resume_from_checkpoint` names: for True the newest that no kill has cut short, if any."""
    if asked is not True:
        return Path(str(asked))
    whole = [path.parent for path in Path(str(output)).glob(f"{PREFIX_CHECKPOINT_DIR}-*/{TRAINER_STATE_NAME}")]
    return max(whole, key=lambda folder: checkpoint_step(folder.name), default=None)  # the state is written last
