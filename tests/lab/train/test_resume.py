"""Checkpoints and resuming: a run that was stopped ends as one that was not, bit for bit."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import config, rows, start, stopped_at, timeless

from grposcope.core.errors import UserError
from grposcope.lab.policies import Policy
from grposcope.lab.sampling import rollouts, termination
from grposcope.lab.train import checkpoint, loop
from grposcope.lab.train import update as updating
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import resume


@pytest.fixture
def settings(policy: Policy, tmp_path: Path) -> TrainConfig:
    """A small run whose reward draws from Python's own random numbers, too."""
    return config(
        policy,
        tmp_path,
        "noisy",
        steps=8,
        eval_every=3,
        eval_problems=3,
        eval_samples=2,
        threads=1,
        checkpoint_every=2,
        keep_checkpoints=2,
        rollouts_every=3,
        rollouts_groups=2,
    )


def content(run: Path) -> dict[str, Any]:
    """Everything of a run's folder that must not depend on whether it was stopped."""
    parts: dict[str, Any] = {name: timeless(rows(run, name)) for name in ("steps", "groups", "evals")}
    for file in sorted([*run.glob("model/*"), *run.glob("rollouts/*")]):
        parts[f"{file.parent.name}/{file.name}"] = hashlib.sha256(file.read_bytes()).hexdigest()
    summary = json.loads((run / "summary.json").read_text())
    parts["summary"] = {k: v for k, v in summary.items() if k not in ("seconds", "folder")}
    return parts


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({}, 2),  # before the first checkpoint
        ({"interval": 2, "kl": 0.1, "minibatches": 1}, 6),
        *(
            pytest.param(changes, step, marks=pytest.mark.slow)
            for changes, step in [
                ({}, 6),
                ({"optimizer": "sgd", "recipe": "dapo", "interval": 3, "minibatches": 3}, 8),
                ({"checkpoint_every": 0}, 5),
                ({"staleness": "3", "correction": "sequence_cap:2"}, 6),
                ({"staleness": "0-4", "interval": 2, "checkpoint_every": 2}, 7),
            ]
        ),
    ],
)
def test_a_resumed_run_is_the_undisturbed_one(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changes: dict[str, Any], step: int
) -> None:
    changed = replace(settings, **changes)
    start(replace(changed, out=str(tmp_path / "whole")))
    stopped_at(monkeypatch, changed, step)
    random.seed(7)
    began = time.perf_counter()
    outcome = resume(Path(changed.out or ""))
    assert outcome.steps == 8
    newest = max((tmp_path / "run" / "checkpoints").glob("*/state.json"), default=None)
    earlier = json.loads(newest.read_text())["totals"]["seconds"] if newest else 0.0
    assert earlier <= outcome.seconds <= earlier + time.perf_counter() - began
    assert content(tmp_path / "run") == content(tmp_path / "whole")


