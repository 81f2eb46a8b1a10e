"""Causes that public reports found: what is named first, that its sentences are true, and a clean twin beside each.

Numbers are made; the reports are named where their kind is tested.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from test_reported_kinds import NAN, Row, false_claims, log, present, rows

from grposcope.core.settings import Settings, SettingsAskedFor
from grposcope.faults.judge import diagnose
from grposcope.instruments.lint.dialects import TRL
from grposcope.logs import read
from grposcope.signs import ladder

DIFFERENCE = "sampling/sampling_logp_difference/mean"


def flat(k: int, row: Row) -> None:
    row["reward"] = 0.3 + 0.03 * float(np.random.default_rng(k).normal())


def test_noise_from_the_first_step_is_no_matter_of_the_limit(tmp_path: Path) -> None:
    """As in verl #5211: the sampler has no weights of a model, so that nothing is paid and hardly a text ends."""

    def noise(k: int, row: Row) -> None:
        row.update(reward=0.0, reward_std=0.0, frac_reward_zero_std=1.0, loss=0.0, grad_norm=0.0, kl=0.0)
        row.update(
            {"entropy": 9.7 + 0.01 * (k % 5), "completions/clipped_ratio": 0.94, "completions/mean_length": 660.0}
        )

    path = log(tmp_path / "a.jsonl", rows(0, noise))
    first = present(path)[0]
    assert (first.fault, first.since) == ("degenerate output", None)
    assert "entropy is 9.7 nats per token or more in every row" in first.because
    assert "does not have the model's weights" in first.remedy
    assert false_claims(path) == []

    def hard(k: int, row: Row) -> None:
        noise(k, row)
        row["entropy"] = 0.6

    path = log(tmp_path / "b.jsonl", rows(0, hard))
    findings = present(path)
    assert "degenerate output" not in [finding.fault for finding in findings]
    (length,) = [finding for finding in findings if finding.fault == "length"]
    assert length.remedy.startswith("read completions at the limit before anything else")


def test_a_mismatch_that_grows_below_its_limit_fails_the_rung_of_the_sampler(tmp_path: Path) -> None:
    """As in ms-swift #9855 and miles #2075: adapters never reach the sampler, and the reward stays where it was."""
    for name, grown, answer in (("a", 4e-4, "no"), ("b", 0.0, "yes")):

        def change(k: int, row: Row, grown: float = grown) -> None:
            flat(k, row)
            row[DIFFERENCE] = (0.004 + grown * k) * (1 + 0.02 * (k % 3))

        run = read(log(tmp_path / f"{name}.jsonl", rows(1, change)))
        (rung,) = [rung for rung in ladder.of_run(run, diagnose(run)) if rung.name == "sampler"]
        assert (rung.answer, "does not grow" in rung.because) == (answer, answer == "yes")


def test_a_mismatch_from_the_first_step_names_the_temperature(tmp_path: Path) -> None:
    """As in vime #64, NeMo-RL #902 and open-instruct #1678: log-probabilities before the temperature."""

    def change(k: int, row: Row) -> None:
        flat(k, row)
        row[DIFFERENCE] = 0.23 * (1 + 0.01 * (k % 4))

    path = log(tmp_path / "a.jsonl", rows(2, change))
    first = present(path)[0]
    assert first.fault == "sampler numerics differ"
    assert "a temperature that only one of both applies" in first.because
    assert "processed_logprobs" in first.remedy
    assert false_claims(path) == []
    run = read(path)
    for temperature, fault, says in (
        (0.6, "sampler temperature differs", "drawn at a temperature of 0.6"),
        (1.0, "sampler numerics differ", "whether numerics, FP8 or top-k/top-p"),
    ):
        stated = replace(run, config={**run.config, "settings": {"temperature": temperature}})
        found = next(finding for finding in diagnose(stated) if finding.present)
        assert found.fault == fault
        assert says in found.because


