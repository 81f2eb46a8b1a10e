"""Logs and probes are read, judged and drawn without torch; JSON lines also without pyarrow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import synthetic
import synthetic_probe

PRELUDE = """
import contextlib, io, json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from grposcope.cli import main

done = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as end:  # of argparse
            status = end.code or 0
    done.append([status, out, err])
print(json.dumps([[status, out.getvalue(), err.getvalue()] for status, out, err in done]))
"""
"""Commands, one after the other, in an interpreter in which some packages are not installed."""

TRAINING = ("torch", "transformers", "accelerate", "trl")
LAB = (*TRAINING, "huggingface_hub", "jaxtyping", "pyarrow", "safetensors")
LOG_COMMANDS = (["diagnose"], ["watch", "--once"], ["report", "--json"], ["fit"])


def call(*commands: Sequence[str | Path], absent: tuple[str, ...] = TRAINING) -> list[str]:
    """Standard output of each command without the packages `absent`; all must succeed."""
    done = attempt(*commands, absent=absent)
    for words, (status, _, err) in zip(commands, done, strict=True):
        assert status == 0, (words, err)
    return [out for _, out, _ in done]


def attempt(*commands: Sequence[str | Path], absent: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Status, standard output and error of each command, in a process of their own without the packages `absent`."""
    words = json.dumps([[str(word) for word in command] for command in commands])
    command = [sys.executable, "-c", PRELUDE.format(absent=set(absent)), words]
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return [tuple(one) for one in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.make(tmp_path_factory.mktemp("runs") / "run", steps=40)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What TRL prints, a line of JSON per logging step."""
    path = tmp_path_factory.mktemp("logs") / "log.jsonl"
    rng = np.random.default_rng(0)
    rows = [
        {"step": i + 1, "reward": 0.3 + 0.005 * i + rng.normal(0, 0.02), "kl": 0.001 * i, "loss": 0.01,
         "completion_length": 100.0, "reward_std": 0.3, "grad_norm": 0.2}
        for i in range(80)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
def test_commands_for_logs_need_no_torch(run: Path, tmp_path: Path) -> None:
    other = synthetic.make(tmp_path / "other", steps=40, seed=1)
    commands = [[*command, run, "--json"] for command in (*LOG_COMMANDS, ["plan"])]
    assert all(json.loads(said) for said in call(*commands, ["compare", run, other, "--json"]))


@pytest.mark.slow
def test_the_page_and_a_setting_need_no_torch(run: Path, log: Path, tmp_path: Path) -> None:
    setting = ["stability", "--lr", "0.1", "--momentum", "0.9", "--curvature", "0.1", "--interval", "20"]
    call(["report", run, log, "--out", tmp_path / "page.html"], setting)
    assert (tmp_path / "page.html").stat().st_size > 100_000


@pytest.mark.slow
def test_rollouts_are_read_without_the_packages_of_the_lab(tmp_path: Path) -> None:
    """Texts and claims of a plain file: what the light installation has is enough."""
    path = tmp_path / "rollouts.jsonl"
    rng = np.random.default_rng(0)
    rows = [
        {"prompt": f"What is {p} + {step}?", "completion": f"It is {rng.integers(99)}.", "step": step, "reward": reward}
        for step in range(1, 7)
        for p in range(4)
        for reward in rng.integers(2, size=4).tolist()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    commands = (["texts", path, "--json"], ["verify", path, "--json"])
    for _, out, err in attempt(*commands, absent=LAB):
        assert out, err
        assert json.loads(out)["sentence"]


@pytest.mark.slow
def test_a_probe_is_read_without_torch(tmp_path: Path) -> None:
    probe = synthetic_probe.make(tmp_path / "probe")
    plan, _ = call(["plan", probe, "--json"], ["report", probe, "--json"])
    assert json.loads(plan)


@pytest.mark.parametrize("command", [["diagnose"], ["watch", "--once"]], ids=" ".join)
def test_logs_are_judged_without_the_slow_parts_of_scipy(command: list[str], log: Path) -> None:
    """Importing `scipy.stats` takes a third of a second and `scipy.optimize` a quarter: more than the diagnosis."""
    code = (
        "import sys; from grposcope.cli import main; status = main(sys.argv[1:]); "
        "sys.exit(status or ', '.join({'scipy.stats', 'scipy.optimize', 'scipy.signal'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command, str(log)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_record_is_read_alike_without_pyarrow(run: Path) -> None:
    commands = [["diagnose", run], ["fit", run]]
    assert call(*commands, absent=(*TRAINING, "pyarrow")) == call(*commands)


def test_a_command_that_needs_an_extra_names_it_in_one_line() -> None:
    for status, _, err in attempt(["train"], ["probe"], ["credit"], absent=LAB):
        assert status == 2
        (line,) = err.splitlines()
        assert "this command needs the package " in line
        assert ", which is not installed; run pip install '" in line
        assert "'grposcope[" not in line, "no index has it"


LAB_COMMANDS = ("train", "sweep", "probe", "credit", "evaluate", "offpolicy")


def test_flags_are_told_and_checked_without_the_packages_of_the_lab() -> None:
    wrong = {
        ("train", "--lr", "-1"): "--lr is -1.0; it must be at least 0",
        ("train", "--momentun", "1"): "there is no flag --momentun; did you mean --momentum?",
        ("train", "--recipe", "grop"): "did you mean grpo?",
        ("train", "--prompts", "100000000", "--group", "100000000"): "are more rollouts than the 100,000",
        ("train", "--prompts", "1000", "--group", "90", "--max-tokens", "900000000"): "GB of memory or more",
        ("probe", "--sweep-group", "9"): "--sweep-group 9 must be between 2 and --group 8",
        ("credit", "--prompts", "1"): "--prompts 1 must be at least 3",
        ("evaluate", "tiny", "--samples", "0"): "--samples 0 must be 1 or more",
        ("offpolicy", "tiny", "--top-k", "0"): "--top-k 0 must be at least 1",
        ("sweep", "nowhere.yaml", "--jobs", "0"): "--jobs 0 is not a number of runs",
    }
    done = attempt(*wrong, *([name, "--help-all"] for name in LAB_COMMANDS), absent=LAB)
    for words, (status, _, err), said in zip(wrong, done, wrong.values(), strict=False):
        assert status == 2, words
        assert said in err, words
        assert err.count("\n") == 1, "one line, without the usage"
    for status, out, _ in done[len(wrong) :]:
        assert status == 0
        assert "--json" in out


@pytest.mark.slow
def test_the_page_of_a_record_needs_none_of_the_packages_of_the_lab(tmp_path: Path) -> None:
    """Its rollouts are in Parquet files; without pyarrow the page says why it does not show them."""
    run = synthetic.make(tmp_path / "run", steps=40)
    assert list((run / "rollouts").glob("*.parquet"))
    call(["report", run, "--out", tmp_path / "page.html"], absent=LAB)
    assert "needs pyarrow" in (tmp_path / "page.html").read_text()


def test_logs_need_none_of_the_packages_of_the_lab(log: Path) -> None:
    """Nor pyarrow, where the log is JSON lines."""
    assert all(call(*([*command, log] for command in LOG_COMMANDS), absent=LAB))


def test_a_terminal_does_not_wait_for_the_library_of_charts(log: Path) -> None:
    assert all(call(["fit", log], absent=("altair",)))


def test_the_list_of_commands_does_not_wait_for_numpy() -> None:
    code = "import sys; from grposcope.cli import listing; listing(); print({'numpy', 'altair'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("absent", ["transformers", "torch"])
def test_the_callback_of_trl_names_the_extra_to_install(absent: str) -> None:
    """One line in place of a traceback through our modules, and what to install first without a GPU."""
    code = PRELUDE.partition("from grposcope.cli")[0].format(absent={absent}) + (
        "try:\n    from grposcope.engines.trl import GRPOscopeCallback\nexcept ImportError as error:\n"
        "    print(type(error).__name__, error.name, error, error.__suppress_context__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.startswith(f"ImportError {absent} GRPOscopeCallback needs {absent}, which is not installed: pip")
    assert "[trl]'" in done.stdout
    assert "--index-url https://download.pytorch.org/whl/cpu" in done.stdout
