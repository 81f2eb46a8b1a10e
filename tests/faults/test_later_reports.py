"""Kinds reported later: what is named first, that its sentences are true, and that a clean twin is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_settings import FILTERED
from test_reported_kinds import N, Row, false_claims, log, present, rows

from grposcope.core.settings import Settings
from grposcope.faults.judge_settings import lint
from grposcope.faults.known_task import Known
from grposcope.instruments.lint.dialects import MS_SWIFT, NEMO_RL, TRL, VERL
from grposcope.logs import read


def named(path: Path) -> list[str]:
    return [finding.fault for finding in present(path)]


def drifts_anew(every: int) -> Callable[[int, Row], None]:
    """A KL that begins anew every so many steps while the reward goes on."""

    def change(k: int, row: Row) -> None:
        row["kl"] = (2e-4 + 4e-4 * (k % every)) * (1 + 0.02 * (k % 3))

    return change


def test_a_reference_that_is_renewed_at_each_resume(tmp_path: Path) -> None:
    """As in NeMo-RL #3722: no weights are lost, for the reward stays; a KL that goes on is left alone."""
    path = log(tmp_path / "a.jsonl", rows(0, drifts_anew(60)))
    first = present(path)[0]
    assert (first.fault, first.grade, first.onset) == ("reference moves along", "note", 61)
    assert "and again at 1 later step" in first.because
    assert "and the reward stays" in first.because
    assert false_claims(path) == []
    assert named(log(tmp_path / "b.jsonl", rows(0, drifts_anew(N)))) == []


def mismatch(grown: Callable[[int], float], rate: float = 1e-6) -> Callable[[int, Row], None]:
    rng = np.random.default_rng(5)

    def change(k: int, row: Row) -> None:
        row["sampling/sampling_logp_difference/mean"] = grown(k) * float(np.exp(0.05 * rng.normal()))
        row["learning_rate"] = rate

    return change


def slowly(k: int) -> float:
    """From one level to a hundred times it, over 25 rows."""
    return float(0.004 * (1 + 99 / (1 + np.exp(-(k - 110) / 6))))


def test_mismatch_that_grows_over_rows_is_no_jump(tmp_path: Path) -> None:
    first = present(log(tmp_path / "a.jsonl", rows(1, mismatch(slowly))))[0]
    assert first.fault == "sampler mismatch"
    assert "jumped" not in first.because
    path = log(tmp_path / "b.jsonl", rows(1, mismatch(lambda k: 0.004 if k < 110 else 0.02 + 0.02 * (k - 110))))
    assert present(path)[0].fault == "wrong weights at the sampler"


def test_mismatch_that_grows_while_no_weight_moves(tmp_path: Path) -> None:
    """As in open-instruct #1473, with a learning rate of 0: no lag can do it."""
    path = log(tmp_path / "a.jsonl", rows(2, mismatch(lambda k: 0.01 + 0.2 * (k / N) ** 1.5, rate=0.0)))
    finding = next(one for one in present(path) if one.fault == "inputs differ")
    assert "although the learning rate is 0 in every row" in finding.because
    assert "lag" not in finding.because


def test_evaluations_of_an_older_ms_swift_are_no_restarts(tmp_path: Path) -> None:
    """Their rows have a speed of their own beside the step of a row of training."""
    made = []
    for k, row in enumerate(rows(3)):
        told = {"global_step/max_steps": f"{row.pop('step')}/{N}", "elapsed_time": "5m", "memory(GiB)": 56.7}
        made.append({**row, **told, "train_speed(iter/s)": 0.016 + 1e-5 * k})
        if k % 30 == 29:
            made.append({"eval_reward": 0.4, **told, "train_speed(iter/s)": 0.012})
    run = read(log(tmp_path / "logging.jsonl", made))
    assert (run.meta.engine, run.steps, len(run.segments)) == ("ms-swift", N, 0)


def test_functions_that_differ_and_a_sum_that_does_not(tmp_path: Path) -> None:
    """As in AgenticArXiv-RL #76: a gate pays all the same, and no prompt is paid more than another."""
    rng = np.random.default_rng(6)

    def gated(k: int, row: Row) -> None:
        row.update({"rewards/form/mean": 0.5 + 0.03 * rng.normal(), "rewards/form/std": 0.4 + 0.02 * rng.normal()})
        row.update(reward=0.25, reward_std=0.0, frac_reward_zero_std=1.0, grad_norm=0.0, loss=0.0, kl=0.0)

    path = log(tmp_path / "a.jsonl", rows(4, gated))
    first = present(path)[0]
    assert first.fault == "constant reward"
    assert first.remedy.startswith("look at how the rewards of the functions become one")
    assert "prompt decides the reward" not in named(path)
    assert false_claims(path) == []


def test_a_form_without_weight_need_not_follow(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)

    def logged(name: str) -> Callable[[int, Row], None]:
        def change(k: int, row: Row) -> None:
            row.update({"rewards/task/mean": row["reward"], f"rewards/{name}/mean": 0.5 + 0.02 * rng.normal()})

        return change

    assert named(log(tmp_path / "a.jsonl", rows(5, logged("format_reward")))) == []
    assert named(log(tmp_path / "b.jsonl", rows(5, logged("accuracy_reward")))) == ["reward hacking"]


