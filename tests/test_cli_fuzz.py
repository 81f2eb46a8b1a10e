"""Every command that reads a run, on hostile files: an answer, or one line that says what to do; never a traceback."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import hostile
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from grposcope.cli import main, parser

SECONDS = 30
"""Longest that a command may take on these small files."""

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("diagnose", "RUN"), ("diagnose", "RUN"), ("diagnose", "RUN", "--json"), ("diagnose", "RUN", "--dry-run"),
    ("fit", "RUN"), ("fit", "RUN"),
    ("report", "RUN", "--json"), ("report", "RUN", "--out", "OUT"), ("watch", "--once", "RUN"), ("watch", "--once",
    "RUN", "--json"),
    ("compare", "RUN", "SOUND"), ("compare", "SOUND", "RUN"), ("plan", "RUN", "--replicates", "20"),
    ("plan", "RUN", "--replicates", "20", "--layers", "--recipe", "dapo"), ("stability", "--run", "RUN"),
    ("diagnose", "RUN", "--html", "OUT"), ("runs", "FOLDER"), ("report", "FOLDER", "--json"),
)  # fmt: skip
"""Commands; RUN is the hostile path, SOUND a record of the same kind, OUT a page to be written."""

EXTRA: tuple[tuple[str, ...], ...] = (
    ("--set", "group=8"), ("--set", "rewards=binary"), ("--set", "x"), ("--set", "group=nan"), ("--set",
    "group=1e400"), ("--set", "=3"),
    ("--map", "reward=loss"), ("--map", "step=1"), ("--map", "step=nothere"), ("--map", "reward=reward,kl=reward"),
    ("--map", "="),
    ("--map", "step=99999999999999999999"), ("--average",), ("--dry-run",), ("--level", "nan"), ("--level", "0"),
    ("--level", "1e-300"),
    ("--fail-on", "failing"), ("--fail-on", "x"), ("--until", "10"), ("--until", "nan"), ("--until", "-1e300"),
    ("--horizon", "nan"),
    ("--horizon", "1e300"), ("--horizon", "0"), ("--coverage", "1"), ("--coverage", "0.999999999"), ("--every",
    "nan"), ("--last", "3"),
    ("--truncated", "drop"), ("--groups", "2,3"), ("--groups", "2,99999999999999"), ("--budget", "nan"),
    ("--budget", "1e300"), ("--budget", "-1"),
    ("--multiple", "0"), ("--prompt-cost", "inf"), ("--rollout-cost", "0"), ("--replicates", "-3"), ("--curvature",
    "nan"), ("--interval", "0"),
    ("--momentum", "2"), ("--seed", "-1"), ("--nothing",), ("--json",),
)  # fmt: skip
"""Flags that fit the command, or not, with values that make sense, or not."""


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """TimeoutError where the block takes longer."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def call(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Status, standard output (strict UTF-8) and standard error, with all warnings about numbers, of a command."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in ("strict", "backslashreplace"))
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        with warnings.catch_warnings(), within(SECONDS):
            warnings.simplefilter("always", RuntimeWarning)
            try:
                status = main(list(arguments))
            except SystemExit as stop:  # of argparse
                status = int(stop.code or 0)
    finally:
        sys.stdout, sys.stderr = before
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return status, texts[0], texts[1]


def wrong(arguments: Sequence[str], status: int, out: str, err: str) -> str:
    """What is wrong with the outcome of a command; empty where nothing is."""
    if status not in (0, 1, 2):
        return f"status {status}"
    if "Traceback" in err or "Warning" in err:
        return "standard error holds a traceback or a warning"
    if status < 2:
        try:
            document = json.loads(out)
        except ValueError:
            document = None
        return "" if isinstance(document, dict) == ("--json" in arguments) else "JSON, or none, against --json"
    if "usage:" in err:  # of argparse
        return ""
    if not err.startswith("grposcope: error: ") or err.count("\n") != 1:
        return "standard error is not one line"
    if len(err) > 3000:
        return "the line is too long"
    remedy = any(word in err[18:] for word in (";", ":", " must "))
    return "" if remedy or not WORDS else "the line has no remedy"


