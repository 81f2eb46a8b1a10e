"""The command line as a user meets it: help, errors in one line with status 2, JSON last."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from grposcope import __version__
from grposcope.cli import main, parser
from grposcope.commands import known
from grposcope.lab.train.config import TrainConfig


def failing(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    """Run a command that must end with status 2 and one line on standard error; returns the line."""
    assert main(["train", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("grposcope: error: ")
    assert err.count("\n") == 1
    return err


def test_every_setting_has_a_flag_with_its_default() -> None:
    """A flag that is not given leaves its field alone, and the help names the default."""
    given = vars(parser().parse_args(["train"]))
    flags = {a.dest: a for a in _subparser("train")._actions}
    for setting in fields(TrainConfig):
        assert setting.name not in given
        assert setting.default in (None, False) or f"(default: {setting.default})" in (flags[setting.name].help or "")


def _subparser(name: str) -> argparse.ArgumentParser:
    action = next(a for a in parser([name])._actions if isinstance(a, argparse._SubParsersAction))
    return action.choices[name]


def test_the_line_of_help_is_there_before_a_command_is_imported(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(line in " ".join(out.split()) for line in (command.help for command, _ in known().values()))


def test_help_begins_with_five_commands_and_has_the_others_on_25_lines() -> None:
    lines = parser([]).format_help().splitlines()
    first = lines.index("begin with:") + 1
    names = [line.split()[0] for line in lines[first : first + 5]]
    assert names == ["diagnose", "watch", "report", "compare", "plan"]
    others = lines[first + 6 : lines.index("options:") - 1]
    assert len(others) <= 25, "a new command takes the place of another, joins one, or is shown by its group alone"
    assert {line.split()[0] for line in others if line.startswith("  ")} == set(known()) - set(names)


def test_the_short_help_of_train_has_20_flags_at_most(capsys: pytest.CaptureFixture) -> None:
    shown, every = [], []
    for flag, seen in (("--help", shown), ("--help-all", every)):
        with pytest.raises(SystemExit):
            main(["train", flag])
        seen += [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  --")]
    assert 10 <= len(shown) <= 20
    assert set(shown) < set(every)
    assert len(every) > 50


def test_a_quick_command_does_not_import_torch() -> None:
    code = "import sys; from grposcope.cli import parser; parser(['plan']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    "line", ["train --task arithmetik", "train --out .", "claims mes", "claims --html no/where.html", "train --group 1"]
)
def test_a_wrong_name_is_told_before_torch_is_imported(line: str, tmp_path: Path) -> None:
    (tmp_path / "something").write_text("")
    code = f"import sys; from grposcope.cli import main; sys.exit(10 * main({line.split()}) + ('torch' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True).returncode == 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "tiyn"], "cannot load model 'tiyn'"),
        (["--model", "./nowhere"], "no model in ./nowhere"),
        (["--task", "arithmetik"], "did you mean arithmetic?"),
        (["--task", "gsm8k:nowhere"], "nowhere"),
        (["--max-tokens", "0"], "--max-tokens is 0; it must be at least 1"),
        (["--lr", "-1"], "--lr is -1.0; it must be at least 0"),
        (["--group", "1"], "use a group of 2 or more"),
        (["--device", "cuda"], "sees no CUDA device"),
        (["--max-tokens", "5000"], "512 tokens of context of model tiny; lower --max-tokens"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    assert words in failing(capsys, *arguments)


def test_a_fault_of_ours_is_no_flagged_mode(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Status 1 belongs to --fail-on."""
    monkeypatch.setattr("grposcope.instruments.dynamics.command_stability.run", lambda arguments: 1 / 0)
    assert main(["stability"]) == 70
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert said.splitlines()[-1].startswith("grposcope: this is a fault of grposcope")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("cannot allocate"), "memory ran out"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory: you tried to "
                      "allocate 800 bytes"), "memory ran out"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore"), "memory ran out"),
        (RuntimeError("CUDA error: device-side assert triggered\nmore"), "the GPU failed"),
    ],
)  # fmt: skip
def test_a_full_or_lost_device_is_one_line(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def run(_: object) -> int:
        raise error

    monkeypatch.setattr("grposcope.instruments.dynamics.command_stability.run", run)
    assert main(["stability"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert words in said


def test_a_working_folder_that_is_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["train"]) == 2
    assert "the working folder no longer exists; go to one that does" in capsys.readouterr().err


def test_a_bad_line_is_named(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    data = tmp_path / "mine.jsonl"
    data.write_text('{"prompt": "a", "answer": "1"}\n{"prompt": \n')
    line = failing(capsys, "--task", f"jsonl:{data}")
    assert "mine.jsonl" in line
    assert "2" in line


def test_unknown_recipe_lists_the_recipes(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "--recipe", "grop"])
    assert stop.value.code == 2
    assert "dr_grpo" in capsys.readouterr().err


@pytest.mark.slow
def test_the_shipped_model_trains_from_the_shell(tmp_path: Path) -> None:
    """The whole command in a process of its own; its output is the outcome."""
    command = [sys.executable, "-m", "grposcope.cli", "train", "--out", str(tmp_path / "run"), "--steps", "3", "--json"]
    small = ["--prompts", "4", "--group", "4", "--eval-problems", "20", "--eval-samples", "2", "--threads", "1"]
    done = subprocess.run([*command, *small], capture_output=True, text=True, check=True, timeout=300)
    outcome = json.loads(done.stdout)
    assert outcome["steps"] == 3
    assert outcome["rollouts"] == 48
    assert set(outcome["heldout"]) == {"first", "best", "last"}
    assert 0.15 < outcome["heldout"]["first"]["value"] < 0.5
    assert outcome["heldout"]["first"]["n"] == 20
    assert Path(outcome["paths"]["model"], "model.safetensors").is_file()
    assert "held-out pass@1" in done.stderr


def test_version(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.strip() == f"grposcope {__version__}"


INTERRUPTED = """
import atexit, sys
from grposcope import cli

class Slow:
    def __del__(self):
        print("taken apart")

kept = Slow()
atexit.register(lambda: print("cleaned up"))
cli.main = lambda: print("worked") or {status}
sys.exit(cli.program())
"""


@pytest.mark.parametrize(
    ("status", "ends"), [(130, ["worked", "cleaned up"]), (0, ["worked", "cleaned up", "taken apart"])]
)
def test_an_interrupt_ends_the_process_without_taking_it_apart(status: int, ends: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED.format(status=status)], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split("\n")[:-1]) == (status, ends), done.stderr


def test_a_refusal_is_a_document_where_documents_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the input or a setting is refused; standard error has the same words."""
    (tmp_path / "empty.jsonl").touch()
    for words in (
        ["diagnose", str(tmp_path / "nothing")],
        ["diagnose", "docs/example.jsonl", "--fail-on", "nonsense"],
        ["texts", str(tmp_path / "empty.jsonl")],
    ):
        assert main([*words, "--json"]) == 2
        out, err = capsys.readouterr()
        assert f"grposcope: error: {json.loads(out)['error']}" in err
        assert main(words) == 2
        assert not capsys.readouterr().out
