"""Token ids of rollouts that were kept as text, and what that may have changed.

A trainer that logs texts decodes its token ids, most without special tokens, so three things have to be found again:

- **The prompt.** A conversation goes through the chat template. A text that holds special tokens was rendered by the
  template (TRL 0.21). A text that reads as a rendered conversation without its special tokens (verl, TRL 0.22 to 1.0)
  is taken apart by the template's own pattern and rendered again. Any other text is encoded as it is.
- **The completion.** Its text is encoded. A model may have written the same text in other tokens than its tokenizer
  does; then some tokens differ from those that were trained on, which the text cannot show.
- **Its end.** A completion shorter than the limit ended with the end token; one that fills the limit was truncated.

What can be checked is counted: texts that do not come back when their ids are decoded.

Rollouts that have their token ids need none of this, and may have several turns: what tools wrote is read and not
trained on.

Whether rollouts were drawn from a policy: their log-probabilities against its entropies.

Under the policy that drew token y_t, log π(y_t) + H_t has mean 0 given all tokens before it, and variance
V_t = Σ_v π_v log² π_v − H_t². The sum over tokens is a martingale, so

    z = Σ_t (log π(y_t) + H_t) / √(Σ_t V_t)

is nearly N(0, 1) for many tokens. It is far below 0 where the tokens are unlikely: other prompts, another model or
template; above 0 where they were drawn at a lower temperature, or with the tail cut off (top-k, top-p).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.rollouts import Rollouts, Text
from grposcope.instruments.gradient.rollout_source import RolloutSource
from grposcope.instruments.gradient.turns import TURNS
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch

_SYSTEM, _USER = "Qsystemq", "Quserq"
"""Words that stand for the messages when the template's pattern is made; no template changes them."""


@dataclass(frozen=True)
class _Retokenized:
    """Rollouts made of texts, and what can be said of how well they fit the policy.

    prompts (P,), texts (B,): prompts and completions as text. forms: how many prompts were of each form.
    changed_prompts, changed_completions: texts that their ids do not spell when decoded. length: mean tokens of a
    completion, its end token included. excess, z: of `_excess`.
    """

    rollouts: RolloutBatch
    prompts: tuple[str, ...]
    texts: tuple[str, ...]
    forms: Mapping[str, int]
    changed_prompts: int
    changed_completions: int
    length: float
    excess: Estimate
    z: float


def retokenize(
    policy: Policy,
    logged: Rollouts,
    limit: int,
    temperature: float,
    template: Mapping[str, Any] | None = None,
    mask_truncated: bool = False,
) -> _Retokenized:
    """The rollouts as token ids, with log-probabilities and entropies under the policy at `temperature`.

    logged: whole groups of one size, as of `logged_rollouts.grouped`. limit: tokens that a completion may have had, its
    end token included. template: further arguments of the chat template. mask_truncated: truncated completions have no
    tokens in the loss (TRL's mask_truncated_completions).
    UserError for completions that are no plain text, and for prompts that do not fit.
    """
    if has_ids(logged):
        return _of_ids(policy, logged, limit, temperature, mask_truncated)
    asked = [logged[places[0]].prompt or "" for places in logged.groups.values()]
    prompts = [prompt_ids(policy, prompt, template or {}) for prompt in asked]
    for prompt, (ids, _, _) in zip(asked, prompts, strict=True):
        if not ids:
            raise UserError(f"{logged.path}: the prompt {prompt!r} has no tokens; choose another step")
    texts = [_completion_text(row.completion or "", logged) for row in logged]
    rows, same = [], 0
    for text in texts:
        rows.append(policy.tokenizer(text, add_special_tokens=False).input_ids)
        same += _spells(policy.tokenizer, rows[-1], text)
    truncated = torch.tensor([len(ids) >= limit for ids in rows])
    rows = [ids if cut else [*ids, end_token(policy)] for ids, cut in zip(rows, truncated.tolist(), strict=True)]
    rollouts = _rollouts(policy, logged, [ids for ids, _, _ in prompts], rows, truncated)
    scored, fit, z = _scored(policy, rollouts, temperature, mask_truncated)
    forms = [form for _, form, _ in prompts]
    return _Retokenized(
        rollouts=scored,
        prompts=tuple(_shown(prompt) for prompt in asked),
        texts=tuple(texts),
        forms={form: forms.count(form) for form in dict.fromkeys(forms)},
        changed_prompts=sum(not spelled for _, _, spelled in prompts),
        changed_completions=len(texts) - same,
        length=float(rollouts.lengths.double().mean()),
        excess=fit,
        z=z,
    )


