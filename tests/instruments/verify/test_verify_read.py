"""Rollouts as four engines write them, the command, and the function."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pipelines
import pytest
from pipelines import Pipeline

from grposcope import UserError, verify
from grposcope.cli import main
from grposcope.instruments.verify import read

PIPELINE = Pipeline(steps=2, prompts=4, group=4)


def lines(path: Path, rows: pipelines.Rows) -> Path:
    """The rows as JSONL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def claims(said: object) -> dict[str, str]:
    """Claim -> what became of it."""
    return {one["claim"]: one["status"] for one in said.document["claims"]}  # type: ignore[attr-defined]


def test_trl(tmp_path: Path) -> None:
    """Completions of two functions with weights: advantages are those of the settings, and those of others are not."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pipeline = Pipeline(steps=2, prompts=4, group=4, reward="two")
    rows = pipeline.rows()
    for step in (1, 2):
        part = [row for row in rows if row["step"] == step]
        table = {"step": [step] * len(part), "prompt": [row["prompt"] for row in part],
                 "completion": [row["completion"] for row in part],
                 **{name: [row["rewards"][name] for row in part] for name in ("right", "form")},
                 "advantage": [row["advantage"] for row in part]}  # fmt: skip
        path = tmp_path / "completions" / f"completions_{step:05d}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(table), path)
    said = claims(verify(tmp_path, {"num_generations": 4, "scale_rewards": "group", "reward_weights": [1.0, 0.5]}))
    assert said["advantages"] == "holds"
    assert said["groups"] == "cannot tell"  # which were formed by prompt, since TRL names none
    assert claims(verify(tmp_path))["advantages"] == "cannot tell"  # of settings that nothing states
    assert claims(verify(tmp_path, {"reward_weights": [0.5, 1.0], "scale_rewards": "group"}))["advantages"] == "broken"


def test_verl(tmp_path: Path) -> None:
    """A rollout_data_dir: groups by input, no advantages."""
    for step in (1, 2):
        rows = [{"input": row["prompt"], "output": row["completion"], "score": row["reward"], "step": step}
                for row in PIPELINE.rows() if row["step"] == step]  # fmt: skip
        lines(tmp_path / f"{step}.jsonl", rows)
    said = claims(verify(tmp_path, {"actor_rollout_ref.rollout.n": 4}))
    assert (said["groups"], said["advantages"]) == ("cannot tell", "cannot tell")


def test_prime_rl(tmp_path: Path) -> None:
    """Token exports: the prompt stands before the first trained token."""
    rows = [{"token_ids": row["prompt_ids"] + row["completion_ids"], "step": 1, "env_name": "math",
             "loss_mask": [False] * 3 + [True] * len(row["completion_ids"]),
             "inference_logprobs": [0.0] * 3 + row["sampling_logprobs"]} for row in PIPELINE.rows()]  # fmt: skip
    for step in (1, 2):
        lines(tmp_path / "token_exports" / f"step_{step}" / "rank_0.jsonl", rows)
    found = read.evidence(tmp_path / "token_exports").rows
    assert len(found) == 2 * len(rows)
    assert found[0].completion_ids is not None
    assert found[0].completion_ids.tolist() == PIPELINE.rows()[0]["completion_ids"]
    assert found[0].environment == "math"


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 0 and 1, and a first screen of at most 20 lines."""
    settings = ["--set", "num_generations=4", "--set", "scale_rewards=group", "--set", "ends=9"]
    good = lines(tmp_path / "good.jsonl", PIPELINE.rows())
    assert main(["verify", str(good), *settings]) == 0
    bad = lines(tmp_path / "bad.jsonl", pipelines.with_fault(PIPELINE, pipelines.other_sign, since=2))
    capsys.readouterr()
    assert main(["verify", str(bad), *settings]) == 1
    shown = capsys.readouterr().out
    assert "Reversed sign: " in shown
    assert "Since step 2" in shown
    assert len(shown.splitlines()) <= 20


