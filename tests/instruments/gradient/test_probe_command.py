"""`grposcope probe` as a user meets it: the summary, the JSON, the files, and what it says of bad input."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.cli import parser
from grposcope.commands import probe_model
from grposcope.core.errors import UserError
from grposcope.core.files import dumps
from grposcope.instruments.gradient import command as probe
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.gradient import spectrum
from grposcope.instruments.gradient.layers import LayerMeasurements, Measurement
from grposcope.instruments.gradient.probe_record import read_gram
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import advantages, recipes
from grposcope.lab.sampling import resumable_rollouts
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.base import grade
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.logs import read

SMALL = ["--prompts", "4", "--group", "4", "--threads", "1"]


def arguments(*given: str) -> argparse.Namespace:
    return parser(["probe"]).parse_args(["probe", *given])


def test_summary_json_and_files(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "probe"
    given = arguments(
        *SMALL, "--sweep-group", "2,4", "--also", "rloo", "--controls", "--tier", "exact", "--out", str(out)
    )
    assert given.run(given) == 0
    text = capsys.readouterr().out
    content = json.loads(dumps(given.document))
    assert content["prompts"] == content["group"] == 4
    assert content["self_check"] < 1e-4
    assert {"grpo", "rloo", "grpo, G=2", "rloo, G=4", "steps", "nll"} <= content["settings"].keys()
    for one in content["settings"].values():
        assert set(one["layer"]) == set(spectrum.NAMES)
    for word in ("Self-check", "stable_rank_by_block", "Two classes", "Dead groups", "Baseline", "credit"):
        assert word in text
    kept = read_gram(out, layers=True)
    assert kept.layers is not None
    np.testing.assert_allclose(kept.layers.sum(0), kept.gram, rtol=1e-9)
    assert kept.rewards.mean() == pytest.approx(content["solved"])
    whole = json.loads((out / "probe.json").read_text())
    assert whole["format"] == 1
    assert len(whole["baselines"]) == 4
    assert {layer["depth"] for layer in whole["layers"]} == {0, 1, 2, 3, None}
    lines = [json.loads(line) for line in (out / "tokens.jsonl").read_text().splitlines()]
    assert len(lines) == 16
    assert all(len(line["tokens"]) == len(line["mass"]) == len(line["net"]) for line in lines)
    again = arguments(*SMALL, "--out", str(out))
    with pytest.raises(UserError, match="not empty"):
        again.run(again)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run with a checkpoint, of another recipe and task than the defaults."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    train(TrainConfig(steps=2, prompts=2, group=2, recipe="dapo", task="arithmetic:steps=3,size=50", eval_problems=0,
                      checkpoint_every=1, rollouts_every=0, threads=1, out=str(folder)))  # fmt: skip
    return folder


def test_a_run_is_probed_as_it_was_trained_and_keeps_the_probe(run: Path, capsys: pytest.CaptureFixture) -> None:
    given = arguments("--model", str(run), *SMALL, "--checkpointing")
    assert given.run(given) == 0
    text = capsys.readouterr().out
    content = json.loads(dumps(given.document))
    assert (content["task"], content["recipe"], content["step"]) == ("arithmetic:steps=3,size=50", "dapo", 2)
    assert f"written to {run / 'probes' / 'step-000002'}; grposcope report {run} shows it" in text
    (kept,) = probes.of_run(read(run))
    assert kept.folder == run / "probes" / "step-000002"
    assert kept.step == 2
    with pytest.raises(UserError, match=r"step-000002 is not empty: this model was probed before.*another --out"):
        given.run(given)


@pytest.mark.slow
def test_continuations_are_drawn_for_a_probe(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Credit from continuations differs inside rollouts; drawn anew with the same seed it is the same."""
    kept = []
    for name in ("one", "two"):
        given = arguments(*SMALL, "--credit", "continuations:k=2,at=step", "--out", str(tmp_path / name))
        assert given.run(given) == 0
        capsys.readouterr()
        kept.append([json.loads(line) for line in (tmp_path / name / "tokens.jsonl").read_text().splitlines()])
    assert kept[0] == kept[1]
    assert any(len({abs(round(w, 12)) for w in weights if w}) > 1 for weights in (row["weight"] for row in kept[0]))
    given = arguments(*SMALL, "--credit", "tree", "--out", str(tmp_path / "three"))
    with pytest.raises(UserError, match="the leaves of a tree, which are not"):
        given.run(given)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["flag", "folder"])