def origin(logged: Rollouts, made: _Retokenized, length_logged: float = math.nan) -> RolloutSource:
    """Where the rollouts came from and what was found of them. length_logged: mean length that the trainer logged."""
    return RolloutSource(
        engine=logged.engine,
        path=str(logged.path),
        step=logged.step,
        weights=dict(logged.weights),
        forms=made.forms,
        changed_prompts=made.changed_prompts,
        changed_completions=made.changed_completions,
        truncated=int(made.rollouts.truncated.sum()),
        length=made.length,
        length_logged=length_logged,
        excess=made.excess,
        z=made.z,
        notes=logged.notes,
    )


def has_ids(logged: Rollouts) -> bool:
    """Whether all rollouts have the token ids of prompt and completion."""
    return all(row.prompt_ids is not None and row.completion_ids is not None for row in logged) and len(logged) > 0


def _of_ids(policy: Policy, logged: Rollouts, limit: int, temperature: float, mask_truncated: bool) -> _Retokenized:
    """Rollouts by the token ids that they have, with the turn of each token and the rewards of turns."""
    rows = [[] if row.completion_ids is None else row.completion_ids.tolist() for row in logged]
    firsts = [logged[places[0]].prompt_ids for places in logged.groups.values()]
    prompts = [[] if ids is None else ids.tolist() for ids in firsts]
    largest = max((max(ids, default=0) for ids in (*rows, *prompts)), default=0)
    if largest >= policy.model.config.vocab_size:
        raise UserError(f"{logged.path}: its token ids go up to {largest:,}, but the model {policy.name} has "
                        f"{policy.model.config.vocab_size:,} tokens; give the model that wrote them")  # fmt: skip
    cut = torch.tensor([
        len(ids) >= limit if row.truncated is None else row.truncated for row, ids in zip(logged, rows, strict=True)
    ])  # fmt: skip
    whole = _rollouts(policy, logged, prompts, rows, cut)
    drawn, turns, paid = whole.mask.clone(), torch.full(whole.mask.shape, -1), torch.zeros(whole.mask.shape)
    for index, row in enumerate(logged):
        own = row.mask if row.mask is not None else row.written
        if own is not None:
            drawn[index, : len(own)] = torch.from_numpy(own).to(drawn.device)
        if row.turns is not None:
            turns[index, : len(row.turns)] = torch.from_numpy(row.turns)
            for turn, reward in enumerate([] if row.turn_rewards is None else row.turn_rewards.tolist()):
                tokens = ((turns[index] == turn) & drawn[index].cpu()).nonzero()
                if len(tokens) and not math.isnan(reward):
                    paid[index, int(tokens[-1])] = reward
    notes = {TURNS: turns.to(drawn.device)} if all(row.turns is not None for row in logged) else {}
    if notes and all(row.turn_rewards is not None for row in logged):
        notes |= {"step_rewards": paid.double().to(drawn.device)}
    scored, fit, z = _scored(policy, replace(whole, mask=drawn), temperature, mask_truncated)
    decode = policy.tokenizer.decode
    return _Retokenized(
        rollouts=scored.annotated(**notes),
        prompts=tuple(str(decode(ids)) for ids in prompts),
        texts=tuple(str(decode(ids)) for ids in rows),
        forms={"token ids": len(prompts)},
        changed_prompts=0,
        changed_completions=0,
        length=float(scored.lengths.double().mean()),
        excess=fit,
        z=z,
    )


def _scored(
    policy: Policy, rollouts: RolloutBatch, temperature: float, mask_truncated: bool
) -> tuple[RolloutBatch, Estimate, float]:
    """The rollouts with log-probabilities and entropies under the policy, and how well they fit it."""
    under = _token_moments(policy.model, rollouts, temperature)
    fit, z = _excess(under, rollouts.mask)
    mask = rollouts.mask & ~rollouts.truncated[:, None] if mask_truncated else rollouts.mask
    values = {name: getattr(under, name).where(mask, 0.0) for name in ("logp", "entropy")}
    return replace(rollouts, mask=mask, **values), fit, z


