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
    from grposcope.runs.probe import ProbeGram
    from grposcope.ustat.moments import Moments
    from grposcope.ustat.planning import Allocation

EXAMPLES = """\
examples:
  grposcope plan probe/                                   the best group size, its interval, what others lose
  grposcope plan probe/ --budget 1024 --multiple 64       prompts × rollouts for 1,024 rollouts, in full batches
  grposcope plan probe/ --prompt-cost 0.2                 reading a prompt costs a fifth of writing an answer
  grposcope plan probe/ --layers                          the same for each layer
  grposcope plan runs/demo                                from the run's last probe (runs/demo/probes/), if it has one
  grposcope plan runs/other --last 20                     from rewards alone: dead groups at each group size
"""


def add(commands: Any) -> None:
    """Add the command to the subparsers of `grposcope`."""
    plan = commands.add_parser(
        "plan",
        help=HELP["plan"],
        description="How noisy the gradient is, and how many rollouts per prompt a budget should buy.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    plan.add_argument("path", type=Path, metavar="FOLDER",
                      help="a probe (grposcope probe), or a run (grposcope train) with or without probes")  # fmt: skip
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
    view.add_argument("--last", type=int, default=50, metavar="N",
                      help="of a run without probes, its last N steps (default: 50)")  # fmt: skip
    view.add_argument("--replicates", type=int, default=1000, metavar="N",
                      help="bootstrap draws behind the intervals (default: 1000)")  # fmt: skip
    view.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the bootstrap (default: 0)")
    plan.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, then one line of JSON."""
    from grposcope.files import dumps
    from grposcope.runs import probe as probes

    folder: Path = arguments.path
    for name, least in (("last", 1), ("replicates", 20), ("seed", 0)):
        if getattr(arguments, name) < least:
            raise UserError(f"--{name} {getattr(arguments, name)} must be at least {least}")
    own = [probe for probe in probes.of_run(folder) if probe.gram_bytes()]
    if own:
        text, document = _from_probe(own[-1].folder or folder, arguments)
    elif probes.recognises(folder) or (folder / "gram.npz").exists():
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


def _groups(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers such as 2,4,8") from None
    if min(sizes) < 2:
        raise argparse.ArgumentTypeError("a group size must be at least 2")
    return sizes


# A probe


def _from_probe(folder: Path, arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from grposcope.commands import plan_text
    from grposcope.runs import probe as probes
    from grposcope.ustat import moments, planning

    about = _about(folder)
    probe = probes.read_gram(folder, layers=arguments.layers)
    if arguments.truncated == "drop":
        probe = probe.without_truncated()
    found = moments.from_gram(probe.gram, probe.rewards, arguments.replicates, arguments.seed)
    costs = (arguments.prompt_cost, arguments.rollout_cost)
    plan = planning.optimal_group(found, *costs, groups=arguments.groups)
    prompts, group = probe.rewards.shape
    budget = arguments.budget if arguments.budget is not None else prompts * (costs[0] + costs[1] * group)
    batch = planning.allocate(found, budget, *costs, arguments.multiple)
    values, errors = _moments(found), _errors(found, batch)
    parts = [
        plan_text.heading(about, probe), plan_text.moments(found, values), plan_text.curve(plan, probe),
        plan_text.verdict(plan), plan_text.batch(found, batch, budget, errors),
        plan_text.dead(found, probe, batch.group),
    ]  # fmt: skip
    document = {
        "kind": "probe",
        "probe": {"folder": str(folder), **about},
        "moments": values,
        "plan": {**asdict(plan), "budget": budget, "allocation": asdict(batch)},
        "errors": errors,
    }
    if arguments.layers:
        document["layers"] = layers = _layers(probe, folder, costs, arguments)
        parts.append(plan_text.layers(layers))
    return "\n\n".join(parts), document


def _about(folder: Path) -> dict[str, Any]:
    """What probe.json says in single values, and the step; nothing where there is only a Gram."""
    from grposcope.runs import probe as probes

    if not probes.recognises(folder):
        return {}
    probe = probes.read(folder)
    return {**probe.scalars(), "step": probe.step}


def _moments(found: Moments) -> dict[str, dict[str, Any]]:
    """The moments that a plan needs, each with its 95 % interval."""
    values = {}
    for name in ("sigma1", "delta", "prompt_variance", "g2", "mean2"):
        statistic = "none" if name == "g2" else name
        low, high = found.interval(lambda s, statistic=statistic: getattr(s, statistic))  # type: ignore[misc]
        values[name] = {**asdict(getattr(found, name)), "low": low, "high": high}
    return values


def _errors(found: Moments, batch: Allocation) -> dict[str, Estimate]:
    """The mean-squared error of each kind of gradient for this batch."""
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


def _layers(
    probe: ProbeGram, folder: Path, costs: tuple[float, float], arguments: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Moments and the best group size of each layer by itself."""
    from grposcope.ustat import moments, planning, resampling

    if probe.layers is None:
        raise UserError(f"{folder / 'gram.npz'} holds no Grams of layers; leave out --layers or probe them")
    document = {}
    for name, gram in zip(probe.layer_names, probe.layers, strict=True):
        found = moments.from_gram(gram, probe.rewards, arguments.replicates, arguments.seed)
        document[name] = {
            "norm": found.estimate(lambda s: s.norm),
            **{m: getattr(found, m) for m in ("sigma1", "delta", "prompt_variance", "g2", "mean2")},
            "best": float(planning.optimum(found.pooled, *costs)[0]),
            "interval": resampling.interval(planning.optimum(found.bootstrap, *costs)),
        }
    return document


# A run without probes


def _from_run(folder: Path, arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    import numpy as np

    from grposcope.commands import plan_text
    from grposcope.ustat import dead_groups

    logged, steps = _logged(folder / "groups.jsonl", arguments.last)
    if not any(len(set(group)) > 1 for group in logged):
        raise UserError(
            f"{folder}: all rewards are equal within every group of steps {steps[0]} to {steps[1]}, so there is no "
            "gradient to plan for; raise --last, or train on problems the model solves sometimes"
        )
    widest = max(map(len, logged))
    array = np.array([[*group, *[math.nan] * (widest - len(group))] for group in logged])
    curve = [
        {
            "group": group,
            "dead": dead_groups.expected(array, group),
            "live_per_rollout": dead_groups.live_per_rollout(array, group),
            "draws": dead_groups.resampling_cost(array, group),
        }
        for group in arguments.groups
    ]
    document = {
        "kind": "run", "groups": len(logged), "steps": steps, "curve": curve, "plan": None,
        "cannot_tell": ["sigma1", "delta", "prompt_variance", "mse", "best group"],
    }  # fmt: skip
    return plan_text.rewards_alone(folder, document, float(np.nanmean(array))), document


def _logged(path: Path, last: int) -> tuple[list[Sequence[float]], tuple[int, int]]:
    """Rewards of the groups of the last steps, and the first and last of these steps."""
    rows: list[tuple[int, Sequence[float]]] = []
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
