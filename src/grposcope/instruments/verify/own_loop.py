"""For one's own training loop: rows of evidence from the arrays of a batch, and the claims tested on them.

    from grposcope.instruments.verify.own_loop import rows_of, verify_batch

    rows = rows_of(prompt_ids, completion_ids, mask=mask, advantages=advantages, rewards={"right": rewards}, group=8)
    print(verify_batch(rows, Stated(group=8, baseline="mean", scale="group", ddof=1, epsilon=1e-4)).sentence)

Arrays are NumPy's, tensors of any device, or lists. Needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grposcope.core.answer import Answer
from grposcope.core.errors import UserError
from grposcope.core.rollouts import Bools, Floats, Ints, Rollout, Text, turns_of
from grposcope.faults.judge import LEVEL
from grposcope.faults.judge_rollouts import prove
from grposcope.instruments.verify import answer
from grposcope.signs.rollouts.evidence import OptimizerEvidence, PipelineEvidence, ScoredTokens, Stated


@dataclass(frozen=True)
class _BatchColumns:
    """What is known of the B rollouts of a batch, besides their ids; None is not tested.

    prompt_mask (B, S), completion_mask (B, T): 1 on every token that is no padding; lists without padding need none.
    mask (B, T): 1 on the tokens that have a weight in the loss.
    prompt_trained (B, S): the same of the prompt.
    written (B, T): 0 on the tokens of tools and environments.
    sampler, old, current (B, T): log-probabilities of the sampler, of the trainer's weights when the batch was drawn,
    and of those that the loss is taken at.
    reference (B, T): of the policy that the KL term is to.
    loss_weights (B, T): the gradient of the loss with respect to those it is taken at; NaN on rows that the step did
    not take.
    part (B,): number of the micro-batch.
    last, last_weights (B, T): the same log-probabilities and gradient of a later update of the batch, at the optimiser
    step last_step.
    rewards: by function (B,), before weights; reward (B,): their weighted sum.
    advantages: (B,) or (B, T).
    truncated (B,): whether the limit of length cut it.
    version: of the sampler's weights, and step: of the optimiser, one or (B,) each.
    The others are as in `Rollout`.
    """

    prompt_mask: Any = None
    completion_mask: Any = None
    mask: Any = None
    written: Any = None
    prompt_trained: Any = None
    sampler: Any = None
    old: Any = None
    current: Any = None
    reference: Any = None
    loss_weights: Any = None
    part: Any = None
    last: Any = None
    last_weights: Any = None
    last_step: int = 0
    rewards: Mapping[str, Any] | None = None
    reward: Any = None
    advantages: Any = None
    truncated: Any = None
    version: Any = None
    step: Any = 0
    prompts: Sequence[Text] | None = None
    completions: Sequence[Text] | None = None
    environment: Sequence[str] | None = None
    failed: Sequence[str] | None = None
    dropped: Sequence[str] | None = None


OF_TOKENS = ("mask", "written", "sampler", "old", "current", "reference", "loss_weights", "last", "last_weights")
OF_ROLLOUTS = ("truncated", "version", "reward", "part")
IN_WORDS = ("environment", "failed", "dropped")


def rows_of(
    prompt_ids: Any, completion_ids: Any, *, group: int | Sequence[Any], where: str = "batch", **columns: Any
) -> tuple[Rollout, ...]:
    """The B rollouts of a batch as evidence.

    prompt_ids (B, S), completion_ids (B, T): with padding where they have masks, or lists without padding. group:
    rollouts per prompt, siblings next to each other, or what tells the groups apart, (B,). columns: fields of
    `_BatchColumns`. UserError for arrays of other sizes.
    """
    batch = _BatchColumns(**columns)
    tokens = _rows("completion_ids", completion_ids, None)
    count = len(tokens)
    completion_flags = _kept("completion_mask", batch.completion_mask, tokens)
    before = _rows("prompt_ids", prompt_ids, count)
    prompt_flags = _kept("prompt_mask", batch.prompt_mask, before)
    lists = {name: _rows(name, values, count) for name in OF_TOKENS if (values := getattr(batch, name)) is not None}
    before_trained = None if batch.prompt_trained is None else _rows("prompt_trained", batch.prompt_trained, count)
    advantage_rows = None if batch.advantages is None else _rows("advantages", batch.advantages, count)
    single = {name: _of_each(name, getattr(batch, name), count) for name in OF_ROLLOUTS}
    by_function = {name: _column(f"rewards {name}", values, count) for name, values in (batch.rewards or {}).items()}
    groups = [index // group for index in range(count)] if isinstance(group, int) else list(group)
    steps = _of_each("step", batch.step, count)
    assert steps is not None
    texts = {"prompt": batch.prompts, "completion": batch.completions}
    words = {name: getattr(batch, name) for name in IN_WORDS}
    for name, column in {"group": groups, **texts, **words}.items():
        if column is not None and len(column) != count:
            raise UserError(f"{name} has {len(column):,} entries for {count:,} completions; give one for each")
    rows = []
    for i in range(count):
        own = completion_flags[i]
        parts = {name: _kept_values(name, column[i], own) for name, column in lists.items()}
        trained, drawn = parts.pop("mask", None), parts.pop("written", None)
        single_of = {name: float(column[i]) for name, column in single.items() if column is not None}
        further: dict[str, Any] = {name: None if column is None else column[i] for name, column in texts.items()}
        further |= {name: _word(column, i) for name, column in words.items()}
        further |= {name: _known(parts.get(name)) for name in OF_TOKENS if name not in ("mask", "written")}
        rows.append(
            Rollout(
                where=f"{where}, rollout {i + 1}",
                step=int(steps[i]),
                group=str(groups[i]),
                prompt_ids=_ids(before[i])[prompt_flags[i]],
                completion_ids=_ids(tokens[i])[own],
                mask=None if trained is None else trained != 0,
                written=None if drawn is None else drawn != 0,
                turns=None if drawn is None else turns_of(drawn != 0),
                prompt_trained=_flags("prompt_trained", before_trained, i, prompt_flags[i]),
                named=True,
                rewards={name: float(column[i]) for name, column in by_function.items()},
                reward=single_of.get("reward", math.nan),
                advantages=None if advantage_rows is None else _advantages(advantage_rows[i], own),
                truncated=bool(single_of["truncated"]) if "truncated" in single_of else None,
                version=single_of.get("version", math.nan),
                micro_batch=int(single_of.get("part", 0)),
                last_step=batch.last_step if batch.last is not None else 0,
                **further,
            )
        )
    return tuple(rows)


def verify_batch(
    rows: Sequence[Rollout],
    stated: Stated,
    *,
    scored: Sequence[ScoredTokens] = (),
    optimizer: Sequence[OptimizerEvidence] = (),
    error: float = LEVEL,
    source: str = "batch",
    **further: Any,
) -> Answer:
    """What becomes of each claim on the rows of one batch, or of several.

    stated: what the settings say. scored: the tokens of all rows under checkpoints. optimizer: what its state said
    after earlier steps. error: the chance that any claim of a sound pipeline is called broken; a loop that asks at
    every batch gives less, such as 0.05 / (k (k + 1)) at the k-th. further: `grader`, `run`, `filtered` and `earlier`
    of `PipelineEvidence`: the reward function, which is then asked again, the log, whether rollouts were left out
    before they came here, and prompts of earlier batches.
    """
    rows, scored, optimizer = tuple(rows), tuple(scored), tuple(optimizer)
    told = {name: value for name, value in further.items() if value is not None}
    evidence = PipelineEvidence(
        source, rows=rows, stated=stated, scored=scored, optimizer=optimizer, whole=True, **told
    )
    return answer.of(evidence, prove(evidence, level=error))


def _array(values: Any) -> Any:
    """A tensor of any device and number format as an array."""
    if hasattr(values, "detach"):
        values = values.detach()
        values = (values.float() if values.is_floating_point() else values).cpu().numpy()
    return values


def _word(column: Sequence[str] | None, index: int) -> str:
    return "" if column is None else str(column[index] or "")


def _known(values: Floats | None) -> Floats | None:
    """Log-probabilities of a rollout; None where it has none, which is not the same as some that are NaN."""
    return None if values is None or (len(values) and np.isnan(values).all()) else values


def _flags(name: str, column: Sequence[Any] | None, index: int, flags: Bools) -> Bools | None:
    return None if column is None else _kept_values(name, column[index], flags) != 0


def _rows(name: str, values: Any, count: int | None) -> list[Any]:
    arrays = [_array(row) for row in _array(values)]
    if count is not None and len(arrays) != count:
        raise UserError(f"{name} has {len(arrays):,} rows for {count:,} completions; give one for each")
    return arrays


def _of_each(name: str, values: Any, count: int) -> Floats | None:
    """A number of every rollout, (B,), from those or from one of all; None for None."""
    if values is None:
        return None
    return _column(name, [values] * count if np.ndim(values) == 0 else values, count)


def _column(name: str, values: Any, count: int) -> Floats:
    numbers: Floats = np.asarray([np.nan if value is None else value for value in _array(values)], np.float64)
    if numbers.shape != (count,):
        raise UserError(f"{name} has {len(numbers):,} entries for {count:,} completions; give one for each")
    return numbers


def _ids(values: Any) -> Ints:
    return np.asarray(values, np.int64)


def _kept(name: str, mask: Any, rows: Sequence[Any]) -> list[Bools]:
    if mask is None:
        return [np.ones(len(row), bool) for row in rows]
    flag_rows = [np.asarray(row, bool) for row in _rows(name, mask, len(rows))]
    for i, (flags, row) in enumerate(zip(flag_rows, rows, strict=True)):
        if len(flags) != len(row):
            raise UserError(
                f"{name}, rollout {i + 1}: {len(flags):,} entries for {len(row):,} tokens; give one for each"
            )
    return flag_rows


def _kept_values(name: str, values: Any, flags: Bools) -> Floats:
    """The values of the tokens that are no padding; those that are given without padding as they are."""
    numbers: Floats = np.asarray([np.nan if value is None else value for value in values], np.float64)
    if len(numbers) == len(flags):
        return numbers[flags]
    if len(numbers) == int(flags.sum()):
        return numbers
    raise UserError(f"{name} has {len(numbers):,} entries for {len(flags):,} tokens; give one for each")


def _advantages(values: Any, flags: Bools) -> Floats:
    numbers: Floats = np.asarray(values, np.float64)
    return (
        numbers.reshape(1) if numbers.ndim == 0 or numbers.shape == (1,) else _kept_values("advantages", numbers, flags)
    )
