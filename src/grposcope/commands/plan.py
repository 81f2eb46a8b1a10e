"""`grposcope plan`: how many rollouts per prompt a budget should buy, from a probe, or what a run's rewards can say."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import HELP
from grposcope.errors import UserError

if TYPE_CHECKING:
    from grposcope.records import Estimate
    from grposcope.ustat.gram_file import GramFile
    from grposcope.ustat.moments import Moments
    from grposcope.ustat.planning import Allocation, Plan

EXAMPLES = """\
examples:
  grposcope plan probe/                                   the best group size, its interval, what others lose
  grposcope plan probe/ --budget 1024 --multiple 64       prompts × rollouts for 1,024 rollouts, in full batches
  grposcope plan probe/ --prompt-cost 0.2                 reading a prompt costs a fifth of writing an answer
  grposcope plan probe/ --layers                          the same for each layer
  grposcope plan runs/demo --last 20                      from rewards alone: dead groups at each group size
"""

FORMAT = 1
"""Version of probe.json that is understood."""


def add(commands: Any) -> None:
    """Add the command to the subparsers of `grposcope`."""
    plan = commands.add_parser(
        "plan",
        help=HELP["plan"],
        description="How noisy the gradient is, and how many rollouts per prompt a budget should buy.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    plan.add_argument("path", type=Path, metavar="FOLDER", help="a probe (grposcope probe) or a run (grposcope train)")
    money = plan.add_argument_group("budget")
    money.add_argument("--budget", type=float, metavar="X", help="what a batch may cost (default: the probe's cost)")
    money.add_argument("--prompt-cost", type=float, default=0.0, metavar="X",
                       help="cost of reading a prompt, in the unit of --rollout-cost (default: 0)")  # fmt: skip
    money.add_argument("--rollout-cost", type=float, default=1.0, metavar="X",
                       help="cost of writing one rollout (default: 1, so that the budget counts rollouts)")  # fmt: skip
    money.add_argument("--multiple", type=int, default=1, metavar="N",
                       help="rollouts of a batch are a multiple of N, devices × micro-batch (default: 1)")  # fmt: skip
    view = plan.add_argument_group("view")
    view.add_argument("--groups", type=_groups, default=(2, 4, 8, 16, 32, 64), metavar="N,N,…",
                      help="group sizes to show (default: 2,4,8,16,32,64)")  # fmt: skip
    view.add_argument("--layers", action="store_true", help="the moments and the best group size of each layer too")
    view.add_argument("--truncated", choices=("keep", "drop"), default="keep",
                      help="rollouts cut at the token limit: kept as draws, or left out (default: keep)")  # fmt: skip
    view.add_argument("--last", type=int, default=50, metavar="N", help="of a run, its last N steps (default: 50)")
    view.add_argument("--replicates", type=int, default=1000, metavar="N",
                      help="bootstrap draws behind the intervals (default: 1000)")  # fmt: skip
    view.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the bootstrap (default: 0)")
    plan.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, then one line of JSON."""
    from grposcope.runs.store import dumps

    folder: Path = arguments.path
    for name, least in (("last", 1), ("replicates", 20), ("seed", 0)):
        if getattr(arguments, name) < least:
            raise UserError(f"--{name} {getattr(arguments, name)} must be at least {least}")
    if (folder / "probe.json").exists() or (folder / "gram.npz").exists():
        text, document = _from_probe(folder, arguments)
    elif (folder / "groups.jsonl").exists():
        text, document = _from_run(folder, arguments)
    elif (folder / "config.json").exists():
        raise UserError(
            f"{folder} is a model: its gradients have to be measured first; run `grposcope probe --model {folder} "
            f"--out probe`, then `grposcope plan probe`"
        )
    else:
        missing = "is neither a probe (probe.json, gram.npz) nor a run (groups.jsonl)"
        raise UserError(f"{folder} {missing if folder.is_dir() else 'is no folder'}; give one or the other")
    print(text)
    print(dumps({"folder": str(folder), **document}))
    return 0


# A probe


