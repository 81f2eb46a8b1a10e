"""`grposcope sweep`: the same training over a grid of settings and seeds, and a table that compares its cells."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grposcope.commands.output import finish, json_flag, say
from grposcope.core.answer import Answer, Table
from grposcope.core.errors import UserError
from grposcope.core.flag import flag
from grposcope.lab.sweeps.plan import SweepPlan

if TYPE_CHECKING:
    from grposcope.lab.sweeps.drive import Launcher, RunState
    from grposcope.lab.sweeps.plan import SweepPlan

DESCRIPTION = (
    "Train over a grid of settings and seeds, on this machine or on a Ray cluster, and compare the "
    "settings. The same command continues where it was stopped. Exit status: 1 if a run failed, 2 if the "
    "plan cannot work, else 0."
)
EXAMPLES = """\
examples:
  grposcope sweep groups.yaml                     every run, as many at a time as there are cores
  grposcope sweep groups.yaml --check             the settings and runs, nothing is started
  grposcope sweep groups.yaml --jobs 2            two at a time, half of the cores each
  grposcope sweep groups.yaml --ray               on Ray, started on this machine
  grposcope sweep groups.yaml --ray 10.0.0.1:6379 on a Ray cluster whose nodes share the folder
groups.yaml:
  seeds: 8
  base: {steps: 160, prompts: 16}
  grid: {group: [4, 8, 16], recipe: [grpo, rloo]}
"""


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope sweep`."""

    plan: str = flag(names=(), metavar="YAML", help="seeds, base, grid, cells, baseline, metric; docs/howto/sweep.md")
    out: Path | None = flag(metavar="FOLDER", help="folder of the runs (default: sweeps/NAME)")
    check: bool = flag(default=False, help="only check every setting of the grid, and list them")
    jobs: int | None = flag(metavar="N", help="runs at a time (default: one per GPU, else per core)")
    ray: str | None = flag(
        nargs="?", const="", metavar="ADDRESS", help="run on Ray: the cluster at ADDRESS, else one started here"
    )
    json: bool = json_flag(help="print only the JSON document, with every run, value, difference and p")


def check_flags(arguments: argparse.Namespace) -> None:
    """UserError for a plan that cannot work."""
    from grposcope.lab.sweeps import plan

    if arguments.jobs is not None and arguments.jobs < 1:
        raise UserError(f"--jobs {arguments.jobs} is not a number of runs; give 1 or more")
    plan.read(Path(arguments.plan), arguments.out)


def run(arguments: argparse.Namespace) -> int:
    """Run what is not finished, then print the table; exit status 1 where a run failed."""
    from grposcope.lab.sweeps import plan as plans
    from grposcope.render import terminal
    from grposcope.render.document import of_answer

    plan = plans.read(Path(arguments.plan), arguments.out)
    if arguments.check:
        planned = _answer_of_plan(plan)
        say(arguments, terminal.text(planned))
        finish(arguments, of_answer(planned))
        return 0
    from grposcope.lab.sweeps.drive import sweep

    states = sweep(plan, _launcher(arguments, plan), lambda line: print(line, file=sys.stderr, flush=True))
    return _compare(arguments, plan, states)


def _launcher(arguments: argparse.Namespace, plan: SweepPlan) -> Launcher:
    """Processes here, or tasks of a Ray cluster where that is asked for."""
    import torch

    from grposcope.lab.sweeps.on_ray import RayTasks
    from grposcope.lab.sweeps.processes import LocalProcesses

    wanted = any(cell.config.device != "cpu" for cell in plan.cells)
    gpus = torch.cuda.device_count() if wanted else 0
    if arguments.ray is None:
        return LocalProcesses(arguments.jobs, len(plan.runs), gpus)
    try:
        return RayTasks(arguments.ray, arguments.jobs, len(plan.runs), gpus)
    except UserError as error:
        raise UserError(f"--ray: {error}") from None


def _compare(arguments: argparse.Namespace, plan: SweepPlan, states: list[RunState]) -> int:
    """Print what the cells say, and write the page; exit status 1 where a run failed."""
    from grposcope.commands.report import write_page
    from grposcope.lab.sweeps import answer, table
    from grposcope.logs import read
    from grposcope.render import terminal
    from grposcope.render.document import of_answer

    runs = {(state.run.cell, state.run.seed): read(state.run.folder) for state in states if state.status == "finished"}
    content = answer.document(table.of_runs(plan, runs), states, runs)
    say(arguments, terminal.text(content.top))
    page = plan.out / "page.html"
    size = write_page(content, page, "--out")
    say(arguments, f"\npage: {page} ({size / 1e6:.1f} MB); open it in a browser")
    document = {"out": str(plan.out), **of_answer(content.top), "page": str(page)}
    finish(arguments, {**document, "runs": [state.document() for state in states]})
    return int(any(state.status == "failed" for state in states))


def _answer_of_plan(plan: SweepPlan) -> Answer:
    """What a plan would run: its cells."""
    seeds = ", ".join(map(str, plan.seeds))
    said = f"{len(plan.runs)} runs in {plan.out}: {len(plan.cells)} settings, seeds {seeds}."
    rows = [(cell.name, "baseline" if cell.name == plan.baseline else "") for cell in plan.cells]
    document = {**plan.document(), "out": str(plan.out), "runs": len(plan.runs)}
    tables = [Table("", ("setting", ""), rows)]
    return Answer("plan", "What will be run?", sentence=said, tables=tables, document=document)
