"""Graded rollouts: draw problems, sample, grade, shape rewards, replace dead groups; and the part that is recorded."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from grposcope.core.errors import UserError
from grposcope.core.rollouts import STOPS, Floats, Rollout
from grposcope.lab.credit import trees
from grposcope.lab.objectives import Objective, advantages, shaping
from grposcope.lab.policies import Policy, encode
from grposcope.lab.rollout_batch import LEFT_PADDED, PER_PROMPT, RolloutBatch, blank
from grposcope.lab.sampling.continuations import Continuations
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.sampler import Completions, Sampling, Tree, sample, sample_trees
from grposcope.lab.sampling.turn_sampler import sample_turns
from grposcope.lab.tasks import faults
from grposcope.lab.tasks.base import Problem, Task

RESAMPLE_ROUNDS = 4
"""How many further draws `resample_dead` may take before it makes do with what it has."""


@dataclass(frozen=True)
class Batch:
    """Graded rollouts with the problems (P) and texts (B) behind them.

    graded (P, G) are the task's rewards before shaping. drawn counts all rollouts sampled for the
    batch, those of replaced groups included, and tokens all tokens generated for it, what leaves of trees share once.
    dead is the share of groups drawn whose rewards were all equal. errors: rollouts, of those drawn,
    whose reward failed. position is where the next batch starts. origins, of trees: as `trees.origins` gives them.
    continuations: those drawn for the credit, their tokens among `tokens` where they are charged.
    sizes: rollouts drawn of each group where groups are padded to one size, else empty.
    """

    rollouts: RolloutBatch
    problems: tuple[Problem, ...]
    texts: tuple[str, ...]
    graded: Tensor
    drawn: int
    tokens: int
    dead: float
    errors: int
    position: int
    sample_seconds: float
    grade_seconds: float
    origins: tuple[Tensor, Tensor] | None = None
    continuations: Continuations | None = None
    sizes: tuple[int, ...] = ()

    def rows(self, group: int) -> range:
        """The rows of a group that were drawn."""
        start = group * self.graded.shape[1]
        return range(start, start + (self.sizes[group] if self.sizes else self.graded.shape[1]))

    @property
    def spread(self) -> float:
        """Standard deviation of the task's rewards within a group (ddof 1), mean over groups; NaN if G = 1."""
        if not bool(self.graded.isnan().any()):
            return float(self.graded.std(-1).mean()) if self.graded.shape[1] > 1 else math.nan
        deviations = [group[group == group].std() for group in self.graded if (group == group).sum() > 1]
        return float(torch.stack(deviations).mean()) if deviations else math.nan


