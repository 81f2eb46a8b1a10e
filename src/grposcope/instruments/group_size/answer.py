"""Answer on how many rollouts per prompt: what a probe, or else a run's rewards, say of each group size.

The terminal, the page and JSON show the same; figures, which only the page has, are added for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.core.answer import Answer, Figure, Table
from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.run import Floats, Groups, Run, labels
from grposcope.core.text import number, span, visible
from grposcope.instruments.gradient import findings as geometry
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.gradient import turn_answer
from grposcope.instruments.gradient.probe_record import ProbeGram, ProbeRecord
from grposcope.instruments.group_size import GROUP_SIZE, PlanSettings, mse, planning, probe_pool, rewards_alone
from grposcope.instruments.group_size import size as group_size
from grposcope.instruments.group_size.planning import Allocation, Plan
from grposcope.instruments.group_size.rewards_alone import HALF
from grposcope.instruments.group_size.size import MOMENTS, NO_LIMIT, GroupSize, LayerSize, RecipeSize, Unknown
from grposcope.maths import dead_groups
from grposcope.maths import moments as gradient_moments

MEANING = {
    "sigma1": "Σ₁   variance per rollout if V were known",
    "delta": "Δ    price of not knowing V",
    "prompt_variance": "V_p  how much gradients differ between prompts",
    "g2": "E‖g‖²  mean squared gradient of a prompt",
    "mean2": "‖E g‖²  squared mean gradient",
}
"""What the table of moments calls them."""

NOT_KNOWN = "not known"
"""What stands in a table for a number that the probe does not tell."""

SCOPE = (
    "This holds for leave-one-out advantages (rloo) and the error of one gradient at equal cost; it "
    "ignores other effects of the group size (exploration, memory, batching)."
)
"""What the best group size is the best for."""


def answers(runs: Sequence[Run], settings: PlanSettings) -> list[Answer]:
    """One answer on the probes of these runs, with figures; none where no run has one.

    What rewards alone say, the page has in its answer on dead groups; `of_run` has it for one run.
    """
    probed = {
        label: (run, probe) for label, run in zip(labels(runs), runs, strict=True) if (probe := _planned_with(run))
    }
    said: dict[str, Answer] = {}
    sizes: dict[str, GroupSize] = {}
    for label, (run, probe) in probed.items():
        try:
            said[label], sizes[label] = _of_probe(run, probe, settings)
        except UserError as error:
            said[label] = _unknown(probe, str(error))
    if not said:
        return []
    answer = _together(said)
    blocks: dict[str, GroupSize] = {}
    if sizes and len(probed) == 1:
        (label,) = sizes
        by_block = group_size.by_block(probed[label][1])
        if isinstance(by_block, Unknown):
            left_out = (
                f"Results by layer are left out, because {by_block.reason}; grposcope plan computes them when asked "
                "for layers."
            )
            answer = replace(answer, text=[*answer.text, left_out])
        elif by_block:
            blocks = by_block
            of_blocks = {name: asdict(block.plan) for name, block in blocks.items()}
            answer = replace(answer, document={label: {**answer.document[label], "blocks": of_blocks}})
    return [replace(answer, figures=_figures(runs, sizes, blocks if len(probed) == 1 else None))]


def of_run(run: Run, settings: PlanSettings) -> Answer:
    """What one run says, by its probes that kept a Gram matrix, else by its rewards, without figures.

    UserError where neither says anything.
    """
    probe = _planned_with(run)
    answer_of_run = rewards_alone.answer(run, settings) if probe is None else _of_probe(run, probe, settings)[0]
    single = _of_single_rewards(run, settings)
    return answer_of_run if single is None else replace(answer_of_run, tables=[*answer_of_run.tables, single])


def _planned_with(run: Run) -> ProbeRecord | None:
    """The last probe of a run that kept its Gram matrix; of a folder without steps the last one in any case."""
    records = probes.of_run(run)
    if not records and run.folder is not None and (run.folder / probes.GRAM).is_file():
        return ProbeRecord(folder=run.folder)
    stored = [record for record in records if record.gram_bytes()]
    if not stored and (run.steps or len(run.groups)):
        return None
    return (stored or records or (None,))[-1]


def _together(said: Mapping[str, Answer]) -> Answer:
    """One answer of those of several runs: each sentence and each row of a table with the label of its run."""
    (first, *others) = said.values()
    document = {label: section.document for label, section in said.items()}
    if not others:
        return replace(first, document=document)
    brief = [f"{label}: " + (f"best G = {section.numbers[0].shown}" if section.numbers else "cannot tell")
             for label, section in said.items()]  # fmt: skip
    merged: dict[tuple[str, ...], Table] = {}
    for label, section in said.items():
        for table in section.tables:
            rows = [(label, *row) for row in table.rows]
            start = merged.get((table.title, *table.header), replace(table, header=("probe", *table.header), rows=()))
            merged[table.title, *table.header] = replace(start, rows=(*start.rows, *rows))
    return replace(
        first,
        word="told" if any(one.numbers for one in said.values()) else "cannot tell",
        sentence=f"{'; '.join(brief)}.",
        do="",
        text=[f"{label}: {paragraph}" for label, one in said.items() for paragraph in one.paragraphs],
        numbers=[replace(number, name=f"{number.name}, {label}") for label in said for number in said[label].numbers],
        tables=list(merged.values()),
        document=document,
    )


def _unknown(probe: ProbeRecord, reason: str) -> Answer:
    """The answer of a probe from which nothing can be planned."""
    sentence = Unknown(reason).sentence()
    document = {"kind": "probe", "probe": _about(probe), "step": probe.step, "verdict": sentence, "plan": None}
    told = {**document, "cannot_tell": reason}
    return Answer(GROUP_SIZE.name, GROUP_SIZE.question, "cannot tell", sentence, document=told)


def _of_probe(run: Run, probe: ProbeRecord, settings: PlanSettings) -> tuple[Answer, GroupSize]:
    """What one probe says, and the group size behind it; UserError where it says nothing."""
    pool = probe_pool.of_run(run, probe, settings.layers)
    files = [file.without_truncated() for file in pool.files] if settings.truncated == "drop" else list(pool.files)
    costs = (settings.prompt_cost, settings.rollout_cost)
    resampled = (settings.replicates, settings.seed)
    facts = group_size.of_grams([(file.gram, file.rewards) for file in files], settings.groups, *costs, *resampled)
    trained = group_size.of_recipe(facts, *_recipe(run, probe, settings))
    success, used = rewards_alone.success_rate(facts.rewards), _group_used(run, probe)
    own = trained.plan if trained.decided else None
    budget = _budget(facts, len(files), settings)
    batch, group = None, facts.rewards.shape[1]
    if own or facts.decided:
        batch = facts.allocate(budget, settings.multiple, own.noise if own else None)
        group = batch.group
    errors = None if batch is None else facts.gradient_errors(batch.prompts, batch.group)
    layers = _by_layer(files[-1], *costs, *resampled) if settings.layers else {}
    sentence, other = group_size.sentences(facts, trained, used)
    leads = group_size.leads(facts, trained)
    told = (trained.decided or trained.plan is None) if leads else facts.decided
    document = {
        "kind": "probe",
        "probe": _about(probe),
        "step": probe.step,
        "pooled": {"steps": pool.steps, "left_out": pool.left_out, "drift": pool.drift},
        "verdict": sentence if leads else facts.sentence(),
        **_document(facts, trained, budget, batch, errors),
    }
    answer = Answer(
        GROUP_SIZE.name,
        GROUP_SIZE.question,
        "told" if told else "cannot tell",
        sentence,
        do="" if batch is None else _what_to_draw(batch, budget, trained, leads),
        text=[
            *filter(None, [other, *([] if batch is None else _of_errors(facts, batch.group, used or batch.group))]),
            facts.dead_sentence(group),
            *([] if probe.turns is None else turn_answer.sentences(probe.turns)),
            *rewards_alone.standardized_text(success, used or group),
            *filter(None, [pool.sentence]),
            f"{_subject(probe, files)}. {SCOPE}",
        ],
        numbers=group_size.best_numbers(facts, trained),
        tables=_tables(facts, trained, settings.groups, batch, errors, layers),
        document=document | ({"layers": layers} if layers else {}),
    )
    return answer, facts


def _budget(facts: GroupSize, probes: int, settings: PlanSettings) -> float:
    """What a batch may cost: what is asked for, else what one of so many probes cost together did."""
    if settings.budget is not None:
        return settings.budget
    prompts, group = facts.rewards.shape
    return prompts // probes * (settings.prompt_cost + settings.rollout_cost * group)


def _what_to_draw(batch: Allocation, budget: float, trained: RecipeSize, leads: bool) -> str:
    """The batch that the budget buys, with the recipe that it is the best for, and what to do where that is not the one
    that is trained. leads: as in `group_size.leads`."""
    recipe = f", recipe {trained.recipe}" if trained.decided else "" if trained.differs else ", recipe rloo"
    draw = (
        f"draw {batch.prompts} prompts × {batch.group} rollouts (cost {batch.cost:g} of a budget of {budget:g}{recipe})"
    )
    if trained.decided or not leads:
        return draw
    return f"{trained.remedy}, or train with leave-one-out advantages (recipe rloo): {draw}"


def _of_errors(facts: GroupSize, group: int, used: int) -> list[str]:
    """Where the error of the gradient comes from, at the best group size and at the one in use; empty sentences for
    what is not known."""
    return [facts.uneven_sentence(), facts.error_sentence(group), facts.baseline_sentence(used)]


def _document(
    facts: GroupSize,
    trained: RecipeSize,
    budget: float,
    batch: Allocation | None,
    errors: Mapping[str, Estimate] | None,
) -> dict[str, Any]:
    """Moments, plans and the batch that the budget buys, as JSON has them."""
    recipe = trained.recipe if trained.decided else "rloo"
    return {
        "moments": {name: _moment(facts, name) for name in group_size.MOMENTS},
        "plan": {**asdict(facts.plan), "decided": facts.decided, "at_least": facts.plan.at_least},
        "budget": budget,
        "allocation": None if batch is None else {"recipe": recipe, **asdict(batch)},
        "errors": errors,
        "recipe": {**asdict(trained), "decided": trained.plan.decided if trained.plan else None},
        "cannot_tell": None if facts.decided else facts.why_not(),
    }


def _tables(
    facts: GroupSize,
    trained: RecipeSize,
    groups: Sequence[int],
    batch: Allocation | None,
    errors: Mapping[str, Estimate] | None,
    layers: Mapping[str, LayerSize],
) -> list[Table]:
    """What these group sizes lose, the errors of the batch, and what they come from."""
    tables = [
        _losses(facts) if facts.decided else None,
        _recipe_losses(trained, groups),
        None if batch is None or errors is None else _errors(batch, errors),
        *rewards_alone.standardized_table(rewards_alone.success_rate(facts.rewards), groups),
        None if batch is None else _baselines(facts, groups),
        _layers(layers) if layers else None,
        _moments(facts),
    ]
    return [table for table in tables if table is not None]


def _of_single_rewards(run: Run, settings: PlanSettings) -> Table | None:
    """Dead groups of each reward and of all together at each size, and the size that each takes, from the last steps.

    None for a run with one reward.
    """
    groups = run.groups
    if len(groups.components) < 2:
        return None
    kept = np.flatnonzero(groups.step > int(groups.step.max()) - settings.last)
    padded = np.stack([_padded(values, groups, kept) for values in groups.components.values()])
    names = [visible(name, 40) for name in groups.components]
    seen = [(~np.isnan(rewards)).sum(1).max() >= 2 for rewards in padded]
    judged = padded[seen]
    if not len(judged):
        return None
    known = ~np.isnan(judged).any(0)
    tuples = np.full(known.shape, math.nan)
    tuples[known] = np.unique(judged[:, known], axis=1, return_inverse=True)[1].reshape(-1)
    columns = {name: rewards for name, rewards, some in zip(names, padded, seen, strict=True) if some}
    if (~np.isnan(tuples)).sum(1).max() >= 2:
        columns["all of them"] = tuples
    sizes = [[dead_groups.expected(rewards, group) for group in settings.groups] for rewards in columns.values()]
    rows = []
    for i, group in enumerate(settings.groups):
        found = [column[i] for column in sizes]
        rows.append((str(group), *(_share(one) for one in found), next((one.flag for one in found if one.flag), "")))
    least = []
    for column in sizes:
        enough = [str(group) for group, one in zip(settings.groups, column, strict=True) if one.value <= HALF]
        least.append((*enough, "none of these")[0])
    rows.append((f"smallest G with ≤ {HALF:.0%}", *least, ""))
    return Table(
        "Groups in which a reward does not vary", ("G", *columns, ""), rows,
        "A group that is dead in one reward may be live in another. If only one reward varies, "
        "standardizing the sum gives it the whole advantage, whatever its weight; grposcope rewards "
        "shows the weight of each.",
    )  # fmt: skip


def _padded(values: Floats, groups: Groups, array: NDArray[np.int64]) -> Floats:
    """The rewards (P, n) of some groups, NaN where a group has no such rollout, or one that was not judged."""
    rewards = np.full((len(array), int(groups.sizes[array].max())), math.nan)
    for row, k in zip(rewards, array, strict=True):
        part = values[groups.offsets[k] : groups.offsets[k + 1]]
        row[: len(part)] = np.where(np.isfinite(part), part, math.nan)
    return rewards


def _share(value: Estimate) -> str:
    return f"{value.value:.1%} ± {value.se:.1%}" if math.isfinite(value.value) else "cannot tell"


def _recipe(run: Run, probe: ProbeRecord, settings: PlanSettings) -> tuple[str, str]:
    """The recipe asked for, else that of the run or of the probe, else rloo; and its `Comparison` where recorded."""
    if settings.recipe is not None:
        if settings.recipe not in group_size.KINDS:
            kinds = ", ".join(group_size.KINDS)
            raise UserError(f"recipe {settings.recipe}: there is no such recipe; the recipes are {kinds}")
        return settings.recipe, ""
    recipe = run.setting("recipe") or probe.recipe or "rloo"
    if run.setting("recipe") and run.setting("advantage"):
        recipe = f"{recipe}, {run.setting('advantage')} advantage"
    return str(recipe), probe.comparison if recipe == probe.recipe else ""


def _group_used(run: Run, probe: ProbeRecord) -> int | None:
    """The group size in use: the run's, else the probe's."""
    used = run.setting("group") if run.steps else probe.group
    return used if isinstance(used, int) else None


def _about(probe: ProbeRecord) -> dict[str, Any]:
    """The folder of a probe and the single values of its record, where it has one."""
    recorded = probe.folder is not None and probes.recognises(probe.folder)
    return {"folder": str(probe.folder), **({**probe.scalars(), "step": probe.step} if recorded else {})}


def _subject(probe: ProbeRecord, files: Sequence[ProbeGram]) -> str:
    """What was probed, in words."""
    prompts, group = sum(len(file.rewards) for file in files), files[-1].rewards.shape[1]
    subject = geometry.subject(probe) if probe.prompts else f"{prompts} prompts × {group} rollouts"
    if len(files) > 1:
        subject = f"{prompts} prompts × {group} rollouts in {len(files)} probes; the last is {subject}"
    truncated = np.concatenate([file.truncated.reshape(-1) for file in files])
    cut = f"; {truncated.mean():.1%} of rollouts truncated" if truncated.any() else ""
    return f"From {subject}{cut}"


def _moment(facts: GroupSize, name: str) -> dict[str, Any]:
    """A moment with its 95% interval."""
    low, high = facts.moment_interval(name)
    return {**asdict(getattr(facts.moments, name)), "low": low, "high": high}


# Tables


def _losses(facts: GroupSize) -> Table:
    """What each group size loses with leave-one-out advantages."""
    curve = facts.plan.curve
    most = max((point.loss for point in curve if math.isfinite(point.loss)), default=0.0)
    rows = []
    for point in curve:
        ratio, low, high = facts.efficiency(point.group)
        least, greatest = (100 * loss for loss in point.loss_interval)
        bar = "▇" * round(20 * point.loss / most) if most > 0 and math.isfinite(point.loss) else ""
        rows.append((
            str(point.group), f"{point.loss:+.1%}", f"{span(least, greatest)}%",
            _plus_minus(point.cost_mse), f"{number(ratio)} ({span(low, high)})", facts.dead_shown(point.group), bar,
        ))  # fmt: skip
    header = ("G", f"more {facts.unit} needed", "95%", "budget × MSE", "error ÷ oracle's", "dead groups", "")
    text = (
        "Additional rollouts needed to reach the error of the best group size, with leave-one-out advantages. Error "
        "÷ oracle's: error relative to a baseline that knows each prompt's value; 1 means no loss."
    )
    star = f" {group_size.EXTRAPOLATION}" if any(row[-2].endswith("*") for row in rows) else ""
    return Table("What you lose at each group size", header, rows, text + star)


def _recipe_losses(trained: RecipeSize, groups: Sequence[int]) -> Table | None:
    """What each group size up to the probe's loses with the recipe that is trained, where that can be told."""
    plan = trained.plan
    if plan is None or not plan.losses:
        return None
    shown = sorted({*groups, plan.best, plan.largest} & plan.losses.keys())
    rows = [(str(group), f"{plan.losses[group].value:+.1%} ± {plan.losses[group].se:.1%}") for group in shown]
    title = f"What you lose at each group size with recipe {trained.recipe}"
    return Table(
        title, ("G", "more budget needed"), rows, "Additional budget needed for the same noise-to-signal ratio."
    )


