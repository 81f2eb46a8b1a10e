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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import hostile
import hostile_inputs
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from grposcope import logs
from grposcope.cli import main, parser
from grposcope.core.errors import UserError

SECONDS = 20
"""Seconds of the processor that a command may take, which other programs may use at the same time, and a third of those
of the clock."""

MEMORY = 4e9
"""Bytes that the process may hold at most while a command runs."""

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

OTHERS: tuple[tuple[str, ...], ...] = (
    ("diagnose", "-"), ("diagnose", "RUN", "--config", "SETTINGS"), ("diagnose", "SOUND", "--config", "SETTINGS"),
    ("diagnose", "RUN", "RUN"), ("advise", "RUN"), ("advise", "RUN", "--json"),
    ("advise", "SOUND", "--policy", "SETTINGS"), ("runs", "RUN", "--json"), ("runs", "FOLDER", "--sort", "verdict"),
    ("rewards", "RUN"), ("rewards", "ROLLOUTS"), ("rewards", "ROLLOUTS", "--json"),
    ("rewards", "ROLLOUTS", "--gram", "ARRAY"), ("texts", "RUN"), ("texts", "ROLLOUTS"),
    ("texts", "ROLLOUTS", "--html", "OUT"), ("texts", "-"), ("offpolicy", "ROLLOUTS"),
    ("offpolicy", "ROLLOUTS", "--gram", "ARRAY"), ("offpolicy", "RUN", "--json"), ("explain", "WORD"),
    ("lint", "SETTINGS"), ("lint", "SETTINGS"), ("lint", "SETTINGS", "--json"), ("lint", "SETTINGS", "--run", "RUN"),
    ("lint", "RUN"), ("lint", "SETTINGS", "--probe", "PROBE"), ("lint", "SETTINGS", "--skip-others", "SETTINGS"),
    ("verify", "RUN"), ("verify", "ROLLOUTS"), ("verify", "ROLLOUTS", "--json"),
    ("verify", "SOUND", "--config", "SETTINGS"), ("verify", "SOUND", "--rollouts", "ROLLOUTS"),
    ("fit", "RUN", "--json"), ("fit", "RUN", "--figures", "OUT"), ("stability", "--settings", "SETTINGS"),
    ("stability", "RUN", "--json"), ("plan", "PROBE", "--replicates", "20"),
    ("plan", "PROBE", "--replicates", "20", "--layers", "--json"), ("report", "PROBE", "--out", "OUT"),
    ("plan", "ROLLOUTS", "--replicates", "20"), ("sweep", "SETTINGS", "--check"),
    ("sweep", "SETTINGS", "--check", "--json"), ("plan", "RUN", "--config", "SETTINGS"),
    ("simulate", "--steps", "3", "--config", "SETTINGS"), ("claims", "--list", "--config", "SETTINGS"),
    ("watch", "--once", "ROLLOUTS"), ("report", "ROLLOUTS", "--out", "OUT"), ("compare", "RUN", "ROLLOUTS"),
    ("compare", "SOUND", "RUN", "--html", "OUT"), ("mcp", "--root", "RUN", "--config", "SETTINGS"),
)  # fmt: skip
"""More commands: SETTINGS, ROLLOUTS, PROBE and ARRAY are hostile files of that kind, - is a hostile standard input."""

TASK = ("--task", "jsonl:ROLLOUTS", "--reward", "REWARD")
SMALL = ("--prompts", "2", "--group", "2", "--max-tokens", "4", "--threads", "1")
OF_MODELS: tuple[tuple[str, ...], ...] = (
    ("train", "--resume", "MODEL"), ("train", "--resume", "MODEL", "--json"), ("train", "--resume", "RUN"),
    ("train", "--config", "SETTINGS"), ("train", "--model", "SMALL", *TASK, *SMALL, "--steps", "1", "--out", "NEW"),
    ("evaluate", "MODEL", "--task", "jsonl:PROMPTS", "--reward", "REWARD", "--limit", "2", "--samples", "1",
     "--max-tokens", "4", "--out", "NEW"),
    ("evaluate", "SMALL", *TASK, "--limit", "2", "--samples", "1", "--max-tokens", "4", "--out", "NEW"),
    ("evaluate", "SMALL", "--task", "jsonl:PROMPTS", "--reward", "REWARD", "--limit", "2", "--out", "RUN"),
    ("probe", "MODEL", *SMALL), ("probe", "SMALL", "--rollouts", "ROLLOUTS", "--out", "NEW"),
    ("credit", "MODEL", *SMALL, "--reference", "2", "--oracle", "2"), ("offpolicy", "MODEL", *SMALL),
    ("offpolicy", "ROLLOUTS", "--model", "MODEL"), ("verify", "ROLLOUTS", "--model", "MODEL"), ("verify", "MODEL"),
    ("stability", "MODEL", "--measure"), ("MCP", "diagnose", "RUN"), ("MCP", "lint", "SETTINGS"),
    ("MCP", "verify", "ROLLOUTS"), ("MCP", "rewards", "ROLLOUTS"), ("MCP", "texts", "ROLLOUTS"),
    ("MCP", "plan", "PROBE"), ("MCP", "compare", "RUN"),
    ("texts", "ROLLOUTS", "--reward", "SETTINGS:f", "--reward-seconds", "2"),
)  # fmt: skip
"""Commands that load models or start processes: MODEL is hostile, SMALL sound, MCP asks a tool of `mcp`."""

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


