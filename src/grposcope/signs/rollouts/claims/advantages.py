"""Advantages are those of the settings: worked out again from rewards and groups, equal or not. Exact.

The recipe that fits is named even where none is stated. Where one is stated and the numbers are others, what explains
them is named: another recipe, weights, permuted rewards, other groups, a sign, a factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Floats, Ints
from grposcope.signs.rollouts import recipe_fit, recipes, wrong_advantages
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import exact
from grposcope.signs.rollouts.recipes import AdvantageRecipe
from grposcope.signs.rollouts.wrong_advantages import TrainedBatch

USUAL = tuple(
    AdvantageRecipe(*parts)
    for parts in (
        ("mean", "group", 1, 1e-4), ("mean", "none"), ("leave-one-out", "none"), ("mean", "group", 1, 1e-6),
        ("mean", "batch", 1, 1e-4), ("mean", "group", 0, 1e-8),
    )
)  # fmt: skip
"""Recipes whose faults are looked for where no recipe is stated and none fits."""

EACH = AdvantageRecipe("mean", "each", 1, 1e-4)
"""The usual recipe of functions that are standardized one by one."""

FAULTS: Mapping[str, str] = {
    "sign": "reversed sign", "factor": "scaled by a factor", "baseline": "wrong baseline",
    "scale": "wrong divisor", "ddof": "wrong divisor", "again": "wrong divisor",
    "epsilon": "wrong divisor", "weights": "wrong reward weights",
    "shifted in the batch": "misplaced rewards", "shifted among siblings": "misplaced rewards",
    "shuffled in the group": "misplaced rewards", "shuffled across the batch": "misplaced rewards",
    "in other rows": "misplaced rewards",
    "groups split": "split groups", "groups merged": "mixed prompts", "groups in another order": "mixed prompts",
}  # fmt: skip
"""What explains the advantages -> its fault; UNEXPLAINED where nothing does."""

_WRITTEN = (
    "Either rollouts are trained on the reward of {others}, and {what} is noise, or training is right and the rewards "
    "alone were written beside other rollouts. The file cannot tell the two apart; rewards graded again do: where the "
    "written ones are those of the texts, training has them wrong."
)
"""What permuted rewards do to the gradient, if it was them that it was made of."""

EFFECTS: Mapping[str, str] = {
    "sign": "Bad rollouts become likelier and good ones less likely.",
    "ddof": "Every step is scaled by a number that depends only on the group size.",
    "epsilon": "The weight of groups whose rewards hardly differ is not the stated one.",
    "scale": "The weights of prompts differ from those of the settings.",
    "again": "Every step is scaled by a number of its own, the larger the fewer of its groups differ.",
    "baseline": "The gradient is biased, or noisier than with the stated settings.",
    "weights": "The policy is trained on a different reward from that of the settings.",
    "factor": "Every step is longer or shorter by that number.",
    "shifted in the batch": _WRITTEN.format(others="their neighbour", what="the gradient"),
    "shifted among siblings": _WRITTEN.format(others="a sibling", what="the gradient"),
    "shuffled in the group": _WRITTEN.format(others="a sibling", what="the gradient of these groups"),
    "shuffled across the batch": _WRITTEN.format(others="other prompts", what="the gradient"),
    "in other rows": "Rollouts are trained on the advantages of others: the gradient is noise.",
    "groups split": (
        "Baselines come from smaller groups: they are noisier, and a rollout alone in its group gets advantage 0."
    ),
    "groups merged": "Rollouts are compared with those of other prompts, so easy prompts win over hard ones.",
    "groups in another order": "Rollouts are compared with those of other prompts, and the gradient is mostly noise.",
}
"""What explains the advantages -> what it does to the gradient."""

REMEDIES: Mapping[str, str] = {
    "sign": "Reverse the sign of the advantages, or of the loss, where they are computed.",
    "ddof": "Correct the ddof of the standard deviation, or state the ddof that you intend.",
    "epsilon": "Correct the ε added to the standard deviation, or state the ε that you intend.",
    "scale": "Correct the divisor of the advantages (scale_rewards in TRL), or state the one that you intend.",
    "again": "Standardize advantages once: turn the second normalisation (whitening, norm_return) off.",
    "baseline": "Correct the baseline of the advantages, or state the one you intend.",
    "weights": "Check the weights of the reward functions and their order.",
    "groups split": "Keep the rollouts of a prompt in one batch until advantages are computed.",
    "groups merged": "Pass the group size of the rollouts to the function that computes advantages.",
    "groups in another order": "Order rollouts by prompt before splitting them into groups.",
    "factor": "Find where advantages or rewards are multiplied.",
    "in other rows": "Find where advantages are split or sorted apart from their rollouts (over micro-batches, devices "
    "or lengths), and match both by an id; advantages made before that split cannot part from them.",
}
"""What explains the advantages -> what to do; for permuted rewards as below, and else what the fault says."""

SOON = 8
"""Batches that a recipe is looked for in first."""

_ALIKE, _MOST, _CELLS = 1e-6, 0.95, 10
"""Share of their size by which equal advantages may differ; share of the turns of groups, and how many of them, in
which siblings have one advantage, from which on it is that of one of them."""

SAME = 1e-3
"""Share by which the factors of steps may differ and be one."""

REORDER = "Find where rewards are gathered or sorted separately from their rollouts, and match both by an id."


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """The stored advantages against those of the recipe."""
    if not any(row.advantages is not None for row in evidence.rows):
        yield cannot_tell("No rollout has an advantage; write the advantages that the loss used.")
        return
    made = _batches(evidence, kept=False)
    if isinstance(made, Finding):
        yield made
        return
    stated = evidence.stated
    if evidence.whole is False and stated.scale in ("batch", "each"):
        yield cannot_tell("Advantages are divided by the batch's standard deviation, but only part of the batch was "
                          "written; write all rollouts of a step.")  # fmt: skip
        return
    candidates = [
        recipe for recipe in recipes.every(stated) if evidence.whole is not False or recipe.scale not in _OF_BATCH
    ]
    if not candidates:
        yield cannot_tell(
            f"No known recipe has ddof {stated.ddof} and ε {stated.epsilon}; correct them, or leave them out."
        )
        return
    best, share = _best(candidates, made)
    if share < 1 and any(row.dropped or _untrained(row) for row in evidence.rows):
        again = _batches(evidence, kept=True)
        if not isinstance(again, Finding) and _best(candidates, again)[1] > share:
            made, (best, share) = again, _best(candidates, again)
    if share < 1 and stated.weights is None and all(np.isnan(row.reward) for row in evidence.rows):
        made, best, share = _weighted(best, candidates, made, share)
    if share == 1:
        yield from _baseline_of_untrained(best, made, evidence)
        yield from recipe_fit.told(best, candidates, made, evidence)
        return
    told = (
        _of_equal_prompts(candidates, made, evidence)
        or _in_strides(candidates, made, evidence)
        or _of_recipe(best, share, made, evidence)
    )
    yield told or _of_the_usual(made, evidence)


_OF_BATCH = ("batch", "each")


def _of_the_usual(made: Sequence[TrainedBatch], evidence: PipelineEvidence) -> Finding:
    """What explains advantages that are none of a stated recipe, against one that trainers usually have."""
    for recipe in USUAL:
        if (explanation := _explanation(recipe, made, evidence.stated.weights is not None)) is not None:
            return _told(recipe, made, evidence, *explanation)
    return cannot_tell("The advantages fit no known recipe; state the recipe (scale, ddof, eps), or log the rewards "
                       "they were computed from.")  # fmt: skip


def _batches(evidence: PipelineEvidence, kept: bool) -> list[TrainedBatch] | Finding:
    """The rows by step. kept: leave out rows that were dropped, and those that no token is trained on of."""
    usable = [index for index, row in enumerate(evidence.rows) if not (kept and (row.dropped or _untrained(row)))]
    if not any(evidence.rows[index].group is not None for index in usable):
        return cannot_tell("The rollouts do not name their groups; write a group id or the prompt with each rollout.")
    if (one := _of_all_siblings(evidence)) is not None:
        return one
    if any(_varies(evidence.rows[index]) for index in usable):
        return cannot_tell(
            "Advantages differ between the tokens of a rollout, as with step-level or token-level credit; write the "
            "outcome advantage as well."
        )
    values = np.array([_advantage(row) for row in evidence.rows])
    functions = list(dict.fromkeys(name for row in evidence.rows for name in row.rewards))
    rewards = np.array([row.reward for row in evidence.rows])
    if np.isnan(rewards).all() and len(functions) > 1:
        rewards = np.array([np.nansum(list(row.rewards.values())) if row.rewards else np.nan for row in evidence.rows])
    if np.isnan(rewards).all():
        return cannot_tell("No rollout has a reward; write the reward from which its advantage was computed.")
    relative, absolute = precision(values)
    weights = _weights(evidence, functions)
    made, used = [], frozenset(usable)
    for step, places in evidence.steps.items():
        here = np.array([index for index in places if index in used and evidence.rows[index].group is not None
                         and np.isfinite(rewards[index])], np.int64)  # fmt: skip
        if not len(here):
            continue
        names: dict[str, int] = {}
        group = np.array([names.setdefault(str(evidence.rows[index].group), len(names)) for index in here], np.int64)
        parts = None
        if len(functions) > 1:
            parts = np.array([[evidence.rows[index].rewards.get(name, np.nan) for index in here] for name in functions])
        stored = _filled(values[here], here, evidence)
        made.append(TrainedBatch(step, here, rewards[here], group, stored, parts, weights, relative, absolute))
    return made or cannot_tell("No rollout has both a reward and a group; write both with each rollout.")


def _of_all_siblings(evidence: PipelineEvidence) -> Finding | None:
    """That all siblings have one advantage, other than 0, in each of their turns, although their rewards differ; None
    where it is not so, or where fewer than _CELLS turns of groups tell."""
    known, same = 0, list[int]()
    for (step, _), places in evidence.groups.items():
        turns: dict[int, list[tuple[float, float]]] = {}
        for row in (evidence.rows[place] for place in places):
            for turn, advantage in _by_turn(row).items():
                turns.setdefault(turn, []).append((row.reward, advantage))
        for pairs in turns.values():
            rewards, advantages = np.array(pairs).T
            if len(pairs) < 2 or not np.ptp(rewards) > 0 or not advantages.any():
                continue
            if known >= _CELLS and len(same) < _MOST * known:
                return None
            known += 1
            same += [step] * bool(np.ptp(advantages) <= _ALIKE * np.abs(advantages).max())
    if known < _CELLS or len(same) < _MOST * known:
        return None
    what = "groups" if all(row.turns is None for row in evidence.rows) else "turns of groups"
    return exact(
        FAULTS["in other rows"], True,
        f"in {len(same):,} of {known:,} {what} whose rewards differ all siblings have one advantage: none is told "
        "from another",
        held="", effect=EFFECTS["in other rows"], onset=min(same),
        remedy="Match advantages to rows by an id that holds the rollout as well as the task and the turn, and print "
        "advantage beside reward for two siblings.",
    )  # fmt: skip


def _by_turn(row: Rollout) -> dict[int, float]:
    """The advantage of each turn that has one for all of its trained tokens; empty where that is not known."""
    if row.advantages is None or np.isnan(row.reward):
        return {}
    if row.turns is None:
        return {} if np.ptp(row.advantages) > 0 or not len(row.advantages) else {0: float(row.advantages[0])}
    if len(row.advantages) not in (1, len(row.turns)):
        return {}
    trained = np.ones(len(row.turns), bool) if row.mask is None else row.mask
    if len(trained) != len(row.turns):
        return {}
    given = np.broadcast_to(row.advantages, len(row.turns))
    own = {int(turn): given[(row.turns == turn) & trained] for turn in np.unique(row.turns[trained])}
    return {turn: float(values[0]) for turn, values in own.items() if len(values) and not np.ptp(values) > 0}


def _untrained(row: Rollout) -> bool:
    """Whether its mask leaves out every token, and not because a limit cut it, which trainers mask on purpose."""
    return row.mask is not None and len(row.mask) > 0 and not row.mask.any() and not row.truncated


def _baseline_of_untrained(
    recipe: AdvantageRecipe, made: Sequence[TrainedBatch], evidence: PipelineEvidence
) -> Iterator[Finding]:
    """That rewards of rollouts without a trained token are in the mean and deviation of their siblings."""
    without = _batches(evidence, kept=True)
    places = {int(place) for batch in made for place in batch.places if _untrained(evidence.rows[int(place)])}
    if not places or isinstance(without, Finding) or recipe.baseline not in ("mean", "leave-one-out"):
        return
    longest = max(row.size for row in evidence.rows)
    unknown = [row for place in places if (row := evidence.rows[place]).truncated is None]
    if unknown and (evidence.stated.masks_truncated or all(row.size >= longest for row in unknown)):
        return  # a limit may have cut them, for which they are masked on purpose
    moved = [~batch.fits(recipe) for batch in without]
    siblings = sum(int(rows.sum()) for rows in moved)
    if not siblings:
        return
    count = sum(len(rows) for rows in moved)
    first = min(batch.step for batch, rows in zip(without, moved, strict=True) if rows.any())
    yield exact(
        fault="untrained rollouts in the baseline",
        brief="untrained rollouts in the baseline",
        broken=True,
        evidence=f"{len(places):,} rollouts have no token that is trained on, and their rewards are in the mean and "
        f"deviation of their groups all the same: {siblings:,} of {count:,} advantages of the others would be other "
        "numbers without them",
        held="",
        effect="What was rejected still says which of its siblings are good.",
        onset=first,
    )


def _filled(values: Floats, here: Ints, evidence: PipelineEvidence) -> Floats:
    """NaN where the rollout has no advantage, or 0 because it was left out of the loss: not compared."""
    masked = evidence.stated.masks_truncated
    lost = np.array([bool(evidence.rows[int(index)].dropped or evidence.rows[int(index)].failed
                          or (masked and evidence.rows[int(index)].truncated)) for index in here])  # fmt: skip
    return np.where(lost & (values == 0), np.nan, values)


def _weights(evidence: PipelineEvidence, functions: Sequence[str]) -> Floats | None:
    if evidence.stated.weights is None:
        return None
    return np.array([evidence.stated.weights.get(name, 1.0) for name in functions])


def _tokens(row: Rollout) -> Floats:
    """The advantages of the trained tokens, NaN for none."""
    if row.advantages is None or not len(row.advantages):
        return np.full(1, np.nan)
    if row.mask is not None and len(row.mask) == len(row.advantages) and row.mask.any():
        return row.advantages[row.mask]
    return row.advantages


def _advantage(row: Rollout) -> float:
    return float(_tokens(row)[0])


def _varies(row: Rollout) -> bool:
    values = _tokens(row)
    finite = values[np.isfinite(values)]
    return bool(len(finite)) and float(np.ptp(finite)) > 1e-5 * max(1.0, float(np.abs(finite).max()))


def precision(values: Floats) -> tuple[float, float]:
    """(relative, absolute) error of stored numbers: of bfloat16, float16, or of decimals where they have few."""
    nonzero = np.abs(values[np.isfinite(values) & (values != 0)])
    if not len(nonzero):
        return 0.0, 0.0
    for digits in (2, 3, 4, 5):
        if np.abs(np.round(nonzero, digits) - nonzero).max() <= 1e-12 * max(1.0, nonzero.max()):
            few = digits == 2 and len(np.unique(nonzero)) < 4
            return 0.0, 0.51 * 10.0 ** -(3 if few else digits)
    single = nonzero.astype(np.float32)
    if np.abs(single - nonzero).max() <= 1e-12 * nonzero.max():
        if not (single.view(np.uint32) & 0xFFFF).any():
            return 3 * 2.0**-9, 0.0
        if (single.astype(np.float16).astype(np.float32) == single).all():
            return 3 * 2.0**-12, 0.0
    return 0.0, 0.0


def _best(candidates: Sequence[AdvantageRecipe], made: Sequence[TrainedBatch]) -> tuple[AdvantageRecipe, float]:
    """The recipe that fits most rows, the first of equals, and the share of rows."""
    best, most = candidates[0], -1.0
    for recipe in candidates:
        share = float(np.concatenate([batch.fits(recipe) for batch in made]).mean())
        if share > most:
            best, most = recipe, share
        if share == 1:
            break
    return best, most


def _best_soon(candidates: Sequence[AdvantageRecipe], made: Sequence[TrainedBatch]) -> tuple[AdvantageRecipe, float]:
    """The same, of the first batches alone where what fits these fits all."""
    recipe, _ = _best(candidates, made[:SOON])
    if all(batch.fits(recipe).all() for batch in made):
        return recipe, 1.0
    return _best(candidates, made)


def _weighted(
    best: AdvantageRecipe, candidates: Sequence[AdvantageRecipe], made: list[TrainedBatch], share: float
) -> tuple[list[TrainedBatch], AdvantageRecipe, float]:
    """With the rewards of the weights that explain the batches, where no weights are stated and one set does."""
    first = _that_explain(best, made)
    if first is None:
        return made, best, share
    again = [_with_weights(batch, first) for batch in made]
    recipe, explanation = _best(candidates, again)
    return (again, recipe, explanation) if explanation > share else (made, best, share)


def _that_explain(best: AdvantageRecipe, made: Sequence[TrainedBatch]) -> Floats | None:
    """The first weights (K,) of the reward functions that explain a batch under one of the recipes; None for none."""
    tried = (wrong_advantages.weights(recipe, batch) for recipe in _by_usage(best) for batch in made)
    return next((weights for weights in tried if weights is not None), None)


def _by_usage(best: AdvantageRecipe) -> tuple[AdvantageRecipe, ...]:
    """Recipes under which weights are looked for: that which fits most rows of the wrong sum, then the usual ones."""
    return (best, *(recipe for recipe in (*USUAL, EACH) if recipe != best))


def weights_in_force(rows: Sequence[Rollout]) -> tuple[AdvantageRecipe, Mapping[str, float] | None] | None:
    """The recipe that all advantages of rollouts of several reward functions follow, and the weights of these, the
    largest 1 where a scale leaves their size open; None for weights where the plain sum, or the logged total, fits as
    others would. None in all where there is nothing to compare; ValueError, with a clause, where none fit all, or such
    weights alone as reverse the sign.
    """
    evidence = PipelineEvidence("", rows=tuple(rows))
    made = _batches(evidence, kept=False)
    names = dict.fromkeys(name for row in rows for name in row.rewards)
    if isinstance(made, Finding) or len(names) < 2 or not any(_differ(batch) for batch in made):
        return None
    candidates = tuple(recipes.every())
    best, _ = _best(candidates, made[:SOON])
    vector = _that_explain(best, made)
    if vector is not None:
        weighed = [_with_weights(batch, vector) for batch in made]
        recipe, fitting = _best_soon(candidates, weighed)
        if fitting == 1 and (vector <= 0).all():
            raise ValueError("only weights below 0 give the advantages")
        if fitting == 1:
            return recipe, dict(zip(names, map(float, vector), strict=True))
    best, share = _best_soon(candidates, made)
    if share < 1:
        raise ValueError("no recipe and no weights that were tried give the advantages")
    return best, None


def _differ(batch: TrainedBatch) -> bool:
    """Whether a batch has any advantage that is not 0."""
    return bool((np.abs(np.nan_to_num(batch.advantages)) > 0).any())


def _with_weights(batch: TrainedBatch, weights: Floats) -> TrainedBatch:
    """A batch whose rewards are the weighted sum (K,) of its functions."""
    total = weights @ batch.parts if batch.parts is not None else batch.rewards
    return replace(batch, rewards=total, weights=weights)


def _in_strides(
    candidates: Sequence[AdvantageRecipe], made: Sequence[TrainedBatch], evidence: PipelineEvidence
) -> Finding | None:
    """That advantages are those of rows in turn, as many as most groups have, where groups of fewer rows shift those
    behind them; None where groups have one size, or where no recipe gives all advantages so."""
    sizes = np.concatenate([np.bincount(batch.group) for batch in made])
    size = int(np.argmax(np.bincount(sizes)))
    short = int((sizes != size).sum())
    if size < 2 or not short or not any(len(batch.rewards) >= 2 * size for batch in made):
        return None
    of_groups = [recipe for recipe in candidates if recipe.baseline in ("mean", "leave-one-out")]
    recipe = next((own for own in of_groups if all(_fits_in_turn(own, batch, size) for batch in made)), None)
    if recipe is None:
        return None
    first = next((batch for batch in made if _crosses(batch, size)), None)
    if first is None:
        return None  # one prompt that was drawn twice, whose draws are groups of their own
    return exact(
        FAULTS["groups in another order"], True,
        f"all advantages are {recipe} of {size} rows in turn, and {short:,} of {len(sizes):,} groups have another "
        f"number of rows: behind the first of them, rows are compared with those of other prompts (step {first.step})",
        held="", brief="a fixed stride over groups of several sizes", effect=EFFECTS["groups in another order"],
        remedy="Form groups by the id of the prompt, not by place, or leave incomplete groups out before.",
        onset=first.step,
    )  # fmt: skip


def _crosses(batch: TrainedBatch, size: int) -> bool:
    """Whether any so many rows in turn are of several groups."""
    whole = batch.group[: len(batch.group) // size * size].reshape(-1, size)
    return bool((whole != whole[:, :1]).any())


def _fits_in_turn(recipe: AdvantageRecipe, batch: TrainedBatch, size: int) -> bool:
    """Whether all advantages of a batch are those of groups of so many rows in turn; the rows behind the last whole
    group may have the reward, 0, or be a group of their own."""
    count = len(batch.rewards)
    fits = replace(batch, group=np.arange(count) // size).fits(recipe)
    behind = np.arange(count) >= count // size * size
    return bool((fits | (behind & ((batch.advantages == 0) | (batch.advantages == batch.rewards)))).all())


def _of_equal_prompts(
    candidates: Sequence[AdvantageRecipe], made: Sequence[TrainedBatch], evidence: PipelineEvidence
) -> Finding | None:
    """That a prompt which was drawn several times in a step is one group: then all advantages are those of a recipe."""
    merged = [replace(batch, group=_by_prompt(batch, evidence)) for batch in made]
    if not any(batch.group.max() > other.group.max() for batch, other in zip(made, merged, strict=True)):
        return None
    recipe, share = _best(candidates, merged)
    if share < 1:
        return None
    moved = [~batch.fits(recipe) for batch in made]
    first = next(k for k, rows in enumerate(moved) if rows.any())
    where = evidence.rows[int(made[first].places[np.flatnonzero(moved[first])[0]])].where
    drawn = sum(int(batch.group.max() - other.group.max()) for batch, other in zip(made, merged, strict=True))
    return exact(
        "wrong baseline", True,
        f"{sum(int(rows.sum()) for rows in moved):,} of {sum(len(rows) for rows in moved):,} advantages are {recipe} "
        f"only where groups of equal prompts are one: {drawn:,} groups have the prompt of another group of their step; "
        f"the first is {where}",
        held="", brief="equal prompts are one group", onset=made[first].step, grades=("warning", "warning"),
        effect="Groups are larger than the stated size where a prompt is drawn again, or stands in the data twice: "
        "their mean and deviation are those of all of its rollouts.",
        remedy="Form groups by the id of the draw, not by the tokens of the prompt, or draw a prompt once in a step.",
    )  # fmt: skip


def _by_prompt(batch: TrainedBatch, evidence: PipelineEvidence) -> Ints:
    """The groups (N,) of a batch with those of equal prompts as one; as they are where a prompt is not known."""
    numbers: dict[object, int] = {}
    merged = batch.group.copy()
    for number in range(int(batch.group.max()) + 1):
        row = evidence.rows[int(batch.places[np.flatnonzero(batch.group == number)[0]])]
        prompt = row.prompt_ids.tobytes() if row.prompt_ids is not None else row.prompt
        key = number if prompt is None else str(prompt)
        merged[batch.group == number] = numbers.setdefault(key, len(numbers))
    return merged


def _of_recipe(
    recipe: AdvantageRecipe, share: float, made: Sequence[TrainedBatch], evidence: PipelineEvidence
) -> Finding | None:
    """What is wrong of the recipe that is stated, or that fits half of the rows; None for any other."""
    return _broken(recipe, made, evidence) if recipes.states(evidence.stated) or share >= 0.5 else None


def _broken(recipe: AdvantageRecipe, made: Sequence[TrainedBatch], evidence: PipelineEvidence) -> Finding:
    explanation = _explanation(recipe, made, functions=True)
    return _told(recipe, made, evidence, *(explanation or ("advantages of no known recipe", "fit no known recipe")))


def _explanation(
    recipe: AdvantageRecipe, made: Sequence[TrainedBatch], functions: bool = False
) -> tuple[str, str] | None:
    """(fault, in words) that explains the wrong batches: a whole one first, else the one that explains most of them."""
    wrong = [batch for batch in made if not batch.fits(recipe).all()]
    for other in sorted(recipes.every(), key=lambda one: _apart(one, recipe)):
        if other != recipe and all(batch.fits(other).all() for batch in wrong):
            return _kind(recipe, other), f"are {other}"
    if functions:
        for usual in _by_usage(recipe):
            tried = (wrong_advantages.weights(usual, batch) for batch in wrong)
            vector = next((weights for weights in tried if weights is not None), None)
            if vector is not None and not _parallel(vector, wrong[0].weights) and _explain(vector, usual, wrong):
                return "weights", f"use the function weights {', '.join(f'{weight:.3g}' for weight in vector)}"
    shares: dict[str, float] = {}
    words: dict[str, str] = {}
    for batch in wrong:
        right = batch.fits(recipe)
        best: dict[str, float] = {}
        for fault, said, rows in wrong_advantages.faults(recipe, batch):
            best[fault] = max(best.get(fault, 0.0), float(rows[~right].mean()))
            words.setdefault(fault, said)
        for fault, share in best.items():
            shares[fault] = shares.get(fault, 0.0) + share / len(wrong)
    if not shares or max(shares.values()) < 0.5:
        return None
    name = max(shares, key=lambda fault: round(shares[fault], 6))
    return (_of_every_step(recipe, wrong) if name == "factor" else None) or (name, words[name])


def _explain(weights: Floats, recipe: AdvantageRecipe, batches: Sequence[TrainedBatch]) -> bool:
    """Whether advantages are those of rewards with these weights in all batches, also in those that leave them open."""
    sums = [batch.of_rewards(weights @ batch.parts) for batch in batches if batch.parts is not None]
    return len(sums) == len(batches) and all(batch.fits(recipe).mean() > 0.99 for batch in sums)


def _of_every_step(recipe: AdvantageRecipe, wrong: Sequence[TrainedBatch]) -> tuple[str, str] | None:
    """(fault, in words) where every step has a factor of its own; None where they are one, or not known of a step."""
    factors = [factor for batch in wrong if (factor := wrong_advantages.factor(recipe, batch)) is not None]
    if len(factors) < len(wrong) or max(factors) < (1 + SAME) * min(factors):
        return None
    said = f"are {min(factors):.4g} to {max(factors):.4g} times as large, by another number in each step"
    expected = [batch.under(recipe)[0] for batch in wrong]
    left = [[factor * made.std(ddof=ddof) for factor, made in zip(factors, expected, strict=True)] for ddof in (0, 1)]
    if not any(np.ptp(spreads) < SAME and abs(spreads[0] - 1) < SAME for spreads in left):
        return "factor", said
    return "again", f"{said}: they are divided by their standard deviation in the batch once more"


def _parallel(values: Floats, other: Floats | None) -> bool:
    """Whether two sets of weights differ by a factor alone, be it negative."""
    if other is None:
        return False
    size = float(np.linalg.norm(values) * np.linalg.norm(other))
    return bool(size) and abs(float(values @ other)) > (1 - 1e-6) * size


def _apart(recipe: AdvantageRecipe, other: AdvantageRecipe) -> int:
    """In how many ways two recipes differ."""
    return sum(getattr(recipe, name) != getattr(other, name) for name in ("baseline", "scale", "ddof", "epsilon"))


def _kind(recipe: AdvantageRecipe, other: AdvantageRecipe) -> str:
    """The fault of one recipe in another's place; rewards that nothing is subtracted from have no baseline at all."""
    if other.baseline == "none" != recipe.baseline:
        return "baseline"
    return next(
        name for name in ("scale", "baseline", "ddof", "epsilon") if getattr(recipe, name) != getattr(other, name)
    )