def generator(seed: int, *stream: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """A generator that depends on the seed and the stream's names only, so any part of a run can be drawn again."""
    digest = hashlib.sha256(":".join(map(str, (seed, *stream))).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def drawn_problems(problems: Sequence[Problem], seed: int, position: int, count: int) -> list[Problem]:
    """`count` problems from `position` on, in an order reshuffled each time all have been seen."""
    return [problems[i] for i in drawn_indices(len(problems), seed, position, count)]


def drawn_indices(size: int, seed: int, position: int, count: int) -> list[int]:
    """The places of `drawn_problems` among `size` problems."""
    chosen: list[int] = []
    while len(chosen) < count:
        epoch, start = divmod(position + len(chosen), size)
        chosen += _order(size, seed, epoch)[start : start + count - len(chosen)]
    return chosen


@lru_cache(maxsize=2)
def _order(size: int, seed: int, epoch: int) -> list[int]:
    return torch.randperm(size, generator=generator(seed, "order", epoch)).tolist()


@dataclass(frozen=True)
class _Drawn:
    """Graded rollouts, their texts, how many rewards failed, the seconds of sampling and of grading, further tokens."""

    rollouts: RolloutBatch
    texts: list[str]
    errors: int
    sample_seconds: float
    grade_seconds: float
    further: int = 0


SomeGroups = tuple[Policy, int, Sequence[int]]
"""Weights that draw groups of a batch, their version, and the places of the groups among those that are missing."""

Samplers = Callable[[int, int, int], Iterable[SomeGroups]]
"""From the number of missing groups, the seed and the position in the data: who draws which groups, each once."""


def draw(
    policy: Policy, task: Task, problems: Sequence[Problem], group: int, settings: DrawSettings, stream: torch.Generator
) -> _Drawn:
    """`group` graded completions for each of the problems; those that are dropped have the reward NaN and no tokens."""
    sampling, began = settings.sampling, time.perf_counter()
    if task.max_turns > 1:
        return _draw_turns(policy, task, problems, group, settings, stream)
    ids, mask = encode(policy, [p.prompt for p in problems], task.instruction, sampling.max_tokens)
    common, levels = (sampling, policy.eos, policy.pad, stream), None
    if settings.tree is None:
        completions = sample(policy.model, (ids, mask), group, *common)
    else:
        completions, levels = sample_trees(policy.model, (ids, mask), group, settings.tree, *common)
    sampled, graded = time.perf_counter() - began, time.perf_counter()
    written = policy.tokenizer.batch_decode(completions.tokens, skip_special_tokens=True)
    repeated = [p for p in problems for _ in range(group)]
    values, components, failed = _graded_by_all(task, repeated, written, settings)
    rewards = torch.tensor(values, dtype=torch.float64).reshape(len(problems), group)
    labels = _step_labels(policy, task, repeated, written, completions) if settings.label_steps else {}
    annotations = labels if levels is None else {**labels, "levels": levels}
    rollouts = _to_rollouts(ids, mask, completions, rewards, group).annotated(**annotations)
    if components is not None:
        parts = components.reshape(len(problems), group, -1).to(rollouts.rewards.device)
        rollouts = replace(rollouts, components=parts)
    rollouts = _without_dropped(rollouts)
    return _Drawn(rollouts, written, failed, sampled, time.perf_counter() - graded)


def _draw_turns(
    policy: Policy, task: Task, problems: Sequence[Problem], group: int, settings: DrawSettings, stream: torch.Generator
) -> _Drawn:
    """As `draw`, of a task with turns, whose environment pays each of them."""
    if settings.tree is not None:
        raise UserError(f"rollouts of the task {task.name} have turns and cannot be leaves of a tree; use other credit")
    began = time.perf_counter()
    drawn = sample_turns(policy, task, problems, group, settings, stream)
    ids, mask = encode(policy, [p.prompt for p in problems], task.instruction, settings.sampling.max_tokens)
    rewards = torch.tensor(drawn.rewards, dtype=torch.float64).reshape(len(problems), group)
    rollouts = _to_rollouts(ids, mask, drawn.completions, rewards, group).annotated(**drawn.annotations())
    stops = torch.tensor([STOPS.index(why) for why in drawn.stops], device=ids.device)
    rollouts = replace(rollouts, stops=stops)
    written = policy.tokenizer.batch_decode(drawn.completions.tokens, skip_special_tokens=True)
    spent = time.perf_counter() - began
    return _Drawn(_without_dropped(rollouts), written, len(drawn.failed), spent, 0.0, drawn.further)


def _graded_by_all(
    task: Task, problems: Sequence[Problem], completions: Sequence[str], settings: DrawSettings
) -> tuple[list[float], Tensor | None, int]:
    """Rewards (B,), those of single functions (B, K) where the task has several, and how many rollouts failed.

    A rollout of which one function fails is treated as if its whole reward had failed.
    """
    limits = settings.reward_timeout, settings.reward_errors
    if not task.components:
        values, said = faults.graded(task, problems, completions, *limits)
        return values, None, len(said)
    columns, failed = [], set[str]()
    for name in task.components:
        values, said = faults.graded(task.component(name), problems, completions, *limits)
        columns.append(values)
        failed |= {clause.partition(":")[0] for clause in said}
    parts = torch.tensor(columns, dtype=torch.float64).T
    total = (parts * torch.tensor(task.weights, dtype=torch.float64)).sum(1)
    return total.tolist(), parts, len(failed)


def _draw_by_several(
    samplers: Iterable[SomeGroups],
    task: Task,
    problems: Sequence[Problem],
    group: int,
    settings: DrawSettings,
    stream: torch.Generator,
) -> _Drawn:
    """As `draw`, but some groups by each of the samplers, whose versions the rollouts carry."""
    parts: list[_Drawn] = []
    order: list[int] = []
    for policy, version, groups in samplers:
        drawn = draw(policy, task, [problems[i] for i in groups], group, settings, stream)
        versions = torch.full((len(groups),), version, device=drawn.rollouts.rewards.device)
        parts.append(replace(drawn, rollouts=replace(drawn.rollouts, versions=versions)))
        order += groups
    places = sorted(range(len(order)), key=order.__getitem__)
    texts = [text for drawn in parts for text in drawn.texts]
    everything = joined([drawn.rollouts for drawn in parts], policy.pad)
    return _Drawn(
        everything.take(torch.tensor(places, device=everything.rewards.device)),
        [texts[index * group + i] for index in places for i in range(group)],
        sum(drawn.errors for drawn in parts),
        sum(drawn.sample_seconds for drawn in parts),
        sum(drawn.grade_seconds for drawn in parts),
    )


def collect(
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    objective: Objective,
    sampling: Sampling,
    shape: tuple[int, int],
    seed: int,
    position: int,
    **settings: Any,
) -> Batch:
    """One batch of `shape` = (P, G) graded rollouts, on the problems from `position` on, or on P `given` ones.

    With `objective.resample_dead`, groups whose rewards are all equal are replaced by further
    prompts, up to RESAMPLE_ROUNDS times; groups still dead then stay in the batch. settings: fields of
    `DrawSettings`, `given`: the problems to take, and `samplers`: who draws in place of the policy.
    """
    wanted, group = shape
    given: Sequence[Problem] | None = settings.pop("given", None)
    samplers: Samplers | None = settings.pop("samplers", None)
    how = DrawSettings(sampling, **settings)
    taken: list[Problem] = []
    parts: list[_Drawn] = []
    dead: list[bool] = []
    for _ in range(RESAMPLE_ROUNDS if objective.resample_dead and given is None else 1):
        missing = wanted - dead.count(False)
        problems_now = drawn_problems(problems, seed, position, missing) if given is None else list(given)
        stream = generator(seed, "sample", position, device=policy.model.device)
        if samplers is None:
            parts.append(draw(policy, task, problems_now, group, how, stream))
        else:
            drawn_by = samplers(missing, seed, position)
            parts.append(_draw_by_several(drawn_by, task, problems_now, group, how, stream))
        taken += problems_now
        dead += _dead_groups(parts[-1].rollouts, objective).tolist()
        position += missing
        if not any(dead[-missing:]):
            break
    texts = [text for drawn in parts for text in drawn.texts]
    chosen = sorted(sorted(range(len(dead)), key=dead.__getitem__)[:wanted])  # live groups first, then in order
    everything = joined([drawn.rollouts for drawn in parts], policy.pad)
    rollouts = everything.take(torch.tensor(chosen, device=policy.model.device))
    plain = rollouts.rewards
    return Batch(
        rollouts=_shaped(rollouts, objective, sampling),
        problems=tuple(taken[i] for i in chosen),
        texts=tuple(texts[i * group + j] for i in chosen for j in range(group)),
        graded=plain,
        drawn=len(texts),
        tokens=sum(_generated(drawn.rollouts, how.tree) + drawn.further for drawn in parts),
        dead=dead.count(True) / len(dead),
        errors=sum(drawn.errors for drawn in parts),
        position=position,
        sample_seconds=sum(drawn.sample_seconds for drawn in parts),
        grade_seconds=sum(drawn.grade_seconds for drawn in parts),
        origins=None if how.tree is None else trees.origins(_levels(rollouts), rollouts.mask, group, how.tree.widths),
    )


def _dead_groups(rollouts: RolloutBatch, objective: Objective) -> Tensor:
    """Groups (P,) without an advantage: where each reward is standardized, those in which none of them varies."""
    if objective.aggregation is None or rollouts.components is None:
        return advantages.dead(rollouts.rewards)
    used = [j for j, weight in enumerate(objective.aggregation.weights) if weight]
    return torch.stack([advantages.dead(rollouts.components[..., j]) for j in used]).all(0)


def _generated(rollouts: RolloutBatch, tree: Tree | None) -> int:
    """Tokens that were generated for the rollouts."""
    if tree is None:
        return int(rollouts.mask.sum())
    return trees.generated(_levels(rollouts), rollouts.mask, rollouts.groups[1], tree.widths)


def _levels(rollouts: RolloutBatch) -> Tensor:
    return rollouts.token_annotations["levels"]


def _shaped(rollouts: RolloutBatch, objective: Objective, sampling: Sampling) -> RolloutBatch:
    """The rollouts with rewards as the objective shapes them."""
    if not objective.overlong:
        return rollouts
    plain = rollouts.rewards
    buffer = round(objective.overlong * sampling.max_tokens)
    penalty = shaping.overlong(rollouts.lengths, sampling.max_tokens, buffer)
    return replace(rollouts, rewards=plain + penalty.reshape(plain.shape).to(plain))


def _without_dropped(rollouts: RolloutBatch) -> RolloutBatch:
    """The rollouts, those whose reward is NaN without tokens, so that they are in no sum over tokens."""
    present = ~rollouts.rewards.isnan().reshape(-1, 1)
    if bool(present.all()):
        return rollouts
    mask = rollouts.mask & present
    cut: dict[str, Any] = {name: getattr(rollouts, name) * mask for name in ("logp", "entropy")}
    return replace(rollouts, mask=mask, **cut)


def _step_labels(
    policy: Policy, task: Task, problems: Sequence[Problem], texts: Sequence[str], completions: Completions
) -> dict[str, Tensor]:
    """Token annotations: step rewards on the token that closes each step (B, T), and where those tokens are (B, T).

    A step that the end of the completion closes is on the last token. Steps closed by one token add up.
    """
    rewards = torch.zeros(completions.mask.shape, dtype=torch.float64)
    ends = torch.zeros(completions.mask.shape, dtype=torch.bool)
    for row, (problem, text) in enumerate(zip(problems, texts, strict=True)):
        ids = completions.tokens[row][completions.mask[row]].tolist()
        spelled = characters_spelled(policy.tokenizer, ids, text)
        for step in task.steps(problem, text):
            token = next((t for t, end in enumerate(spelled) if end >= step.end), len(ids) - 1)
            rewards[row, token] += float(step.correct)
            ends[row, token] = True
    device = completions.tokens.device
    return {"step_rewards": rewards.to(device), "step_ends": ends.to(device)}


def characters_spelled(tokenizer: PreTrainedTokenizerBase, ids: list[int], text: str) -> list[int]:
    """Number of characters of the text that the first t + 1 tokens spell, for every t."""
    special = set(tokenizer.all_special_ids)
    if len(text) == sum(i not in special for i in ids):  # one character per token
        return [sum(i not in special for i in ids[: t + 1]) for t in range(len(ids))]
    return [len(tokenizer.decode(ids[: t + 1], skip_special_tokens=True)) for t in range(len(ids))]


def recorded(
    policy: Policy,
    objective: Objective,
    batch: Batch,
    credit: Tensor,
    reference: Tensor | None,
    groups: int,
    trainer: Tensor | None = None,
    old: Tensor | None = None,
) -> list[Rollout]:
    """The first `groups` groups of a fresh batch token by token, live ones first, for the record.

    credit, reference, old (B, T): as in `update.TokenTerms`. trainer (B, T): log-probabilities of the policy that is
    trained, None where those of the sampler stand for them. The weights ∂L/∂log π are those of the first optimiser step
    on the batch, where the ratio is 1 unless trainer and old differ.
    """
    rollouts, size = batch.rollouts, batch.rollouts.groups[1]
    live = (credit != 0).any(-1).reshape(-1, size).any(-1).tolist()
    chosen = sorted(range(len(live)), key=lambda p: not live[p])[:groups]
    now = rollouts.logp if trainer is None else trainer
    before = now if trainer is None or old is None else old
    coefficients = objective.coefficients(rollouts).float()
    weights = objective.partial_weights(now, before, rollouts.mask, credit, coefficients, reference)
    return [_recorded(policy, batch, weights, trainer, row) for p in chosen for row in batch.rows(p)]


def texts_of(batch: Batch, groups: int) -> list[Rollout]:
    """Prompts, texts and rewards of at most `groups` whole groups of a batch, evenly over it."""
    count = len(batch.problems)
    places = np.unique(np.linspace(0, count - 1, min(groups, count)).round().astype(int)).tolist()
    size = batch.graded.shape[1]
    return [
        Rollout(
            group=str(index), prompt=batch.problems[index].prompt, completion=batch.texts[row],
            reward=float(batch.graded[index, row % size]), truncated=bool(batch.rollouts.truncated[row]),
            stop=stop_of(batch.rollouts, row),
        )
        for index in places for row in batch.rows(index)
    ]  # fmt: skip


def _recorded(policy: Policy, batch: Batch, weights: Tensor, trainer: Tensor | None, row: int) -> Rollout:
    rollouts = batch.rollouts
    p, i = divmod(row, rollouts.groups[1])
    parent, shared = (-1, 0) if batch.origins is None else (int(origin[row]) for origin in batch.origins)
    read = rollouts.attended[row]
    n = int(read.sum())
    holes = not bool(rollouts.mask[row, :n].all())
    drawn = rollouts.mask[row, :n].cpu().numpy()
    turns = rollouts.token_annotations.get("turns")
    paid = None if turns is None else turn_rewards(rollouts, row)
    return Rollout(
        problem=batch.problems[p].id,
        prompt=batch.problems[p].prompt,
        index=i,
        completion=batch.texts[row],
        reward=float(batch.graded[p, i]),
        truncated=bool(rollouts.truncated[row]),
        tokens=tuple(str(policy.tokenizer.decode([token])) for token in rollouts.tokens[row, :n].tolist()),
        sampler=np.where(drawn, rollouts.logp[row, :n].double().cpu().numpy(), np.nan),
        entropy=np.where(drawn, rollouts.entropy[row, :n].double().cpu().numpy(), np.nan),
        written=drawn if holes else None,
        turns=None if turns is None else turns[row, :n].cpu().numpy(),
        turn_rewards=paid,
        anchors=() if paid is None else turn_anchors(rollouts, row),
        stop=stop_of(rollouts, row),
        loss_weights=weights[row, :n].double().cpu().numpy(),
        current=None if trainer is None else trainer[row, :n].double().cpu().numpy(),
        version=math.nan if rollouts.versions is None else float(rollouts.versions[p]),
        parent=None if parent < 0 else parent,
        shared=shared,
        continuations=() if batch.continuations is None else batch.continuations.of_rollout(row),
    )


def turn_rewards(rollouts: RolloutBatch, row: int) -> Floats:
    """Rewards (H,) of the turns that a rollout took; only of rollouts with turns."""
    turns, paid = (rollouts.token_annotations[name][row].cpu().numpy() for name in ("turns", "step_rewards"))
    taken = turns[rollouts.mask[row].cpu().numpy()]
    count = int(taken.max()) + 1 if len(taken) else 0
    return np.bincount(turns[turns >= 0], paid[turns >= 0], count)[:count].astype(np.float64)


def turn_anchors(rollouts: RolloutBatch, row: int) -> tuple[str, ...]:
    """A key of the state before each turn that a rollout took; () where the environment gives none."""
    turns, states = (rollouts.token_annotations[name][row].cpu().numpy() for name in ("turns", "states"))
    first = {int(turn): int(state) for turn, state in zip(turns[::-1], states[::-1], strict=True) if turn >= 0}
    return tuple(f"{first[turn]:x}" for turn in sorted(first)) if all(first.values()) else ()


def stop_of(rollouts: RolloutBatch, row: int) -> str:
    """Why a rollout ended, one of STOPS; empty where there are no turns."""
    return "" if rollouts.stops is None else STOPS[int(rollouts.stops[row])]


def _to_rollouts(
    ids: Tensor,
    mask: Tensor,
    completions: Completions,
    rewards: Tensor,
    group: int,
) -> RolloutBatch:
    """Completions of the prompts (P, S) with rewards (P, G); each prompt is repeated `group` times."""
    return RolloutBatch(
        prompt_ids=ids.repeat_interleave(group, 0),
        prompt_mask=mask.repeat_interleave(group, 0),
        tokens=completions.tokens,
        mask=completions.mask,
        logp=completions.logp,
        entropy=completions.entropy,
        truncated=completions.truncated,
        rewards=rewards.to(ids.device),
    )


def joined(parts: Sequence[RolloutBatch], pad: int) -> RolloutBatch:
    """Several batches of the same group size as one, padded to common widths."""
    if len(parts) == 1:
        return parts[0]

    arrays = [draws.arrays() for draws in parts]
    return RolloutBatch.of_arrays({name: _stacked([some[name] for some in arrays], name, pad) for name in arrays[0]})


def _stacked(arrays: Sequence[Tensor], name: str, pad: int) -> Tensor:
    """Arrays of one name below each other, those of tokens padded to one width."""
    if name in PER_PROMPT or arrays[0].ndim == 1:
        return torch.cat(list(arrays))
    width = max(array.shape[1] for array in arrays)
    missing = [width - array.shape[1] for array in arrays]
    padding = [(n, 0) if name in LEFT_PADDED else (0, n) for n in missing]
    return torch.cat([F.pad(a, p, value=blank(name, pad)) for a, p in zip(arrays, padding, strict=True)])
