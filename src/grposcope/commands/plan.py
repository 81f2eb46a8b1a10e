"""`grposcope plan`: how many rollouts per prompt a budget should buy, from a probe, or what a run's rewards can say."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import logs
from grposcope.commands.output import add_json, finish, say
from grposcope.errors import UserError
from grposcope.formatting import number, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grposcope.facts.group_size import GroupSize, LayerSize, SizesFromRewards
    from grposcope.facts.recipe_size import RecipeSize
    from grposcope.records import Estimate
    from grposcope.runs.probe import ProbeGram
    from grposcope.runs.run import Run
    from grposcope.ustat.planning import Allocation

DESCRIPTION = "How noisy the gradient is, and how many rollouts per prompt a budget should buy."
EXAMPLES = """\
examples:
  grposcope plan probe/                                   the best group size, its interval, what others lose
  grposcope plan probe/ --budget 1024 --multiple 64       prompts × rollouts for 1,024 rollouts, in full batches
  grposcope plan probe/ --prompt-cost 0.2                 reading a prompt costs a fifth of writing an answer
  grposcope plan probe/ --recipe dapo                     for the recipe that is trained
  grposcope plan probe/ --layers                          the same for each layer
  grposcope plan runs/demo                                from the run's last probe (runs/demo/probes/), if it has one
  grposcope plan runs/other --last 20                     from rewards alone: dead groups at each group size
"""


MEANING = {
    "sigma1": "Σ₁   variance per rollout if V were known",
    "delta": "Δ    price of not knowing V",
    "prompt_variance": "V_p  how gradients differ between prompts",
    "g2": "E‖g‖²  mean square of a prompt's gradient",
    "mean2": "‖E g‖²  square of the gradient itself",
}
"""What the table of moments calls them."""


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of the command."""
    command.add_argument("path", metavar="FOLDER", help="a probe (grposcope probe), or a run with single rewards, of "
                         "any supported trainer")  # fmt: skip
    logs.add_flags(command, "path")
    money = command.add_argument_group("budget")
    money.add_argument("--budget", type=float, metavar="X", help="what a batch may cost (default: the probe's cost)")
    money.add_argument("--prompt-cost", type=float, default=0.0, metavar="X",
                       help="cost of reading a prompt, in the unit of --rollout-cost (default: 0)")  # fmt: skip
    money.add_argument("--rollout-cost", type=float, default=1.0, metavar="X",
                       help="cost of writing one rollout (default: 1, so that the budget counts rollouts)")  # fmt: skip
    money.add_argument("--multiple", type=int, default=1, metavar="N",
                       help="rollouts of a batch are a multiple of N, devices × micro-batch (default: 1)")  # fmt: skip
    view = command.add_argument_group("view")
    view.add_argument("--recipe", metavar="NAME",
                      help="recipe that is trained, as grpo or dapo (default: the probe's, else rloo)")  # fmt: skip
    view.add_argument("--groups", type=_groups, default=(2, 4, 8, 16, 32, 64), metavar="N,N,…",
                      help="group sizes to show (default: 2,4,8,16,32,64)")  # fmt: skip
    view.add_argument("--layers", action="store_true", help="the moments and the best group size of each layer too")
    view.add_argument("--truncated", choices=("keep", "drop"), default="keep",
                      help="rollouts cut at the token limit: kept as draws, or left out (default: keep)")  # fmt: skip
    view.add_argument("--last", type=int, default=50, metavar="N",
                      help="of a run without probes, its last N steps (default: 50)")  # fmt: skip
    view.add_argument("--replicates", type=int, default=1000, metavar="N",
                      help="bootstrap draws behind the intervals (default: 1000)")  # fmt: skip
    view.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the bootstrap (default: 0)")
    add_json(view)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    for name, least in (("last", 1), ("replicates", 20), ("seed", 0)):
        if getattr(arguments, name) < least:
            raise UserError(f"--{name} {getattr(arguments, name)} must be at least {least}")
    text, document = _plan(logs.numbered(arguments.path)[0], arguments)
    say(arguments, text)
    finish(arguments, {"folder": str(arguments.path), **document})
    return 0