def test_a_checkpoint_is_probed_at_its_step(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture, by: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("probes"))
    which = ["--model", str(copy), "--checkpoint", "1"]
    if by == "folder":
        which = ["--model", str(copy / "checkpoints" / "step-000001")]
    given = arguments(*which, *SMALL, "--recipe", "rloo")
    assert given.run(given) == 0
    content = json.loads(dumps(given.document))
    assert (content["step"], content["recipe"]) == (1, "rloo")
    assert (copy / "probes" / "step-000001" / "gram.npz").is_file()


def test_out_and_the_task_can_be_others(run: Path, tmp_path: Path) -> None:
    source = probe_model.find(str(run))
    given = arguments("--model", str(run), "--task", "arithmetic")
    source = dataclasses.replace(source, settings={**source.settings, "reward": "r.py:f", "max_tokens": 5})
    source.complete(given)
    assert (given.task, given.reward, given.max_tokens, given.temperature) == ("arithmetic", None, None, 1.0)
    assert probe._folder(str(tmp_path / "else"), source.place) == tmp_path / "else"


def test_the_advantage_is_that_of_the_run_unless_another_recipe_is_asked_for(run: Path) -> None:
    source = probe_model.find(str(run))
    source = dataclasses.replace(source, settings={**source.settings, "advantage": "leave_one_out"})
    given, other, own = (
        arguments("--model", str(run), *flags) for flags in ((), ("--recipe", "grpo"), ("--advantage", "none"))
    )
    for one in (given, other, own):
        source.complete(one)
    assert (given.advantage, other.advantage, own.advantage) == ("leave_one_out", None, "none")
    assert probe._objective(given).advantage is advantages.leave_one_out
    assert probe._objective(other) is recipes.GRPO


def test_models_that_a_run_does_not_have(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "summary.json").unlink()
    with pytest.raises(UserError, match=r"has not ended.*--checkpoint with one of 1"):
        probe_model.find(str(copy))
    with pytest.raises(UserError, match=r"step-000007 is not a complete checkpoint.*one of 1"):
        probe_model.find(str(run), 7)
    with pytest.raises(UserError, match="is already a checkpoint"):
        probe_model.find(str(run / "checkpoints" / "step-000001"), 1)
    with pytest.raises(UserError, match="--checkpoint 3 needs --model with the folder of a run"):
        probe_model.find("tiny", 3)
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(UserError, match="no checkpoints; finish it with grposcope train --resume"):
        probe_model.find(str(copy))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--group", "1"], "--group 2 or more"),
        (["--prompts", "0"], "at least 1"),
        (["--sweep-group", "2,x"], "whole numbers"),
        (["--sweep-group", "16"], "between 2 and --group 8"),
        (["--also", "grop"], "no such recipe"),
        (["--temperature", "0"], "above 0"),
        (["--model", "./nowhere"], "no model in ./nowhere"),
        (["--task", "arithmetik"], "did you mean arithmetic"),
        (["--device", "cuda:9"], "use device cpu"),
        (
            ["--task", "arithmetic:steps=9,largest=99,limit=9999", "--max-tokens", "2", *SMALL],
            "cannot tell: 4 groups of 4",
        ),
    ],
)
def test_bad_input_is_named_with_its_remedy(flags: list[str], words: str) -> None:
    given = arguments(*flags)
    with pytest.raises(UserError, match=words):
        given.run(given)


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = LayerMeasurements.keep_scores

    def stop(self: LayerMeasurements, found: Measurement) -> None:
        if len(self.layers) == 3:
            raise KeyboardInterrupt
        keep(self, found)

    monkeypatch.setattr(LayerMeasurements, "keep_scores", stop)
    given = arguments(*SMALL, "--out", str(tmp_path / "p"))
    assert given.run(given) == 130
    assert "interrupted: 3 weight matrices" in capsys.readouterr().out
    assert not (tmp_path / "p" / "gram.npz").exists()
    assert len(read_gram(tmp_path / "p" / "partial", layers=True).layer_names) == 3
    assert json.loads((tmp_path / "p" / "probe.json").read_text())["complete"] is False
    monkeypatch.setattr(LayerMeasurements, "keep_scores", keep)
    assert given.run(given) == 0  # the same command goes on, and nothing is left of the first try
    assert sorted(file.name for file in (tmp_path / "p").iterdir()) == ["gram.npz", "probe.json", "tokens.jsonl"]