def _errors(batch: Allocation, errors: Mapping[str, Estimate]) -> Table:
    """The error of each kind of gradient for the batch that the budget buys."""
    rows = [
        (name, _plus_minus(error), _shown(error.value / batch.mse.value), error.flag) for name, error in errors.items()
    ]
    title = f"Error of the gradient of {batch.prompts} prompts × {batch.group} rollouts"
    return Table(title, ("gradient", "MSE ± s.e.", "÷ leave-one-out", ""), rows, folded=True)


def _baselines(facts: GroupSize, groups: Sequence[int]) -> Table:
    """What each baseline needs at each group size, and the shrinkage of least error."""
    rows = []
    for group in groups:
        shrink = mse.best_shrink(facts.moments, group)
        kinds = [mse.needed(facts.moments, group, by) for by in (0.0, 1.0, shrink.value)]
        rows.append((str(group), *map(_plus_minus, kinds), _plus_minus(shrink)))
    header = ("G", "none (reinforce)", "leave-one-out", "shrunk to 0", "λ of least error")
    text = (
        "Rollouts for the error of one prompt's gradient, relative to an oracle that knows the prompt's value. Shrunk: "
        "the baseline is λ × the mean of the others; recipe shrunk_rloo takes λ from the other prompts of the batch."
    )
    return Table("What each baseline needs at each group size", header, rows, text, folded=True)


