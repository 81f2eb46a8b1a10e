"""Toy policies over a few tokens, rollouts drawn from them, and the evidence of `verify` that they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from grposcope.core.rollouts import Rollout
from grposcope.instruments.verify import scoring
from grposcope.signs.rollouts.evidence import PipelineEvidence, ScoredTokens, Stated
from grposcope.signs.rollouts.sampling_grids import POWERS, TOP_KS

VOCABULARY, LENGTH, GROUP = 24, 6, 8

Change = Callable[[np.ndarray], np.ndarray]
"""Probabilities (R, T, V) of the trainer to those that a sampler draws by."""


def unchanged(chances: np.ndarray) -> np.ndarray:
    return chances


def tempered(temperature: float) -> Change:
    return lambda chances: normalized(chances ** (1 / temperature))


def top_k(k: int) -> Change:
    return lambda chances: normalized(np.where(chances >= np.sort(chances, -1)[..., -k, None], chances, 0))


def rounded(size: float, seed: int = 9) -> Change:
    """Noise on the logits, the same every time."""
    random = np.random.default_rng(seed)
    return lambda chances: normalized(chances * np.exp(size * random.standard_normal(chances.shape)))


def normalized(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum(-1, keepdims=True)


def logits(rows: int, checkpoints: int, moved: float, seed: int) -> np.ndarray:
    """(C, R, T, V): contexts differ by row and token; each checkpoint is `moved` from the one before."""
    random = np.random.default_rng(seed)
    first = 2 * random.standard_normal((rows, LENGTH, VOCABULARY))
    steps = moved * random.standard_normal((checkpoints, rows, LENGTH, VOCABULARY))
    steps[0] = 0
    return first + steps.cumsum(0)


def evidence(
    rows: int = 64,
    writers: Sequence[int] = (0,),
    checkpoints: int = 1,
    moved: float = 0.0,
    change: Change = unchanged,
    recorded: bool = True,
    seed: int = 0,
    **stated: object,
) -> PipelineEvidence:
    """Rollouts of len(writers) steps, `rows` each; step s + 1 should be drawn by checkpoint s and is by writers[s]."""
    every = logits(rows * len(writers), checkpoints, moved, seed)
    random, made, tokens = np.random.default_rng(seed + 1), [], []
    chances = [change(one) for one in normalized(np.exp(every))]
    for number in range(rows * len(writers)):
        drawn_by = chances[writers[number // rows]][number]
        picked = (random.random((LENGTH, 1)) > drawn_by.cumsum(-1)).sum(-1).clip(max=VOCABULARY - 1)
        log = np.log(drawn_by[np.arange(LENGTH), picked])
        tokens.append(picked)
        made.append(
            Rollout(
                f"row {number}", step=number // rows + 1, group=str(number // GROUP), prompt_ids=np.array([1]),
                completion_ids=picked, sampler=log if recorded else None, reward=float(random.random() < 0.9),
            )
        )  # fmt: skip
    return PipelineEvidence("toy", rows=tuple(made), stated=Stated(**stated), scored=scored(every, tokens))


def scored(every: np.ndarray, tokens: Sequence[np.ndarray]) -> tuple[ScoredTokens, ...]:
    """The tokens under logits (C, R, T, V) of each checkpoint."""
    ends, found = np.cumsum([5, len(POWERS), len(TOP_KS)]), []
    for step, one in enumerate(every):
        columns = scoring._of_logits(
            torch.from_numpy(one).reshape(-1, VOCABULARY), torch.from_numpy(np.concatenate(tokens)), 1.0
        ).numpy()
        parts = np.split(columns, np.cumsum([len(own) for own in tokens])[:-1])
        found.append(
            ScoredTokens(
                f"step {step}", step, [p[:, 0] for p in parts], [p[:, 1] for p in parts], [p[:, 2] for p in parts],
                [p[:, 3].astype(np.int64) for p in parts], [p[:, 4] for p in parts], VOCABULARY,
                [p[:, ends[0] : ends[1]] for p in parts], [p[:, ends[1] : ends[2]] for p in parts],
                [p[:, ends[2] :] for p in parts],
            )
        )  # fmt: skip
    return tuple(found)