def _rollouts(
    policy: Policy, logged: Rollouts, prompts: list[list[int]], rows: list[list[int]], truncated: Tensor
) -> RolloutBatch:
    """The batch, without log-probabilities."""
    longest = max(map(len, prompts)) + max(map(len, rows))
    if longest > policy.context:
        raise UserError(
            f"{logged.path}: a prompt and its completion have up to {longest} tokens, but the context of model "
            f"{policy.name} is {policy.context}; give the model that wrote them"
        )
    device, rewards = policy.model.device, logged.group_rewards
    size = rewards.shape[1]
    ids, prompt_mask = _padded(prompts, policy.pad, left=True)
    tokens, mask = _padded(rows, policy.pad)
    nothing = torch.zeros(tokens.shape, device=device)
    return RolloutBatch(
        prompt_ids=ids.repeat_interleave(size, 0).to(device),
        prompt_mask=prompt_mask.repeat_interleave(size, 0).to(device),
        tokens=tokens.to(device),
        mask=mask.to(device),
        logp=nothing,
        entropy=nothing,
        truncated=truncated.to(device),
        rewards=torch.from_numpy(rewards).to(device),
    )


def _padded(rows: Sequence[Sequence[int]], pad: int, left: bool = False) -> tuple[Tensor, Tensor]:
    """Ids (N, longest) padded on one side, and their mask."""
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), pad, dtype=torch.long)
    mask = torch.zeros(ids.shape, dtype=torch.bool)
    for index, row in enumerate(rows):
        span = slice(width - len(row), width) if left else slice(0, len(row))
        ids[index, span], mask[index, span] = torch.tensor(row, dtype=torch.long), True
    return ids, mask


def end_token(policy: Policy) -> int:
    """The token that ends a completion: the tokenizer's, which trainers stop at, or the model's first."""
    own = policy.tokenizer.eos_token_id
    return int(own) if isinstance(own, int) else int(policy.eos[0])


def prompt_ids(policy: Policy, prompt: Text, template: Mapping[str, Any]) -> tuple[list[int], str, bool]:
    """Token ids of a prompt, its form, and whether the ids spell the text that was logged."""
    tokenizer = policy.tokenizer
    if not isinstance(prompt, str):
        if not tokenizer.chat_template:
            raise UserError(
                f"the prompts are conversations, and the tokenizer of {policy.name} has no chat template; give the "
                "checkpoint that wrote them"
            )
        return _rendered(tokenizer, prompt, template), "conversation", True
    if any(token in prompt for token in tokenizer.all_special_tokens):
        ids = list(tokenizer(prompt, add_special_tokens=False).input_ids)
        return ids, "rendered text", tokenizer.decode(ids) == prompt
    for pattern, roles in _patterns(tokenizer, template):
        if match := pattern.fullmatch(prompt):
            messages = [{"role": role, "content": text} for role, text in zip(roles, match.groups(), strict=True)]
            ids = _rendered(tokenizer, messages, template)
            if tokenizer.decode(ids, skip_special_tokens=True) == prompt:
                return ids, "conversation without special tokens", True
    ids = list(tokenizer(prompt).input_ids)
    return ids, "text", _spells(tokenizer, ids, prompt)


def _spells(tokenizer: Any, ids: list[int], text: str) -> bool:
    """Whether the ids spell the text when decoded, without an unknown token."""
    unknown = tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids
    return not unknown and tokenizer.decode(ids, skip_special_tokens=True) == text


def _rendered(tokenizer: Any, messages: list[dict[str, Any]], template: Mapping[str, Any]) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **template)
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def _patterns(tokenizer: Any, template: Mapping[str, Any]) -> list[tuple[re.Pattern[str], tuple[str, ...]]]:
    """How a rendered conversation reads without special tokens: of a user, and of a system and a user message."""
    patterns: list[tuple[re.Pattern[str], tuple[str, ...]]] = []
    for roles in (("user",), ("system", "user")) if tokenizer.chat_template else ():
        words = {"system": _SYSTEM, "user": _USER}
        try:
            ids = _rendered(tokenizer, [{"role": role, "content": words[role]} for role in roles], template)
        except Exception:  # of a template that knows no system message
            continue
        text = re.escape(tokenizer.decode(ids, skip_special_tokens=True))
        text = text.replace(_SYSTEM, "(.*?)").replace(_USER, "(.*)")
        if text.count("(.*") == len(roles) and len(text) > 4 * len(roles) + 1:  # something stands around the messages
            patterns.append((re.compile(text, re.DOTALL), roles))
    return patterns


