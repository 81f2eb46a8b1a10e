"""Causes that further public reports found: what is named, that its sentences are true, and a clean twin beside each.

Numbers are made; the reports are named where their kind is tested.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_reported_kinds import NAN, Row, false_claims, log, present, rows

from grposcope.core.rollouts import Rollout
from grposcope.core.settings import Settings, SettingsAskedFor
from grposcope.faults.judge import diagnose
from grposcope.faults.judge_rollouts import prove
from grposcope.faults.judge_settings import lint
from grposcope.instruments.lint import python_source
from grposcope.instruments.lint.dialects import MS_SWIFT, NEMO_RL, OPENRLHF, SLIME
from grposcope.logs import read
from grposcope.signs.rollouts.claims import advantages, resume
from grposcope.signs.rollouts.evidence import PipelineEvidence

DIFFERENCE = "sampling/sampling_logp_difference/mean"


def faults(path: Path) -> list[str]:
    return [finding.fault for finding in present(path)]


def test_a_mismatch_at_another_level_from_one_step_on_is_told(tmp_path: Path) -> None:
    """As in prime-rl #3112: coarser scales of FP8 from one version on, within the limit."""

    def change(times: float, k: int, row: Row) -> None:
        row[DIFFERENCE] = 0.02 * (1 + 0.05 * ((7 * k) % 5 - 2) / 2) * (times if k >= 90 else 1.0)

    path = log(tmp_path / "a.jsonl", rows(0, lambda k, row: change(1.7, k, row)))
    (found,) = [finding for finding in present(path) if finding.fault == "sampler numerics differ"]
    assert (found.grade, found.basis) == ("note", "fact")
    assert "at step 91 and stays there, within its limit of 0.1" in found.because
    assert "score one recorded batch under both" in found.remedy
    assert false_claims(path) == []
    for name, times in (("b", 1.0), ("c", 1.15)):
        twin = log(tmp_path / f"{name}.jsonl", rows(0, lambda k, row, times=times: change(times, k, row)))
        assert "sampler numerics differ" not in faults(twin)


def test_a_gradient_norm_in_the_thousands_from_the_first_row_on_is_told(tmp_path: Path) -> None:
    """As in verl #6609 (context parallel) and ms-swift #6815: the policy learns as ever."""

    def change(k: int, row: Row) -> None:
        row["grad_norm"] = 2300.0 * (1 + 0.2 * np.sin(1.7 * k))

    path = log(tmp_path / "a.jsonl", rows(1, change))
    (found,) = [finding for finding in present(path) if finding.fault == "accumulation not scaled"]
    assert (found.grade, found.basis) == ("note", "fact")
    assert "context and sequence parallel 1" in found.remedy
    assert false_claims(path) == []
    assert "accumulation not scaled" not in faults(log(tmp_path / "b.jsonl", rows(1)))

    def late(k: int, row: Row) -> None:
        row["grad_norm"] = 0.3 if k < 100 else 2300.0

    assert "accumulation not scaled" not in faults(log(tmp_path / "c.jsonl", rows(1, late)))


def test_log_probabilities_that_are_lost_with_their_update_are_lost_for_good(tmp_path: Path) -> None:
    """As in verl #721: a NaN of the old log-probabilities, then "!!!!"."""

    def change(back: bool, k: int, row: Row) -> None:
        if k == 70 or (k > 70 and not back):
            row.update(kl=NAN, loss=NAN, grad_norm=NAN)

    for name, back in (("a", False), ("b", True)):
        path = log(tmp_path / f"{name}.jsonl", rows(2, lambda k, row, back=back: change(back, k, row)))
        (found,) = [finding for finding in present(path) if finding.fault == "non-finite"]
        assert ("the weights were lost with it" in found.remedy) != back
        assert false_claims(path) == []


def test_a_reward_lost_within_the_first_rows_is_not_as_at_first(tmp_path: Path) -> None:
    """As in ms-swift #7017: noise from the second row on; no row before it says what entropy and length were."""

    def change(k: int, row: Row) -> None:
        row["entropy"] = 0.6 + 0.001 * (k % 3)
        row["completions/clipped_ratio"] = 0.0
        if k:
            row.update(reward=0.0, reward_std=0.0, frac_reward_zero_std=1.0, loss=0.0, grad_norm=0.0, entropy=9.9)
            row.update({"completions/clipped_ratio": 1.0})
        row.pop("kl", None)

    run = read(log(tmp_path / "a.jsonl", rows(3, change)))
    assert not [one.because for one in diagnose(run) if "as at first" in one.because]
    first = next(one for one in diagnose(run) if one.present)
    assert first.fault == "degenerate output"
    assert "sleep level 2" in first.remedy


