"""The bench of trained faults: real trainings with a fault, sound ones beside them, and the cause that is named first.

    python benchmarks/faults/trained.py [--seeds 4] [--only NAME]      train what is not there yet
    python benchmarks/faults/trained.py --remedies [--seeds N]         train with the remedy of the catalogue
    python benchmarks/faults/trained.py --score [--held-out]           judge what is there, and print the tables
    python benchmarks/faults/trained.py --page                         all tables, to trained.md

Rules, written before the first run:

- Trainings: those of `trained_faults` in our loop, model `tiny`, 60 steps of 64 rollouts on a CPU, 5 to 15 s each;
  every fault and every sound setting with each seed. A fault's clean twin is the sound setting that it names with the
  same seed. Budget: 28 faults and 10 sound settings × 4 seeds, 45 minutes of one core. A training that is there is
  not made again.
- Logs: our own record, and the same rows as eight other trainers would have logged them (`dialects`).
- Seeds 0 and 1 and the dialects TRL, verl, slime and SkyRL are for development: rules, ranks and sentences may be
  mended by them. Seeds 2 and 3 and prime-rl, NeMo-RL, ROLL and ms-swift are scored once, at the end (--held-out). Our
  own record is in both, on other seeds.
- Causes named: the findings of `grposcope diagnose --json` that are present, in its order, those that are the same fact
  as one before left out; where there is none, the first rung of the ladder that fails, as "rung NAME".
- Right: the first cause is one of those that `trained_faults` lists, or one of the first two is. A fault counts where
  the log has a quantity that it needs; the others are counted apart, as not logged.
- Weights: a second order of the same causes, by the sum over what is present of log P(sign | the faults for which the
  cause is right) − log P(sign | the other faults and the sound settings), counted on the development logs with one
  added to each count. It is used only if it beats the ranks on the held-out logs.
- Remedies: of faults whose remedy is a setting, the same training with what the catalogue says in place of the setting,
  everything else as it was. The sign has gone where none of the right names is present in our own record.
- A clean training counts as flagged where a finding that is failing or a warning is present; notes and rungs are
  counted beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dialects
from trained_faults import BASE, FAULTS, SOUND, TrainedFault
from worlds import Injection, World, none, replaced

HERE = Path(__file__).parent
FOLDER = Path("build/trained-faults")
PAGE = HERE / "trained.md"
MARK = "<!-- the tables, made by trained.py -->"
SEEDS = 4
DEVELOPMENT_SEEDS, HELD_OUT_SEEDS = (0, 1), (2, 3)


@dataclass(frozen=True)
class Training:
    """A training to make: the fault's name, or that of the sound setting; what is put in; its settings."""

    name: str
    seed: int
    inject: Injection
    settings: Mapping[str, Any]
    faulty: bool

    @property
    def folder(self) -> str:
        """Name of its folder."""
        words = "".join(c if c.isalnum() else " " for c in self.name).split()
        return "-".join(["fault" if self.faulty else "sound", *words, str(self.seed)])


def of_fault(fault: TrainedFault, seed: int, **more: Any) -> Training:
    """The training of a fault. more: settings in place of its own."""
    settings = {**SOUND[fault.sound], **fault.settings, **more}
    return Training(fault.name, seed, fault.inject, settings, True)


def trainings(seeds: Iterable[int]) -> Iterator[Training]:
    """All trainings of these seeds, seed after seed: one for development, one held out, and so on."""
    for seed in sorted(seeds, key=lambda seed: (seed % 2, seed)):
        for fault in FAULTS:
            yield of_fault(fault, seed)
        for name, settings in SOUND.items():
            yield Training(name, seed, none, settings, False)