def test_spikes_of_the_mismatch_are_told_beside_learning(tmp_path: Path) -> None:
    """As in NeMo-RL #906: a few rows are thousands of times beyond the limit, and the others are sound."""

    def change(k: int, row: Row) -> None:
        row[DIFFERENCE] = 0.011 + 0.0005 * (k % 3)
        if k % 13 == 5:
            row[DIFFERENCE] = 0.3 + 0.2 * (k % 7)

    path = log(tmp_path / "a.jsonl", rows(3, change))
    (found,) = [finding for finding in present(path) if finding.fault == "sampler numerics differ"]
    assert (found.grade, found.basis) == ("note", "fact")
    assert "beyond 0.1 in 12 of 160" in found.because
    assert "apply_rope_fusion" in found.remedy
    assert false_claims(path) == []

    def jump(k: int, row: Row) -> None:
        row[DIFFERENCE] = 0.011 + 0.0005 * (k % 3) if k < 100 else 0.4

    jumped = [finding.because for finding in present(log(tmp_path / "b.jsonl", rows(3, jump)))]
    assert not [because for because in jumped if "in the median row and beyond" in because]


def test_a_gradient_that_is_lost_where_loss_and_reward_are_finite(tmp_path: Path) -> None:
    """As in ms-swift #8123 (a reward of None under gdpo) and Soup #342 (an overflow under a mask)."""

    def change(k: int, row: Row) -> None:
        if k in (40, 77):
            row["grad_norm"] = NAN

    path = log(tmp_path / "a.jsonl", rows(4, change))
    (found,) = [finding for finding in present(path) if finding.fault == "non-finite"]
    assert "returned None or NaN" in found.remedy
    assert found.remedy.endswith("later rows are finite, so that the weights were not lost")
    assert false_claims(path) == []

    def of_sampler(k: int, row: Row) -> None:
        row[DIFFERENCE] = 0.01
        if k in (40, 77):
            row.update({"grad_norm": NAN, "loss": NAN, DIFFERENCE: NAN})

    path = log(tmp_path / "b.jsonl", rows(4, of_sampler))
    (found,) = [finding for finding in present(path) if finding.fault == "non-finite"]
    assert "comparison with the sampler is not finite in the same row" in found.remedy  # NeMo-RL #1885


def test_a_zero_of_four_digits_is_not_called_exact(tmp_path: Path) -> None:
    """TRL #5312 had a norm of 5e-6, which a table of four digits shows as 0."""
    rng = np.random.default_rng(7)
    head = "step,loss,reward,reward_std,completion_length,grad_norm"
    table = [f"{k + 1},0.0000,{0.4 + 0.05 * rng.normal():.4f},{0.3 + 0.02 * rng.normal():.4f},"
             f"{210 + rng.normal():.4f},0.0000" for k in range(50)]  # fmt: skip
    (tmp_path / "a.csv").write_text("\n".join([head, *table]))
    (found,) = [finding for finding in present(tmp_path / "a.csv") if finding.fault == "lost gradient"]
    assert "0 to the 4 digits that the log has (below 5e-05)" in found.because
    assert "lost, or scaled down," in found.because
    assert found.remedy.startswith("log the norm with more digits")
    exact = [row.replace(",0.0000", ",0.0", 1) + "123456" for row in table]
    (tmp_path / "b.csv").write_text(
        "\n".join([head + ",kl", *(f"{row[:-6]},{0.00123456 * k}" for k, row in enumerate(exact))])
    )
    (found,) = [finding for finding in present(tmp_path / "b.csv") if finding.fault == "lost gradient"]
    assert "exactly 0" in found.because


def test_a_gradient_that_is_next_to_none_is_scaled_down(tmp_path: Path) -> None:
    """As in TRL #5312: the sampler lost its weights, and the norm is a few millionths."""

    def change(k: int, row: Row) -> None:
        flat(k, row)
        row["grad_norm"] = 3.1e-6 * (1 + 0.1 * (k % 3))

    path = log(tmp_path / "a.jsonl", rows(6, change))
    first = present(path)[0]
    assert first.fault == "lost gradient"
    assert "grad_norm is 3.41e-6 in the median row although" in first.because
    assert "sleep mode" in first.remedy
    assert false_claims(path) == []
    assert "lost gradient" not in [one.fault for one in present(log(tmp_path / "b.jsonl", rows(6)))]