def _layers(layers: Mapping[str, LayerSize]) -> Table:
    """The best group size of each layer alone."""
    rows = []
    for name, layer in layers.items():
        parts = map(_plus_minus, (layer.norm, layer.sigma1, layer.delta, layer.prompt_variance))
        rows.append(
            (
                name,
                *parts,
                _shown(layer.best),
                _interval(*layer.interval),
                layer.reason,
            )
        )
    header = ("layer", "E‖s‖²", "Σ₁", "Δ", "V_p", "G*", "95%", "")
    return Table(
        "By layer", header, rows, "Σ₁, Δ and V_p (above) of the layers add up to those of the model.", folded=True
    )


def _moments(facts: GroupSize) -> Table:
    """The moments with their standard errors and intervals."""
    rows = []
    for name, meaning in MEANING.items():
        moment: Estimate = getattr(facts.moments, name)
        rows.append((meaning, _plus_minus(moment), _interval(*facts.moment_interval(name)), moment.flag))
    mean = facts.score_mean()
    rows.append(("‖E s‖²/E‖s‖²  0 for true scores", _plus_minus(mean), "", mean.flag))
    return Table("Moments of the gradient", ("", "value ± s.e.", "95%", ""), rows, folded=True)


def _plus_minus(estimate: Estimate) -> str:
    """A value with its standard error, both without powers of ten below 10,000, or which of them is not known."""
    if math.isnan(estimate.value):
        return NOT_KNOWN
    if math.isnan(estimate.se):
        return f"{number(estimate.value)}, error {NOT_KNOWN}"
    error = f"{estimate.se:.0f}" if 100 <= estimate.se < 1e4 else f"{estimate.se:.2g}"
    return f"{number(estimate.value)} ± {error}"