def train(training: Training, folder: Path) -> None:
    """Make a training in `folder`; one that ends with an error keeps its record, and the error in done.json."""
    from grposcope.core.errors import UserError
    from grposcope.lab.tasks.arithmetic import Arithmetic
    from grposcope.lab.train import loop
    from grposcope.lab.train.config import TrainConfig

    shutil.rmtree(folder, ignore_errors=True)
    world, error, began = World("ours", begins=1), "", time.perf_counter()
    given = {"model": "tiny", "task": "arithmetic", "warmup": 0, "threads": 1, "schedule": "constant",
             "seed": training.seed, "out": str(folder), **BASE, **training.settings}  # fmt: skip
    notes: list[dict[str, float]] = []

    def drawing(inner: Any) -> Any:
        def draw(session: Any, step: int, position: int) -> Any:
            world.step, world.kept["drawing"] = step, True
            try:
                batch, spent = inner(session, step, position)
            finally:
                world.kept["drawing"] = False
            notes.append({"step": step, **_noted(batch)})
            return batch, spent

        return draw

    def crediting(inner: Any) -> Any:
        def terms(session: Any, batch: Any) -> Any:
            made = inner(session, batch)
            paid = made.credit[batch.rollouts.mask]
            notes[-1] |= {"advantage_max": float(paid.max()), "advantage_min": float(paid.min()),
                          "advantage_mean": float(paid.mean())}  # fmt: skip
            return made

        return terms

    with (
        training.inject(world),
        replaced(Arithmetic, "problems", _remembered),
        replaced(loop._Session, "draw", drawing),
        replaced(loop._Session, "terms", crediting),
        contextlib.redirect_stderr(world.said),
        contextlib.redirect_stdout(world.said),
    ):
        try:
            if loop.train(TrainConfig(**given)).interrupted:
                raise KeyboardInterrupt
        except UserError as stopped:
            error = str(stopped)
    (folder / "noted.jsonl").write_text("".join(json.dumps(row) + "\n" for row in notes))
    shutil.rmtree(folder / "model", ignore_errors=True)
    (folder / "done.json").write_text(json.dumps({"seconds": time.perf_counter() - began, "error": error}) + "\n")


PROBLEMS: dict[Any, Any] = {}
"""Task and split -> its problems, which take a second to make."""


def _remembered(inner: Any) -> Any:
    """The problems of a task, made once."""

    def problems(task: Any, split: str) -> Any:
        key = (*vars(task).items(), split)
        if key not in PROBLEMS:
            PROBLEMS[key] = inner(task, split)
        return PROBLEMS[key]

    return problems


def _noted(batch: Any) -> dict[str, float]:
    """Of a batch what other trainers log beside our own metrics."""
    rewards, lengths = batch.graded.flatten(), batch.rollouts.lengths
    return {
        "reward_max": float(rewards.max()), "reward_min": float(rewards.min()),
        "reward_std_batch": float(rewards.std()),
        "length_max": float(lengths.max()), "length_min": float(lengths.min()),
    }  # fmt: skip


def make(wanted: Sequence[Training], keep: Path) -> None:
    """Make the trainings that are not there, with a bar."""
    import torch
    from tqdm import tqdm
    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.disable_progress_bar()
    missing = [training for training in wanted if not (keep / training.folder / "done.json").exists()]
    for training in (bar := tqdm(missing, unit="training")):
        bar.set_postfix_str(training.folder)
        try:
            train(training, keep / training.folder)
        except Exception as error:
            bar.write(f"{training.folder}: {type(error).__name__}: {error}")


# ------------------------------------------------------------------------------------------------------------ scoring


@dataclass(frozen=True)
class Judged:
    """What was said of a log. causes: as the rules count them. flagged: failing or a warning. logged: the quantity that
    the fault needs is. line: the first line."""

    training: Training
    dialect: str
    causes: tuple[str, ...]
    grades: tuple[str, ...]
    flagged: bool
    logged: bool
    line: str


def judge(training: Training, dialect: str, keep: Path) -> Judged:
    """Judge the log of a training as a trainer would have written it."""
    from grposcope import read
    from grposcope.faults.judge import facts
    from grposcope.instruments.diagnosis.verdict import findings_of, verdict
    from grposcope.signs.ladder import first_failing
    from grposcope.signs.quantities import Quantities

    folder = keep / training.folder
    with tempfile.TemporaryDirectory() as place:
        path = folder
        if dialect != "grposcope":
            path = Path(place) / "log.jsonl"
            dialects.write(folder, dialect, path)
        run = read(path)
        if run.meta.engine != dialect:
            raise SystemExit(f"{folder} in the keys of {dialect} was read as {run.meta.engine}")
        findings = findings_of(run)
        heads = [head for head, _ in facts(findings)]
        judged = verdict(run, findings)
    causes = [head.fault for head in heads]
    rung = first_failing(judged.ladder)
    if not causes and rung is not None:
        causes = [f"rung {rung.name}"]
    fault = next((each for each in FAULTS if training.faulty and each.name == training.name), None)
    logged = fault is None or any(Quantities(run).logged(name) for name in fault.needs)
    grades = tuple(str(head.grade) for head in heads)
    return Judged(
        training, dialect, tuple(causes), grades, any(grade != "note" for grade in grades), logged, judged.line
    )