def test_a_fall_of_the_reward_is_named_where_it_is_the_outcome(tmp_path: Path) -> None:
    """Late swings about a lower level, as in Rex-Omni #53: failing, and so with a fault."""
    rng = np.random.default_rng(8)
    noise = 0.0

    def swings(k: int, row: Row) -> None:
        nonlocal noise
        late = 1 / (1 + np.exp(-(k - 110) / 6))
        noise = 0.4 * noise + 0.09 * rng.normal()
        row["reward"] = 0.3 + 0.35 * (1 - np.exp(-k / 50)) - 0.22 * late + late * noise + 0.02 * rng.normal()

    path = log(tmp_path / "a.jsonl", rows(6, swings))
    assert "reward decline" in named(path)


def test_tools_that_are_never_called(tmp_path: Path) -> None:
    """As in TRL #5366; where the reward rises all the same, nothing is said."""

    def flat(k: int, row: Row) -> None:
        row.update({"tools/call_frequency": 0.0, "reward": 0.13 + 0.01 * np.sin(k)})

    path = log(tmp_path / "a.jsonl", rows(7, flat))
    first = present(path)[0]
    assert (first.fault, first.grade) == ("no calls", "failing")
    assert false_claims(path) == []
    assert named(log(tmp_path / "b.jsonl", rows(7, lambda k, row: row.update({"tools/call_frequency": 0.0})))) == []


def test_advantages_of_zero_may_be_those_of_groups_of_one(tmp_path: Path) -> None:
    """As in ROLL #397, whose groups held the steps of one trajectory: no certainty that siblings are paid alike."""
    made = [
        {"step": k, "critic/score/mean": 0.2 + 0.02 * np.sin(k), "critic/score/max": 1.0, "critic/score/min": 0.0,
         "critic/correct/mean": 0.2, "critic/advantages/max": 0.0, "critic/advantages/min": 0.0,
         "actor/grad_norm": 0.0, "actor/pg_loss": 0.0}
        for k in range(60)
    ]  # fmt: skip
    first = present(log(tmp_path / "a.jsonl", made))[0]
    assert "a group holds one rollout, or the rows of one trajectory, or all answers" in first.because
    assert first.remedy.startswith("count the trajectories")


SHAPED = {"grpo.use_dynamic_sampling": True, "grpo.reward_shaping.enabled": True, "grpo.num_generations_per_prompt": 16}
FILTER = "algorithm.filter_groups.metric"
KL = {"algorithm.use_kl_in_reward": True}


@pytest.mark.parametrize(
    ("fault", "dialect", "bad", "clean"),
    [
        ("filter of shaped rewards", NEMO_RL, SHAPED, {"grpo.reward_shaping.enabled": False}),
        ("filter of shaped rewards", VERL, {**FILTERED, **KL, FILTER: "seq_final_reward"}, {FILTER: "acc"}),
        ("best by loss", MS_SWIFT, {"metric_for_best_model": "loss"}, {"metric_for_best_model": "reward"}),
        ("greedy sampling", TRL, {"temperature": 0.01}, {"temperature": 0.6}),
    ],
)
def test_settings(fault: str, dialect: Any, bad: Mapping[str, Any], clean: Mapping[str, Any]) -> None:
    def found(given: Mapping[str, Any]) -> Sequence[str]:
        findings = lint(Settings(Path("settings"), "a file", dialect, given), Known())
        return [finding.fault for finding in findings if finding.present]

    assert fault in found(bad)
    assert fault not in found({**bad, **clean})


def test_answers_that_hedge_may_be_gamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in Visual-RFT #79: what no task asks for is said beside the verdict, though no true score decides."""
    from grposcope import cli

    rng = np.random.default_rng(9)
    kinds = ["beagle", "boxer", "collie", "husky", "maltese", "pointer", "poodle", "pug", "samoyed", "terrier"]
    lines = []
    for step in range(40):
        for number in range(6):
            gold = str(rng.choice(kinds))
            for _ in range(8):
                answer = gold if rng.random() < 0.4 else str(rng.choice(kinds))
                if rng.random() < 1 / (1 + np.exp(-(step - 18) / 4)):
                    several = [*dict.fromkeys(map(str, rng.choice(kinds, 3)))]
                    answer = " or ".join([*several[1:], gold] if rng.random() < 0.75 else several)
                words = " ".join(map(str, rng.choice(["it", "has", "a", "coat", "short", "ears", "and", "legs"], 12)))
                lines.append({"step": step, "prompt": f"image {step}-{number}", "reward": float(gold in answer),
                              "completion": f"{words} <answer>{answer}</answer>"})  # fmt: skip
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    cli.main(["diagnose", str(path)])
    out = " ".join(capsys.readouterr().out.split())
    assert "May be gamed: hedges, texts that give several different answers are paid" in out
    assert "near the limit" not in out
