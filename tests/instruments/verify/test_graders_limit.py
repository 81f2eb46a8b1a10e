"""A reward function that hangs when it is asked again: one line, and the rest of the claims."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grposcope import verify
from grposcope.cli import main
from grposcope.instruments.verify import graders
from grposcope.lab.tasks.limits import interruptible
from grposcope.signs.rollouts.evidence import UnansweredError

HANGS = """
import time

def reward(completions, **_):
    try:
        time.sleep(600)
    except Exception:
        time.sleep(600)
    return [0.0] * len(completions)
"""


def rows() -> list[dict[str, Any]]:
    return [{"step": 1, "group": k // 4, "prompt": f"p{k // 4}", "completion": f"answer {k}", "reward": float(k % 2)}
            for k in range(16)]  # fmt: skip


@pytest.mark.skipif(not interruptible(), reason="no time limits on this system")
def test_a_grader_that_hangs_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def hangs(prompts: Sequence[Any], completions: Sequence[Any]) -> list[float]:
        asked.append(len(completions))
        time.sleep(60)
        return [0.0] * len(completions)

    grade = graders.bounded(hangs, 0.2)
    for _ in range(3):
        with pytest.raises(UnansweredError, match=r"not answered within 0\.2 s for 2 rollouts"):
            grade(["p", "p"], ["a", "b"])
    assert asked == [2]


@pytest.mark.slow
@pytest.mark.skipif(not interruptible(), reason="no time limits on this system")
def test_verify_goes_on_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graders.bounded, "__defaults__", (0.3,))
    (tmp_path / "hanging.py").write_text(HANGS)
    (tmp_path / "rollouts.jsonl").write_text("".join(__import__("json").dumps(row) + "\n" for row in rows()))
    began = time.monotonic()
    status = main(["verify", str(tmp_path / "rollouts.jsonl"), "--reward", f"{tmp_path / 'hanging.py'}:reward", "--set",
                   "num_generations=4"])  # fmt: skip
    assert time.monotonic() - began < 30
    assert status == 0
    said = verify(rows(), {"num_generations": 4}, reward=lambda completions, **_: time.sleep(60))
    told = [finding["because"] for claim in said.document["claims"] for finding in claim["findings"]]
    assert any("The rollouts were not graded again: the reward function has not answered" in one for one in told)