def _plan(folder: Path, arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Text and JSON: from the last probe of a run that kept its Gram, a probe, or the rewards of a run."""
    from grposcope.runs import probe as probes
    from grposcope.runs.native import schema
    from grposcope.runs.trainers import trl_output

    place = trl_output.find(folder)
    record = folder if place is None or place.record is None else place.record
    kept = [probe.folder for probe in probes.of_run(record) if probe.gram_bytes()]
    if kept:
        return _from_probe(kept[-1] or folder, arguments)
    if probes.recognises(folder) or (folder / probes.GRAM).exists():
        return _from_probe(folder, arguments)
    if (folder / "config.json").exists() and not schema.is_record(folder) and not trl_output.models(folder):
        raise UserError(
            f"{folder} is a model: its gradients have to be measured first; run `grposcope probe --model {folder} "
            f"--out probe`, then `grposcope plan probe`"
        )
    return _from_run(arguments)


def _groups(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers such as 2,4,8") from None
    if min(sizes) < 2:
        raise argparse.ArgumentTypeError("a group size must be at least 2")
    return sizes


# From a probe


def _from_probe(folder: Path, arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from grposcope.facts import allocation, allocation_check, group_size, recipe_size
    from grposcope.runs import probe as probes

    subject, about = _about(folder)
    probe = probes.read_gram(folder, layers=arguments.layers)
    if arguments.layers and probe.layers is None:
        raise UserError(f"{folder / probes.GRAM} holds no Gram matrices of layers; leave out --layers or probe them")
    if arguments.truncated == "drop":
        probe = probe.without_truncated()
    costs = (arguments.prompt_cost, arguments.rollout_cost)
    resampled = (arguments.replicates, arguments.seed)
    facts = group_size.of_gram(probe.gram, probe.rewards, arguments.groups, *costs, *resampled)
    recipe = _recipe(arguments.recipe, about)
    trained = recipe_size.of_recipe(facts, recipe)
    prompts, group = probe.rewards.shape
    budget = arguments.budget if arguments.budget is not None else prompts * (costs[0] + costs[1] * group)
    document: dict[str, Any] = {
        "kind": "probe",
        "probe": {"folder": str(folder), **about},
        "moments": {name: _moment(facts, name) for name in group_size.MOMENTS},
        "plan": {**asdict(facts.plan), "decided": facts.decided, "at_least": facts.plan.at_least},
        "budget": budget,
        "allocation": None,
        "errors": None,
        "recipe": {**asdict(trained), "decided": trained.plan.decided if trained.plan else None},
        "cannot_tell": None if facts.decided else facts.why_not(),
    }
    parts = [_heading(subject, probe), _moments(facts)]
    if facts.decided:
        parts.append(_curve(facts))
    parts.append(_for_leave_one_out(facts))
    if trained.plan and trained.plan.losses:
        parts.append(_losses(trained, arguments.groups))
    parts.append(trained.sentence())
    own = trained.plan if trained.plan and trained.plan.decided else None
    if own or facts.decided:
        batch = facts.allocate(budget, arguments.multiple, own.noise if own else None)
        document["errors"] = errors = facts.gradient_errors(batch.prompts, batch.group)
        document["allocation"] = {"recipe": recipe if own else "rloo", **asdict(batch)}
        parts += [_batch(facts, document["allocation"]["recipe"], batch, budget, errors)]
        group = batch.group
    saving = allocation.of_probe(facts.moments, facts.rewards, seed=arguments.seed)
    checked = allocation_check.of_gram(probe.gram, probe.rewards, seed=arguments.seed)
    document["saving"] = {**asdict(saving), "checked": asdict(checked)}
    parts += [facts.dead_sentence(group), saving.sentence() + ("" if saving.reason else f" {checked.sentence()}")]
    if arguments.layers:
        document["layers"] = layers = group_size.by_layer(probe, *costs, *resampled)
        parts.append(_layers(layers))
    return "\n\n".join(parts), document


def _recipe(asked: str | None, about: dict[str, Any]) -> str:
    """The recipe asked for, that of the probe, or rloo."""
    from grposcope.facts.recipe_size import KINDS

    if asked is not None and asked not in KINDS:
        raise UserError(f"--recipe {asked}: there is no such recipe; the recipes are {', '.join(KINDS)}")
    return asked or str(about.get("recipe") or "rloo")


def _for_leave_one_out(facts: GroupSize) -> str:
    return f"For leave-one-out advantages (rloo): {facts.sentence()}"


def _about(folder: Path) -> tuple[str, dict[str, Any]]:
    """The subject of a probe in words, and the single values of probe.json; empty where there is only a Gram."""
    from grposcope.facts import geometry
    from grposcope.runs import probe as probes

    if not probes.recognises(folder):
        return "", {}
    probe = probes.read(folder)
    return geometry.subject(probe), {**probe.scalars(), "step": probe.step}


def _moment(facts: GroupSize, name: str) -> dict[str, Any]:
    """A moment with its 95% interval."""
    low, high = facts.moment_interval(name)
    return {**asdict(getattr(facts.moments, name)), "low": low, "high": high}


def _heading(subject: str, probe: ProbeGram) -> str:
    prompts, group = probe.rewards.shape
    cut = f"; {probe.truncated.mean():.1%} of rollouts truncated" if probe.truncated.any() else ""
    return f"probe: {subject or f'{prompts} prompts × {group} rollouts'}{cut}"


def _moments(facts: GroupSize) -> str:
    """Table of the moments with their standard errors and intervals."""
    rows = [("", "value ± s.e.", "95% interval", "")]
    for name, label in MEANING.items():
        moment: Estimate = getattr(facts.moments, name)
        rows.append((label, _plus_minus(moment), _span(*facts.moment_interval(name)), moment.flag))
    mean = facts.score_mean()
    rows.append(("‖E s‖²/E‖s‖²  0 for true scores", f"{mean.value:.2g} ± {mean.se:.2g}", "", mean.flag))
    return table(rows, indent="  ")


def _curve(facts: GroupSize) -> str:
    """Table of what each group size loses."""
    from grposcope.facts.group_size import EXTRAPOLATION

    curve = facts.plan.curve
    most = max((point.loss for point in curve if math.isfinite(point.loss)), default=0.0)
    rows = [("G", "budget × MSE", "more budget needed", "95% interval", "÷ oracle", "dead groups", "")]
    for point in curve:
        low, high = (100 * loss for loss in point.loss_interval)
        bar = "▇" * round(20 * point.loss / most) if most > 0 and math.isfinite(point.loss) else ""
        rows.append((
            str(point.group), _plus_minus(point.cost_mse), f"{point.loss:+.1%}", f"{_span(low, high)} %",
            number(point.efficiency.value), facts.dead_shown(point.group), bar,
        ))  # fmt: skip
    note = f"\n{EXTRAPOLATION}" if any(row[-2].endswith("*") for row in rows) else ""
    note += "\n÷ oracle: error over that of a baseline that knows each prompt's value; 1 is no price"
    title = "what you lose at each group size with leave-one-out advantages (budget for the same error as at the best)"
    return f"{title}\n{table(rows, indent='  ')}{note}"


def _losses(trained: RecipeSize, groups: Sequence[int]) -> str:
    """Table of what each group size up to the probe's loses with the recipe that is trained."""
    rows = [("G", "more budget needed")]
    assert trained.plan is not None
    for group in sorted({*groups, trained.plan.best, trained.plan.largest} & trained.plan.losses.keys()):
        lost = trained.plan.losses[group]
        rows.append((str(group), f"{lost.value:+.1%} ± {lost.se:.1%}"))
    title = f"what you lose at each group size with recipe {trained.recipe} (budget for the same noise over signal)"
    return f"{title}\n{table(rows, indent='  ')}"


def _batch(facts: GroupSize, recipe: str, batch: Allocation, budget: float, errors: dict[str, Estimate]) -> str:
    """Text on the batch that the budget buys, the sources of its error, and the error of other gradients."""
    rows = [("gradient", "MSE ± s.e.", "÷ leave-one-out", "")]
    for name, error in errors.items():
        rows.append((name, _plus_minus(error), number(error.value / batch.mse.value), error.flag))
    return (
        f"with recipe {recipe} a budget of {budget:g} buys {batch.prompts} prompts × {batch.group} rollouts "
        f"(cost {batch.cost:g})\n"
        f"{facts.error_sentence(batch.group)}\n{table(rows, indent='  ')}"
    )


def _layers(layers: dict[str, LayerSize]) -> str:
    """Table of the best group size of each layer alone."""
    rows = [("layer", "E‖s‖²", "Σ₁", "Δ", "V_p", "G*", "95% interval")]
    for name, layer in layers.items():
        norm, sigma1, delta, prompts = (
            _plus_minus(moment) for moment in (layer.norm, layer.sigma1, layer.delta, layer.prompt_variance)
        )
        rows.append((name, norm, sigma1, delta, prompts, number(layer.best), _span(*layer.interval)))
    return "by layer (Σ₁, Δ and V_p add up to the whole where the layers do)\n" + table(rows, indent="  ")


def _plus_minus(estimate: Estimate) -> str:
    """A value with its standard error, both without powers of ten below 10,000."""
    error = f"{estimate.se:.0f}" if 100 <= estimate.se < 1e4 else f"{estimate.se:.2g}"
    return f"{number(estimate.value)} ± {error}"


def _span(low: float, high: float) -> str:
    return f"[{number(low)}, {number(high)}]"


# From a run without probes


def _from_run(arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    import numpy as np

    from grposcope.facts import allocation, group_size

    run = logs.read(arguments.path, arguments)
    place = run.meta.source
    logged, problems, steps = _last_groups(run, arguments.last)
    if not any(len(set(group)) > 1 for group in logged):
        raise UserError(
            f"{place}: all rewards are equal within every group of steps {steps[0]} to {steps[1]}, so there is no "
            "gradient to plan for; raise --last, or train on problems the model solves sometimes"
        )
    rewards = np.full((len(logged), max(map(len, logged))), math.nan)
    for row, group in zip(rewards, logged, strict=True):
        row[: len(group)] = group
    facts = group_size.of_rewards(rewards, steps, arguments.groups)
    saving = allocation.of_rewards(rewards, problems, seed=arguments.seed)
    document = {
        "kind": "run", "groups": facts.groups, "steps": facts.steps, "curve": facts.curve, "plan": None,
        "cannot_tell": facts.unknown, "saving": asdict(saving),
    }  # fmt: skip
    return f"{_rewards_alone(facts)}\n{_how_to_probe(place)}\n\n{saving.sentence()}", document


def _how_to_probe(place: Path) -> str:
    """The commands that measure the gradients of a run and plan from them."""
    from grposcope.runs.trainers import trl_output

    if models := trl_output.models(place):
        last = models[max(models)]
        return f"  grposcope probe --model {last} --task TASK --out probe\n  grposcope plan probe"
    return f"  grposcope probe --model {place}\n  grposcope plan {place}"


def _last_groups(run: Run, last: int) -> tuple[list[list[float]], list[int], tuple[int, int]]:
    """Rewards and problems of the groups of the last steps of a run, and the first and last of these steps."""
    import numpy as np

    from grposcope.runs.trainers import how_to_log

    groups = run.groups
    if not len(groups):
        if not run.steps:
            raise UserError(f"{run.meta.source} holds no groups yet; let the run take a step first")
        how = how_to_log("groups", run.meta.engine)
        raise UserError(f"{run.meta.source}: the rewards of single rollouts were not recorded; to have them, {how}")
    end = int(groups.step.max())
    kept = np.flatnonzero(groups.step > end - last)
    rewards = [groups.rewards[groups.offsets[k] : groups.offsets[k + 1]] for k in kept]
    bad = next((k for k, part in zip(kept, rewards, strict=True) if not np.isfinite(part).all()), None)
    if bad is not None:
        raise UserError(
            f"{run.meta.source}: a reward of step {groups.step[bad]} is not finite; grade it again or remove the group"
        )
    steps = int(groups.step[kept].min()), end
    return [part.tolist() for part in rewards], groups.problem[kept].tolist(), steps


def _rewards_alone(facts: SizesFromRewards) -> str:
    """Table of what the rewards say of each group size, and the sentence on what they cannot say."""
    rows = [("G", "dead groups", "live groups per 1,000 rollouts", "drawn per kept with resampling", "")]
    for point in facts.curve:
        dead, live = point.dead, point.live_per_rollout
        if math.isfinite(dead.value):
            cells = (f"{dead.value:.1%} ± {dead.se:.1%}", f"{1000 * live.value:.1f} ± {1000 * live.se:.1f}")
            rows.append((str(point.group), *cells, f"{point.draws.value:.3g}", dead.flag))
        else:
            rows.append((str(point.group), "cannot tell", "cannot tell", "cannot tell", dead.flag))
    first, last = facts.steps
    return (
        f"run: {facts.groups} groups of steps {first} to {last}, mean reward {facts.reward:.3f}\n\n"
        f"{table(rows, indent='  ')}\n\n{facts.sentence()}"
    )