def _from_probe(folder: Path, arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from grposcope.ustat import gram_file, moments, planning

    about = _about(folder)
    probe = gram_file.read(folder, layers=arguments.layers)
    if arguments.truncated == "drop":
        probe = probe.without_truncated()
    found = moments.from_gram(probe.gram, probe.rewards, arguments.replicates, arguments.seed)
    costs = (arguments.prompt_cost, arguments.rollout_cost)
    plan = planning.optimal_group(found, *costs, groups=arguments.groups)
    prompts, group = probe.rewards.shape
    budget = arguments.budget if arguments.budget is not None else prompts * (costs[0] + costs[1] * group)
    batch = planning.allocate(found, budget, *costs, arguments.multiple)
    parts = [
        _heading(about, probe), _moments(found), _curve(plan, found, probe), _verdict(plan),
        _batch(found, batch, budget), _dead(found, probe, batch.group),
    ]  # fmt: skip
    document = {
        "kind": "probe",
        "probe": about,
        "moments": {name: _with_interval(found, name) for name in _MEANING},
        "plan": {**asdict(plan), "budget": budget, "allocation": asdict(batch)},
        "errors": _errors(found, batch),
    }
    if arguments.layers:
        text, document["layers"] = _layers(probe, costs, arguments)
        parts.append(text)
    return "\n\n".join(parts), document


def _about(folder: Path) -> dict[str, Any]:
    path = folder / "probe.json"
    if not path.exists():
        return {}
    try:
        about = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); make it again with `grposcope probe`") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise UserError(f"{path}: its format is not {FORMAT}; make the probe with this version of grposcope")
    return about


def _heading(about: dict[str, Any], probe: GramFile) -> str:
    prompts, group = probe.rewards.shape
    what = f"{about.get('model', 'a model')} on {about.get('task', 'its task')}"
    cut = f"; {probe.truncated.mean():.1%} of rollouts truncated" if probe.truncated.any() else ""
    return f"probe: {what}, {prompts} prompts × {group} rollouts{cut}"


_MEANING = {
    "sigma1": "Σ₁   variance per rollout if V were known",
    "delta": "Δ    price of not knowing V",
    "prompt_variance": "V_p  how gradients differ between prompts",
    "g2": "E‖g‖²  mean square of a prompt's gradient",
    "mean2": "‖E g‖²  square of the gradient itself",
}


def _with_interval(found: Moments, name: str) -> dict[str, Any]:
    low, high = found.interval(lambda s: s.none if name == "g2" else getattr(s, name))
    return {**asdict(getattr(found, name)), "low": low, "high": high}


def _moments(found: Moments) -> str:
    rows = [("", "value ± s.e.", "95 % interval", "")]
    for name, meaning in _MEANING.items():
        value = _with_interval(found, name)
        rows.append(
            (meaning, f"{value['value']:.4g} ± {value['se']:.2g}", _span(value["low"], value["high"]), value["flag"])
        )
    score = found.estimate(lambda s: s.score2 / s.norm)
    rows.append(("‖E s‖²/E‖s‖²  0 for true scores", f"{score.value:.2g} ± {score.se:.2g}", "", _doubt(score)))
    return _table(rows)


def _doubt(score: Estimate) -> str:
    if abs(score.value) > 4 * score.se and abs(score.value) > 0.01:
        return "scores do not average to 0: top-p, top-k or dropped rollouts? Rows that need it are off"
    return ""


def _curve(plan: Plan, found: Moments, probe: GramFile) -> str:
    from grposcope.ustat import rewards

    most = max((p.loss for p in plan.curve if math.isfinite(p.loss)), default=0.0)
    rows = [("G", "budget × MSE", "more budget needed", "95 % interval", "÷ oracle", "dead groups", "")]
    for point in plan.curve:
        dead = rewards.dead_fraction(probe.rewards, point.group)
        rows.append((
            str(point.group), f"{point.cost_mse.value:.4g} ± {point.cost_mse.se:.2g}", f"{point.loss:+.1%}",
            _span(100 * point.loss_interval[0], 100 * point.loss_interval[1], " %"), f"{point.efficiency.value:.3f}",
            f"{dead.value:.1%}{'*' if dead.flag else ''}", _bar(point.loss, most),
        ))  # fmt: skip
    note = "\n* beyond the probe's group: success rates taken as beta-distributed" if "*" in str(rows) else ""
    return "what you lose at each group size (budget to reach the same error as at the best)\n" + _table(rows) + note


