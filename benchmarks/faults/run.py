"""The bench of faults: real trainings with an injected fault and their clean twins, and who sees the fault.

    python benchmarks/faults/run.py [--only NAME] [--judge] [--results FILE] [--keep FOLDER]

Every fault of `catalogue` begins at step 3 of a training of 6 steps on 8 prompts with 8 rollouts each, of our own loop
or of TRL's trainer, with the model `tiny` on the CPU. The clean twin has the same settings and seeds, and is equal bit
for bit until step 3.

Rules, written before the first run:

- size: ‖g − g'‖/‖g'‖ of the gradients at step 3, g' of the clean twin; of the updates where that is 0. A fault of the
  sampler draws other rollouts, and two clean draws differ too: the line `another seed` says by how much.
- verify: the evidence of all batches of all steps, the settings, the log, the checkpoint before every step and the
  reward function. Detected: any claim is broken. Named rightly: the claim told broken first, or any other that is
  broken, is one of those that `catalogue` lists for the fault.
- rollouts: the fewest rollouts with the fault in whole batches of 64 with which it is detected.
- needs: the first of these with which it is detected: rollouts (and settings), + log, + checkpoints, + rewards.
- diagnose, lint: a failure or warning that the clean twin does not have, from the record and from its settings.
- Seed 0, one run each. Results are kept in --results as they come; what is there is not run again.

Without --judge, a fault that has a result is left alone; with it, the kept runs are judged anew.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import catalogue
import torch
import worlds
from catalogue import FAULTS, Fault
from transformers.utils import logging

HERE = Path(__file__).parent
MARK = "<!-- the table, made by run.py -->"
LEVELS = ("rollouts", "log", "checkpoints", "rewards")
"""What is added to the evidence, in this order."""

ROLLOUTS = 64
"""Of a batch."""


def main() -> None:
    """Run what has no result yet, judge, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="faults with this in their name")
    parser.add_argument("--judge", action="store_true", help="judge the kept runs anew")
    parser.add_argument("--results", type=Path, default=HERE / "results.json")
    parser.add_argument("--keep", type=Path, default=Path("build/faults"), help="folder of the runs")
    parser.add_argument("--table", action="store_true", help="write the table only")
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    results = json.loads(given.results.read_text()) if given.results.exists() else {}
    for fault in FAULTS:
        if given.table or not all(word in fault.key for word in given.only):
            continue
        if fault.key in results and not given.judge:
            continue
        began = time.perf_counter()
        try:
            results[fault.key] = bench(fault, given.keep, results.get(fault.key, {}))
        except Exception as error:
            print(f"{fault.key:45} {type(error).__name__}: {error}", flush=True)
            continue
        write_json(given.results, results)
        one = results[fault.key]
        print(f"{fault.key:45} size {one['size']:<7.3g} {','.join(one['broken']) or '-':30} {one['rollouts']} "
              f"{one['needs']} {time.perf_counter() - began:.1f} s", flush=True)  # fmt: skip
    write_table(results)


def bench(fault: Fault, keep: Path, before: dict[str, Any]) -> dict[str, Any]:
    """One fault: its training and that of its twin where they are not kept, and what is said of them."""
    faulty, clean = keep / _named(fault.key), keep / _named(twin_key(fault))
    measured = {name: before[name] for name in ("size", "size_update") if name in before}
    if not measured or not (faulty / "summary.json").exists():
        measured = train(fault, keep, faulty, clean)
    evidence, levels = whole_evidence(faulty)
    found = broken(evidence)
    return {
        **measured,
        "engine": fault.engine,
        "broken": list(found),
        "tests": found,
        "named": any(name in fault.claims for name in found),
        "first": next(iter(found), ""),
        "twin broken": twin_broken(clean),
        "rollouts": fewest(evidence),
        "needs": needs(evidence, levels),
        "diagnose": sorted(set(diagnosed(faulty)) - set(diagnosed(clean))),
        "lint": sorted(set(linted(faulty)) - set(linted(clean))),
    }


