"""Faults of the machine and of rewards in whole runs: each ends with one line, and the run can go on from there."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import config, rows, start, timeless, weights

from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.lab.policies import Policy
from grposcope.lab.train import loop
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import resume, train
from grposcope.logs import read

FRAGILE = """
import time
from pathlib import Path

def fragile(completions, **columns):
    if any(text.count("a") == 1 for text in completions):
        raise ValueError("one a")
    return [sum(c.isalpha() for c in text) / max(len(text), 1) for text in completions]

def mended(completions, **columns):
    good = [text for text in completions if text.count("a") != 1]
    return [sum(c.isalpha() for c in text) / max(len(text), 1) if text in good else 0.0 for text in completions]

def hangs(completions, **columns):
    for text in completions:
        if text.count("a") == 1 and not Path(__file__).with_name("mended").exists():
            time.sleep(60)
    return [sum(c.isalpha() for c in text) / max(len(text), 1) for text in completions]
"""


@pytest.fixture
def settings(policy: Policy, tmp_path: Path) -> TrainConfig:
    return config(policy, tmp_path, steps=4, eval_problems=2, eval_samples=1, eval_every=2, threads=1,
                  checkpoint_every=2, rollouts_every=2, rollouts_groups=1)  # fmt: skip


def with_reward(settings: TrainConfig, folder: Path, name: str, **changes: Any) -> TrainConfig:
    (folder / "fragile.py").write_text(FRAGILE)
    return replace(settings, reward=f"{folder / 'fragile.py'}:{name}", **changes)


@contextmanager
def full_at(monkeypatch: pytest.MonkeyPatch, call: int) -> Iterator[list[int]]:
    """Writes to the record from the `call`-th on find no room, after some bytes; yields the number of writes so far."""
    count = [0]

    def failing(whole: Callable[..., Any]) -> Callable[..., Any]:
        def write(file: int, *arguments: Any) -> Any:
            count[0] += 1
            if count[0] < call:
                return whole(file, *arguments)
            if count[0] == call and arguments and len(arguments[0]) > 8 and whole is os_write:
                return whole(file, arguments[0][:7])
            raise OSError(28, "No space left on device")

        return write

    os_write = os.write
    with monkeypatch.context() as patch:
        for name in ("write", "pwrite", "fsync"):
            patch.setattr(os, name, failing(getattr(os, name)))
        yield count


def ends_as(run: Path, whole: Path) -> None:
    for name in ("steps", "groups", "evals"):
        assert timeless(rows(run, name)) == timeless(rows(whole, name)), name
    assert weights(run) == weights(whole)
    assert read(run).meta.status == "finished"
    assert not list(run.rglob("*.part"))


@pytest.mark.slow
def test_wherever_the_disk_fills_up_the_record_is_whole_and_the_run_goes_on(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every second write of a run is the one that finds the disk full."""
    with full_at(monkeypatch, 10**9) as count:
        start(replace(settings, out=str(tmp_path / "whole")))
    total = count[0]
    assert total > 40
    for call in range(1, total + 1, 2):
        run = tmp_path / f"run{call}"
        with full_at(monkeypatch, call), pytest.raises(UserError, match=r"No space left.*(make room|choose another)"):
            start(replace(settings, out=str(run)))
        if not (run / "config.json").exists():
            assert call < 8  # nothing had begun
            continue
        for name in ("steps", "groups", "evals"):
            if (run / f"{name}.jsonl").exists():
                text = (run / f"{name}.jsonl").read_text()
                assert text.endswith("\n") or not text
                assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
        random.seed(7)
        if not (run / "summary.json").exists():
            resume(run)
        ends_as(run, tmp_path / "whole")


@pytest.mark.slow
def test_a_file_system_that_refuses_large_files_ends_the_run_in_one_line(settings: TrainConfig, tmp_path: Path) -> None:
    """A limit of the operating system itself, in the process of a real command."""
    start(replace(settings, out=str(tmp_path / "whole")))
    size = (tmp_path / "whole" / "model" / "model.safetensors").stat().st_size
    given = [
        f"--{name.replace('_', '-')}={value}" for name, value in asdict(settings).items()
        if value is not None and not isinstance(value, bool)
    ]  # fmt: skip
    code = "import sys; from grposcope.cli import main; sys.exit(main())"
    ended = subprocess.run(
        [sys.executable, "-c", code, "train", *given], capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2)),
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("grposcope: error")]
    assert "cannot write the checkpoint" in line
    assert "make room, then resume the run" in line
    assert "Traceback" not in ended.stderr
    resume(Path(settings.out or ""))
    ends_as(Path(settings.out or ""), tmp_path / "whole")