def _verdict(plan: Plan) -> str:
    span = _span(*plan.interval)
    if not plan.integer:
        return (
            f"no finite best group: {plan.continuous.flag}. 95 % interval {span}. "
            f"G = {plan.safe} risks least: its loss is smallest in the worse draws of the bootstrap"
        )
    near = f"any G from {plan.near[0]} to {plan.near[1]} needs at most 5 % more budget" if plan.near[0] else ""
    note = f" [{plan.continuous.flag}]" if plan.continuous.flag else ""
    return f"best G = {plan.integer}  (G* = {plan.continuous.value:.3g}, 95 % interval {span}){note}; {near}"


def _batch(found: Moments, batch: Allocation, budget: float) -> str:
    from grposcope.ustat import mse

    split = mse.budget(found, batch.prompts, batch.group)
    total = split.total.value
    parts = {"drawing prompts": split.prompts, "rollouts of an oracle": split.oracle, "not knowing V": split.residual}
    shares = ", ".join(f"{name} {part.value / total:.0%}" for name, part in parts.items())
    rows = [("gradient", "MSE ± s.e.", "÷ leave-one-out", "")]
    for name, error in _errors(found, batch).items():
        rows.append((name, f"{error.value:.4g} ± {error.se:.2g}", f"{error.value / total:.3f}", error.flag))
    return (
        f"a budget of {budget:g} buys {batch.prompts} prompts × {batch.group} rollouts (cost {batch.cost:g})\n"
        f"where the error comes from: {shares}\n{_table(rows)}"
    )


def _errors(found: Moments, batch: Allocation) -> dict[str, Estimate]:
    from grposcope.ustat import mse

    at = (found, batch.prompts, batch.group)
    return {
        "no baseline": mse.reinforce(*at),
        "centered (Dr. GRPO)": mse.centered(*at),
        "leave-one-out (RLOO)": mse.leave_one_out(*at),
        "standardized (GRPO), with its bias": mse.standardized(*at),
        "standardized, variance alone": mse.standardized(*at, target="own"),
        "oracle": mse.oracle(*at),
        "best constant baseline": mse.optimal_baseline(*at),
    }


def _dead(found: Moments, probe: GramFile, group: int) -> str:
    from grposcope.ustat import planning, rewards

    dead = rewards.dead_fraction(probe.rewards, group)
    if math.isnan(dead.value):
        return f"dead groups at G = {group}: cannot tell, {dead.flag}"
    gain = planning.resampling_gain(found, group, dead.value)
    cost = 1 / (1 - dead.value) if dead.value < 1 else math.inf
    return (
        f"dead groups at G = {group}: {dead.value:.1%} ± {dead.se:.1%}. Replacing them (DAPO) draws {cost:.3g} × the "
        f"rollouts; at equal draws the relative error is {1 / gain:.3f} × that of keeping them"
    )


def _layers(
    probe: GramFile, costs: tuple[float, float], arguments: argparse.Namespace
) -> tuple[str, dict[str, dict[str, Any]]]:
    from grposcope.ustat import moments, planning, resampling

    if probe.layers is None:
        raise UserError(f"{arguments.path / 'gram.npz'} holds no Grams of layers; leave out --layers or probe them")
    rows: list[tuple[str, ...]] = [("layer", "E‖s‖²", "Σ₁", "Δ", "V_p", "G*", "95 % interval")]
    document: dict[str, dict[str, Any]] = {}
    for name, gram in zip(probe.layer_names, probe.layers, strict=True):
        found = moments.from_gram(gram, probe.rewards, arguments.replicates, arguments.seed)
        best = float(planning.optimum(found.pooled, *costs)[0])
        span = resampling.interval(planning.optimum(found.bootstrap, *costs))
        norm = found.estimate(lambda s: s.norm)
        values = (norm, found.sigma1, found.delta, found.prompt_variance)
        rows.append((name, *(f"{v.value:.3g} ± {v.se:.1g}" for v in values), _number(best), _span(*span)))
        document[name] = {m: asdict(getattr(found, m)) for m in _MEANING} | {"best": best, "interval": span}
    return "by layer (Σ₁, Δ and V_p add up to the whole where the layers do)\n" + _table(rows), document