def train(fault: Fault, keep: Path, faulty: Path, clean: Path) -> dict[str, Any]:
    """Train both; the size of the fault."""
    world = _run(fault, fault.inject, faulty)
    gradient = clean / "gradient.pt"
    if not gradient.exists():
        twin = _run(fault, catalogue.twin(fault), clean)
        torch.save({"gradient": twin.gradient, "change": twin.change}, gradient)
    other = torch.load(gradient, weights_only=True)
    return {
        "size": worlds.difference(world.gradient, other["gradient"]),
        "size_update": worlds.difference(world.change, other["change"]),
    }


def _run(fault: Fault, inject: Any, folder: Path) -> Any:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return worlds.WORLDS[fault.engine](folder, inject, fault.settings, worlds.BEGINS, *fault.options)


def twin_key(fault: Fault) -> str:
    """Name of the clean twin, which faults with the same settings share."""
    extra = ", tool" if catalogue.twin(fault) is catalogue.TOOLS_CLEAN else ""
    told = ", ".join(f"{name} {value}" for name, value in fault.settings.items())
    return f"clean {fault.engine} {told} {'lora' if fault.options else ''}{extra}"


def _named(key: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in key).split())


def whole_evidence(folder: Path) -> tuple[Any, dict[str, Any]]:
    """All evidence of a run, and what it is without log, checkpoints and rewards, by the name of the level."""
    from grposcope.instruments.verify import gradient_norm, read, scoring
    from grposcope.lab import policies, tasks

    found = read.evidence(folder)
    if found.run is None:
        raise SystemExit(f"{folder} has no log")
    scored: list[Any] = []
    gradients: list[Any] = []
    for step, place in checkpoints(folder).items():
        policy = policies.load(place)
        rows, _ = scoring.with_ids(found.rows, policy)
        scored.append(scoring.score(policy, rows, found.stated.temperature or 1.0, f"step {step}", step))
        lora = any((Path(place) / "adapter_config.json").exists() for place in checkpoints(folder).values())
        if not (lora and all(p.requires_grad for p in policy.model.parameters())):
            gradient = gradient_norm.measure(policy, replace(found, rows=rows), step + 1)
            gradients += [] if gradient is None else [gradient]
    task = tasks.load("arithmetic")
    problems = {problem.prompt: problem for problem in task.problems("train")}

    def grader(prompts: Sequence[Any], completions: Sequence[Any]) -> list[float]:
        return [float(x) for x in task.rewards([problems[prompt] for prompt in prompts], list(completions))]

    several = any(len(row.rewards) > 1 for row in found.rows)  # of which the task's is one
    levels = {
        "rollouts": replace(found, run=None),
        "log": found,
        "checkpoints": replace(found, scored=tuple(scored), gradients=tuple(gradients)),
        "rewards": replace(found, scored=tuple(scored), gradients=tuple(gradients), grader=None if several else grader),
    }
    return levels["rewards"], levels


def checkpoints(folder: Path) -> dict[int, str]:
    """Step after which the weights were kept -> where they lie; 0 for those of the beginning."""
    found = {0: "tiny"}
    for place in sorted((folder / "checkpoints").glob("step-*/model")):
        found[int(place.parent.name.rpartition("-")[2])] = str(place)
    for place in (folder / "trl").glob("checkpoint-*"):
        found[int(place.name.rpartition("-")[2])] = str(place)
    return {step: found[step] for step in sorted(found)}


def broken(evidence: Any) -> dict[str, str]:
    """Claim that is broken -> what its first test found."""
    from grposcope.instruments.verify import judge

    place = f"{Path(evidence.source).parent}/"
    return {
        one.claim.name: f"{one.told[0].fault}: {one.told[0].evidence}".replace(place, "")
        for one in judge.judge(evidence)
        if one.status == "broken"
    }


@functools.cache
def twin_broken(folder: Path) -> dict[str, str]:
    """What is called broken in a clean twin, which it should not."""
    return broken(whole_evidence(folder)[0])