def test_interrupted_runs_resume(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    start(replace(settings, out=str(tmp_path / "whole")))
    whole, count = loop.update, iter(range(1, 100))

    def interrupted(*args: Any) -> Any:
        if next(count) == 5:
            raise KeyboardInterrupt
        return whole(*args)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", interrupted)
        start(settings)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["interrupted"]
    resume(tmp_path / "run")
    assert content(tmp_path / "run") == content(tmp_path / "whole")


def test_checkpoints_are_models_and_old_ones_go(settings: TrainConfig, tmp_path: Path) -> None:
    start(replace(settings, steps=9, eval_problems=0))
    assert sorted(f.name for f in (tmp_path / "run" / "checkpoints").iterdir()) == ["step-000006", "step-000008"]
    start(replace(settings, model=str(tmp_path / "run/checkpoints/step-000008/model"), out=str(tmp_path / "next")))


def test_the_best_checkpoint_is_kept(tmp_path: Path) -> None:
    for step in (2, 4, 6, 8):
        (tmp_path / "checkpoints" / f"step-{step:06d}").mkdir(parents=True)
    checkpoint.prune(tmp_path, keep=1, also={4})
    assert sorted(f.name for f in (tmp_path / "checkpoints").iterdir()) == ["step-000004", "step-000008"]
    checkpoint.prune(tmp_path, keep=0)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_the_newest_checkpoint_goes_by_number(tmp_path: Path) -> None:
    for step in (999_999, 1_000_000):
        (tmp_path / "checkpoints" / f"step-{step:06d}").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-2000000.part").mkdir()
    assert checkpoint.latest(tmp_path) == tmp_path / "checkpoints" / "step-1000000"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "waits", "done", "kept", "every"),
    [(3, 0, 2, [2], 6), (4, 0, 4, [4], 6), (4, 3, 3, [], 6), (6, 3, 5, [4], 4)],
)
def test_a_run_that_is_asked_to_end_leaves_an_update(
    at: int,
    waits: float,
    done: int,
    kept: list[int],
    every: int,
    settings: TrainConfig,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """SIGTERM in the backward pass of an update: the first on a batch is given up at once, with a checkpoint of what
    came before; the second is made unless it takes longer than a moment: then the batch is given up."""
    settings = replace(settings, interval=2, checkpoint_every=every)
    start(replace(settings, out=str(tmp_path / "whole")))
    whole, count, began = updating.accumulate, iter(range(1, 100)), 0.0

    def asked(*args: Any) -> Any:
        nonlocal began
        if next(count) == at:
            began = time.perf_counter()
            os.kill(os.getpid(), signal.SIGTERM)
            while time.perf_counter() < began + waits:
                pass
        return whole(*args)

    with monkeypatch.context() as patch:
        patch.setattr(updating, "accumulate", asked)
        patch.setattr(termination, "PATIENCE", 0.2)
        random.seed(7)
        outcome = loop.train(settings)
        took = time.perf_counter() - began
    assert took < 2
    assert (outcome.steps, outcome.interrupted, outcome.terminated) == (done, True, True)
    assert checkpoint.steps(tmp_path / "run") == kept
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    random.seed(8 if checkpoint.steps(tmp_path / "run") else 7)
    resume(tmp_path / "run")
    assert content(tmp_path / "run") == content(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_that_is_asked_to_end_between_two_batches_keeps_the_one_before(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SIGTERM once the end of a step has looked for it, and before the next batch is drawn."""
    settings = replace(settings, eval_every=0, checkpoint_every=0)
    start(replace(settings, out=str(tmp_path / "whole")))
    due = loop._checkpoint_due

    def asked(config: TrainConfig, step: int) -> bool:
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return due(config, step)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_checkpoint_due", asked)
        random.seed(7)
        outcome = loop.train(settings)
    assert (outcome.steps, outcome.interrupted, outcome.terminated) == (3, True, True)
    assert checkpoint.steps(tmp_path / "run") == [3]
    random.seed(8)
    resume(tmp_path / "run")
    assert content(tmp_path / "run") == content(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(("at", "kept"), [(1, []), (3, [2]), (4, [2, 3]), (8, [4, 6, 7])])
@pytest.mark.parametrize("where", ["sample", "_to_rollouts"])
def test_a_run_that_is_asked_to_end_while_it_draws_gives_up_the_batch(
    at: int, kept: list[int], where: str, settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SIGTERM in the middle of a batch, before its rewards drew random numbers or after that."""
    settings = replace(settings, eval_every=0, keep_checkpoints=3)
    start(replace(settings, out=str(tmp_path / "whole")))
    whole, count = getattr(rollouts, where), iter(range(1, 100))

    def asked(*args: Any, **keywords: Any) -> Any:
        drawn = whole(*args, **keywords)
        if next(count) == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return drawn

    with monkeypatch.context() as patch:
        patch.setattr(rollouts, where, asked)
        random.seed(7)
        outcome = loop.train(settings)
    assert (outcome.steps, outcome.interrupted, outcome.terminated) == (at - 1, True, True)
    assert checkpoint.steps(tmp_path / "run") == kept
    random.seed(7 if at == 1 else 8)
    resume(tmp_path / "run")
    assert content(tmp_path / "run") == content(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(("at", "kept"), [(1, []), (2, [2, 3]), (3, [4, 6]), (4, [6, 8])])
def test_a_run_that_is_asked_to_end_while_it_is_evaluated_makes_the_evaluation_when_it_goes_on(
    at: int, kept: list[int], settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SIGTERM in the evaluation before the first step, after step 3, step 6 or the last, step 8."""
    start(replace(settings, out=str(tmp_path / "whole")))
    whole, count = loop.evaluate, iter(range(1, 100))

    def asked(*args: Any) -> Any:
        found = whole(*args)
        if next(count) == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(loop, "evaluate", asked)
        random.seed(7)
        outcome = loop.train(settings)
    assert (outcome.steps, outcome.interrupted, outcome.terminated) == (min(3 * (at - 1), 8), True, True)
    assert checkpoint.steps(tmp_path / "run") == kept
    assert len(rows(tmp_path / "run", "evals")) == at - 1
    random.seed(7 if at == 1 else 8)
    resume(tmp_path / "run")
    assert content(tmp_path / "run") == content(tmp_path / "whole")


@pytest.mark.slow
def test_a_finished_run_is_extended_where_its_schedule_allows_it(settings: TrainConfig, tmp_path: Path) -> None:
    constant = replace(settings, schedule="constant", eval_every=4, steps=12)
    start(replace(constant, out=str(tmp_path / "whole")))
    start(replace(constant, steps=8))
    with pytest.raises(UserError, match=r"steps\), so there is nothing to resume"):
        resume(tmp_path / "run")
    with pytest.raises(UserError, match=r"these differ: steps 6 \(the run: 8\)"):
        resume(tmp_path / "run", {"steps": 6})
    random.seed(0)  # the checkpoint of step 8 knows better
    assert resume(tmp_path / "run", {"steps": 12}).steps == 12
    assert content(tmp_path / "run") == content(tmp_path / "whole")
    with pytest.raises(UserError, match="is finished"):
        resume(tmp_path / "run", {"steps": 12})
    start(replace(settings, out=str(tmp_path / "linear")))
    with pytest.raises(UserError, match=r"cannot be extended from 8 to 12 steps: with its schedule \(linear\)"):
        resume(tmp_path / "linear", {"steps": 12})


def test_changed_bytes_of_a_checkpoint_are_noticed(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stopped_at(monkeypatch, settings, 6)
    file = tmp_path / "run" / "checkpoints" / "step-000004" / "model" / "model.safetensors"
    bytes_ = bytearray(file.read_bytes())
    bytes_[-5] ^= 1
    file.write_bytes(bytes_)
    with pytest.raises(UserError, match=r"model.safetensors has changed since it was written; delete this folder"):
        resume(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("file", ["model/model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_checkpoint_cut_in_half_is_named(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str
) -> None:
    stopped_at(monkeypatch, settings, 6)
    cut = tmp_path / "run" / "checkpoints" / "step-000004" / file
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    before = (tmp_path / "run" / "steps.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"step-000004.* (cut|damaged).*delete this folder to resume from"):
        resume(tmp_path / "run")
    assert (tmp_path / "run" / "steps.jsonl").read_bytes() == before
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-000004")
    assert resume(tmp_path / "run").steps == 8


@pytest.mark.slow
def test_checkpoints_of_the_first_formats_are_resumed(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They had no hashes of the files; the first had no format number, and called the totals `tally`."""
    start(replace(settings, out=str(tmp_path / "whole")))
    stopped_at(monkeypatch, settings, 6)
    path = tmp_path / "run" / "checkpoints" / "step-000004" / "state.json"
    state = json.loads(path.read_text())
    assert state.pop("format") == 3
    state["files"] = {name: size for name, (size, _) in state["files"].items()}
    path.write_text(json.dumps({**{k: v for k, v in state.items() if k != "totals"}, "tally": state["totals"]}))
    assert checkpoint.read_state(path.parent).totals.rewards == state["totals"]["rewards"]
    resume(tmp_path / "run")
    assert content(tmp_path / "run") == content(tmp_path / "whole")
    path.write_text(json.dumps({**state, "format": 4}))
    with pytest.raises(UserError, match="has format 4, and this grposcope reads formats up to 3; upgrade"):
        checkpoint.read_state(path.parent)


def test_what_cannot_be_resumed(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(UserError, match="holds no run"):
        resume(tmp_path / "nothing")
    stopped_at(monkeypatch, settings, 4)
    with pytest.raises(UserError, match=r"these differ: lr 0.5 \(the run: 0.01\), seed 3 \(the run: 0\)"):
        resume(run, {"lr": 0.5, "seed": 3, "group": 4})
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text.replace('"format": 2', '"format": 3'))
    with pytest.raises(
        UserError,
        match="has record format 3, and this grposcope reads formats up to 2; upgrade",
    ):
        resume(run)
    (run / "config.json").write_text(text[: len(text) // 2])
    with pytest.raises(UserError, match="cannot be read"):
        resume(run)
    (run / "config.json").write_text(text)
    resume(run)
    with pytest.raises(UserError, match=r"is finished .* start a new run from"):
        resume(run)


def test_too_little_room_is_said_before_anything_starts(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(UserError, match=r"need up to .* GB .* choose another folder, a smaller keep_checkpoints"):
        start(settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_disk_that_fills_up_ends_the_run_and_it_resumes(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start(replace(settings, out=str(tmp_path / "whole")))
    whole, count = checkpoint.save_file, iter(range(10))

    def full(*args: Any, **kwargs: Any) -> None:
        if next(count) == 1:
            raise OSError(28, "No space left on device")
        whole(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", full)
        with pytest.raises(UserError, match=r"cannot write the checkpoint .*step-000004: No space left.*then resume"):
            start(settings)
    assert [f.name for f in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000002"]
    random.seed(7)
    resume(tmp_path / "run")
    assert content(tmp_path / "run") == content(tmp_path / "whole")


def phase(run: Path) -> dict[str, Any]:
    """What the run says it is doing; empty before it has begun."""
    try:
        return json.loads((run / "phase.json").read_text())
    except (OSError, ValueError):
        return {}


def session(config: TrainConfig) -> None:
    """What a killed process runs: a new run, or the rest of one; nothing if it was killed when all was written."""
    torch.set_num_threads(1)
    run = Path(config.out or "")
    if (run / "summary.json").exists():
        return
    if (run / "config.json").exists():
        random.seed(7)
        resume(run)
    else:
        start(config)


@pytest.mark.slow
def test_killed_at_random_moments_a_run_ends_as_if_it_had_not_been(settings: TrainConfig, tmp_path: Path) -> None:
    """At least 20 kills at random moments; every line ever seen in the record is in the final one.

    One kill in four comes while the process starts, the others somewhere in the twelve steps after
    the session's first, so that it often gets past a checkpoint and often does not. Steps are counted,
    not seconds: how long a session takes to reach its first step depends on the machine.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["grposcope.lab.train.loop", "pyarrow.parquet", "torch._dynamo"])
    long = replace(settings, steps=60, checkpoint_every=3, prompts=4)
    undisturbed = context.Process(target=session, args=(replace(long, out=str(tmp_path / "whole")),))
    undisturbed.start()
    undisturbed.join()
    expected = content(tmp_path / "whole")
    pace = json.loads((tmp_path / "whole" / "summary.json").read_text())["seconds"] / long.steps
    rng, kills, seen = random.Random(0), 0, set()
    reported = {json.dumps([r["step"], r["reward"], r["grad_norm"]]) for r in expected["steps"]}
    for attempt in range(10):
        run = tmp_path / f"run{attempt}"
        exitcode = None
        while exitcode is None and kills < 100:
            process = context.Process(target=session, args=(replace(long, out=str(run)),))
            process.start()
            if rng.random() > 0.25:
                first = None
                further = rng.randrange(12)
                while process.exitcode is None and (first is None or phase(run).get("step", 0) < first + further):
                    if phase(run).get("pid") == process.pid:
                        first = phase(run)["step"] if first is None else first
                    time.sleep(0.002)
            process.join(rng.uniform(0, pace))
            exitcode = process.exitcode
            if exitcode is None:
                process.kill()
                process.join()
                kills += 1
                print(f"kill {kills}: {phase(run)}")
                if (run / "steps.jsonl").exists():
                    written = [json.loads(line) for line in (run / "steps.jsonl").read_text().split("\n")[:-1]]
                    seen |= {json.dumps([r["step"], r["reward"], r["grad_norm"]]) for r in written}
        assert exitcode == 0
        assert content(run) == expected
        if kills >= 20:
            break
    assert kills >= 20
    assert seen <= reported


def test_a_resume_without_a_name_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As an unset variable of a shell gives it: a new training would be no answer."""
    from grposcope import cli

    assert cli.main(["train", "--resume", "", "--out", str(tmp_path / "run")]) == 2
    assert "--resume names no folder" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
