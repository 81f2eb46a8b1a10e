"""`compare` says what the texts of the second run do and those of the first do not, on the same prompts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import written_texts
from asked import asked

from grposcope.core.rollouts import Rollout
from grposcope.maths import sign_flips
from grposcope.signs.texts.text_differences import FEW, between

SMALL = {"steps": 30, "prompts": 4, "problems": 40, "onset": 12}


def rows_of(name: str | None, seed: int) -> list[Rollout]:
    loophole = None if name is None else written_texts.LOOPHOLES[name]
    return written_texts.rollouts(loophole, seed, truth=False, **SMALL)


def written(path: Path, rows: list[Rollout]) -> Path:
    path.write_text("".join(
        json.dumps({"step": row.step, "group": row.group, "prompt": row.prompt, "completion": row.completion,
                    "reward": row.reward}) + "\n"
        for row in rows
    ))  # fmt: skip
    return path


def late(rows: list[Rollout]) -> dict[str, list[str]]:
    """Prompt -> the texts of its latest group, in plain Python."""
    groups: dict[str, list[Rollout]] = {}
    for row in rows:
        own = groups.setdefault(str(row.prompt), [])
        groups[str(row.prompt)] = [row] if own and own[0].group != row.group else [*own, row]
    return {prompt: [str(row.completion) for row in own] for prompt, own in groups.items()}


@pytest.mark.slow
def test_what_the_second_writes_and_the_first_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = rows_of(None, 3), rows_of("ends in zero", 4)
    status, document = asked("compare", written(tmp_path / "a.jsonl", first), written(tmp_path / "b.jsonl", second))
    assert status == 0
    out = " ".join(capsys.readouterr().out.split())
    own = document["texts"][0]
    told = own["differences"][0]
    assert told["feature"] == "ends in “0”"
    assert told["p"] < 0.01
    texts = late(first), late(second)
    prompts = texts[0].keys() & texts[1].keys()
    assert own["prompts"] == len(prompts) > 20
    for side, name in ((0, "first"), (1, "second")):
        shares = [np.mean([text.endswith("0") for text in texts[side][prompt]]) for prompt in prompts]
        assert told[name] == pytest.approx(np.mean(shares), abs=1e-5)
    assert f"% of the texts end in “0”, against 0%, on {len(prompts)} prompts that both have." in out
    assert "What its texts do otherwise" in out


@pytest.mark.slow
def test_honest_runs_of_other_seeds_do_not_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (written(tmp_path / f"{seed}.jsonl", rows_of(None, seed)) for seed in (3, 5))
    asked("compare", first, second)
    out = " ".join(capsys.readouterr().out.split())
    assert "their texts differ in no feature beyond noise, on " in out
    assert "What its texts do otherwise" not in out


@pytest.mark.slow
def test_few_common_prompts_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = [replace(row, prompt=f"Say, {row.prompt}") for row in rows_of(None, 4)]
    asked("compare", written(tmp_path / "a.jsonl", rows_of(None, 3)), written(tmp_path / "b.jsonl", others))
    out = " ".join(capsys.readouterr().out.split())
    assert f"their texts have 0 prompts in common; {FEW} are needed to compare what is written" in out


def test_logs_without_texts_are_not_mentioned() -> None:
    assert between([], rows_of(None, 3)) is None
    assert between(rows_of(None, 3), [Rollout(prompt="p")]) is None


def test_one_prompt_makes_no_difference() -> None:
    """A text that all of one prompt have and none of the other run is no habit: prompts are the units."""
    first, second = rows_of(None, 3), rows_of(None, 5)
    prompt = second[-1].prompt
    changed = [replace(row, completion="zebra") if row.prompt == prompt else row for row in second]
    found = between(first, changed)
    assert found is not None
    assert found.differences == ()


def test_the_size_of_sign_flips() -> None:
    """Any p of at most 5 % in about 5 % of data sets of exchangeable sides."""
    rng, hits = np.random.default_rng(1), 0
    for _ in range(300):
        sides = (rng.random((2, 30, 8, 60)) < rng.beta(1, 3, 60)).mean(2)
        _, p = sign_flips.flipped((sides[1] - sides[0]).astype(np.float32), 199, rng)
        hits += p.min() <= 0.05
    assert 0.02 <= hits / 300 <= 0.085


def test_z_of_sign_flips_by_hand() -> None:
    differences = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]], np.float32)
    z, p = sign_flips.flipped(differences, 99, np.random.default_rng(0))
    assert z.tolist() == [1.0, 0.0]
    assert p[0] > 0.2
    assert p[1] == 1.0
