"""A batch that TRL has generated and scored, as `RolloutBatch`: on every process the rollouts of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.rollout_batch import LEFT_PADDED, PER_PROMPT, RolloutBatch, blank
from grposcope.lab.sampling.rollouts import characters_spelled

Steps = Sequence[tuple[int, float]]
"""Verified steps of a completion: the character behind each one's end, and its reward."""


@dataclass(frozen=True)
class Scored:
    """What TRL's `_calculate_rewards` was given and returned.

    rewards (B, functions): of all processes, NaN where a function gave none. The others are of this process: examples,
    rows of the dataset; prompts and completions, texts or messages; ids, tokens of each completion.
    """

    rewards: Tensor
    examples: Sequence[Mapping[str, Any]]
    prompts: Sequence[Any]
    completions: Sequence[Any]
    ids: Sequence[Sequence[int]]

    def total(self, weights: Tensor, group: int) -> Tensor:
        """Weighted sum of the rewards, (P, G) float64; NaN for a rollout that no function scored, as in TRL."""
        total = (self.rewards.double() * weights.to(self.rewards.device).double()).nansum(1)
        return total.masked_fill(self.rewards.isnan().all(1), torch.nan).reshape(-1, group)

    def parts(self, group: int) -> Tensor:
        """The rewards of single functions, (P, G, functions) float64; NaN where a function gave none."""
        return self.rewards.double().reshape(-1, group, self.rewards.shape[1])

    def cut(self, ends: set[int]) -> Tensor:
        """Which completions of this process were cut before a token of `ends`, (B,) bool."""
        return torch.tensor([not ids or ids[-1] not in ends for ids in self.ids])

    def columns(self) -> dict[str, list[Any]]:
        """Columns of the dataset as TRL hands them to reward functions."""
        names = [name for name in self.examples[0] if name not in ("prompt", "completion", "completion_ids")]
        return {name: [example[name] for example in self.examples] for name in names}


def rollouts(
    out: Mapping[str, Any], rewards: Tensor, scored: Scored, ends: set[int], components: Tensor | None = None
) -> RolloutBatch:
    """The rollouts of this process; rewards (P, G) and components are those of all. ends: tokens that end a completion.

    Sampling probabilities and entropies, which TRL does not hand over, are NaN. Completions that TRL masks
    (mask_truncated_completions, results of tools) are masked.
    """
    tokens = out["completion_ids"]
    mask = out["completion_mask"] * out.get("tool_mask", 1)
    unknown = torch.full(tokens.shape, torch.nan, device=tokens.device)
    return RolloutBatch(
        prompt_ids=out["prompt_ids"],
        prompt_mask=out["prompt_mask"].bool(),
        tokens=tokens,
        mask=mask.bool(),
        logp=unknown,
        entropy=unknown,
        truncated=scored.cut(ends).to(tokens.device),
        rewards=rewards,
        components=components,
    )


def labelled(own: RolloutBatch, scored: Scored, step_rewards: Callable[..., Any], tokenizer: Any) -> RolloutBatch:
    """The rollouts with the rewards of steps, which `step_rewards` gives, on the tokens that close them.

    A step that no token closes is on the last one, and one that a tool closes on the token that the policy drew before
    it; steps closed by one token add up. UserError, naming the function,
    for an answer of another form.
    """
    name = getattr(step_rewards, "__name__", type(step_rewards).__name__)
    answers = step_rewards(
        prompts=scored.prompts, completions=scored.completions, completion_ids=scored.ids, **scored.columns()
    )
    if not isinstance(answers, Sequence) or len(answers) != len(scored.ids):
        got = f"{len(answers)} lists" if isinstance(answers, Sequence) else type(answers).__name__
        raise UserError(f"{name} returned {got} for {len(scored.ids)} completions; return a list of steps for each")
    rewards = torch.zeros(own.mask.shape, dtype=torch.float64)
    ends = torch.zeros(own.mask.shape, dtype=torch.bool)
    for row, (steps, ids, completion) in enumerate(zip(answers, scored.ids, scored.completions, strict=True)):
        for end, reward in _checked(steps, name):
            token = _drawn(own.mask[row], _closing(end, ids, completion, tokenizer, name))
            rewards[row, token] += reward
            ends[row, token] = True
    device = own.mask.device
    return own.annotated(step_rewards=rewards.to(device), step_ends=ends.to(device))


def _drawn(mask: Tensor, token: int) -> int:
    """The token, or where a tool or environment wrote it, the last one before it that the policy drew."""
    before = mask[: token + 1].nonzero()
    return int(before[-1]) if len(before) else token


def _checked(steps: Any, name: str) -> list[tuple[int, float]]:
    try:
        return [(int(end), float(reward)) for end, reward in steps]
    except (TypeError, ValueError):
        raise UserError(
            f"{name} returned {steps!r:.80} for a completion; return a list of (end, reward), the end of each step as "
            "a number of characters"
        ) from None


def _closing(end: int, ids: Sequence[int], completion: Any, tokenizer: Any, name: str) -> int:
    """The token that closes the first `end` characters of a completion: the last one if none does."""
    text = tokenizer.decode(ids, skip_special_tokens=True)
    shown = completion if isinstance(completion, str) else _content(completion, name)
    start = text.find(shown)
    if start < 0:
        raise UserError(
            f"{name}: the completion's message differs from the text that was sampled, so that places in it cannot be "
            "found; use a tokenizer whose messages are the plain text"
        )
    spelled = characters_spelled(tokenizer, list(ids), text)
    return next((t for t, count in enumerate(spelled) if count >= start + end), max(len(ids) - 1, 0))


def _content(messages: Sequence[Mapping[str, Any]], name: str) -> str:
    if len(messages) != 1:
        raise UserError(
            f"{name}: a completion of {len(messages)} messages has no steps that are known here; use one turn"
        )
    return str(messages[0]["content"])


def of_all(own: RolloutBatch, accelerator: Any, pad: int) -> RolloutBatch:
    """The rollouts of all processes in their order, on each of them; `own.rewards` are those of all already."""
    if accelerator.num_processes == 1:
        return own

    def gathered(name: str, array: Tensor) -> Tensor:
        if name in PER_PROMPT:
            return array
        sent = array.long() if array.dtype == torch.bool else array
        if array.ndim == 2:
            sent = accelerator.pad_across_processes(sent, 1, blank(name, pad), name in LEFT_PADDED)
        return accelerator.gather(sent).to(array.dtype)

    return own.each(gathered)


def scorable(every: RolloutBatch) -> Tensor:
    """Groups (P,) all of whose rollouts have a reward."""
    return ~every.rewards.isnan().any(-1)
