"""`grposcope texts`: what the policy writes, what of it is paid, since when, and which five to read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from grposcope.commands import flags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.files import nothing_there
from grposcope.core.flag import flag

if TYPE_CHECKING:
    from grposcope.core.answer import Answer
    from grposcope.core.rollouts import Rollout
    from grposcope.signs.texts.reading import TextReading

DESCRIPTION = (
    "Read the completions of a run without any model: which habits of the texts are paid inside the groups, what "
    "changed over the steps and since when, and which five pairs to read. A habit that spreads and by which the true "
    "score gains less than half as much is an exploit. Takes the folder of a run, whatever verify reads as rollouts, "
    "or a plain CSV or JSONL file with prompt, completion, reward and, where known, step. Exit status: 1 if an exploit "
    "is present, 2 if there is nothing to read, else 0."
)
EXAMPLES = """\
examples:
  grposcope texts runs/mine
  grposcope texts outputs/completions --truth accuracy_reward    the score that is meant to count
  grposcope texts rollouts.csv                                   prompt, completion, reward[, step]
  grposcope texts rollouts.jsonl --since 80                      from step 80 on
  grposcope texts runs/mine --reward rewards.py:math             and what this function pays for the habits
  grposcope texts runs/mine --json                               with the pairs to read and their spans
"""


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope texts`."""

    place: str = flag(
        names=(),
        metavar="RUN|ROLLOUTS",
        help="folder of a run, or rollouts: JSONL, CSV or parquet with one per line, or what a trainer writes; - reads "
        "standard input",
    )
    truth: str = flag(
        default="",
        metavar="NAME",
        help="the score that is meant to count, such as right (default: by its name, if any)",
    )
    since: int | None = flag(metavar="STEP", help="read from this step on")
    reward: str | None = flag(
        metavar="FILE:FUNCTION",
        help="also put the paid habits to this reward function, as TRL calls it: added to wrong answers, removed from "
        "right ones; it runs in a process of its own that may write no files",
    )
    reward_seconds: float = flag(default=60.0, metavar="S", help="that it may take in all (default: 60)")
    html: Path | None = flag(metavar="FILE", help="also write a self-contained page")
    seed: int = flag(default=0, type=flags.whole(0, 2**63 - 1), metavar="N", help="of the permutations (default: 0)")
    json: bool = json_flag()


def run(arguments: argparse.Namespace) -> int:
    """Print what is read of the texts; 1 where an exploit is present."""
    from grposcope.commands.standard_input import as_file

    with as_file(arguments.place) as place:
        return _read(place, arguments)


def _rows_below(place: Path) -> Sequence[Rollout]:
    """The rollouts in the one folder below a run's that has some. UserError where several have."""
    from grposcope.logs import read_rollouts
    from grposcope.logs.rollouts_beside import inner_folders, only_place

    found = only_place(place, {inner: read_rollouts.rollouts(inner).rows for inner in inner_folders(place)})
    return () if found is None else found[1]


def _read(place: Path, arguments: argparse.Namespace) -> int:
    """The same of a place."""
    from tqdm import tqdm

    from grposcope.instruments.texts import answer, screen
    from grposcope.logs import read_rollouts
    from grposcope.render import document, wrapping
    from grposcope.signs.texts import reading, sample

    if not place.exists():
        raise nothing_there(place, "the folder of a run, or a file of rollouts")
    with tqdm(total=len(reading.PARTS) + 1, unit="part", leave=False, disable=not sys.stderr.isatty()) as bar:

        def told(part: str) -> None:
            bar.set_description_str(part)
            bar.update()

        told("the rollouts")
        rows = read_rollouts.rollouts(place).rows or _rows_below(place)
        if not rows:
            raise UserError(
                f"{place} holds no rollouts; give JSONL or CSV with prompt, completion and reward on each line, or the "
                "folder that a trainer writes completions to"
            )
        own = sample.of_rollouts(rows, arguments.truth, arguments.since)
        read = reading.read(own, arguments.seed, progress=told)
    said = answer.with_facts(_graded(answer.of_reading(read), read, place, rows), rows)
    if arguments.reward:
        said = _with_trials(said, read, rows, arguments)
    shown = screen.text(said, read, wrapping.width())
    say(arguments, shown, lambda text: screen.coloured(text, said.word) if wrapping.has_colours() else text)
    written = document.of_answer(said)
    if arguments.html:
        written["page"] = str(arguments.html)
        size = _page(answer.with_pairs(said, read), place.name, arguments.html)
        say(arguments, f"\npage: {arguments.html} ({size / 1e6:.1f} MB); open it in a browser")
    finish(arguments, written)
    return int(said.word in ("warning", "failing"))


def _graded(said: Answer, read: TextReading, place: Path, rows: Sequence[Rollout]) -> Answer:
    """The answer with the grade that the verdict on the run gives what is present, where that is known."""
    from grposcope.faults import judge_texts
    from grposcope.logs import read as read_run

    if said.word != "warning":
        return said
    try:
        made = read_run(place)
    except UserError:
        made = None
    grade = judge_texts.grade_of(read, rows, made)
    return replace(said, word="failing") if grade == "failing" else said


def _with_trials(said: Answer, read: TextReading, rows: Sequence[Rollout], arguments: argparse.Namespace) -> Answer:
    """The answer with what the function of --reward pays for the habits."""
    from grposcope.instruments.texts import trials, trials_answer

    if not arguments.reward_seconds > 0:
        raise UserError(f"--reward-seconds {arguments.reward_seconds:g} must be above 0")
    made = trials.trials(read.sample, read.habits, rows, arguments.reward, arguments.reward_seconds)
    return trials_answer.with_trials(said, made)


def _page(said: Answer, label: str, path: Path) -> int:
    """Write a page of the answer; its size in bytes."""
    from grposcope.commands.report import write_page
    from grposcope.render import page

    top = replace(said, name="headline", text=(), tables=(), missing=(), document={})
    rest = replace(said, sentence="", because="", do="")
    return write_page(page.Document((label,), top, (rest,)), path, "--html")
