"""Faults and clean twins of verl's whole trainer through `verify FOLDER` and `diagnose FOLDER`.

    .venv-verl/bin/python benchmarks/faults/verl_runs.py [--only NAME] [--keep FOLDER] [--results FILE]

Rules, written before the first run: verl's `main_ppo` on Ray and the CPU with the stand-in sampler of the tests, model
`tiny`, 8 steps of 8 prompts x 4 rollouts at a rate of 1e-3; the folder has what verl leaves there: its rollouts, its
log, what it printed. Faults are those of the sampler (verl_servers.py), from the first step on; CLEAN has trainings
without one. Found: `verify FOLDER` calls a claim broken or `diagnose FOLDER` names a fault of grade warning or failing.
Named: that fault is one of those listed. In the first pass none of the four was found; the sentences that name them
were written then, with these runs in view, and the same runs judged again. Results are kept as they come; what is there
is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
for name in ("tests", "tests/helpers"):
    sys.path.insert(0, str(HERE.parents[1] / name))

STEPS = 8

COMMON = [f"trainer.total_training_steps={STEPS}", "data.train_batch_size=8", "actor_rollout_ref.actor.optim.lr=1e-3",
          "actor_rollout_ref.actor.ppo_mini_batch_size=8"]  # fmt: skip

FAULTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sampler keeps the first weights": (
        "frozen", ("weights never arrived", "stale sampler", "wrong weights at the sampler", "sampler mismatch"),
    ),
    "half of the weights arrive": ("half", ("wrong weights at the sampler", "weights never arrived",
                                            "sampler mismatch")),
    "sampler at twice the temperature": (
        "hot", ("sampler temperature differs", "hot sampling", "sampler mismatch", "unlikely tokens"),
    ),
    "one seed for every request": ("one seed", ("copied rollouts", "ranks draw the same")),
}  # fmt: skip
"""Fault -> its server, faults of the catalogue that name it rightly."""

KEPT = "actor_rollout_ref.rollout.calculate_log_probs=True"
"""With this verl compares the sampler's log-probabilities with its own and logs how far they are apart."""

CLEAN: dict[str, list[str]] = {
    "plain": [], "leave-one-out": ["algorithm.adv_estimator=rloo"],
    "plain, log-probabilities": [KEPT],
}  # fmt: skip
"""Sound trainings -> settings of verl; none has a KL term, since verl pins the reference's weights, which needs an
accelerator."""


def trained(folder: Path, fault: str, overrides: list[str]) -> None:
    """One training; RuntimeError where it fails."""
    from engines.verl import whole

    os.environ["SERVER_FAULT"] = fault
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    modules = whole.ENVIRONMENT["VERL_USE_EXTERNAL_MODULES"]
    whole.ENVIRONMENT["VERL_USE_EXTERNAL_MODULES"] = f"{modules.removesuffix(',verl_servers')},verl_servers"
    if whole.run(folder, [*COMMON, *overrides]):
        raise RuntimeError((folder / "log.txt").read_text()[-3000:])


def judged(folder: Path) -> list[str]:
    """Faults of the claims that `verify` calls broken, and those that `diagnose` names."""
    from asked import asked

    _, verified = asked("verify", folder)
    _, diagnosed = asked("diagnose", folder)
    return [
        *(claim["findings"][0]["fault"] for claim in verified["claims"] if claim["status"] == "broken"),
        *(found["fault"] for found in diagnosed["findings"]
          if found["status"] == "present" and found["grade"] in ("warning", "failing")),
    ]  # fmt: skip


def main() -> None:
    """Run what has no result yet, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="trainings with this in their name")
    parser.add_argument("--results", type=Path, default=HERE / "verl_runs.json")
    parser.add_argument("--keep", type=Path, default=Path("build/verl"), help="folder of the runs")
    parser.add_argument("--judge", action="store_true", help="judge kept runs anew")
    given = parser.parse_args()
    results: dict[str, Any] = json.loads(given.results.read_text()) if given.results.exists() else {}
    cells: list[tuple[str, str, list[str]]] = [
        *((f"fault: {name}", server, []) for name, (server, _) in FAULTS.items()),
        *((f"fault: {name}, log-probabilities", server, [KEPT]) for name, (server, _) in FAULTS.items()),
        *((f"clean: {name}", "", overrides) for name, overrides in CLEAN.items()),
    ]
    for name, server, overrides in cells:
        folder, began = (given.keep / "".join(c if c.isalnum() else "-" for c in name)).resolve(), time.perf_counter()
        if given.only not in name or (name in results and not given.judge):
            continue
        if not (given.judge and folder.exists()):
            trained(folder, server, overrides)
        results[name] = judged(folder)
        given.results.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{name:45} {results[name]} {time.perf_counter() - began:.1f} s", flush=True)
    flagged = [name for name, found in results.items() if name.startswith("clean") and found]
    for kept in ("", ", log-probabilities"):
        right = {name: set(results[f"fault: {name}{kept}"]) & set(names) for name, (_, names) in FAULTS.items()
                 if f"fault: {name}{kept}" in results}  # fmt: skip
        print(f"faults{kept}: found {sum(bool(results[f'fault: {name}{kept}']) for name in right)}, named "
              f"{sum(map(bool, right.values()))} of {len(right)}")  # fmt: skip
    print(f"clean, but flagged: {flagged}")


if __name__ == "__main__":
    main()