def test_a_kl_that_is_nan_in_every_row_is_not_a_setting_that_is_lost(tmp_path: Path) -> None:
    """As in TRL #4040: with a beta of 0 no KL is computed."""
    path = log(tmp_path / "a.jsonl", rows(7, lambda k, row: row.update(kl=NAN)))
    settings = Settings(Path("config.yaml"), "a file", TRL, {"beta": 0.0, "num_generations": 8})
    run = replace(read(path), asked=SettingsAskedFor(settings))
    assert [one.because for one in diagnose(run) if one.present and one.fault == "setting not in force"] == []
    assert any("so it is where its coefficient is 0" in note for note in run.meta.notes)


def test_a_form_that_is_never_paid_beside_answers_that_rise_does_not_fail(tmp_path: Path) -> None:
    """Although the whole falls by another part: what is asked for is learned."""

    def change(k: int, row: Row) -> None:
        right, short = 0.3 + 0.3 * k / 160 + 0.02 * (k % 3), -0.6 * k / 160
        row.update({"rewards/accuracy_reward/mean": right, "rewards/format_reward/mean": 0.0,
                    "rewards/length_reward/mean": short, "reward": right + short})  # fmt: skip

    graded = [one.grade for one in present(log(tmp_path / "a.jsonl", rows(5, change))) if one.fault == "never paid"]
    assert graded
    assert "failing" not in graded


def test_groups_that_lose_rollouts_after_the_first_steps(tmp_path: Path) -> None:
    """As in NeMo-RL #2394: no size is that of most groups, and the first steps say which was meant."""
    from grposcope.faults.judge_rollouts import prove
    from grposcope.signs.rollouts.claims import groups
    from grposcope.signs.rollouts.evidence import PipelineEvidence

    def told(sizes: list[int]) -> list[str]:
        made = [
            {
                "step": step + 1,
                "group": f"{step}.{g}",
                "prompt": f"task {step}.{g}",
                "completion": "so",
                "reward": float(j % 2),
            }
            for step in range(9)
            for g in range(2)
            for j in range(6 if step < 3 else sizes[(2 * step + g) % len(sizes)])
        ]
        (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
        run = read(tmp_path)
        kept = tuple(row for step in run.rollouts for row in run.rollouts[step])
        evidence = PipelineEvidence(str(tmp_path), "generic", kept, run=None)
        return [
            one.because
            for one in prove(evidence, (groups.PROOF,))[groups.PROOF]
            if one.fault == "wrong group size" and one.present
        ]

    (because,) = told([5, 4, 3, 2, 1])
    assert "do not have 6 rollouts like those of the first steps" in because
    assert told([6]) == []


def test_a_baseline_of_the_batch_where_none_is_stated_is_possible_and_told(tmp_path: Path) -> None:
    """As in slime #2230 and NeMo-RL #2176: groups of equal rewards have advantages, and only settings could call that
    meant."""
    from grposcope.faults.judge_rollouts import prove
    from grposcope.signs.rollouts.claims import advantages
    from grposcope.signs.rollouts.evidence import PipelineEvidence

    def told(over_batch: bool) -> list[str]:
        rng, made = np.random.default_rng(11), []
        for step in range(1, 6):
            groups = [rng.integers(0, 2, size).astype(float) if size != 5 else np.ones(size) for size in (6, 5, 6)]
            whole = np.concatenate(groups)
            for number, rewards in enumerate(groups):
                base = whole if over_batch else rewards
                made += [
                    {"step": step, "group": f"{step}.{number}", "prompt": f"q {step}.{number}", "completion": "so",
                     "reward": reward, "advantage": (reward - base.mean()) / (base.std(ddof=1) + 1e-6)}
                    for reward in rewards
                ]  # fmt: skip
        (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
        run = read(tmp_path)
        kept = tuple(row for step in run.rollouts for row in run.rollouts[step])
        proved = prove(PipelineEvidence(str(tmp_path), "generic", kept), (advantages.PROOF,))[advantages.PROOF]
        return [one.because for one in proved if one.fault == "wrong baseline" and one.status == "possible"]

    (because,) = told(over_batch=True)
    assert "6 of 6 groups of equal rewards have advantages other than 0" in because
    assert told(over_batch=False) == []
