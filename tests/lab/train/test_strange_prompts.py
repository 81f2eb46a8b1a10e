"""Prompts that a model cannot read: what is said of them before the first step, and what the shipped models were made
on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from grposcope.lab import policies
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.tasks.hidden_table import HiddenTable
from grposcope.lab.train import pretrain, setup
from grposcope.lab.train.config import TrainConfig


def prepared(folder: Path, model: str = "tiny") -> setup.Setup:
    """A run of this model on the prompts that `warnings` wrote."""
    (folder / "mine.py").write_text("def reward(completions, **columns):\n    return [0.0 for _ in completions]\n")
    task, reward = f"jsonl:{folder / 'mine.jsonl'}", f"{folder / 'mine.py'}:reward"
    return setup.prepare(TrainConfig(model=model, task=task, reward=reward, max_tokens=4))


def warnings(folder: Path, prompts: Sequence[str], model: str = "tiny") -> str:
    """What is said of a run of this model on these prompts before its first step."""
    (folder / "mine.jsonl").write_text("".join(json.dumps({"prompt": p, "answer": "1"}) + "\n" for p in prompts))
    return "\n".join(prepared(folder, model).warnings)


def test_english_prompts_of_tiny_are_told(tmp_path: Path) -> None:
    said = warnings(tmp_path, [*(f"{i}+1=" for i in range(20)), *(f"add {i}, 1=" for i in range(20))])
    prompts = [problem.prompt for problem in prepared(tmp_path).train_set]
    strange = sum("add" in prompt for prompt in prompts)
    assert f"{strange} of {len(prompts)} training prompts have characters that the model tiny never saw" in said
    assert "such as 'a', 'd', ' ', ',': it saw 0123456789+-= alone" in said
    assert "choose another model" in said


def test_prompts_that_a_model_knows_are_not_mentioned(tmp_path: Path) -> None:
    assert not warnings(tmp_path, [f"{i}+1-1=" for i in range(20)])
    policies.load("tiny").tokenizer.save_pretrained(tmp_path / "own")
    policies.load("tiny").model.save_pretrained(tmp_path / "own")
    assert not warnings(tmp_path, [f"add {i} and <unk>" for i in range(20)], str(tmp_path / "own"))


def test_unknown_text_of_any_tokenizer_is_told_of_a_bounded_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies.load("tiny").tokenizer.save_pretrained(tmp_path / "own")
    policies.load("tiny").model.save_pretrained(tmp_path / "own")
    monkeypatch.setattr(setup, "PROMPTS_LOOKED_AT", 5)
    said = warnings(tmp_path, [f"\u00fcber\t{i}" for i in range(20)], str(tmp_path / "own"))
    assert "5 of the first 5 training prompts have text that the tokenizer of" in said
    assert "maps to its unknown token, such as '\u00fc', '\\t': the model" in said


@pytest.mark.parametrize("name", ["tiny", "tables"])
def test_the_shipped_models_saw_what_is_said(name: str) -> None:
    tokens = pretrain._tokenizer()
    if name == "tiny":
        ids, _ = pretrain._worked(Arithmetic(3).problems("train")[:300], tokens, pretrain.LESSONS[1], 0)
    else:
        ids, _ = pretrain._episodes(HiddenTable(size=200), tokens, pretrain.TABLE_LESSON, 0)
    seen = set(tokens.convert_ids_to_tokens(ids.unique().tolist())) - {"<pad>", "<eos>"}
    assert seen == set(policies.TRAINED_ON[name])
