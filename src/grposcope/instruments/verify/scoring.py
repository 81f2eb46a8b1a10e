"""The tokens of rollouts under a checkpoint: log-probability, entropy, rank, and what settings would change.

Each rollout is a row of a plain forward pass in float32, its prompt and its completion one after the other, padded on
the right, so that a causal model cannot see the padding. Rows of one length go together, so many that the logits take
about BUDGET bytes. Rollouts without token ids are encoded from their text (`instruments.gradient.retokenize`); the text
does not show in which tokens the model wrote it, nor always its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Floats, Rollout
from grposcope.instruments import has
from grposcope.lab.policies import Policy
from grposcope.signs.rollouts.evidence import ScoredTokens
from grposcope.signs.rollouts.sampling_grids import POWERS, TOP_KS, TOP_PS

BUDGET = 2e8
"""Bytes of the logits of one forward pass."""

PIECE = 2e5
"""Numbers of the logits that are looked at together, so few that they stay in the processor's cache."""

LOG_0 = -1e4
"""Log-probability of a token that a model rules out, so that nothing is multiplied by infinity."""

COLUMNS = 5 + len(POWERS) + len(TOP_KS) + len(TOP_PS)


def with_ids(rows: Sequence[Rollout], policy: Policy) -> tuple[tuple[Rollout, ...], tuple[str, ...]]:
    """The rows with token ids, of their text where they have none, and notes on what the text cannot show.

    UserError for ids that the model does not have.
    """
    size = _vocabulary(policy)
    for row in rows:
        for name, ids in (("prompt", row.prompt_ids), ("completion", row.completion_ids)):
            if ids is not None and len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
                wrong = int(ids.max()) if int(ids.max()) >= size else int(ids.min())
                raise UserError(
                    f"{row.where}: token id {wrong} of the {name} is not among the {size:,} of {policy.name}; give the "
                    "checkpoint whose tokenizer wrote these ids"
                )
    encoded = [_encoded(row, policy) for row in rows]
    made = sum(new is not old for new, old in zip(encoded, rows, strict=True))
    absent = sum(row.completion_ids is None or row.prompt_ids is None for row in encoded)
    notes = []
    if made:
        notes.append(
            f"{made:,} rollout{' was' if made == 1 else 's were'} tokenized again from the text, so the tokens may "
            "differ from those that the model wrote; log prompt_ids and completion_ids to be sure"
        )
    if absent:
        notes.append(f"{absent:,} rollouts have neither token ids nor a text to tokenize, and were not scored")
    return tuple(encoded), tuple(notes)


def _encoded(row: Rollout, policy: Policy) -> Rollout:
    """The row with ids made of its text where they are absent; the same object where nothing could be done."""
    changed: dict[str, Any] = {}
    if has("gradient"):
        from grposcope.instruments.gradient import retokenize

        if row.prompt_ids is None and row.prompt is not None:
            changed["prompt_ids"] = np.array(retokenize.prompt_ids(policy, row.prompt, {})[0], np.int64)
        if row.completion_ids is None and isinstance(row.completion, str):
            ids = list(policy.tokenizer(row.completion, add_special_tokens=False).input_ids)
            width = next((len(array) for array in (row.sampler, row.old, row.mask) if array is not None), None)
            if width == len(ids) + 1 or (width is None and row.truncated is False):
                ids.append(retokenize.end_token(policy))
            if width is None or width == len(ids):  # else its tokens were others, and nothing can be set beside them
                changed["completion_ids"] = np.array(ids, np.int64)
    return replace(row, **changed) if changed else row


@dataclass(frozen=True)
class _Placed:
    """A rollout that can be scored: its place among the rows, and its ids."""

    place: int
    prompt: Tensor
    completion: Tensor

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.completion)