def _completion_text(completion: Text, logged: Rollouts) -> str:
    """The text of a completion; UserError where it is more than one message of text."""
    if isinstance(completion, str):
        return completion
    message = completion[0] if len(completion) == 1 else {}
    further = {name for name, value in message.items() if value and name not in ("role", "content")}
    if further or not isinstance(message.get("content"), str):
        what = f"has {', '.join(sorted(further))}" if further else f"consists of {len(completion)} messages"
        raise UserError(
            f"{logged.path}: a completion {what}, so its tokens cannot be recovered; probe the run during training, "
            "or give a task to sample from"
        )
    return str(message["content"])


def _shown(prompt: Text) -> str:
    """A prompt as one text."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(str(piece.get("content", piece)) if isinstance(piece, dict) else str(piece) for piece in prompt)


@dataclass(frozen=True)
class _TokenMoments:
    """log π(y_t), entropy H_t in nats and variance V_t of log π of every token, each (B, T), 0 where masked."""

    logp: Tensor
    entropy: Tensor
    variance: Tensor


def _excess(moments: _TokenMoments, mask: Tensor) -> tuple[Estimate, float]:
    """Mean of log π(y_t) + H_t per token, in nats, with the standard error that the policy itself predicts; and z.

    NaN where every V_t is 0: a policy that is certain says nothing about its draws.
    """
    count = int(mask.sum())
    total = float((moments.logp + moments.entropy)[mask].double().sum())
    spread = math.sqrt(float(moments.variance[mask].double().sum()))
    if not count or not spread:
        return Estimate(math.nan, math.nan, count, "the policy is certain of every token"), math.nan
    return Estimate(total / count, spread / count, count), total / spread


@torch.no_grad()
def _token_moments(
    model: torch.nn.Module, rollouts: RolloutBatch, temperature: float, budget: float = 2e8
) -> _TokenMoments:
    """Log-probabilities, entropies and variances of the tokens of `rollouts` under `model` at `temperature`.

    A plain forward pass, a prompt and its completion a row, so many rows at a time that the logits take about `budget`
    bytes. What tools wrote is read, and has no moments. UserError where the logits are not finite.
    """
    out = [torch.zeros(rollouts.mask.shape, device=rollouts.mask.device) for _ in range(3)]
    vocabulary = int(getattr(getattr(model, "config", None), "vocab_size", 0) or 1)
    rows_at_once = max(1, int(budget / (16 * vocabulary * max(rollouts.mask.shape[1], 1))))
    for rows in torch.arange(len(rollouts.mask), device=rollouts.mask.device).split(rows_at_once):
        attended = rollouts.attended[rows]
        width = max(int(attended.sum(-1).max()), 1)
        ids = torch.cat([rollouts.prompt_ids[rows], rollouts.tokens[rows, :width]], 1)
        seen = torch.cat([rollouts.prompt_mask[rows], attended[:, :width]], 1).long()
        position = (seen.cumsum(-1) - 1).clamp(min=0)
        logits = model(input_ids=ids, attention_mask=seen, position_ids=position, use_cache=False).logits
        logp = (logits[:, -width - 1 : -1].float() / temperature).log_softmax(-1)
        mask = rollouts.mask[rows, :width]
        picked = logp.gather(-1, rollouts.tokens[rows, :width, None])[..., 0]
        if not bool(picked[mask].isfinite().all()):
            raise UserError("the model's log-probabilities are not finite: its weights have overflowed; use an earlier "
                            "checkpoint")  # fmt: skip
        entropy = torch.special.entr(logp.exp()).sum(-1)
        second = (logp.exp() * logp.square()).nan_to_num(0.0).sum(-1)  # π log² π is 0 where π is
        for whole, target in zip(out, (picked, entropy, (second - entropy.square()).clamp(min=0)), strict=True):
            whole[rows, :width] = target.where(mask, 0.0)
    return _TokenMoments(*out)
