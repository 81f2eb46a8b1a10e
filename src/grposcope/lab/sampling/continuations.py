"""Continuations: from places inside rollouts, what else the policy would have written, and what that earns.

Their mean reward estimates the value of the text so far, without bias and independent of how the rollout itself went
on (VinePPO, arXiv:2410.01679). Every distinct text is read once and its K continuations share the keys and values of
prompt and text; rollouts that have the same text at a boundary share its continuations. Every token that is generated
is counted, none is trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.sampler import sample
from grposcope.lab.tasks import faults
from grposcope.lab.tasks.base import Problem, Task

AT_ONCE = 256
"""Continuations that are sampled together, which bounds the memory."""


@dataclass(frozen=True)
class Continuations:
    """K continuations from each of N boundaries, of which U differ in their text.

    row (N,), place (N,): the rollout, and its tokens before the boundary. which (N,): the boundary's text among the U.
    rewards (U, K) float64; lengths (U, K) in tokens without the text before; texts (U) of K: what
    they add to the completion.
    """

    row: Int[Tensor, " N"]
    place: Int[Tensor, " N"]
    which: Int[Tensor, " N"]
    rewards: Float[Tensor, "U K"]
    lengths: Int[Tensor, "U K"]
    texts: tuple[tuple[str, ...], ...]

    @property
    def tokens(self) -> int:
        """Tokens generated, those that boundaries share counted once."""
        return int(self.lengths.sum())

    @cached_property
    def per_boundary(self) -> Float[Tensor, "N K"]:
        """Reward of each continuation of each boundary."""
        return self.rewards[self.which]

    def values(self) -> Float[Tensor, " N"]:
        """Mean reward from each boundary."""
        return self.per_boundary.mean(-1)

    def halves(self) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        """Mean rewards of the first and of the second half of each boundary's continuations, independent of each other.

        A square such as E δ² is estimated without bias by the product of two such halves. UserError for K = 1.
        """
        k = self.rewards.shape[1]
        if k < 2:
            raise UserError("two halves need at least two continuations per boundary, got K = 1; take K = 2 or more")
        return self.per_boundary[:, : k // 2].mean(-1), self.per_boundary[:, k // 2 :].mean(-1)

    def of_rollout(self, row: int) -> tuple[Rollout, ...]:
        """The continuations of a rollout as they are recorded, in the order of their places."""
        drawn = []
        for n in (self.row == row).nonzero()[:, 0].tolist():
            position, u = int(self.place[n]), int(self.which[n])
            numbers = zip(self.texts[u], self.rewards[u].tolist(), self.lengths[u].tolist(), strict=True)
            drawn += [
                Rollout(shared=position, completion=text, reward=reward, length=tokens)
                for text, reward, tokens in numbers
            ]
        return tuple(drawn)

    def on_tokens(self, mask: Tensor, values: Tensor | None = None) -> Float[Tensor, "B T"]:
        """Values of the boundaries (by default their means) on the token before each, NaN elsewhere.

        mask (B, T): of the rollouts. A boundary before the first token has no token and is left out.
        """
        prefix_values = self.values() if values is None else values
        table = torch.full(mask.shape, torch.nan, dtype=torch.float64, device=mask.device)
        inside = self.place > 0
        table[self.row[inside], self.place[inside] - 1] = prefix_values[inside]
        return table


@dataclass(frozen=True)
class ContinuationPlan:
    """What is continued, and how often.

    boundaries (B): of each rollout, tokens of its completion before each; 0 is its prompt.
    k: continuations from each.
    share: whether equal texts of one prompt share their continuations; where not, each boundary has its own.
    at_once: continuations that are sampled together, which changes the draws too.
    """

    boundaries: Sequence[Sequence[int]]
    k: int
    share: bool = True
    at_once: int = AT_ONCE


def continue_from(
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    rollouts: RolloutBatch,
    plan: ContinuationPlan,
    settings: DrawSettings,
    generator: torch.Generator,
) -> Continuations:
    """K fresh continuations from each boundary of each rollout, graded by the task.

    problems (P): of the groups. settings: how the rollouts were drawn and are graded; a completion, text before the
    boundary included, has at most `settings.sampling.max_tokens`. The result is a function of weights, rollouts, plan
    and the generator's state.

    UserError for K below 1, a boundary outside its rollout, and one that leaves no room for a token.
    """
    k, boundaries, sampling = plan.k, plan.boundaries, settings.sampling
    if k < 1:
        raise UserError(f"{k} continuations per boundary cannot estimate anything; take K = 1 or more")
    group = rollouts.groups[1]
    rows = [row for row, places in enumerate(boundaries) for _ in places]
    places = [int(position) for some in boundaries for position in some]
    texts: dict[tuple[int, ...], int] = {}  # prompt's number and ids up to the boundary -> which
    which: list[int] = []
    first: list[int] = []  # of each text, the boundary that comes first
    for n, (row, position) in enumerate(zip(rows, places, strict=True)):
        _check(policy, rollouts, row, position, sampling.max_tokens)
        own = () if plan.share else (n,)
        key = (row // group, *own, *_text(rollouts, row, position))
        which.append(texts.setdefault(key, len(texts)))
        if which[-1] == len(first):
            first.append(n)
    device = rollouts.tokens.device
    rewards = torch.zeros(len(first), k, dtype=torch.float64, device=device)
    lengths = torch.zeros(len(first), k, dtype=torch.long, device=device)
    written: list[tuple[str, ...]] = [()] * len(first)
    order = sorted(range(len(first)), key=lambda u: places[first[u]])  # those with as much to write together
    step = max(1, plan.at_once // k)
    for start in range(0, len(order), step):
        batch = order[start : start + step]
        at = [(rows[first[u]], places[first[u]]) for u in batch]
        ids, mask = _read_so_far(rollouts, at, policy.pad)
        limits = torch.tensor([sampling.max_tokens - place for _, place in at], device=device)
        room = replace(sampling, max_tokens=int(limits.max()))
        drawn = sample(policy.model, (ids, mask), k, room, policy.eos, policy.pad, generator, limits)
        before = [rollouts.tokens[row, :place].tolist() for row, place in at for _ in range(k)]
        after = [tokens[inside].tolist() for tokens, inside in zip(drawn.tokens, drawn.mask, strict=True)]
        whole = [[*head, *tail] for head, tail in zip(before, after, strict=True)]
        said = policy.tokenizer.batch_decode(whole, skip_special_tokens=True)
        asked = [problems[row // group] for row, _ in at for _ in range(k)]
        graded, _ = faults.graded(task, asked, said, settings.reward_timeout, settings.reward_errors)
        index = torch.tensor(batch, device=device)
        rewards[index] = torch.tensor(graded, dtype=torch.float64, device=device).reshape(-1, k)
        lengths[index] = drawn.mask.sum(-1).reshape(-1, k)
        for j, u in enumerate(batch):
            head = policy.tokenizer.decode(before[j * k], skip_special_tokens=True)
            written[u] = tuple(text.removeprefix(str(head)) for text in said[j * k : (j + 1) * k])
    at_rows, at_places, of = (torch.tensor(some, dtype=torch.long, device=device) for some in (rows, places, which))
    return Continuations(at_rows, at_places, of, rewards, lengths, tuple(written))


def _check(policy: Policy, rollouts: RolloutBatch, row: int, position: int, max_tokens: int) -> None:
    """UserError where nothing can be written at this place of this rollout."""
    length = int(rollouts.mask[row].nonzero()[-1:].sum()) + 1 if bool(rollouts.mask[row].any()) else 0
    if not 0 <= position <= length or (position == length and not bool(rollouts.truncated[row])):
        raise UserError(
            f"rollout {row} has {length} tokens, and a continuation from token {position} is not inside it; give "
            "boundaries before its end"
        )
    prompt = int(rollouts.prompt_mask[row].sum())
    if position >= max_tokens or prompt + position >= policy.context:
        raise UserError(
            f"rollout {row}: {position} tokens after a prompt of {prompt} leave no room for a continuation within "
            f"completions of {max_tokens} tokens and the {policy.context} tokens of context of model {policy.name}; "
            "raise max_tokens or leave this boundary out"
        )
    if prompt + max_tokens > policy.context:
        raise UserError(
            f"rollout {row}: a prompt of {prompt} tokens and a completion of {max_tokens} are more than the "
            f"{policy.context} tokens of context of model {policy.name}; lower max_tokens"
        )


def _text(rollouts: RolloutBatch, row: int, position: int) -> list[int]:
    return [int(token) for token in rollouts.tokens[row, :position].tolist()]


def _read_so_far(rollouts: RolloutBatch, at: Sequence[tuple[int, int]], pad: int) -> tuple[Tensor, Tensor]:
    """Ids and mask, padded on the left, of each rollout's prompt and its completion up to the place."""
    parts = [
        torch.cat((rollouts.prompt_ids[row][rollouts.prompt_mask[row]], rollouts.tokens[row, :position]))
        for row, position in at
    ]
    width = max(len(tokens) for tokens in parts)
    ids = torch.full((len(parts), width), pad, dtype=torch.long, device=rollouts.tokens.device)
    mask = torch.zeros(ids.shape, dtype=torch.bool, device=ids.device)
    for index, tokens in enumerate(parts):
        ids[index, width - len(tokens) :] = tokens
        mask[index, width - len(tokens) :] = True
    return ids, mask