def check(number: int, home: Path, sound: list[Path]) -> None:
    """One example from its number: a hostile run, a command, perhaps a flag."""
    rng = np.random.default_rng(number)
    folder = home / "x"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    run = hostile.write(folder, rng, sound)
    words = {"RUN": str(run), "FOLDER": str(folder), "SOUND": str(sound[0]), "OUT": str(folder / "page-of.html")}
    arguments = [words.get(word, word) for word in hostile.one(rng, COMMANDS)]
    if rng.random() < 0.3:
        arguments += hostile.one(rng, EXTRA)
    status, out, err = call(arguments)
    fault = wrong(arguments, status, out, err)
    assert not fault, f"{fault}: example {number}, {arguments}: status {status}\n{out[-300:]}\n{err[-3000:]}"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return hostile.bases(tmp_path_factory.mktemp("sound"))


QUIET = settings(
    deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), max_examples=30
)


@seed(0)
@QUIET
@given(number=st.integers(0, 2**32 - 1))
def test_any_command_on_hostile_files(number: int, tmp_path_factory: pytest.TempPathFactory, sound: list[Path]) -> None:
    check(number, tmp_path_factory.getbasetemp(), sound)


WORDS = "GRPOSCOPE_FUZZ_SECONDS" in os.environ
"""Whether lines without a remedy are failures too: in long runs, where someone reads and mends them."""

MANY = int(os.environ.get("GRPOSCOPE_FUZZ_EXAMPLES", "3000"))
LIMIT = float(os.environ.get("GRPOSCOPE_FUZZ_SECONDS", "100"))
"""Examples of the slow tests, and the seconds that each of them may take: what is not looked at by then is skipped."""

BEGAN: dict[str, float] = {}


def late(test: str) -> bool:
    """Whether a slow test has used up its time."""
    return time.monotonic() - BEGAN.setdefault(test, time.monotonic()) > LIMIT


@pytest.mark.slow
@settings(QUIET, max_examples=MANY)
@given(number=st.integers(0, 2**32 - 1))
def test_any_command_on_many_hostile_files(
    number: int, tmp_path_factory: pytest.TempPathFactory, sound: list[Path]
) -> None:
    if not late("files"):
        check(number, tmp_path_factory.getbasetemp(), sound)


NOWHERE = "/nowhere/at/all"
ON_NOTHING: tuple[tuple[str, ...], ...] = (
    ("train", "--resume", NOWHERE), ("probe", "--model", NOWHERE), ("credit", NOWHERE), ("evaluate", NOWHERE, "--task",
    "arithmetic"),
    ("offpolicy", NOWHERE), ("verify", NOWHERE), ("lint", NOWHERE), ("rewards", NOWHERE), ("plan", NOWHERE),
    ("sweep", NOWHERE), ("stability", "--run", NOWHERE), ("watch", "--once", NOWHERE + "/x"), ("runs", NOWHERE),
)  # fmt: skip
"""Every command, on something that is not there: whatever the flag, it has to say so in one line."""

VALUES = (
    "",
    "0",
    "-1",
    "nan",
    "inf",
    "1e400",
    "99999999999999999999",
    "x",
    "/dev/null",
    "é\x1b[31m",
    "a=b",
    ",",
    "1,2,x",
)


def check_flags(number: int, commands: Sequence[tuple[str, ...]] = ON_NOTHING) -> None:
    """One example from its number: a command on nothing, with a flag of its own and a value that may make no sense."""
    rng = np.random.default_rng(number)
    command = hostile.one(rng, commands)
    options = parser([command[0]])._subparsers._group_actions[0].choices[command[0]]._option_string_actions  # type: ignore[union-attr, index]
    flags = sorted(
        flag for flag in options if flag not in ("-h", "--help", "--help-all", "--list", "--serve", "--json")
    )
    arguments = [*command, str(rng.choice(flags)), *([str(rng.choice(VALUES))] if rng.random() < 0.9 else [])]
    status, out, err = call(arguments)
    fault = wrong(arguments, status, out, err) or ("" if status == 2 else "it went on")
    assert not fault, f"{fault}: example {number}, {arguments}: status {status}\n{out[-300:]}\n{err[-3000:]}"


@seed(0)
@settings(QUIET, max_examples=30)
@given(number=st.integers(0, 2**32 - 1))
def test_any_flag_with_any_value(number: int) -> None:
    """Of commands that do not import torch to find out that nothing is there; the others in the slow test."""
    heavy = {"train", "probe", "credit", "evaluate", "offpolicy"}
    check_flags(number, [command for command in ON_NOTHING if command[0] not in heavy])


@pytest.mark.slow
@settings(QUIET, max_examples=MANY)
@given(number=st.integers(0, 2**32 - 1))
def test_any_flag_with_many_values(number: int) -> None:
    if not late("flags"):
        check_flags(number)