def _shown(value: float) -> str:
    return NOT_KNOWN if math.isnan(value) else number(value)


def _interval(low: float, high: float) -> str:
    return NOT_KNOWN if math.isnan(low) or math.isnan(high) else span(low, high)


# Figures


def _figures(
    runs: Sequence[Run], sizes: Mapping[str, GroupSize], blocks: Mapping[str, GroupSize] | None
) -> list[Figure]:
    """Curves over G, and G* over steps; with the `blocks` of a single probe, also where its error comes from."""
    from grposcope.instruments.group_size import figures as charts

    order = labels(runs)
    drawn: list[Figure | None] = []
    if sizes:
        plans = {
            label: planning.optimal_group(
                size_plan.moments, size_plan.prompt_cost, size_plan.rollout_cost, charts.SIZES
            )
            for label, size_plan in sizes.items()
        }
        decided = {label: size_plan for label, size_plan in sizes.items() if size_plan.decided}
        ratios = {
            label: {size: size_plan.efficiency(size) for size in charts.SIZES} for label, size_plan in decided.items()
        }
        drawn.append(charts.curve(plans, order))
        if blocks is not None:
            drawn += [charts.budget(size_plan.moments, planning.GROUPS) for size_plan in decided.values()]
        drawn.append(charts.efficiency(ratios, order))
        if blocks:
            of_blocks = {name: block.plan for name, block in blocks.items()}
            drawn += [charts.blocks(plan, of_blocks) for plan in plans.values()]
    drawn.append(charts.over_steps({label: _over_steps(run) for label, run in zip(order, runs, strict=True)}))
    return [figure for figure in drawn if figure is not None]