class Late(BaseException):
    """A command takes too long; no error of the program that anything in it would catch."""


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Late where the block takes longer."""

    def stop(*_: object) -> None:
        raise Late(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def call(arguments: Sequence[str], typed: bytes = b"") -> tuple[int, str, str]:
    """Status, standard output (strict UTF-8) and standard error, with all warnings about numbers, of a command.

    typed: what standard input holds.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in ("strict", "backslashreplace"))
    before = sys.stdout, sys.stderr, sys.stdin
    sys.stdout, sys.stderr, sys.stdin = out, err, io.TextIOWrapper(io.BytesIO(typed), "utf-8")
    try:
        with warnings.catch_warnings(), within(3 * SECONDS):
            warnings.simplefilter("always", RuntimeWarning)
            try:
                status = asked_by_agent(arguments) if arguments[0] == "MCP" else main(list(arguments))
            except SystemExit as stop:  # of argparse
                status = int(stop.code or 0)
            except Late as late:
                status = 124
                print(late, file=sys.stderr)
    finally:
        sys.stdout, sys.stderr, sys.stdin = before
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
    if "usage:" in err or (out.strip() and not err.strip()):  # of argparse, or an answer that nothing can be told
        return ""
    if arguments[0] in ("evaluate", "probe", "credit", "train", "offpolicy"):  # after bars of progress
        err = err.strip().rpartition("\n")[2] + "\n"
    if not err.startswith("grposcope: error: ") or err.count("\n") != 1:
        return "standard error is not one line"
    if len(err) > 3000:
        return "the line is too long"
    remedy = any(word in err[18:] for word in (";", ":", " must "))
    return "" if remedy or not WORDS else "the line has no remedy"


def asked_by_agent(arguments: Sequence[str]) -> int:
    """A tool of `grposcope mcp` on a path, as the command that it is: 2 where it refuses."""
    from grposcope.commands import mcp_server

    _, tool, path = arguments
    root = Path(path).parent
    try:
        mcp_server._answer(root.resolve(), tool, [path, path] if tool == "compare" else [path])
    except UserError as error:
        print(f"grposcope: error: {error}", file=sys.stderr)
        return 70 if "fault of grposcope" in str(error) else 2
    return 0