def score(keep: Path, seeds: Iterable[int], names: Sequence[str], only: str = "") -> list[Judged]:
    """All that is there of these seeds, in these dialects."""
    from tqdm import tqdm

    there = [one for one in trainings(seeds) if (keep / one.folder / "done.json").exists() and only in one.name]
    return [judge(one, name, keep) for one in tqdm(there, unit="training") for name in names]


def rights(judged: Judged, first: int) -> bool:
    """Whether one of the first causes is right."""
    fault = next(each for each in FAULTS if each.name == judged.training.name)
    return any(cause in fault.right for cause in judged.causes[:first])


def remedied(fault: TrainedFault, seed: int) -> Training:
    """The training of a fault with its remedy."""
    training = of_fault(fault, seed, **fault.remedy)
    return replace(training, name=f"{fault.name}, remedied")


def remedies(keep: Path, seeds: Iterable[int]) -> list[str]:
    """The table of remedies: what was named first before and after, and what became of the training."""
    lines = ["## Remedies", "", "| fault | remedy | seed | named before | named after | the sign went | after |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for fault in (each for each in FAULTS if each.remedy):
        for seed in seeds:
            before, after = of_fault(fault, seed), remedied(fault, seed)
            if not all((keep / one.folder / "done.json").exists() for one in (before, after)):
                continue
            first, second = judge(before, "grposcope", keep), judge(after, "grposcope", keep)
            gone = not any(cause in fault.right for cause in second.causes)
            told = ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                             for name, value in fault.remedy.items())  # fmt: skip
            lines.append(
                f"| {fault.name} | {told} | {seed} | {next(iter(first.causes), 'nothing')} | "
                f"{next(iter(second.causes), 'nothing')} | {'yes' if gone else 'no'} | {second.line} |"
            )
    return [*lines, ""]


def weighted(development: Sequence[Judged], results: Sequence[Judged]) -> list[str]:
    """How often the first cause is right by the order of the catalogue and by weights counted on development logs."""
    signs = sorted({cause for one in development for cause in one.causes})

    def share(sign: str, logs: Sequence[Judged]) -> float:
        return (1 + sum(sign in one.causes for one in logs)) / (2 + len(logs))

    @functools.cache
    def weight(sign: str, cause: str) -> float:
        names = {fault.name for fault in FAULTS if cause in fault.right}
        own = [one for one in development if one.training.faulty and one.training.name in names]
        others = [one for one in development if not (one.training.faulty and one.training.name in names)]
        return math.log(share(sign, own) / share(sign, others))

    def first(one: Judged) -> Judged:
        score = {cause: sum(weight(sign, cause) for sign in one.causes if sign in signs) for cause in one.causes}
        return replace(one, causes=tuple(sorted(one.causes, key=lambda cause: -score[cause])))

    counted = [one for one in results if one.training.faulty and one.logged]
    return [
        "## Order of the causes", "", "| order | first cause right | among the first two |", "|---|---|---|",
        f"| ranks of the catalogue | {_share(rights(one, 1) for one in counted)} | "
        f"{_share(rights(one, 2) for one in counted)} |",
        f"| weights | {_share(rights(first(one), 1) for one in counted)} | "
        f"{_share(rights(first(one), 2) for one in counted)} |", "",
    ]  # fmt: skip


