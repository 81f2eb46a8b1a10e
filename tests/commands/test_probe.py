"""`grposcope probe` as a user meets it: the summary, the JSON, the files, and what it says of bad input."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from grposcope.commands import probe
from grposcope.errors import UserError
from grposcope.geometry import passes, spectrum
from grposcope.objectives import recipes
from grposcope.ustat import gram_file

SMALL = ["--prompts", "4", "--group", "4", "--threads", "1"]


def arguments(*given: str) -> argparse.Namespace:
    top = argparse.ArgumentParser()
    probe.add(top.add_subparsers())
    return top.parse_args(["probe", *given])


def test_summary_json_and_files(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "probe"
    given = arguments(
        *SMALL, "--sweep-group", "2,4", "--also", "rloo", "--controls", "--tier", "exact", "--out", str(out)
    )
    assert given.run(given) == 0
    text = capsys.readouterr().out
    content = json.loads(text.splitlines()[-1])
    assert content["prompts"] == content["group"] == 4
    assert content["self_check"] < 1e-4
    assert {"grpo", "rloo", "grpo, G=2", "rloo, G=4", "steps", "nll"} <= content["settings"].keys()
    for one in content["settings"].values():
        assert set(one["layer"]) == set(spectrum.NAMES)
    for word in ("self-check", "stable rank by block", "two classes", "dead groups", "baseline", "credit"):
        assert word in text
    kept = gram_file.read(out, layers=True)
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


def test_a_checkpoint_of_a_run_brings_its_task(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from grposcope import policies

    policy = policies.load("tiny")
    policy.model.save_pretrained(tmp_path / "model")
    policy.tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "config.json").write_text(json.dumps({"settings": {"task": "arithmetic:steps=3"}}))
    given = arguments("--model", str(tmp_path), *SMALL, "--checkpointing", "--recipe", "dapo")
    assert given.run(given) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["task"] == "arithmetic:steps=3"


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
        (["--device", "cuda:9"], "use --device cpu"),
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


def test_ctrl_c_keeps_what_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = passes.Passes.scores

    def stop(self: passes.Passes, score: object) -> None:
        if len(self.layers) == 3:
            raise KeyboardInterrupt
        seen(self, score)  # type: ignore[arg-type]

    monkeypatch.setattr(passes.Passes, "scores", stop)
    given = arguments(*SMALL, "--out", str(tmp_path / "p"))
    assert given.run(given) == 130
    assert "interrupted: 3 parameters" in capsys.readouterr().out
    assert not (tmp_path / "p" / "gram.npz").exists()
    assert len(gram_file.read(tmp_path / "p" / "partial", layers=True).layer_names) == 3
    assert json.loads((tmp_path / "p" / "probe.json").read_text())["complete"] is False


def test_recipes_offered_are_those_there_are() -> None:
    assert set(probe.RECIPES) == set(recipes.ALL)
