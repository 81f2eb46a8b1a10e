"""Small training runs on a random model, and the parts of their records that do not depend on time."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from grposcope.lab.policies import Policy
from grposcope.lab.train import loop
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train

REWARDS = """
import random

def letters(completions, **columns):
    return [sum(c.isalpha() for c in text) / max(len(text), 1) for text in completions]

def noisy(completions, **columns):
    return [reward + 0.1 * random.random() for reward in letters(completions)]

def equal(completions, **columns):
    return [1.0 for _ in completions]

def broken(completions, **columns):
    return [1 / 0 for text in completions]

def short(completions, **columns):
    return [1.0]

def leaves(completions, **columns):
    raise SystemExit(0)

def nan(completions, **columns):
    return [float("nan") if i == 2 else 0.0 for i, _ in enumerate(completions)]
"""


def config(policy: Policy, folder: Path, reward: str = "letters", **changes: Any) -> TrainConfig:
    """Settings of a run in `folder`/run that takes a second, of the model saved in `folder`/model."""
    policy.model.save_pretrained(folder / "model")
    policy.tokenizer.save_pretrained(folder / "model")
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"say {i}:"}) + "\n" for i in range(40)))
    settings: dict[str, Any] = {
        "model": str(folder / "model"),
        "task": f"jsonl:{folder / 'prompts.jsonl'}",
        "reward": f"{folder / 'rewards.py'}:{reward}",
        "out": str(folder / "run"),
        "prompts": 3,
        "group": 4,
        "max_tokens": 6,
        "lr": 1e-2,
    }
    return TrainConfig(**{**settings, **changes})


def start(config: TrainConfig) -> None:
    """Train with the same random numbers for rewards that draw some."""
    random.seed(7)
    train(config)


def stopped_at(monkeypatch: pytest.MonkeyPatch, config: TrainConfig, step: int) -> None:
    """Run until just before optimiser step `step`, then fail as a power cut would: nothing is tidied up."""
    update, count = loop.update, iter(range(1, 1000))

    def cut(*arguments: Any) -> Any:
        if next(count) == step:
            raise RuntimeError("power cut")
        return update(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", cut)
        with pytest.raises(RuntimeError, match="power cut"):
            start(config)


def rows(run: str | Path | None, name: str = "steps") -> list[dict[str, Any]]:
    """The rows of a file of the record."""
    return [json.loads(line) for line in (Path(run or "") / f"{name}.jsonl").read_text().splitlines()]


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without what depends on the speed of the machine."""
    return [{k: v for k, v in row.items() if "second" not in k and k != "time"} for row in rows]


def weights(run: str | Path | None) -> str:
    """A hash of the weights of the final model."""
    return hashlib.sha256((Path(run or "") / "model" / "model.safetensors").read_bytes()).hexdigest()