def _over_steps(run: Run) -> list[tuple[int, Plan]]:
    """The plan at every step that was probed, if there are two or more."""
    by_step = geometry.by_step(run)
    if len(by_step) < 2:
        return []
    facts = [(step, group_size.of_probe(probe, ())) for step, probe in by_step.items()]
    return [(step, fact.plan) for step, fact in facts if isinstance(fact, GroupSize)]


def _by_layer(
    file: ProbeGram, prompt_cost: float = 0.0, rollout_cost: float = 1.0, replicates: int = 1000, seed: int = 0
) -> dict[str, LayerSize]:
    """Moments and G* of each layer alone; raises UserError where the probe kept no Grams of layers."""
    if file.layers is None:
        raise UserError("the probe kept no Gram matrices of layers; probe again, or plan without layers")
    layers = {}
    for name, moments in gradient_moments.per_layer(
        file.layers, file.layer_names, file.rewards, replicates, seed
    ).items():
        plan = planning.optimal_group(moments, prompt_cost, rollout_cost, ())
        layers[name] = LayerSize(
            norm=moments.estimate(lambda s: s.norm),
            **{moment: getattr(moments, moment) for moment in MOMENTS},
            best=plan.continuous.value if plan.decided else math.nan,
            interval=plan.interval,
            reason="" if plan.decided else plan.continuous.flag or NO_LIMIT,
        )
    return layers