def test_a_term_of_the_loss_that_is_0_in_every_row_has_no_effect(tmp_path: Path) -> None:
    """As in NeMo-RL #3792: the rewards never reach the term."""
    settings = Settings(Path("config.yaml"), "a file", NEMO_RL, {"loss_fn.positive_example_nll_weight": 0.2})
    for name, value in (("a", 0.0), ("b", 1.4)):
        made = [
            {"train/reward": 0.2 + 0.004 * k, "train/token_mult_prob_error": 1.01, "train/positive_nll_loss": value,
             "train/mean_gen_tokens_per_sample": 300.0 + k % 3, "step": k + 1}
            for k in range(40)
        ]  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
        run = replace(read(tmp_path / f"{name}.jsonl"), asked=SettingsAskedFor(settings))
        told = [one.because for one in diagnose(run) if one.present and one.fault == "setting not in force"]
        assert [("exactly 0 in all 40 rows" in because) for because in told] == ([True] if value == 0 else [])


def rollouts_of(order: list[list[int]]) -> PipelineEvidence:
    """Rollouts of steps that draw these prompts."""
    made = [
        Rollout(
            "here",
            step=step + 1,
            prompt=f"task {name}",
            completion=f"{name} {j}",
            reward=float(j),
            group=f"{step}.{name}",
        )
        for step, names in enumerate(order)
        for name in names
        for j in range(2)
    ]
    return PipelineEvidence("here", "generic", tuple(made), run=None)


def test_prompts_that_come_again_within_an_epoch_that_the_rollouts_show(tmp_path: Path) -> None:
    """As in ms-swift #10050: after a resume the rest of an epoch is that of the first, in its order."""
    first, second = [[0, 1], [2, 3], [4, 5], [6, 7]], [[3, 6], [0, 5], [7, 1], [2, 4]]

    def told(order: list[list[int]]) -> list[str]:
        proved = prove(rollouts_of(order), (resume.PROOF,))[resume.PROOF]
        return [one.because for one in proved if one.fault == "repeated data" and one.present]

    (because,) = told([*first, *second[:2], *first[2:]])
    assert "1 prompts are repeated within an epoch of 8" in because or "repeated within an epoch of 8" in because
    assert told([*first, *second]) == []
    assert told([*first, *second[:2]]) == []  # no second epoch that is whole
    assert told([[0, 1], [2, 0], [4, 5], [6, 7], *second]) == []  # the first steps have a repeat


def test_baselines_of_others_are_not_called_groups_of_one() -> None:
    """As in NeMo-RL #4158: what is divided by the deviation of the others fits no smaller groups."""
    rng, made = np.random.default_rng(5), []
    for step in range(1, 6):
        for g in range(4):
            rewards = rng.choice([0.15, 0.65, 1.05], 8)
            for j, reward in enumerate(rewards):
                others = np.delete(rewards, j)
                made.append(
                    Rollout("here", step=step, prompt=f"q {step}.{g}", completion=f"{j}", reward=float(reward),
                            group=f"{step}.{g}",
                            advantages=np.array([(reward - others.mean()) / (others.std(ddof=1) + 1e-6)]))
                )  # fmt: skip
    proved = prove(PipelineEvidence("here", "generic", tuple(made), run=None), (advantages.PROOF,))[advantages.PROOF]
    assert not [one.because for one in proved if "groups of 1" in one.because]


def test_an_import_of_adapters_is_no_use_of_them() -> None:
    source = (
        "from peft import LoraConfig\nfrom trl import GRPOConfig, GRPOTrainer\n"
        "args = GRPOConfig(learning_rate=1e-6, sync_ref_model=True, beta=0.04)\n"
        "trainer = GRPOTrainer(model='m', reward_funcs=[f], args=args{more})\n"
    )
    for more, adapters in (("", None), (", peft_config=LoraConfig(r=8)", True), (", peft_config=None", False)):
        (found,) = python_source.read(Path("run.py"), source.replace("{more}", more))
        assert found.adapters is adapters


@pytest.mark.parametrize(
    ("fault", "dialect", "given", "mended"),
    [
        ("idle kl coefficient", SLIME, {"advantage_estimator": "grpo", "kl_coef": 0.02}, {"kl_coef": 0.0}),  # slime 399
        ("idle kl coefficient", SLIME, {"advantage_estimator": "gspo", "kl_coef": 0.02},
         {"advantage_estimator": "reinforce_plus_plus"}),
        ("filter by mean", OPENRLHF, {"algo.dynamic_filtering_enable": True}, {"algo.dynamic_filtering_enable": False}),
        ("filter by mean", OPENRLHF, {"algo.dynamic_filtering_enable": True},
         {"algo.dynamic_filtering_std_threshold": 1e-4}),  # OpenRLHF 1270
        ("best by loss", MS_SWIFT, {"early_stop_interval": 4}, {"metric_for_best_model": "eval_reward"}),  # 9733
    ],
)  # fmt: skip
def test_settings_of_reports(fault: str, dialect, given: dict, mended: dict) -> None:  # type: ignore[no-untyped-def,type-arg]
    def named(more: dict) -> list[str]:  # type: ignore[type-arg]
        settings = Settings(Path("settings"), "a file", dialect, {"rollout_batch_size": 16, **given, **more})
        return [finding.fault for finding in lint(settings) if finding.present]

    assert fault in named({})
    assert fault not in named(mended)