@torch.no_grad()
def score(
    policy: Policy,
    rows: Sequence[Rollout],
    temperature: float = 1.0,
    name: str | None = None,
    step: int | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> ScoredTokens:
    """The completions of the rows under a policy at `temperature`; rows without ids have NaN for each token.

    progress: is told how many rows are done, and of how many. UserError for rollouts longer than the model's context,
    and where its logits are not finite.
    """
    placed = [
        _Placed(index, torch.from_numpy(row.prompt_ids), torch.from_numpy(row.completion_ids))
        for index, row in enumerate(rows)
        if row.prompt_ids is not None and row.completion_ids is not None and len(row.prompt_ids)
        and len(row.completion_ids)
    ]  # fmt: skip
    for sequence in placed:
        if sequence.length > policy.context:
            raise UserError(
                f"{rows[sequence.place].where}: {sequence.length:,} tokens, but the context of {policy.name} is "
                f"{policy.context:,}; give the checkpoint that wrote them"
            )
    columns = [np.full((_width(row), COLUMNS), np.nan) for row in rows]
    done = 0
    for batch in _batches(placed, _vocabulary(policy)):
        for sequence, values in zip(batch, _forward(policy, batch, temperature), strict=True):
            columns[sequence.place] = values.double().cpu().numpy()
        done += len(batch)
        progress(done, len(placed))
    ends = np.cumsum([5, len(POWERS), len(TOP_KS), len(TOP_PS)])
    return ScoredTokens(
        name=policy.name if name is None else name,
        step=step,
        logp=[column[:, 0] for column in columns],
        entropy=[column[:, 1] for column in columns],
        variance=[column[:, 2] for column in columns],
        rank=[np.nan_to_num(column[:, 3], nan=-1).astype(np.int64) for column in columns],
        above=[column[:, 4] for column in columns],
        vocabulary=_vocabulary(policy),
        log_powers=[column[:, ends[0] : ends[1]] for column in columns],
        outside_k=[column[:, ends[1] : ends[2]] for column in columns],
        outside_p=[column[:, ends[2] : ends[3]] for column in columns],
    )


SCALES = (0.0, 0.5, 2.0)
"""Factors on what adapters add under which tokens are scored too: without them, halved, and doubled."""


def at_scales(policy: Policy, rows: Sequence[Rollout], temperature: float = 1.0) -> dict[float, Sequence[Floats]]:
    """log π of the completions by factor of SCALES on the adapters of a policy; empty for one without adapters."""
    layers: list[Any] = [
        module for module in policy.model.modules() if isinstance(getattr(module, "scaling", None), dict)
    ]
    own = [dict(layer.scaling) for layer in layers]
    by_temperature: dict[float, Sequence[Floats]] = {}
    try:
        for factor in SCALES if layers else ():
            for layer, scaling in zip(layers, own, strict=True):
                layer.scaling.update({name: factor * value for name, value in scaling.items()})
            by_temperature[factor] = score(policy, rows, temperature).logp
    finally:
        for layer, scaling in zip(layers, own, strict=True):
            layer.scaling.update(scaling)
    return by_temperature


def _width(row: Rollout) -> int:
    """Number of tokens of the completion; 0 where nothing says it."""
    lists = (row.completion_ids, row.sampler, row.old, row.current, row.mask)
    return next((len(array) for array in lists if array is not None), 0)


def _vocabulary(policy: Policy) -> int:
    return int(getattr(policy.model.config, "vocab_size", 0) or len(policy.tokenizer))


def _batches(placed: Sequence[_Placed], vocabulary: int) -> list[list[_Placed]]:
    """The rollouts in batches of similar lengths whose logits fit the budget."""
    batches: list[list[_Placed]] = []
    longest = shortest = 0
    for sequence in sorted(placed, key=lambda one: (one.length, len(one.prompt))):
        before = min(shortest, len(sequence.prompt)) if batches else len(sequence.prompt)
        logits_width = max(longest, sequence.length) - before + 1
        if not batches or 4 * vocabulary * logits_width * (len(batches[-1]) + 1) > BUDGET or len(batches[-1]) >= 256:
            batches.append([])
            longest, shortest = sequence.length, len(sequence.prompt)
        batches[-1].append(sequence)
        longest, shortest = max(longest, sequence.length), min(shortest, len(sequence.prompt))
    return batches


def _forward(policy: Policy, batch: Sequence[_Placed], temperature: float) -> list[Tensor]:
    """What is taken of the tokens of each rollout of a batch, (T, COLUMNS) each."""
    width, device = max(sequence.length for sequence in batch), policy.model.device
    ids = torch.full((len(batch), width), policy.pad, dtype=torch.long)
    seen = torch.zeros(ids.shape, dtype=torch.long)
    for row, sequence in enumerate(batch):
        ids[row, : sequence.length], seen[row, : sequence.length] = torch.cat((sequence.prompt, sequence.completion)), 1
    first = min(len(one.prompt) for one in batch) - 1
    logits = policy.model(
        input_ids=ids.to(device),
        attention_mask=seen.to(device),
        position_ids=torch.arange(width, device=device).expand(ids.shape),
        use_cache=False,
        logits_to_keep=width - first,
    ).logits
    rows = torch.cat([torch.full((len(one.completion),), row) for row, one in enumerate(batch)])
    columns = torch.cat([torch.arange(len(one.prompt) - 1, one.length - 1) - first for one in batch])
    tokens = torch.cat([one.completion for one in batch]).to(device)
    size = max(1, int(PIECE / logits.shape[-1]))
    parts = [
        _of_logits(logits[rows[piece].to(device), columns[piece].to(device)].float(), tokens[piece], temperature)
        for piece in torch.arange(len(rows)).split(size)
    ]
    every = torch.cat(parts)
    if not bool(every[:, :3].isfinite().all()):
        raise UserError(
            f"{policy.name}: log-probabilities are not finite, so its weights have overflowed; use an earlier "
            f"checkpoint"
        )
    return list(every.split([len(one.completion) for one in batch]))


def _of_logits(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """log π(y), H, V, rank, mass above, then POWERS, TOP_KS, TOP_PS of tokens (N,) from logits (N, V): (N, COLUMNS)."""
    logp = (logits / temperature).log_softmax(-1).clamp_(min=LOG_0)
    chances, scratch = logp.exp(), torch.empty_like(logp)
    picked = logp.gather(-1, tokens[:, None])
    entropy = -torch.mul(chances, logp, out=scratch).sum(-1)
    variance = scratch.mul_(logp).sum(-1) - entropy.square()
    rank = (logp > picked).sum(-1)
    above = torch.where(logp > picked, chances, 0.0).sum(-1)
    head = [picked[:, 0], entropy, variance.clamp(min=0), rank.to(logp), above]
    powers = [torch.mul(logp, beta, out=scratch).exp_().sum(-1).log() for beta in POWERS]
    return torch.stack([*head, *powers, *_outside(chances)], -1)


def _outside(chances: Tensor) -> list[Tensor]:
    """Probability outside of the k likeliest tokens, and outside of each nucleus, from probabilities (N, V).

    A nucleus that reaches beyond the tokens looked at has a lower bound: it overshoots p by less than its last token.
    """
    size = chances.shape[-1]
    largest = chances.topk(min(max(TOP_KS), size)).values.double()
    reached = largest.cumsum(-1)
    outside = [
        (1 - reached[:, min(k, size) - 1]).clamp(min=0) if k < size else torch.zeros_like(reached[:, 0]) for k in TOP_KS
    ]
    for p in TOP_PS:
        rank = (reached < p).sum(-1)
        inside = rank < reached.shape[-1]
        mass = reached.gather(-1, rank.clamp(max=reached.shape[-1] - 1)[:, None])[:, 0]
        outside.append(torch.where(inside, 1 - mass, 1 - p - largest[:, -1]).clamp(min=0))
    return [mass.to(chances) for mass in outside]
