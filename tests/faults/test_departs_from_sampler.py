"""Updates that go ever farther from the policy that drew their batch, while the reward stands still."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from raw_log import read_raw
from true_sentences import untrue

from grposcope.faults.judge import diagnose
from grposcope.instruments.diagnosis import answer, screen
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read

N = 120


def log(path: Path, seed: int, *, farther: float, reward: float, clipped: float) -> Path:
    """A log of verl: the KL to the sampler grows by a factor, the reward and the clipped share by a difference."""
    rng, t = np.random.default_rng(seed), np.linspace(0, 1, N)
    kl = 1e-6 * farther**t * np.exp(rng.normal(0, 0.3, N))
    score = 0.8 + reward * t + rng.normal(0, 0.01, N)
    share = 0.23 + clipped * t + rng.normal(0, 0.01, N)
    lines = [
        f"step:{k + 1} - actor/pg_loss:{rng.normal(0, 0.01):.4f} - actor/pg_clipfrac:{share[k]:.4f} - "
        f"actor/ppo_kl:{kl[k]:.3e} - actor/lr:1e-4 - critic/score/mean:{score[k]:.4f} - "
        f"critic/rewards/mean:{score[k]:.4f} - critic/advantages/mean:0.0"
        for k in range(N)
    ]
    (path / f"{seed}.log").write_text("\n".join(lines) + "\n")
    return path / f"{seed}.log"


def blamed(path: Path, seed: int, **course: float) -> bool:
    findings = diagnose(read(log(path, seed, **course)))
    return any(finding.present and finding.fault == "weights never arrived" for finding in findings)


def test_a_sampler_that_keeps_its_first_weights(tmp_path: Path) -> None:
    """Ten of ten, whether the reward is quite level or sinks a little; and it explains what follows from it."""
    assert all(blamed(tmp_path, seed, farther=1e4, reward=-0.004, clipped=0.22) for seed in range(10))
    first = next(finding for finding in diagnose(read(tmp_path / "0.log")) if finding.present)
    assert first.fault == "weights never arrived"
    assert "clip saturation" in first.explains


@pytest.mark.parametrize(
    "course",
    [
        {"farther": 1e4, "reward": 0.1, "clipped": 0.22},
        {"farther": 1e4, "reward": -0.3, "clipped": 0.22},
        {"farther": 1e4, "reward": 0.0, "clipped": 0.0},
        {"farther": 5.0, "reward": 0.0, "clipped": 0.22},
    ],
    ids=["it learns", "it falls, as with a rate that is too high", "nothing is clipped more", "hardly farther"],
)
def test_what_moves_otherwise_is_not_blamed_on_the_sampler(tmp_path: Path, course: dict[str, float]) -> None:
    assert not any(blamed(tmp_path, seed, **course) for seed in range(10))


def test_the_screen_is_true(tmp_path: Path) -> None:
    run = read(path := log(tmp_path, 1, farther=1e4, reward=0.0, clipped=0.22))
    findings = diagnose(run)
    shown = screen.text(run, verdict(run, findings), findings, answer.of_run(run, findings), "", 2000)
    rows = [dict(part.rsplit(":", 1) for part in line.split(" - ")) for line in path.read_text().splitlines()]
    flat = tmp_path / "flat.jsonl"
    flat.write_text("".join("{" + ", ".join(f'"{k}": {float(v)}' for k, v in row.items()) + "}\n" for row in rows))
    names = {"kl_old": "actor/ppo_kl", "clip_fraction": "actor/pg_clipfrac", "reward": "critic/score/mean",
             "loss": "actor/pg_loss", "lr": "actor/lr"}  # fmt: skip
    claims = [claim for claim in untrue(shown, read_raw(flat, "step", names)) if "ppo_kl" in claim]
    assert claims == []
