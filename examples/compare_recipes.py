"""Train with several recipes and seeds, and compare the held-out accuracy they end at, seed by seed.

    python examples/compare_recipes.py --recipes grpo dr_grpo rloo --seeds 0 1 2

The same as `grposcope sweep` does from a YAML file; called again, it goes on. One seed says little.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from grposcope.lab.sweeps import answer, drive, plan, table
from grposcope.lab.sweeps.processes import LocalProcesses
from grposcope.logs import read
from grposcope.render import page, terminal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipes", nargs="+", default=["grpo", "dr_grpo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--problems", type=int, default=200, help="held-out problems")
    parser.add_argument("--out", type=Path, help="folder for the runs (default: a temporary one)")
    given = parser.parse_args()
    out = given.out or Path(tempfile.mkdtemp())
    base = {"steps": given.steps, "prompts": given.prompts, "eval_every": 0, "eval_problems": given.problems}
    cells = plan.of({"seeds": given.seeds, "base": base, "grid": {"recipe": given.recipes}}, out)
    states = drive.sweep(cells, LocalProcesses(None, len(cells.runs)), print)
    runs = {(s.run.cell, s.run.seed): read(s.run.folder) for s in states if s.status == "finished"}
    content = answer.document(table.of_runs(cells, runs), states, runs)
    print(terminal.text(content.top))
    page.write(content, out / "page.html")
    print(f"all runs on one page: {out / 'page.html'}")


if __name__ == "__main__":
    main()