# A run


def _from_run(folder: Path, arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from grposcope.ustat import rewards

    logged, steps = _logged(folder / "groups.jsonl", arguments.last)
    if not any(len(set(group)) > 1 for group in logged):
        raise UserError(
            f"{folder}: all rewards are equal within every group of steps {steps[0]} to {steps[1]}, so there is no "
            "gradient to plan for; raise --last, or train on problems the model solves sometimes"
        )
    import numpy as np

    widest = max(map(len, logged))
    array = np.array([[*group, *[math.nan] * (widest - len(group))] for group in logged])
    rows = [("G", "dead groups", "live groups per 1,000 rollouts", "drawn per kept with resampling", "")]
    document = []
    for group in arguments.groups:
        dead, cost = rewards.dead_fraction(array, group), rewards.resampling_cost(array, group)
        live = rewards.live_per_rollout(array, group)
        cells = (
            f"{dead.value:.1%} ± {dead.se:.1%}",
            f"{1000 * live.value:.1f} ± {1000 * live.se:.1f}",
            f"{cost.value:.3g}",
        )
        rows.append((str(group), *cells, dead.flag))
        document.append({"group": group, "dead": asdict(dead), "live_per_rollout": asdict(live), "draws": asdict(cost)})
    cannot = (
        "cannot tell from rewards: the error of the gradient, and so the best group size. That takes the sizes and "
        f"directions of gradients:\n  grposcope probe --model {folder / 'model'} --out probe\n  grposcope plan probe"
    )
    text = f"run: {len(logged)} groups of steps {steps[0]} to {steps[1]}, mean reward {np.nanmean(array):.3f}"
    return f"{text}\n\n{_table(rows)}\n\n{cannot}", {
        "kind": "run", "groups": len(logged), "steps": steps, "curve": document, "plan": None,
        "cannot_tell": ["sigma1", "delta", "prompt_variance", "mse", "best group"],
    }  # fmt: skip


def _logged(path: Path, last: int) -> tuple[list[list[float]], tuple[int, int]]:
    """Rewards of the groups of the last steps, and the first and last of these steps."""
    rows: list[tuple[int, list[float]]] = []
    with path.open() as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                step, group = int(row["step"]), [float(r) for r in row["rewards"]]
            except (ValueError, TypeError, KeyError) as error:
                what = "its last line is cut short" if not line.endswith("\n") else f"{type(error).__name__}: {error}"
                raise UserError(f"{path} line {number}: {what}; each line needs step and rewards") from error
            if not all(map(math.isfinite, group)):
                raise UserError(f"{path} line {number}: a reward is not finite; grade it again or remove the line")
            rows.append((step, group))
    if not rows:
        raise UserError(f"{path} holds no groups yet; let the run take a step first")
    end = max(step for step, _ in rows)
    kept = [(step, group) for step, group in rows if step > end - last]
    return [group for _, group in kept], (min(step for step, _ in kept), end)


# Text


def _groups(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers such as 2,4,8") from None
    if min(sizes) < 2:
        raise argparse.ArgumentTypeError("a group size must be at least 2")
    return sizes


def _number(value: float) -> str:
    return "∞" if math.isinf(value) else "?" if math.isnan(value) else f"{value:.3g}"


def _span(low: float, high: float, unit: str = "") -> str:
    return f"[{_number(low)}, {_number(high)}]{unit}"


def _bar(value: float, most: float) -> str:
    return "▇" * round(20 * value / most) if most > 0 and math.isfinite(value) else ""


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