def test_a_reward_that_raises_names_the_rollout_and_after_mending_the_run_goes_on(
    settings: TrainConfig, tmp_path: Path
) -> None:
    given = with_reward(settings, tmp_path, "fragile", steps=12)
    with pytest.raises(
        UserError, match=r"raised ValueError: one a in .*fragile\.py, line 7 \(rollout \d+, problem \d+, comp"
    ):
        train(given)
    assert read(Path(given.out or "")).meta.status == "failed"
    (tmp_path / "fragile.py").write_text(
        FRAGILE.replace("def mended", "def fragile").replace("def fragile", "def old", 1)
    )
    resume(Path(given.out or ""))
    train(replace(given, out=str(tmp_path / "whole")))
    ends_as(Path(given.out or ""), tmp_path / "whole")


def test_zero_counts_the_failures_and_is_the_run_of_the_mended_reward(settings: TrainConfig, tmp_path: Path) -> None:
    train(with_reward(settings, tmp_path, "fragile", steps=6, reward_errors="zero", out=str(tmp_path / "zero")))
    train(with_reward(settings, tmp_path, "mended", steps=6, out=str(tmp_path / "mended_run")))
    failed, mended = rows(tmp_path / "zero"), rows(tmp_path / "mended_run")
    assert sum(row["reward_errors"] for row in failed) > 0
    assert all(row.pop("reward_errors") == 0 for row in mended)
    for row in failed:
        del row["reward_errors"]
    assert timeless(failed) == timeless(mended)
    assert weights(tmp_path / "zero") == weights(tmp_path / "mended_run")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["grpo", "rloo", "batch_grpo", "ppo", "dapo"])
def test_dropped_rollouts_are_in_no_mean(settings: TrainConfig, tmp_path: Path, recipe: str) -> None:
    given = with_reward(settings, tmp_path, "fragile", steps=6, reward_errors="drop", recipe=recipe, probe_every=3)
    train(given)
    groups = [row["rewards"] for row in rows(given.out, "groups")]
    assert any("NaN" in rewards for rewards in groups)
    for k, row in enumerate(rows(given.out)):
        batch = [x for rewards in groups[3 * k : 3 * k + 3] for x in rewards]
        kept = [x for x in batch if x != "NaN"]
        assert row["reward"] == pytest.approx(sum(kept) / len(kept))
        if recipe != "dapo":  # which draws more than it keeps
            assert row["reward_errors"] == len(batch) - len(kept)
        assert row["grad_norm"] == row["grad_norm"] != "NaN"
    assert len(read(Path(given.out or "")).groups) == len(groups)


def test_drop_needs_credit_that_knows_of_it(settings: TrainConfig) -> None:
    with pytest.raises(
        UserError, match="credit prefix needs groups without gaps, and reward_errors drop leaves some; use"
    ):
        train(replace(settings, reward_errors="drop", credit="prefix"))
    with pytest.raises(UserError, match="unknown reward_errors 'skip'; use one of fail, zero, drop"):
        train(replace(settings, reward_errors="skip"))


@pytest.mark.slow
def test_a_reward_that_hangs_ends_the_run_with_the_rollout_named(settings: TrainConfig, tmp_path: Path) -> None:
    given = with_reward(settings, tmp_path, "hangs", steps=12, reward_timeout=0.4)
    with pytest.raises(
        UserError, match=r"took longer than 0.4 s for 12 rollouts \(rollout \d+, problem \d+, completion"
    ):
        train(given)
    (tmp_path / "mended").touch()
    resume(Path(given.out or ""))
    train(replace(given, out=str(tmp_path / "whole")))
    ends_as(Path(given.out or ""), tmp_path / "whole")


def _full() -> None:
    torch.empty(2**60, dtype=torch.uint8)  # the allocator refuses this


def _lost() -> None:
    raise RuntimeError("CUDA error: unspecified launch failure\nmore")


def _no_memory() -> None:
    raise MemoryError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "fault", "words"),
    [
        ("update", _full, "use fewer prompts"),
        ("draw", _no_memory, "use fewer prompts"),
        ("update", _lost, "check nvidia-smi"),
    ],
)
def test_memory_that_runs_out_and_a_lost_device_leave_the_record_intact(
    settings: TrainConfig, where: str, fault: Any, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    """One line with the remedy; all finished steps are in the record, and the resumed run is the undisturbed one."""
    whole: tuple[Any, str] = (loop, "update") if where == "update" else (loop.RolloutAllocation, "draw")
    own, count = getattr(*whole), iter(range(1, 1000))

    def failing(*arguments: Any) -> Any:
        if next(count) == 4:
            fault()
        return own(*arguments)

    start(replace(settings, out=str(tmp_path / "whole")))
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(settings).items()
             if value != getattr(TrainConfig(), name)]  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(*whole, failing)
        random.seed(7)
        assert main(["train", *flags]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("grposcope: error:")]
    assert len(said) == 1
    assert words in said[0]
    run = tmp_path / "run"
    assert [row["step"] for row in rows(run, "steps")] == [1, 2, 3]
    assert len(read(run).table["step"]) == 3
    random.seed(7)
    resume(run)
    assert timeless(rows(run)) == timeless(rows(tmp_path / "whole"))
    assert weights(run) == weights(tmp_path / "whole")
