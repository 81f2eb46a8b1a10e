"""What finer credit would save, and what it would cost, for a frozen policy on a task: every source on one batch.

P prompts × G rollouts, further rollouts of the same prompts for the gradient itself, and continuations from the
boundaries of the rollouts. Gradients of all sources are compared by `instruments.credit.error`.

One batch under every credit: rollouts, continuations and trees of a frozen policy, and the gradients of them all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from grposcope.core.capabilities import CRITIC, TEACHER
from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout
from grposcope.core.text import visible
from grposcope.instruments.credit import error as credit_error
from grposcope.instruments.credit import gradients as credit_gradients
from grposcope.instruments.credit.error import BASE, Ranged
from grposcope.instruments.credit.record import CreditRecord, SourceRecord
from grposcope.instruments.credit.sources import Credits, Values, assigned, wrong_signs
from grposcope.instruments.credit.trees import drawn_trees
from grposcope.lab import credit
from grposcope.lab.credit import boundaries
from grposcope.lab.credit.prefix import nodes
from grposcope.lab.credit.state import places
from grposcope.lab.objectives import advantages, recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.annotation import AnnotationContext
from grposcope.lab.sampling.annotators import annotator
from grposcope.lab.sampling.continuations import ContinuationPlan, Continuations, continue_from
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.generation import tokens_with
from grposcope.lab.sampling.resumable_rollouts import DrawnRollouts, draw
from grposcope.lab.sampling.rollouts import generator
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.base import Problem, Task

KEPT = 12
"""Prompts whose rollouts are kept with the credit of their tokens, as many as the viewer shows of a step."""


@dataclass(frozen=True)
class _Frontier:
    """What was measured, and some of the rollouts with the credit of each token.

    gram, sources: what `instruments.credit.error.measure` compared; the last base vector is the reference.
    """

    record: CreditRecord
    rollouts: tuple[Rollout, ...]
    gram: np.ndarray
    sources: tuple[credit_error.GradientSource, ...]


def measure(
    policy: Policy,
    task: Task,
    budget: CreditBudget,
    sampling: Sampling,
    seed: int = 0,
    step: int | None = None,
    quiet: bool = False,
    critic: tuple[str, Path] | None = None,
) -> _Frontier:
    """Draw, credit, and compare every source; a progress bar goes to standard error unless `quiet`.

    critic: of the run that the policy is from; without one the source `value` is skipped.
    UserError: groups of one, no group with unequal rewards, fewer than three prompts.
    """
    seconds: dict[str, float] = {}
    batch = _collected(policy, task, budget, sampling, seed, quiet, seconds, critic)
    drawn, rollouts, credits, values = batch.drawn, batch.rollouts, batch.found, batch.values
    with _timed(seconds, "gradients"):
        names, by_name = _vectors(policy, batch, sampling.temperature, quiet=quiet)
        gram = _products(by_name)
    sources = batch.sources(names)
    compared = credit_error.measure(gram, sources, names.index("reference"), seed=seed)
    signs = {} if values is None else wrong_signs(credits, values, rollouts)
    record = CreditRecord(
        model=policy.name, task=task.name, step=step, seed=seed, prompts=budget.prompts, group=budget.group,
        temperature=sampling.temperature, solved=float(rollouts.rewards.mean()), tokens=float(batch.tokens.mean()),
        at=batch.at, boundaries=0.0 if values is None else len(values.continuations.row) / len(rollouts.tokens),
        continuations=0 if values is None else budget.drawn, oracle=budget.oracle and values is not None,
        extra=float(batch.extra.mean()), reference=budget.reference, recurrence=_recurrence(rollouts),
        floor=compared.floor, effective=compared.effective,
        sources=tuple(_source(source, credits, signs, rollouts) for source in compared.sources),
        skipped=credits.skipped, seconds=seconds,
    )  # fmt: skip
    return _Frontier(record, _kept(policy, drawn, rollouts, credits), gram, tuple(sources))


def _recurrence(rollouts: RolloutBatch) -> dict[str, float]:
    """Shares of the ends of steps whose text, and whose step alone, another rollout of the group has as well."""
    if "step_ends" not in rollouts.token_annotations:
        return {}
    ends = rollouts.token_annotations["step_ends"] & rollouts.mask
    last = torch.arange(ends.shape[1], device=ends.device) == (rollouts.lengths - 1)[:, None]
    inside = ends & ~last
    if not bool(inside.any()):
        return {}
    group = rollouts.groups[1]
    _, after = places(rollouts.tokens, ends, rollouts.mask, group)
    return {"text": _met(nodes(rollouts.tokens, group), inside), "step": _met(after, inside)}


def _met(numbers: Tensor, inside: Tensor) -> float:
    """Share of the places `inside` whose number another row has as well."""
    row = torch.arange(len(numbers), device=numbers.device)[:, None].expand_as(numbers)
    pairs = torch.unique(torch.stack((numbers[inside], row[inside])), dim=1)
    count = torch.bincount(pairs[0])
    return float((count[numbers[inside]] > 1).double().mean())


def _source(
    error: credit_error.SourceError, credits: Credits, signs: dict[str, credit_error.Ranged], rollouts: RolloutBatch
) -> SourceRecord:
    tree = credits.trees.get(error.name)
    shown, own = (credits.shown[error.name], rollouts) if tree is None else (tree[1], tree[0])
    within, common = _shares_of_squares(shown.to(own.mask.device), own)
    return SourceRecord(
        name=error.name, kind=credits.kinds[error.name], purchasable=error.name in credits.purchasable,
        unbiased=error.unbiased, tokens=error.tokens, mse=error.mse, saving=error.saving, scale=error.scale,
        bias=error.bias, wrong=signs.get(error.name, credit_error.Ranged(flag="not measured")), within=within,
        common=common, log_error=error.log_error, effective=error.effective,
    )  # fmt: skip


def _shares_of_squares(values: Tensor, rollouts: RolloutBatch) -> tuple[Ranged, Ranged]:
    """Shares of Σ A² that differ inside rollouts, and that are the same over a group: what centring takes."""
    mask = rollouts.mask
    lengths = mask.sum(-1).double()
    own = values * mask
    means = own.sum(-1) / lengths.clamp(min=1)
    within = ((own - means[:, None]) * mask).square().sum(-1).unflatten(0, rollouts.groups).sum(-1)
    group = own.sum(-1).unflatten(0, rollouts.groups).sum(-1) ** 2
    common = group / lengths.unflatten(0, rollouts.groups).sum(-1).clamp(min=1)
    total = own.square().sum(-1).unflatten(0, rollouts.groups).sum(-1).cpu().numpy()
    return credit_error.ratio(within.cpu().numpy(), total), credit_error.ratio(common.cpu().numpy(), total)


def _kept(policy: Policy, drawn: DrawnRollouts, rollouts: RolloutBatch, credits: Credits) -> tuple[Rollout, ...]:
    """Rollouts of some prompts, live groups first, with every credit to three digits."""
    prompts, group = rollouts.groups
    dead = advantages.dead(rollouts.rewards).tolist()
    every = drawn.rollouts.groups[1]
    tokens = []
    for p in sorted(range(prompts), key=lambda p: dead[p])[:KEPT]:
        for j in range(group):
            row, mask = p * group + j, rollouts.mask[p * group + j]
            columns = {
                visible(name, 60): np.array([float(f"{value:.3g}") for value in given[row][mask].tolist()])
                for name, given in credits.shown.items()
                if not name.startswith(f"{BASE}:")
            }
            tokens.append(
                Rollout(
                    problem=drawn.problems[p].id,
                    prompt=drawn.problems[p].prompt,
                    completion=drawn.texts[p * every + j],
                    reward=float(rollouts.rewards[p, j]),
                    tokens=tuple(str(policy.tokenizer.decode([i])) for i in rollouts.tokens[row][mask].tolist()),
                    measures=columns,
                )
            )
    return tuple(tokens)


ORACLE = 128
"""Continuations per boundary of a small model, which are taken for the truth."""


@dataclass(frozen=True)
class CreditBudget:
    """How much to draw.

    prompts, group: rollouts that are credited. reference: further rollouts of each prompt. drawn: continuations from
    each boundary, 0 for none; oracle: whether they are many. counts: of the continuations that are priced.
    trees: widths of trees, such as 2x2x2.
    """

    prompts: int
    group: int
    reference: int
    drawn: int
    oracle: bool
    counts: tuple[int, ...]
    trees: tuple[str, ...] = ()


@dataclass(frozen=True)
class _CreditedBatch:
    """One batch under every credit. continued: continuations drawn from each boundary; at: what the boundaries are."""

    drawn: DrawnRollouts
    rollouts: RolloutBatch
    reference: RolloutBatch
    found: Credits
    values: Values | None
    continued: int
    at: str

    @property
    def tokens(self) -> np.ndarray:
        """Tokens of the credited rollouts of each prompt (P,)."""
        return np.asarray(self.rollouts.lengths.double().unflatten(0, self.rollouts.groups).sum(-1).cpu())

    @property
    def extra(self) -> np.ndarray:
        """Tokens of the continuations of each prompt (P,)."""
        none = np.zeros(self.rollouts.groups[0])
        return none if self.values is None else _extra(self.values.continuations, self.rollouts)

    def sources(self, names: tuple[str, ...]) -> list[credit_error.GradientSource]:
        """The sources by the base vectors of these names, outcome credit first."""
        return self.found.sources(names, self.tokens, self.extra, self.continued)


def _collected(
    policy: Policy,
    task: Task,
    budget: CreditBudget,
    sampling: Sampling,
    seed: int = 0,
    quiet: bool = False,
    seconds: dict[str, float] | None = None,
    critic: tuple[str, Path] | None = None,
) -> _CreditedBatch:
    """Draw what the budget says, and give every credit; the time of each part goes to `seconds`. Errors: `measure`.

    critic: that learned beside the policy: its credit, such as value:lambda=1, and the folder of the run or checkpoint.
    """
    _check(budget)
    seconds = {} if seconds is None else seconds
    with _timed(seconds, "rollouts"):
        shape = budget.prompts, budget.group + budget.reference
        drawn = draw(policy, task, recipes.RLOO, sampling, shape, seed)
    rollouts, reference = _split(drawn.rollouts, budget.group)
    if bool(advantages.dead(rollouts.rewards).all()):
        value = float(rollouts.rewards.flatten()[0])
        raise UserError(
            f"all {budget.prompts} groups of {budget.group} rollouts have equal rewards (the first is "
            f"{value:g}), so no credit gives a gradient; use more prompts, larger groups, or a task "
            "that the model solves sometimes"
        )
    credits = assigned(
        rollouts,
        task.labels_steps,
        task.name,
        lambda name: _supplied(policy, task, drawn.problems, rollouts, sampling.temperature, name, critic),
        {} if critic is None else {"value": critic[0]},
    )
    values, at = None, ""
    with _timed(seconds, "continuations"):
        if budget.drawn:
            prompts = tqdm(
                range(budget.prompts), desc="continuations", unit="prompt", disable=quiet, dynamic_ncols=True
            )
            parts, at = _continued(policy, task, drawn, rollouts, prompts, budget.drawn, sampling, seed)
            values = Values(_joined(parts), _starts(reference)) if parts else None
    if values is None:
        why = "no continuations were drawn" if not budget.drawn else "no rollout has a step or a line break inside it"
        credits.skipped["exact"] = credits.skipped["continuations"] = why
    else:
        credits.add_continued(rollouts, values, budget.counts)
    with _timed(seconds, "trees"):
        credits.add_trees(*drawn_trees(policy, task, drawn.problems, budget.group, sampling, seed, budget.trees))
    return _CreditedBatch(drawn, rollouts, reference, credits, values, budget.drawn, at)


def _vectors(
    policy: Policy, batch: _CreditedBatch, temperature: float, width: int = credit_gradients.WIDTH, quiet: bool = False
) -> tuple[tuple[str, ...], Tensor]:
    """Names of the base vectors, the reference last, and the gradients (V, P, K) kept as `width` numbers each."""
    rollouts, reference, credits = batch.rollouts, batch.reference, batch.found
    names = (*credits.base, *credits.trees, "reference")
    sketch = credit_gradients.Sketch(credit_gradients.trainable(policy), width)
    outcome = recipes.RLOO.token_advantages(reference, torch.float64)
    others = [(leaves, values) for leaves, values, _ in credits.trees.values()] + [(reference, outcome)]
    steps = (1 + len(others)) * rollouts.groups[0]
    with tqdm(total=steps, desc="gradients", unit="prompt", disable=quiet, dynamic_ncols=True) as bar:
        own = torch.stack(list(credits.base.values()))
        vectors = [credit_gradients.of_groups(policy, rollouts, own, temperature, sketch, bar.update)]
        for some, given in others:
            vectors.append(credit_gradients.of_groups(policy, some, given[None], temperature, sketch, bar.update))
    return names, torch.cat(vectors)


def _products(vectors: Tensor) -> np.ndarray:
    """Inner products (V, P, V, P) of kept vectors (V, P, K)."""
    every = vectors.flatten(0, 1)
    gram = torch.zeros(len(every), len(every), dtype=torch.float64)
    for piece in every.split(4096, 1):
        gram += piece.double() @ piece.double().mT
    return gram.reshape(*vectors.shape[:2], *vectors.shape[:2]).numpy()


def _check(budget: CreditBudget) -> None:
    if budget.group < 2:
        raise UserError(
            f"a group of {budget.group} rollout has nothing to compare with; use 2 rollouts per prompt or more"
        )
    if budget.prompts < 3:
        raise UserError(f"{budget.prompts} prompts are too few to compare sources of credit; use 3 or more")
    if budget.reference < 4:
        raise UserError(
            f"{budget.reference} further rollouts of a prompt are too few to measure its gradient; use 4 or more"
        )
    if budget.drawn == 1:
        raise UserError("one continuation per boundary does not show its noise; use 2 or more")
    if any(k < 1 for k in budget.counts):
        raise UserError(f"{min(budget.counts)} continuations per boundary are too few; use 1 or more")


def _supplied(
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    rollouts: RolloutBatch,
    temperature: float,
    name: str,
    critic: tuple[str, Path] | None,
) -> RolloutBatch:
    """The rollouts with what a source needs of the policy; UserError for sources that need another model."""
    source = credit.SOURCES[name.partition(":")[0]]
    absent = {TEACHER: "a teacher", **({CRITIC: "a trained critic"} if critic is None else {})}
    for what in (what for need, what in absent.items() if source.requires(need)):
        raise UserError(f"needs {what} in addition to the policy, but none was given")
    learned = critic[1] if critic is not None else None
    context = AnnotationContext(policy, temperature, rollouts.groups[1], task.instruction, learned=learned)
    annotate = annotator(credit.chosen(name), context)
    return rollouts if annotate is None else annotate(rollouts, problems)


def _split(rollouts: RolloutBatch, group: int) -> tuple[RolloutBatch, RolloutBatch]:
    """The first `group` rollouts of every prompt, and the others."""
    return rollouts.columns(slice(group)), rollouts.columns(slice(group, None))


def _continued(
    policy: Policy,
    task: Task,
    drawn: DrawnRollouts,
    rollouts: RolloutBatch,
    prompts: Iterable[int],
    k: int,
    sampling: Sampling,
    seed: int,
) -> tuple[Sequence[Continuations], str]:
    """Continuations from the ends of steps, else of lines, one of the `prompts` at a time; and what they start from."""
    if task.labels_steps:
        at, inside = "steps", boundaries.steps(rollouts)
    else:
        at, inside = "lines", boundaries.marked(rollouts, tokens_with(policy, "\n"))
    inside = [[step for step in some if step < sampling.max_tokens] for some in inside]
    if not any(inside):
        return (), ""
    settings = DrawSettings(sampling)
    stream = generator(seed, "continuations", device=policy.model.device)
    parts: list[Continuations] = []
    size = rollouts.groups[1]
    for p in prompts:
        own: list[Sequence[int]] = [[] for _ in inside]
        own[p * size : (p + 1) * size] = inside[p * size : (p + 1) * size]
        if any(own):
            parts.append(
                continue_from(policy, task, drawn.problems, rollouts, ContinuationPlan(own, k), settings, stream)
            )
    return parts, at


def _starts(reference: RolloutBatch) -> Tensor:
    """Mean rewards of both halves of every group, (2, P)."""
    value = reference.rewards.double()
    half = value.shape[1] // 2
    return torch.stack((value[:, :half].mean(-1), value[:, half : 2 * half].mean(-1)))


def _joined(parts: Sequence[Continuations]) -> Continuations:
    """Continuations of several prompts as one."""
    offsets = np.cumsum([0, *(len(draws.rewards) for draws in parts)])[:-1].tolist()
    return Continuations(
        row=torch.cat([draws.row for draws in parts]),
        place=torch.cat([draws.place for draws in parts]),
        which=torch.cat([draws.which + offset for draws, offset in zip(parts, offsets, strict=True)]),
        rewards=torch.cat([draws.rewards for draws in parts]),
        lengths=torch.cat([draws.lengths for draws in parts]),
        texts=(),
    )


def _extra(continuations: Continuations, rollouts: RolloutBatch) -> np.ndarray:
    """Tokens of the continuations of each prompt (P,), those that boundaries share counted once."""
    prompts, group = rollouts.groups
    owner = torch.zeros(len(continuations.rewards), dtype=torch.long, device=continuations.row.device)
    owner[continuations.which] = continuations.row // group
    total = torch.zeros(prompts, dtype=torch.float64, device=owner.device)
    return total.index_add(0, owner, continuations.lengths.sum(-1).double()).cpu().numpy()


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Note the seconds of what is inside under the name of its part."""
    began = time.perf_counter()
    yield
    seconds[stage] = round(time.perf_counter() - began, 1)