def table(results: Sequence[Judged], title: str) -> list[str]:
    """The tables of results: sums, by dialect, by fault, and the clean trainings."""
    faulty = [one for one in results if one.training.faulty]
    clean = [one for one in results if not one.training.faulty]
    names = list(dict.fromkeys(one.dialect for one in results))
    lines = [f"## {title}", "", "| log | first cause right | among the first two | not logged | clean flagged | clean, "
             "a note or a rung |", "|---|---|---|---|---|---|"]  # fmt: skip
    for name in (*names, "all"):
        own = [one for one in faulty if name in (one.dialect, "all")]
        twins = [one for one in clean if name in (one.dialect, "all")]
        counted = [one for one in own if one.logged]
        said = sum(bool(one.causes) and not one.flagged for one in twins)
        lines.append(
            f"| {name} | {_share(rights(one, 1) for one in counted)} | {_share(rights(one, 2) for one in counted)} | "
            f"{len(own) - len(counted)} | {_share(one.flagged for one in twins)} | {said} |"
        )
    lines += ["", "| fault | first | first two | of | not logged | named first |", "|---|---|---|---|---|---|"]
    for fault in FAULTS:
        own = [one for one in faulty if one.training.name == fault.name]
        counted = [one for one in own if one.logged]
        seen = Counter(next(iter(one.causes), "nothing") for one in counted)
        said = ", ".join(f"{cause} {n}" for cause, n in seen.most_common(4))
        lines.append(
            f"| {fault.name} | {sum(rights(one, 1) for one in counted)} | {sum(rights(one, 2) for one in counted)} | "
            f"{len(counted)} | {len(own) - len(counted)} | {said} |"
        )
    flagged: dict[str, Counter[str]] = defaultdict(Counter)
    for one in clean:
        flagged[one.training.name].update([cause for cause in one.causes[:1] if one.flagged])
    lines += ["", "| sound settings | logs | flagged | as |", "|---|---|---|---|"]
    for name in SOUND:
        own = [one for one in clean if one.training.name == name]
        said = ", ".join(f"{cause} {n}" for cause, n in flagged[name].most_common(4))
        lines.append(f"| {name} | {len(own)} | {sum(one.flagged for one in own)} | {said or '–'} |")
    return [*lines, ""]


def _share(values: Iterable[bool]) -> str:
    counted = list(values)
    return f"{sum(counted)} of {len(counted)} ({sum(counted) / max(len(counted), 1):.0%})"


def main() -> None:
    """Train what is missing, or judge what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help="seeds 0 to N − 1")
    parser.add_argument("--only", default="", metavar="NAME", help="trainings with this in their name")
    parser.add_argument("--keep", type=Path, default=FOLDER, help="folder of the trainings")
    parser.add_argument("--score", action="store_true", help="judge the trainings that are there")
    parser.add_argument("--remedies", action="store_true", help="train with the remedies, and judge")
    parser.add_argument("--page", action="store_true", help="write the tables")
    parser.add_argument("--held-out", action="store_true", help="on held-out seeds and dialects")
    given = parser.parse_args()
    if given.remedies:
        wanted = [remedied(fault, seed) for seed in range(given.seeds) for fault in FAULTS if fault.remedy]
        make([one for one in wanted if given.only in one.name], given.keep)
        print("\n".join(remedies(given.keep, range(given.seeds))))
    elif given.page:
        development = score(given.keep, DEVELOPMENT_SEEDS, dialects.DEVELOPMENT)
        held_out = score(given.keep, HELD_OUT_SEEDS, dialects.HELD_OUT)
        parts = (table(held_out, "Held-out seeds and trainers"), table(development, "Development seeds and trainers"),
                 weighted(development, held_out), remedies(given.keep, range(given.seeds)))  # fmt: skip
        head = PAGE.read_text().partition(MARK)[0]
        PAGE.write_text(f"{head}{MARK}\n\n" + "\n".join(line for part in parts for line in part))
    elif given.score:
        seeds, names = (
            (HELD_OUT_SEEDS, dialects.HELD_OUT) if given.held_out else (DEVELOPMENT_SEEDS, dialects.DEVELOPMENT)
        )
        print(
            "\n".join(
                table(score(given.keep, seeds, names, given.only), "Held-out" if given.held_out else "Development")
            )
        )
    else:
        make([one for one in trainings(range(given.seeds)) if given.only in one.name], given.keep)


if __name__ == "__main__":
    main()