@pytest.mark.slow
def test_a_probe_goes_on_with_the_rollouts_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after the first two of four prompts; what follows is what it would have been without the stop."""
    monkeypatch.setattr(resumable_rollouts, "PROMPTS", 2)
    whole, out = tmp_path / "whole", tmp_path / "stopped"
    given = arguments(*SMALL, "--out", str(whole))
    assert given.run(given) == 0
    real, calls = resumable_rollouts.collect, []

    def once(*words: Any, **settings: Any) -> Any:
        calls.append(words)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*words, **settings)

    monkeypatch.setattr(resumable_rollouts, "collect", once)
    given = arguments(*SMALL, "--out", str(out))
    with pytest.raises(KeyboardInterrupt):
        given.run(given)
    assert "rollouts drawn so far are kept" in capsys.readouterr().err
    assert resumable_rollouts.incomplete(out)
    other = arguments(*SMALL, "--out", str(out), "--temperature", "0.5")
    with pytest.raises(UserError, match=r"drawn with other settings: temperature 0.5 \(kept: 1.0\); use the same"):
        other.run(other)
    assert given.run(given) == 0
    assert len(calls) == 3
    assert sorted(file.name for file in out.iterdir()) == ["gram.npz", "probe.json", "tokens.jsonl"]
    np.testing.assert_allclose(read_gram(out).gram, read_gram(whole).gram, rtol=1e-6)
    assert (out / "tokens.jsonl").read_text().count("\n") == 16


@pytest.mark.slow
def test_stopped_while_the_first_rollouts_were_written(tmp_path: Path) -> None:
    kept = tmp_path / resumable_rollouts.FOLDER
    kept.mkdir()
    (kept / "000000.part").write_bytes(b"half")
    given = arguments(*SMALL, "--out", str(tmp_path))
    assert given.run(given) == 0
    assert not kept.exists()


def test_rollouts_drawn_in_parts_belong_to_their_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumable_rollouts, "PROMPTS", 3)
    policy, task = policies.load("tiny"), tasks.load("arithmetic")
    drawn = resumable_rollouts.draw(policy, task, recipes.GRPO, Sampling(task.max_tokens), (8, 2), seed=3)
    again = grade(task, [problem for problem in drawn.problems for _ in range(2)], list(drawn.texts))
    assert again == drawn.rollouts.rewards.flatten().tolist()
    assert 0 < sum(again) < 16


def test_damaged_rollouts_are_named(tmp_path: Path) -> None:
    kept = tmp_path / resumable_rollouts.FOLDER
    kept.mkdir()
    (kept / "000000.safetensors").write_bytes(b"cut")
    given = arguments(*SMALL, "--out", str(tmp_path))
    with pytest.raises(UserError, match=r"000000.safetensors cannot be read .*; delete .* to draw again"):
        given.run(given)
