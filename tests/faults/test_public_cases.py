"""Small inputs after public bug reports: the first fault that is named is the true cause.

They stand in ../shared/cases beside a checkout, and are no part of the project.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grposcope import cli

FOLDER = Path(__file__).parents[3] / "shared" / "cases"

LOGS = {
    "03-grad-norm-zero-reward-std-not.jsonl": "lost gradient",
    "04-all-exclamation-marks.jsonl": "degenerate output",
    "05-accuracy-lost-format-won.jsonl": "reward hacking",
    "06-format-to-zero-at-limit.jsonl": "unseen truncation",
    "07-full-finetune-lr-too-high.jsonl": "high learning rate",
    "08-grad-norm-spikes-late.jsonl": "unbounded ratio",
    "09-vlm-prompt-parity.jsonl": "inputs differ",
    "11-mask-removes-most.jsonl": "correction drops most",
    "12-kl-sign.log": "kl against its penalty",
    "13b-coef-0.1.jsonl": "kl against its penalty",
    "17-filter-runs-out.log": "filter runs out",
    "19-clip-ratio-says-zero.log": "unseen truncation",
    "21-resume-from-adapter.jsonl": "weights lost at a restart",
    "22-clip-higher-entropy.log": "entropy explosion",
    "23-norm-above-max-grad-norm.jsonl": "gradient spikes",
    "26-lora-lr.jsonl": "low learning rate",
    "29-mask-all-zero-log.jsonl": "no token trained on",
    "33-kl-hundred.log": "kl blow-up",
    "39-mlx-console.log": "never paid",
    "41-slime-zero.log": "never paid",
    "42-art-no-training.log": "skipped updates",
    "45-kl-huge-reward-zero.jsonl": "kl blow-up",
}
"""Log -> its cause."""

SETTINGS = {
    "08-train.py": "unbounded ratio",
    "17-run.sh --success-rate 0.003": "filter runs out",
    "19-run.sh": "room for sequences",
    "26-lora-lr.py": "low learning rate",
    "27-bf16-weights.sh": "coarse weights",
    "31-best-by-loss.yaml": "best by loss",
    "32-dapo-steps-per-generation.yaml": "accumulation not scaled",
    "44-nemo-normalize.yaml": "normalisation not read",
}
"""Settings, with flags -> their fault."""

ROLLOUTS = {
    "18-interleaved-prompts.jsonl --set num_generations=4 --set scale_rewards=group": "mixed prompts",
    "20-empty-rollout-with-reward.jsonl --set group=8": "empty completions paid",
    "21-resume-from-adapter.jsonl": "weights lost at a restart",
    "29-mask-all-zero.jsonl --set group=8": "no token trained on",
    "30-tool-output-trained.jsonl --set group=4": "tool output trained on",
}
"""Rollouts, with flags -> their fault."""

COMMANDS = [
    (f"{command} {what}", fault)
    for command, cases in (("diagnose", LOGS), ("lint", SETTINGS), ("verify", ROLLOUTS))
    for what, fault in cases.items()
]


def first(document: object) -> str:
    """The first fault in the order of the document that is present; empty without one."""
    if isinstance(document, dict):
        if document.get("status") == "present" and "fault" in document:
            return str(document["fault"])
        return next((name for value in document.values() if (name := first(value))), "")
    if isinstance(document, list):
        return next((name for value in document if (name := first(value))), "")
    return ""


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there: these inputs are no part of the project")
@pytest.mark.parametrize(("command", "fault"), COMMANDS)
def test_the_first_fault_named_is_the_cause(
    command: str, fault: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    cli.main([*command.split(), "--json"])
    assert first(json.loads(capsys.readouterr().out)) == fault


def settled_entropy(lines: list[str]) -> list[str]:
    """The rows in which the reward rises, with entropies of the first ten rows in turn."""
    entropies = [re.search(r"actor/entropy:[\d.]+", line) for line in lines[:10]]
    return [
        re.sub(r"actor/entropy:[\d.]+", entropies[row % 10][0], line)  # type: ignore[index]
        for row, line in enumerate(lines[:60])
    ]


def without_spikes(lines: list[str]) -> list[str]:
    """The rows with every gradient norm above 20 in place of which that of an ordinary row stands."""
    rows = [json.loads(line) for line in lines]
    ordinary = [row["grad_norm"] for row in rows if row["grad_norm"] < 20]
    return [
        json.dumps(row | {"grad_norm": ordinary[k % len(ordinary)] if row["grad_norm"] > 20 else row["grad_norm"]})
        for k, row in enumerate(rows)
    ]


def near_its_start(lines: list[str]) -> list[str]:
    """The rows with a thousandth of their KL."""
    return [re.sub(r"'kl': ([\d.]+)", lambda kl: f"'kl': {float(kl[1]) / 1000:.4g}", line) for line in lines]


def before_the_fall(lines: list[str]) -> list[str]:
    """The rows before the KL passes a tenth of a nat."""
    return lines[:60]


TWINS: dict[str, Callable[[list[str]], list[str]]] = {
    "22-clip-higher-entropy.log": settled_entropy,
    "23-norm-above-max-grad-norm.jsonl": without_spikes,
    "33-kl-hundred.log": near_its_start,
    "45-kl-huge-reward-zero.jsonl": before_the_fall,
}
"""Log -> what makes a sound one of it."""


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there: these inputs are no part of the project")
@pytest.mark.parametrize("name", TWINS)
def test_nothing_is_named_in_the_clean_twin(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    twin = tmp_path / name
    twin.write_text("\n".join(TWINS[name]((FOLDER / name).read_text().splitlines())) + "\n")
    cli.main(["diagnose", str(twin), "--json"])
    assert first(json.loads(capsys.readouterr().out)) == ""


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there: these inputs are no part of the project")
def test_a_frozen_sampler_is_named_first_without_its_first_weights(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A real training of half a minute; the weights that drew every rollout are not among its checkpoints."""
    command = [sys.executable, str(FOLDER / "real.py"), str(tmp_path / "run"), "frozen_sampler"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    cli.main(["verify", str(tmp_path / "run" / "grposcope"), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert first(document) == "weights never arrived"
    assert "step 4, or earlier ones" in json.dumps(document)
