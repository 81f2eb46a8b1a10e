"""`grposcope evaluate`: what it prints, what it refuses in one line, and what else opens its folder."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import pytest
from asked import asked

from grposcope.cli import main
from grposcope.instruments.evaluation import command
from grposcope.instruments.evaluation import record as evaluation
from grposcope.lab.policies import load

QUICK = ("--task", "arithmetic", "--limit", "6", "--samples", "2")


def call(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    status = main(list(map(str, words)))
    out, err = capsys.readouterr()
    return status, out, err


def test_two_models_are_compared_and_the_folder_is_opened_by_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(Path(load("tiny").model.config._name_or_path), copy)
    log = tmp_path / "logs" / "log.json"
    status, document = asked("evaluate", "tiny", copy, *QUICK, "--out", tmp_path / "e", "--inspect", log)
    assert status == 0
    out = capsys.readouterr().out
    assert [score["arm"] for score in document["scores"]] == ["tiny", "copy"]
    assert document["differences"][0]["value"] == 0  # the same weights get the same random numbers
    assert document["differences"][0]["adjusted"] == 1
    assert "with 6 problems, a difference of less than" in out
    assert (tmp_path / "e" / "page.html").stat().st_size > 100_000
    logs = [json.loads(Path(name).read_text()) for name in document["inspect"]]
    assert [one["eval"]["model"] for one in logs] == ["grposcope/tiny", f"grposcope/{copy}"]
    status, out, _ = call(capsys, "report", tmp_path / "e", "--json")
    assert status == 0
    assert json.loads(out)["sections"]["headline"]["scores"] == document["scores"]


def test_the_same_command_shows_the_folder_again(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    first = call(capsys, "evaluate", "tiny", *QUICK)[1]
    (folder,) = (tmp_path / "evaluations").iterdir()
    rows = (folder / evaluation.ROWS).read_bytes()
    again = call(capsys, "evaluate", "tiny", *QUICK, "--k", "2")[1]
    assert (folder / evaluation.ROWS).read_bytes() == rows
    assert "pass@1" in first
    assert "pass@1" not in again.splitlines()[0]
    call(capsys, "evaluate", "tiny", *QUICK, "--seed", "1")
    assert len(list((tmp_path / "evaluations").iterdir())) == 2


def test_seeds_make_an_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        model = load("tiny")
        next(model.model.parameters()).data.mul_(1 + 0.2 * seed)
        model.model.save_pretrained(tmp_path / f"s{seed}")
        model.tokenizer.save_pretrained(tmp_path / f"s{seed}")
    arm = f"trained={tmp_path / 's0'},{tmp_path / 's1'}"
    status, document = asked("evaluate", "tiny", "--arm", arm, *QUICK, "--out", tmp_path / "e")
    assert status == 0
    assert [(score["arm"], score["pass@1"]["trainings"]) for score in document["scores"]] == [
        ("tiny", 1),
        ("trained", 2),
    ]
    assert (document["differences"][0]["first"], document["differences"][0]["second"]) == ("tiny", "trained")


BAD = [
    (["runs/not/there", "--task", "arithmetic"], "no model in runs/not/there: a model folder holds config.json"),
    (["runs/gone", "--task", "arithmetic"], "cannot load model 'runs/gone'"),
    (["./none", "--task", "arithmetic"], "no model in ./none: a model folder holds config.json"),
    (["tiny"], "--task is missing"),
    (["--task", "arithmetic"], "name a model"),
    (["tiny", "tiny", "--task", "arithmetic"], "given twice"),
    (["tiny", "--task", "arithmetic", "--samples", "4", "--k", "8"], "--k 8 is more than --samples 4"),
    (["tiny", "--task", "arithmetic", "--k", "0"], "--k 0"),
    (["tiny", "--task", "arithmetic", "--k", "one"], "write whole numbers such as 1,4"),
    (["tiny", "--task", "arithmetic", "--samples", "0"], "--samples 0 must be 1 or more"),
    (["tiny", "--task", "arithmetic", "--temperature", "-1"], "--temperature -1.0 must be 0 or more"),
    (["tiny", "--task", "arithmetic", "--temperature", "nan"], "--temperature nan must be 0 or more"),
    (["tiny", "--task", "arithmetic", "--temperature", "0"], "the same completion each time"),
    (["tiny", "--task", "arithmetik"], "did you mean arithmetic?"),
    (["--arm", "x", "--task", "arithmetic"], "--arm x: write NAME=MODEL"),
    (["tiny", "--arm", "tiny=tiny", "--task", "arithmetic"], "this name is taken"),
    (["--arm", "x=tiny,tiny", "--task", "arithmetic"], "a different model for each seed"),
    (["tiny", "--task", "arithmetic", "--reward", "a:b"], "has its own reward"),
    (["tiny", "--task", "benchmarks:bare.jsonl"], "none of its 2 rows can be graded (no answer)"),
    (["tiny", "--task", "jsonl:own.jsonl"], "no 'answer' to grade by"),
    (["tiny", "--task", "benchmarks:here.jsonl", "--split", "train"], "is for evaluation"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_answered_in_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare.jsonl").write_text('{"problem": "1+1", "answer": ""}\n{"problem": "1+2", "answer": null}\n')
    (tmp_path / "here.jsonl").write_text('{"problem": "1+1", "answer": "2"}\n')
    (tmp_path / "own.jsonl").write_text('{"prompt": "1+1"}\n')
    status, _, err = call(capsys, "evaluate", *words)
    assert status == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "evaluations").exists()


def test_a_run_that_was_trained_with_another_reward_is_told(tmp_path: Path) -> None:
    config = {"format": 1, "settings": {"task": "arithmetic", "reward": "mine.py:pays"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    own = [str(tmp_path), "tiny"]
    (line,) = command._graded_otherwise(argparse.Namespace(reward=None), own)
    assert line.endswith("--reward mine.py:pays grades by that")
    assert not command._graded_otherwise(argparse.Namespace(reward="mine.py:pays"), own)


def test_a_folder_with_an_evaluation_of_another_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(capsys, "evaluate", "tiny", *QUICK, "--out", tmp_path / "e")
    path = tmp_path / "e" / evaluation.ROWS
    path.write_bytes(path.read_bytes()[:300])
    for words in (("smaller", *QUICK), ("tiny", *QUICK, "--temperature", "0.5")):
        if words[0] == "smaller":
            shutil.copytree(Path(load("tiny").model.config._name_or_path), tmp_path / "smaller", dirs_exist_ok=True)
            words = (str(tmp_path / "smaller"), *words[1:])
        status, _, err = call(capsys, "evaluate", *words, "--out", tmp_path / "e")
        assert status == 2
        assert "holds another evaluation" in err
        assert len([line for line in err.splitlines() if "error" in line]) == 1
