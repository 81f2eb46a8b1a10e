"""Kinds that people report: what is named first, what is advised, and that a clean twin is named nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_log import read_raw
from true_sentences import untrue

from grposcope.core.finding import Finding
from grposcope.faults.judge import diagnose
from grposcope.instruments.diagnosis import answer, screen
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read

N = 160
NAN = float("nan")
NAMES = {
    "reward": "reward", "reward_std": "reward_std", "kl": "kl", "entropy": "entropy", "grad_norm": "grad_norm",
    "loss": "loss", "length": "completions/mean_length", "length_min": "completions/min_length",
    "length_max": "completions/max_length", "truncated": "completions/clipped_ratio",
    "dead_fraction": "frac_reward_zero_std", "lr": "learning_rate",
}  # fmt: skip

Row = dict[str, Any]


def rows(seed: int, change: Callable[[int, Row], None] = lambda k, row: None, n: int = N) -> list[Row]:
    """Rows of a run that goes well, as TRL logs them, each changed in place."""
    rng, made = np.random.default_rng(seed), []
    for k in range(n):
        length = 300 * (1 + 0.04 * rng.normal())
        row = {
            "step": k + 1, "loss": 0.01 * rng.normal(), "grad_norm": 0.4 * np.exp(0.15 * rng.normal()),
            "learning_rate": 1e-6 * (1 - k / (2 * n)), "reward": 0.3 + 0.3 * k / n + 0.03 * rng.normal(),
            "reward_std": 0.35 * np.exp(0.1 * rng.normal()), "frac_reward_zero_std": abs(0.1 + 0.03 * rng.normal()),
            "kl": (0.001 + 0.0002 * k) * np.exp(0.1 * rng.normal()), "entropy": 0.5 * np.exp(0.04 * rng.normal()),
            "completions/mean_length": length, "completions/min_length": 0.4 * length,
            "completions/max_length": 2.2 * length, "completions/clipped_ratio": abs(0.02 + 0.01 * rng.normal()),
        }  # fmt: skip
        change(k, row)
        made.append(row)
    return made


def log(path: Path, made: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def present(path: Path) -> list[Finding]:
    return [finding for finding in diagnose(read(path)) if finding.present]


def false_claims(path: Path, names: Mapping[str, str] = NAMES) -> list[str]:
    """The claims of the whole screen of a log that are not true of its rows. names: of its columns."""
    run = read(path)
    findings = diagnose(run)
    shown = screen.text(run, verdict(run, findings), findings, answer.of_run(run, findings), "", 2000)
    return [claim for claim in untrue(shown, read_raw(path, "step", dict(names))) if path.name not in claim]


def lost_for_good(k: int, row: Row) -> None:
    if k >= 120:
        row.update(reward=0.0, reward_std=0.0, frac_reward_zero_std=1.0, learning_rate=0.0, loss=0.0)
        row.update(kl=NAN, grad_norm=NAN)


def with_the_policy(k: int, row: Row) -> None:
    if k >= 100:
        row.update(reward=NAN, kl=NAN, entropy=NAN)


def of_the_reward(k: int, row: Row) -> None:
    if k in (40, 41, 90):
        row["reward"] = NAN


def over_no_token(k: int, row: Row) -> None:
    if k % 13 == 5 or k == 60:
        row["kl"] = NAN


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (lost_for_good, "the log-probabilities of that step were not finite"),
        (with_the_policy, "look at the policy before the reward function"),
        (of_the_reward, "make the reward function return a finite number"),
        (over_no_token, "count the tokens trained on"),
    ],
)
def test_what_was_not_finite_first(tmp_path: Path, change: Callable[[int, Row], None], remedy: str) -> None:
    """Whatever follows from it stands behind it, a learning rate that the log gives as 0 as well."""
    first = present(log(tmp_path / "log.jsonl", rows(0, change)))[0]
    assert (first.fault, first.remedy[: len(remedy)]) == ("non-finite", remedy)


def test_a_reward_that_is_lost_every_ten_steps(tmp_path: Path) -> None:
    for seed in range(4):

        def change(k: int, row: Row) -> None:
            if k and k % 10 == 0:
                row.update({"reward": 0.01, "completions/mean_length": 1000.0})

        path = log(tmp_path / f"{seed}.jsonl", rows(seed, change))
        first = present(path)[0]
        assert (first.fault, first.grade) == ("outage", "warning")
        assert first.brief.endswith("on 15 rows, every 10")
        assert "sleep" in first.remedy
        assert [finding.fault for finding in present(path)] == ["outage"]
        assert false_claims(path) == []


def test_steps_of_another_policy_after_a_resume(tmp_path: Path) -> None:
    """No fall of the reward is told beside them, and nobody is told to lower the learning rate."""

    def change(k: int, row: Row) -> None:
        lost = 80 <= k < 85
        row["sampling/sampling_logp_difference/mean"] = (0.4 if lost else 0.012) * (1 + 0.01 * (k % 7))
        if lost:
            row["reward"] = 0.1

    path = log(tmp_path / "log.jsonl", rows(1, change))
    assert [finding.fault for finding in present(path)] == ["outage"]
    assert present(path)[0].remedy.startswith("compare a checksum of the sampler's weights")
    assert false_claims(path) == []


def test_a_grader_that_was_down_for_some_steps(tmp_path: Path) -> None:
    def change(k: int, row: Row) -> None:
        if 60 <= k < 64 or 100 <= k < 103:
            row["reward"] = 0.0

    path = log(tmp_path / "log.jsonl", rows(2, change))
    (first,) = present(path)
    assert (first.fault, first.grade) == ("outage", "warning")
    assert re.search(
        r"exactly that in all rows of the steps \d+ to \d+ and \d+ to \d+, as where nothing", first.because
    )
    assert first.remedy.startswith("look into the logs of the grader")
    assert false_claims(path) == []


def test_what_is_no_outage(tmp_path: Path) -> None:
    """Rows that are lost at no interval and with nothing else, and a run without any."""

    def change(k: int, row: Row) -> None:
        if k in (33, 50, 97):
            row["reward"] = 0.05

    for seed, changed in enumerate([change, lambda k, row: None]):
        found = present(log(tmp_path / f"{seed}.jsonl", rows(seed, changed)))
        assert "outage" not in {finding.fault for finding in found}


def test_lengths_that_are_the_width_of_the_batch(tmp_path: Path) -> None:
    def change(k: int, row: Row) -> None:
        width = float(300 + 37 * k % 90)
        row.update({f"completions/{which}_length": width for which in ("mean", "min", "max")})

    path = log(tmp_path / "log.jsonl", rows(2, change))
    assert present(path)[0].fault == "trained beyond the end"
    assert false_claims(path) == []
    assert present(log(tmp_path / "twin.jsonl", rows(2))) == []


def test_right_answers_that_are_hardly_ever_paid(tmp_path: Path) -> None:
    def parts(pays: float) -> Callable[[int, Row], None]:
        def change(k: int, row: Row) -> None:
            rng = np.random.default_rng(k)
            form = 0.2 + 0.7 * k / N + 0.02 * rng.normal()
            right = float(rng.random() < 0.25) / 16 if pays == 0 else pays * (1 + k / N) + 0.02 * rng.normal()
            row.update({"rewards/format_reward/mean": form, "rewards/accuracy_reward/mean": right})
            row["reward"] = form + right

        return change

    path = log(tmp_path / "log.jsonl", rows(3, parts(0)))
    assert present(path)[0].fault == "never paid"
    assert "accuracy_reward hardly ever pays" in present(path)[0].brief
    assert present(log(tmp_path / "twin.jsonl", rows(3, parts(0.2)))) == []


def test_right_answers_that_are_logged_beside_a_reward_that_rises(tmp_path: Path) -> None:
    def beside(level: float) -> Callable[[int, Row], None]:
        def change(k: int, row: Row) -> None:
            row["metrics/correct"] = level * (1 + k / N) + 0.01 * abs(np.random.default_rng(k).normal())

        return change

    assert present(log(tmp_path / "log.jsonl", rows(8, beside(0.0))))[0].fault == "never paid"
    assert present(log(tmp_path / "twin.jsonl", rows(8, beside(0.3)))) == []


def test_a_reward_that_pays_everything(tmp_path: Path) -> None:
    """Nothing is learned where all is paid alike from the first step on, and it is put to a wrong answer first."""

    def change(k: int, row: Row) -> None:
        row.update(reward=2.0, reward_std=0.0, frac_reward_zero_std=1.0, grad_norm=1e-4, kl=1e-5)

    first = present(log(tmp_path / "log.jsonl", rows(4, change)))[0]
    assert (first.fault, first.grade) == ("constant reward", "warning")
    assert "on a wrong one" in first.remedy


def test_an_entropy_that_grows_beside_a_gain_is_a_warning(tmp_path: Path) -> None:
    def change(k: int, row: Row) -> None:
        row["entropy"] *= 1 + 6 * k / N
        row["reward"] = 0.36 + 0.05 * k / N + 0.008 * np.random.default_rng(k).normal()

    first = present(log(tmp_path / "log.jsonl", rows(5, change)))[0]
    assert (first.fault, first.grade) == ("entropy explosion", "warning")


def test_metrics_with_the_ending_of_lightning(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    lines = ["epoch,step,train/reward_step,train/kl_step,train/entropy_step"]
    lines += [f"0,{row['step']},{row['reward']:.4f},{row['kl']:.5f},{row['entropy']:.4f}" for row in rows(6)]
    path.write_text("\n".join(lines))
    assert {"reward", "kl", "entropy"} <= read(path).table.keys()


def test_tinker_is_known_by_its_reward(tmp_path: Path) -> None:
    made = [
        {"step": row["step"], "env/all/reward/total": row["reward"], "optim/kl_sample_train_v1": 0.05 + row["kl"],
         "optim/entropy": row["entropy"]} for row in rows(7)
    ]  # fmt: skip
    run = read(log(tmp_path / "metrics.jsonl", made))
    assert run.meta.engine == "tinker"
    assert "mismatch/k1" in run.table


def test_rollouts_without_a_reward_are_not_wrong_answers(tmp_path: Path) -> None:
    """verl prints the console of Agent Lightning, whose counts say that no reward arrived."""
    path = tmp_path / "train.log"
    path.write_text(
        "".join(
            f"(TaskRunner pid=9) step:{k + 1} - training/reward:0.000 - training/n_rollouts:64 - "
            f"training/n_rollouts_w_trace:0 - training/n_rollouts_w_reward:0 - actor/grad_norm:0.000 - "
            f"actor/entropy:{0.4 + 0.01 * (k % 5):.3f}\n"
            for k in range(40)
        )
    )
    first = present(path)[0]
    assert (first.fault, first.brief) == ("failures as zeros", "every rollout failed or has no reward in all 40 steps")
    assert first.remedy.startswith("read the trace of one rollout")


FEW_PAID = (
    0, 0, 0.0016, 0.0008, 0, 0.0125, 0, 0.0086, 0.0133, 0.0047, 0.0547, 0.0773, 0.0789, 0.1094, 0.2, 0.2672, 0.1898,
    0.2313, 0.2297, 0.368, 0.4289, 0.3648, 0.4211, 0.4742, 0.4242, 0.6523, 0.607, 0.5398, 0.5344, 0.5555, 0.4883,
)  # fmt: skip
"""Mean rewards of a training of 256 rollouts a step that learns to 1 from few that are paid."""


def test_early_rows_of_a_sparse_reward_are_no_outage(tmp_path: Path) -> None:
    """Means of a few paid rollouts come and go, and completions shorten later on while the task is solved."""
    rng = np.random.default_rng(0)

    def change(k: int, row: Row) -> None:
        later = min(0.5 + 0.005 * (k - 31), 1.0) - (0.05 if k < 120 else 0.002) * float(rng.random())
        row["reward"] = FEW_PAID[k] if k < len(FEW_PAID) else later
        row["completions/mean_length"] = max(2.0, 18.0 - k)

    found = present(log(tmp_path / "log.jsonl", rows(0, change, 320)))
    assert "outage" not in {finding.fault for finding in found}