def until(evidence: Any, step: int) -> Any:
    """The evidence up to a step."""
    kept = [i for i, row in enumerate(evidence.rows) if row.step <= step]
    lists = ("logp", "entropy", "variance", "rank", "above", "log_powers", "outside_k", "outside_p")
    scored = tuple(
        replace(one, **{n: [getattr(one, n)[i] for i in kept] for n in lists if getattr(one, n, None)})
        for one in evidence.scored
        if one.step is None or one.step <= step
    )
    return replace(
        evidence, rows=tuple(evidence.rows[i] for i in kept), scored=scored,
        gradients=tuple(one for one in evidence.gradients if one.step <= step),
        optimizer=tuple(one for one in evidence.optimizer if one.step <= step),
    )  # fmt: skip


def fewest(evidence: Any) -> float | None:
    """The fewest rollouts with the fault, in whole batches, with which it is detected."""
    steps = [step for step in sorted({row.step for row in evidence.rows}) if step >= worlds.BEGINS]
    return next((ROLLOUTS * (i + 1) for i, step in enumerate(steps) if broken(until(evidence, step))), None)


def needs(evidence: Any, levels: dict[str, Any]) -> str | None:
    """The first level of evidence with which the fault is detected."""
    return next((level for level in LEVELS if broken(levels[level])), None)


def diagnosed(folder: Path) -> list[str]:
    """Modes of failure that the diagnosis flags."""
    from grposcope import diagnose, read
    from grposcope.instruments.diagnosis.verdict import present_faults

    return list(present_faults(diagnose(read(folder))))


def linted(folder: Path) -> list[str]:
    """Faults that the settings show, beyond notes."""
    from grposcope.core.errors import UserError
    from grposcope.faults.judge_settings import lint
    from grposcope.instruments.lint.read import read

    try:
        return [one.fault for one in lint(read(folder / "config.json")) if one.grade in ("failing", "warning")]
    except UserError:
        return []


def write_json(path: Path, results: dict[str, Any]) -> None:
    """Write the results."""
    path.write_text(json.dumps(_plain(results), indent=1) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_table(results: dict[str, Any]) -> None:
    """Put the table into README.md."""
    lines = ["| fault | engine | size | verify | named rightly | rollouts | needs | diagnose | lint | rldoctor |",
             "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    done = [(fault, results[fault.key]) for fault in FAULTS if fault.key in results]
    for fault, one in done:
        size = one["size"] if (one["size"] or 0) > 1e-9 else one["size_update"]
        told = f"{size:.2g}" + ("" if size == one["size"] else " of the update") if size is not None else ""
        lines.append(
            f"| {fault.name} | {fault.engine} | {told} | {', '.join(one['broken']) or '–'} | "
            f"{'yes' if one['named'] else 'no' if one['broken'] else '–'} | {one['rollouts'] or '–'} | "
            f"{one['needs'] or '–'} | {', '.join(one['diagnose']) or '–'} | {', '.join(one['lint']) or '–'} | "
            f"{', '.join(one.get('rldoctor', [])) or '–'} |"
        )
    seen = [one for _, one in done if one["broken"]]
    named, twins = sum(one["named"] for one in seen), {str(one["twin broken"]) for _, one in done if one["twin broken"]}
    peers = sum(bool(one.get("rldoctor")) for _, one in done)
    lines += ["", f"{len(done)} faults: {len(seen)} detected by `verify`, {named} of them named rightly; "
              f"{sum(bool(one['diagnose']) for _, one in done)} by `diagnose`, "
              f"{sum(bool(one['lint']) for _, one in done)} by `lint`, {peers} by rldoctor; {len(twins)} clean twins "
              "called broken."]  # fmt: skip
    path = HERE / "README.md"
    head, _, rest = path.read_text().partition(MARK)
    tail = rest.partition("\n## ")
    path.write_text(f"{head}{MARK}\n\n" + "\n".join(lines) + ("\n\n## " + tail[2] if tail[1] else "\n"))
    print("\n".join(lines[-1:]))


if __name__ == "__main__":
    main()