def _told(
    recipe: AdvantageRecipe, made: Sequence[TrainedBatch], evidence: PipelineEvidence, kind: str, words: str
) -> Finding:
    count = sum(len(batch.rewards) for batch in made)
    wrong = sum(int((~batch.fits(recipe)).sum()) for batch in made)
    batch = next(batch for batch in made if not batch.fits(recipe).all())
    row = int(np.flatnonzero(~batch.fits(recipe))[0])
    expected, _ = batch.under(recipe)
    where = evidence.rows[int(batch.places[row])].where
    permuted = REMEDIES.get(kind, "") == "" and FAULTS.get(kind) == "misplaced rewards"
    return exact(
        fault=FAULTS.get(kind, recipe_fit.UNEXPLAINED),
        brief=kind,
        broken=True,
        evidence=f"{wrong:,} of {count:,} advantages are not {recipe}: they {words}. The first, {where}, is "
        f"{batch.advantages[row]:.6g}, but the rewards give {expected[row]:.6g}",
        held="",
        effect=(
            f"{EFFECTS.get(kind, 'The gradient does not use the advantages of the settings.')} {_size(recipe, made)}"
        ),
        remedy=REMEDIES.get(kind, REORDER if kind in FAULTS else ""),
        onset=batch.step,
        grades=("warning", "warning") if permuted else None,
    )


def _size(recipe: AdvantageRecipe, made: Sequence[TrainedBatch]) -> str:
    """How far the advantages are from the right ones, in their own size."""
    right = np.concatenate([batch.under(recipe)[0] for batch in made])
    advantages = np.concatenate([batch.advantages for batch in made])
    there = np.isfinite(right) & np.isfinite(advantages)
    size = float(np.linalg.norm(right[there]))
    if not size:
        return ""
    return (
        f"The advantages differ from the correct ones by {np.linalg.norm(advantages[there] - right[there]) / size:.0%} "
        "of their size."
    )


PROOF = Proof(
    "advantages", "Advantages follow from rewards and settings", "rewards, groups and advantages of rollouts", _tests
)