@dataclass(frozen=True)
class Inputs:
    """What hostile inputs are made of: sound records, a trained run with its prompts and reward, large files."""

    sound: list[Path]
    trained: Path = Path("nowhere")
    large: dict[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What came of a call: seconds of the processor, bytes at the most, and what is wrong; empty where nothing is."""

    arguments: list[str]
    seconds: float
    bytes: float
    fault: str
    said: str


def peak(reset: bool = False) -> float:
    """Bytes of memory that this process held at the most since the last reset; 0 where the system does not say."""
    with suppress(OSError):
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0.0)
    return 0.0


def words_of(command: Sequence[str], folder: Path, rng: np.random.Generator, inputs: Inputs) -> tuple[list[str], bytes]:
    """The command with a hostile input for each of its words that stands for one, and its standard input."""
    out = str(folder / "page-of.html")
    if rng.random() < 0.1:
        out = hostile.one(
            rng,
            (
                "/proc/page.html",
                "/dev/full",
                "/sys/x/page.html",
                str(folder),
                "/nowhere/at/all/x.html",
                "/dev/null/x",
                "",
            ),
        )
    beside = inputs.trained.parent
    sure = {
        "FOLDER": str(folder), "SOUND": str(inputs.sound[0]), "OUT": out, "SMALL": str(beside / "model"),
        "NEW": str(folder / "new"), "WORD": str(hostile.one(rng, VALUES)),
        "jsonl:PROMPTS": f"jsonl:{beside / 'prompts.jsonl'}", "REWARD": f"{beside / 'rewards.py'}:letters",
    }  # fmt: skip
    words, typed = [], b""
    for number, word in enumerate(command):
        kind = word.removeprefix("jsonl:").removesuffix(":f")
        if word in sure:
            words.append(sure[word])
        elif kind in ("RUN", "SETTINGS", "ROLLOUTS", "PROBE", "ARRAY", "MODEL"):
            inside = folder / f"{number}"
            inside.mkdir()
            words.append(
                word.replace(
                    kind, str(hostile_inputs.path(inside, kind, rng, inputs.sound, inputs.trained, inputs.large))
                )
            )
        else:
            words.append(word)
        if word == "-":
            made = hostile.log(folder, rng)
            typed = made.read_bytes() if made.is_file() else b""
    if "FOLDER" in command:
        hostile_inputs.path(folder, "RUN", rng, inputs.sound, inputs.trained, inputs.large)
    return words, typed


def outcome(
    number: int, home: Path, inputs: Inputs, commands: Sequence[tuple[str, ...]] = COMMANDS, only: str = ""
) -> Outcome:
    """One example from its number: a hostile run, a command, perhaps a flag; `only` picks those of one command."""
    rng = np.random.default_rng(number)
    folder = home / "x"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    command = hostile.one(rng, [command for command in commands if not only or command[0] == only])
    arguments, typed = words_of(command, folder, rng, inputs)
    plain = command[0] == "MCP" or rng.random() > 0.25
    if not plain:
        arguments += hostile.one(rng, EXTRA)
    here = os.open(".", os.O_RDONLY)
    if rng.random() < 0.01:  # a working folder that is gone
        (home / "gone").mkdir(exist_ok=True)
        os.chdir(home / "gone")
        (home / "gone").rmdir()
    peak(reset=True)
    began = sum(os.times()[:4])
    try:
        status, out, err = call(arguments, typed)
    finally:
        seconds = sum(os.times()[:4]) - began
        os.fchdir(here)
        os.close(here)
        hostile_inputs.close()
    most = peak()
    fault = "" if command[0] == "MCP" and status in (0, 2) else wrong(arguments, status, out, err)
    if not fault and seconds > SECONDS:
        fault = f"{seconds:.0f} s"
    if not fault and most > MEMORY:
        fault = f"{most / 1e9:.1f} GB"
    one_run = command[:2] in (("diagnose", "RUN"), ("watch", "--once")) and command.count("RUN") == 1
    if not fault and plain and one_run and "ealthy" in out[:1000]:
        fault = "" if has_a_row(Path(arguments[2 if command[0] == "watch" else 1])) else "healthy, without a row"
    return Outcome(arguments, seconds, most, fault, f"status {status}\n{out[-300:]}\n{err[-3000:]}")


def has_a_row(path: Path) -> bool:
    """Whether a number of a run, but its step, or an evaluation can be read; of a folder, in the callback's record."""
    try:
        run = logs.read(path)
    except UserError as error:
        return "runs in it" in str(error) or ((path / "grposcope").is_dir() and has_a_row(path / "grposcope"))
    return len(run.evaluations.value) > 0 or any(
        np.isfinite(column).any() for name, column in run.table.items() if name != "step"
    )


def check(number: int, home: Path, inputs: Inputs, commands: Sequence[tuple[str, ...]] = COMMANDS) -> None:
    """One example from its number, with nothing wrong in it."""
    made = outcome(number, home, inputs, commands)
    assert not made.fault, f"{made.fault}: example {number}, {made.arguments}: {made.said}"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return Inputs(hostile.bases(tmp_path_factory.mktemp("sound")))


QUIET = settings(
    deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), max_examples=30
)


@seed(0)
@QUIET
@given(number=st.integers(0, 2**32 - 1))
def test_any_command_on_hostile_files(number: int, tmp_path_factory: pytest.TempPathFactory, sound: Inputs) -> None:
    check(number, tmp_path_factory.getbasetemp(), sound)


@seed(0)
@QUIET
@given(number=st.integers(0, 2**32 - 1))
def test_any_command_on_other_hostile_inputs(
    number: int, tmp_path_factory: pytest.TempPathFactory, sound: Inputs
) -> None:
    check(number, tmp_path_factory.getbasetemp(), sound, OTHERS)


WORDS = "GRPOSCOPE_FUZZ_SECONDS" in os.environ
"""Whether lines without a remedy are failures too: in long runs, where someone reads and mends them."""

MANY = int(os.environ.get("GRPOSCOPE_FUZZ_EXAMPLES", "800"))
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
    number: int, tmp_path_factory: pytest.TempPathFactory, sound: Inputs
) -> None:
    if not late("files"):
        check(number, tmp_path_factory.getbasetemp(), sound, COMMANDS + OTHERS)


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