def test_a_dash_is_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same claims as from the file, and no path of a file that is gone afterwards."""
    path = lines(tmp_path / "bad.jsonl", pipelines.with_fault(PIPELINE, pipelines.other_sign, since=2))
    said = []
    for place in (str(path), "-"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
        assert main(["verify", place, "--set", "num_generations=4", "--json"]) == 1
        said.append(json.loads(capsys.readouterr().out))
    assert said[1]["sentence"] == said[0]["sentence"]
    assert (said[0]["source"], said[1]["source"]) == (str(path), "standard input")
    assert "/tmp" not in json.dumps(said[1])
    for content, says in ((b" ", "is empty"), (b"\0\1", "standard input is not a text file")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert main(["verify", "-"]) == 2
        assert says in capsys.readouterr().err


def test_bad_input(tmp_path: Path) -> None:
    """One line that names file, line or setting."""
    for rows, words in (
        ([{"completion_ids": [1, 2], "mask": [1]}], "line 1: columns of one completion differ in length"),
        ([{"completion": "a", "reward": "good"}], "line 1: reward is good"),
    ):
        with pytest.raises(UserError, match=words):
            verify(lines(tmp_path / "bad.jsonl", rows))
    with pytest.raises(UserError, match="num_generations is x"):
        verify(lines(tmp_path / "one.jsonl", [{"completion": "a"}]), {"num_generations": "x"})
    with pytest.raises(UserError, match="there is no"):
        verify(tmp_path / "none.jsonl")
    assert verify(lines(tmp_path / "empty.jsonl", [])).word == "cannot tell"


def test_the_command_says_what_would_test_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights for rollouts with tokens, a reward function where none graded again, settings; a log without rollouts."""
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "good.jsonl", PIPELINE.rows())
    main(["verify", "good.jsonl"])
    expected = "grposcope verify good.jsonl --model CHECKPOINT CHECKPOINT --reward FILE.py:FUNCTION --config SCRIPT"
    assert f"to test more:\n  {expected}\n" in capsys.readouterr().out
    log = "".join(json.dumps({"step": step, "reward": 0.5}) + "\n" for step in range(1, 9))
    (tmp_path / "log.jsonl").write_text(log)
    main(["verify", "log.jsonl"])
    told = capsys.readouterr().out
    assert "there are no rollouts, and 0 of 14 claims" in told
    assert "grposcope verify log.jsonl --rollouts FOLDER --config SCRIPT\n" in told


def test_what_does_not_fit_is_said_and_the_rest_goes_on(tmp_path: Path) -> None:
    """Turns out of order, two trajectories under one id and an answer without a call: a clause each, four at most."""
    rows: list[dict[str, Any]] = [
        {"group": "a", "trajectory": "t1", "turn": 1, "prompt_ids": [1, 2, 3, 4], "completion_ids": [6], "reward": 1},
        {"group": "a", "trajectory": "t1", "turn": 0, "prompt_ids": [1, 2], "completion_ids": [3, 4], "reward": 0},
        *({"group": "b", "trajectory": f"t{n}", "turn": 0, "prompt_ids": [1], "completion_ids": [2 + i], "reward": i}
          for n in range(2, 7) for i in range(2)),
    ]  # fmt: skip
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read.evidence(tmp_path / "rollouts.jsonl")
    assert len(found.rows) == 11
    assert len(found.notes) == 6
    assert [own for own in found.used if "not in order" in own]
    assert found.used[-1] == "2 more notes of this kind"


@pytest.mark.parametrize("column", ["prompt", "completion"])
def test_a_text_that_is_ids_is_told_where_they_go(tmp_path: Path, column: str) -> None:
    (tmp_path / "rollouts.jsonl").write_text(json.dumps({"reward": 1, "completion": "a", column: [5, "b"]}) + "\n")
    with pytest.raises(UserError, match=rf"line 1: {column} is a list of something else .* as {column}_ids"):
        read.evidence(tmp_path / "rollouts.jsonl")
