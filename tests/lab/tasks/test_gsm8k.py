"""GSM8K from a folder, from one file and from a stand-in for the hub."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from grposcope.core.errors import UserError
from grposcope.lab.tasks.gsm8k import GSM8K

pytest.importorskip("math_verify", reason="grading needs math-verify")

ROW = {"question": "What is 600 + 480? ", "answer": "600 + 480 = <<600+480=1080>>1,080\n#### 1,080"}


def _write(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _rows(count: int) -> list[dict[str, str]]:
    return [{"question": f"{n} + 1?", "answer": f"easy\n#### {n + 1}"} for n in range(count)]


def test_a_folder_has_its_own_splits(tmp_path: Path) -> None:
    _write(tmp_path / "train.jsonl", [ROW, *_rows(2)])
    _write(tmp_path / "test.jsonl", _rows(1))
    task = GSM8K(str(tmp_path))
    train, heldout = task.problems("train"), task.problems("heldout")
    assert [p.id for p in train] == ["train-0", "train-1", "train-2"]
    assert [p.id for p in heldout] == ["test-0"]
    assert (train[0].prompt, train[0].answer) == ("What is 600 + 480?", "1080")
    assert task.reward(train[0], "600 and 480 makes 1,080.\n#### 1,080") == 1.0
    assert task.reward(train[0], "#### 1081") == 0.0


def test_one_file_is_split_by_a_hash(tmp_path: Path) -> None:
    task = GSM8K(str(_write(tmp_path / "all.jsonl", _rows(300))))
    train, heldout = task.problems("train"), task.problems("heldout")
    assert len(train) + len(heldout) == 300
    assert 15 < len(heldout) < 50
    assert not {p.prompt for p in train} & {p.prompt for p in heldout}


@pytest.mark.parametrize("answer", ["72", "#### ", "easy\n####"])
def test_an_answer_without_its_number_is_named(tmp_path: Path, answer: str) -> None:
    path = _write(tmp_path / "all.jsonl", [*_rows(2), {"question": "?", "answer": answer}])
    with pytest.raises(UserError, match=r"all\.jsonl, line 3: its 'answer' should end"):
        GSM8K(str(path)).problems("train")


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder or file"):
        GSM8K(str(tmp_path / "none"))
    _write(tmp_path / "train.jsonl", _rows(1))
    with pytest.raises(UserError, match=r"test\.jsonl: there is no such file"):
        GSM8K(str(tmp_path)).problems("heldout")


def test_the_hub_is_asked_for_the_right_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(*name: str, split: str) -> list[dict[str, str]]:
        asked.append((*name, split))
        return [ROW]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    task = GSM8K()
    assert [p.id for p in (*task.problems("train"), *task.problems("heldout"))] == ["train-0", "test-0"]
    task.problems("train")
    assert asked == [("openai/gsm8k", "main", "train"), ("openai/gsm8k", "main", "test")]


def test_offline_names_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*name: str, split: str) -> list[dict[str, str]]:
        raise ConnectionError("no route to host\nmore")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(UserError, match=r"no route to host\).*gsm8k:PATH") as caught:
        GSM8K().problems("train")
    assert "\n" not in str(caught.value)


def test_without_datasets_both_remedies_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install '.*\[hub\]'.*gsm8k:PATH"):
        GSM8K().problems("train")


def test_the_real_files(shared_data: Path) -> None:
    task = GSM8K(str(shared_data / "gsm8k"))
    train, heldout = task.problems("train"), task.problems("heldout")
    assert (len(train), len(heldout)) == (7473, 1319)
    assert not {p.prompt for p in train} & {p.prompt for p in heldout}
    assert all(p.answer.removeprefix("-").isdigit() for p in (*train, *heldout))
    assert task.reward(heldout[0], f"blah 3\n#### {heldout[0].answer}") == 1.0
