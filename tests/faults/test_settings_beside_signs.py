"""Settings of a diagnosed run are its cause where the log has the sign that they produce, and one line where not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_log import read_raw
from true_sentences import untrue

from grposcope import cli
from grposcope.core.run import Run
from grposcope.core.settings import Settings, SettingsAskedFor
from grposcope.faults import judge_settings
from grposcope.faults.judge import diagnose
from grposcope.instruments.diagnosis import answer, screen
from grposcope.instruments.diagnosis.verdict import Verdict, findings_of, verdict
from grposcope.instruments.lint.dialects import MS_SWIFT, SKYRL, TRL
from grposcope.instruments.lint.read import of_record
from grposcope.logs import read

BEFORE = ("learning_rate: 1.0e-3", "num_generations: 8")
Row = Callable[[int, float], Mapping[str, float]]


def sound(i: int, noise: float) -> Mapping[str, float]:
    """A run that learns and keeps near its start."""
    return {"reward": 0.3 + 0.004 * i + 0.02 * noise, "kl": (0.001 + 0.0002 * i) * np.exp(0.1 * noise)}


def breaks_away(i: int, noise: float) -> Mapping[str, float]:
    """A run whose KL runs away at step 40 and whose reward is lost with it."""
    away = max(0, i - 40) / 60
    return {"reward": max(0.0, 0.5 - 0.8 * away) + 0.02 * abs(noise), "kl": (0.02 + 6 * away**2) * np.exp(0.1 * noise)}


def flat(i: int, noise: float) -> Mapping[str, float]:
    """A run of which nothing moves."""
    return {"reward": 0.4 + 0.02 * noise, "kl": 0.0004 * np.exp(0.1 * noise)}


def run(folder: Path, row: Row, settings: Mapping[str, Any], **extra: float) -> Run:
    """A log of TRL with these rows, and these settings beside it."""
    rows = 100
    noise = np.random.default_rng(7).normal(0, 1, rows)
    path = folder / "log.jsonl"
    path.write_text("\n".join(
        json.dumps({"step": i + 1, "loss": 0.01, "grad_norm": 0.3 * float(np.exp(0.1 * noise[-i])), "reward_std": 0.3,
                    "frac_reward_zero_std": 0.2, "completions/mean_length": 200 + 3 * noise[-i],
                    "completions/clipped_ratio": 0.0, **row(i, float(noise[i])), **extra}) for i in range(rows)
    ))  # fmt: skip
    asked = Settings(folder / "train.yaml", "a YAML file", TRL, dict(settings))
    return replace(read(path), asked=SettingsAskedFor(asked))


def judged(of: Run) -> Verdict:
    return verdict(of, findings_of(of))


def test_a_setting_is_the_cause_of_the_sign_that_it_produces(tmp_path: Path) -> None:
    seen = run(tmp_path, breaks_away, {"learning_rate": 1e-3, "num_generations": 8})
    told = judged(seen)
    assert told.fault == "high learning rate"
    assert told.because.startswith("learning_rate = 0.001 in the settings: ")
    assert "what may follow is in the log: kl blow-up" in told.because
    assert told.remedy == "start with 1e-6 for full training, 1e-5 for adapters"
    assert (told.word, verdict(seen, diagnose(seen)).word) == ("failing", "failing")


@pytest.mark.parametrize(
    ("reached", "begins"),
    [(0.925e-3, "learning_rate = 0.001 in the settings: "), (1.2e-4, "learning_rate = 0.00012 in the rows: ")],
)
def test_a_rate_of_the_rows_is_not_said_to_be_that_of_the_settings(reached: float, begins: str, tmp_path: Path) -> None:
    """A schedule is logged beside its peak; or the rows end before it."""
    told = judged(run(tmp_path, breaks_away, {"learning_rate": 1e-3, "num_generations": 8}, learning_rate=reached))
    assert told.fault == "high learning rate"
    assert told.because.startswith(begins)


@pytest.mark.parametrize(("row", "word"), [(sound, "healthy"), (flat, "cannot tell")])
def test_a_setting_without_its_sign_is_one_line(tmp_path: Path, row: Row, word: str) -> None:
    seen = run(tmp_path, row, {"learning_rate": 1e-3, "num_generations": 8})
    told = judged(seen)
    assert told.word == word
    assert not any(finding.present and finding.fault == "high learning rate" for finding in findings_of(seen))
    lines = [remark for remark in told.remarks if "without a sign of it in the log" in remark]
    assert lines == ["in the settings, without a sign of it in the log: a learning rate higher than published ones "
                     f"(learning_rate = 0.001); `grposcope lint {tmp_path / 'train.yaml'}`"]  # fmt: skip


def test_sound_settings_add_nothing(tmp_path: Path) -> None:
    seen = run(tmp_path, breaks_away, {"learning_rate": 1e-6, "num_generations": 8})
    assert [finding.fault for finding in findings_of(seen)] == [finding.fault for finding in diagnose(seen)]
    assert not any("without a sign" in remark for remark in judged(seen).remarks)


def test_a_setting_that_the_run_does_not_have_is_no_cause(tmp_path: Path) -> None:
    asked = {"learning_rate": 1e-3, "num_generations": 8}
    seen = run(tmp_path, breaks_away, asked, learning_rate=1e-6)
    assert "high learning rate" not in [finding.fault for finding in findings_of(seen) if finding.present]
    assert not judge_settings.alone(seen, findings_of(seen))


def test_settings_of_another_trainer_are_left_alone(tmp_path: Path) -> None:
    seen = run(tmp_path, breaks_away, {"learning_rate": 1e-3})
    assert seen.asked is not None
    foreign = SettingsAskedFor(replace(seen.asked.settings, dialect=MS_SWIFT))
    assert findings_of(replace(seen, asked=foreign))[0].fault == "kl blow-up"


def test_what_a_trainer_recorded_is_read_without_defaults(tmp_path: Path) -> None:
    recorded = of_record(tmp_path, {"num_generations": 8, "learning_rate": 1e-3, "beta": 0.04, "loss_type": "dapo"})
    assert recorded is not None
    assert recorded.dialect is TRL
    assert recorded.get("temperature") is None
    assert of_record(tmp_path, {"a": 1}) is None
    seen = replace(run(tmp_path, sound, {}), asked=SettingsAskedFor(recorded, recorded=True))
    assert not [finding for finding in findings_of(seen) if finding.fault == "setting not in force"]
    assert judge_settings.alone(seen, ()).endswith("(learning_rate = 0.001)")


@pytest.mark.parametrize(("passes", "first"), [(12, "clip saturation"), (1, "kl blow-up")])
def test_many_passes_over_a_batch_are_the_cause_of_a_kl_that_breaks_away(
    tmp_path: Path, passes: int, first: str
) -> None:
    settings = {"learning_rate": 1e-6, "num_iterations": passes, "num_generations": 8,
                "gradient_accumulation_steps": 2, "steps_per_generation": 2}  # fmt: skip
    told = judged(run(tmp_path, breaks_away, settings))
    assert told.fault == first
    if passes > 1:
        assert "12 passes over each batch" in told.line
        assert "two or three times at most" in told.remedy
        assert judged(run(tmp_path, sound, settings)).word == "healthy"


@pytest.mark.parametrize("passes", [12, 1])
def test_clipped_tokens_of_many_passes_before_a_fall(tmp_path: Path, passes: int) -> None:
    def clipped(i: int, noise: float) -> Mapping[str, float]:
        return {"clip_ratio/region_mean": min(0.2, 0.03 + 0.005 * max(0, i - 20)) + 0.002 * noise,
                "reward": 0.6 - 0.005 * max(0, i - 40) + 0.02 * noise}  # fmt: skip

    settings = {"num_iterations": passes, "num_generations": 8, "gradient_accumulation_steps": 2,
                "steps_per_generation": 2}  # fmt: skip
    told = judged(run(tmp_path, clipped, settings))
    assert (told.fault == "clip saturation") == (passes == 12)
    if passes == 12:
        assert "num_iterations = 12 in the settings" in told.because


def alike(i: int, noise: float) -> Mapping[str, float]:
    """A flat run whose groups are mostly of equal rewards."""
    return {"reward": max(0.0, 0.05 + 0.02 * noise), "frac_reward_zero_std": 0.85, "reward_std": 0.05}


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_a_cold_sampler_is_named_where_groups_are_dead(tmp_path: Path, temperature: float) -> None:
    told = judged(run(tmp_path, alike, {"temperature": temperature, "num_generations": 8}))
    assert (told.fault == "greedy sampling") == (temperature < 1)
    assert ("temperature = 0.1 in the settings: " in told.because) == (temperature < 1)
    healthy = judged(run(tmp_path, sound, {"temperature": temperature, "num_generations": 8}))
    assert healthy.word == "healthy"
    assert any("sampling at temperature 0.1" in remark for remark in healthy.remarks) == (temperature < 1)


def test_a_cold_sampler_that_the_log_states(tmp_path: Path) -> None:
    seen = run(tmp_path, alike, {})
    settings = {**seen.config["settings"], "temperature": 0.1}
    finding = diagnose(replace(seen, asked=None, config={**seen.config, "settings": settings}))[0]
    assert (finding.fault, finding.brief) == ("greedy sampling", "sampled at temperature 0.1, 85% of groups equal")


def test_a_cold_sampler_with_answers_of_a_few_tokens_before_the_run() -> None:
    given = {"temperature": 0.1, "max_completion_length": 16, "num_generations": 3}
    problem = judge_settings.lint(Settings(Path("run.sh"), "flags", MS_SWIFT, given))[0]
    assert (problem.fault, problem.grade) == ("greedy sampling", "warning")
    assert "answers of at most 16 tokens" in problem.because
    assert problem.remedy == "set temperature to 1, and raise max_completion_length where right answers are longer"


def of_verl(folder: Path, row: Row, score: Callable[[int], float], rows: int = 60) -> Run:
    """A log of verl with these rows, and a held-out score in every fifth."""
    noise = np.random.default_rng(5).normal(0, 1, rows + 1)
    path = folder / "verl.jsonl"
    path.write_text("\n".join(
        json.dumps({"training/global_step": i, "actor/grad_norm": 0.3 * float(np.exp(0.1 * noise[-i])),
                    "response_length/mean": 300 + 2 * noise[-i], "response_length/clip_ratio": 0.01,
                    "actor/entropy": 0.4 + 0.01 * noise[i], **row(i, float(noise[i])),
                    **({"val-core/gsm8k/reward/mean@1": score(i) + 0.004 * (i % 3)} if i % 5 == 0 else {})})
        for i in range(1, rows + 1)
    ))  # fmt: skip
    return read(path)


def untrue_of(seen: Run) -> list[str]:
    """What is not true of its log on the first screen of a run."""
    findings = diagnose(seen)
    told = verdict(seen, findings)
    text = screen.text(seen, told, findings, answer.of_run(seen, findings), "", 2000)
    names = {"reward": "critic/score/mean", "entropy": "actor/entropy", "length": "response_length/mean",
             "truncated": "response_length/clip_ratio", "grad_norm": "actor/grad_norm"}  # fmt: skip
    scored = {"val-core/gsm8k/reward/mean@1": "val-core/gsm8k/reward/mean@1"}
    raw = read_raw(seen.meta.source, "training/global_step", names, scored)
    return untrue(text.replace(str(seen.meta.source), "LOG"), raw)


def unpaid(i: int, noise: float) -> Mapping[str, float]:
    """Rollouts that are never paid."""
    return {"critic/score/mean": 0.0, "critic/score/max": 0.0}


def test_training_that_is_never_paid_where_an_evaluation_is(tmp_path: Path) -> None:
    seen = of_verl(tmp_path, unpaid, lambda i: 0.42)
    told = judged(seen)
    assert told.fault == "never paid"
    assert told.because.endswith("what training draws or grades differs from the evaluation")
    assert "run the prompts of the evaluation through training" in told.remedy
    assert next(f for f in findings_of(seen) if f.present).decides == told.remedy
    assert not untrue_of(seen)
    assert "differs from the evaluation" not in judged(of_verl(tmp_path, unpaid, lambda i: 0.0)).because
    assert judged(of_verl(tmp_path, lambda i, noise: {"critic/score/mean": 0.4 + 0.02 * noise},
                          lambda i: 0.42)).fault != "never paid"  # fmt: skip


@pytest.mark.parametrize("case", ["worn", "entropy stays", "at once", "rises first", "not evaluated"])
def test_a_policy_that_is_worn_away_from_the_start(tmp_path: Path, case: str) -> None:
    def row(i: int, noise: float) -> Mapping[str, float]:
        share = float(i > 60) if case == "at once" else i / 120
        entropy = 0.4 if case == "entropy stays" else 0.4 + 0.5 * share
        return {"critic/score/mean": 0.75 - 0.3 * share + 0.02 * noise, "actor/entropy": entropy + 0.01 * noise}

    def score(i: int) -> float:
        return 0.8 - 0.3 * (abs(i - 40) - 40 if case == "rises first" else i) / 120

    seen = of_verl(tmp_path, row, score if case != "not evaluated" else lambda i: float("nan"), 120)
    told = judged(seen)
    assert (told.fault == "high learning rate") == (case == "worn")
    if case == "worn":
        assert told.line.endswith("a slow fall, actor/entropy 0.44 → 0.85")
        assert "fall slowly from the first rows on while actor/entropy" in told.because
        assert "a third of the learning rate" in told.remedy
        assert not untrue_of(seen)


@pytest.mark.parametrize(("longest", "batch"), [(1190.0, 8), (1190.0, 4), (500.0, 8)])
def test_a_limit_of_completions_that_is_not_in_force_comes_first(tmp_path: Path, longest: float, batch: int) -> None:
    settings = {"learning_rate": 1e-5, "max_completion_length": 512, "num_generations": 4,
                "per_device_train_batch_size": batch}  # fmt: skip
    told = judged(run(tmp_path, sound, settings, **{"completions/max_length": longest, "learning_rate": 2e-5}))
    assert told.fault == "setting not in force"
    broken = longest > 512
    assert told.line.startswith(f"warning: {'max_completion_length' if broken else 'learning_rate'} is ")
    assert ("max_tokens or max_new_tokens must be the limit" in told.remedy) == broken
    assert ("with Unsloth try per_device_train_batch_size 4" in told.remedy) == (broken and batch > 4)


def test_a_recorded_limit_that_completions_break(tmp_path: Path) -> None:
    recorded = of_record(tmp_path, {"num_generations": 8, "max_completion_length": 512, "beta": 0.04})
    assert recorded is not None
    seen = run(tmp_path, sound, {}, **{"completions/max_length": 900.0})
    told = judged(replace(seen, asked=SettingsAskedFor(recorded, recorded=True)))
    assert told.fault == "setting not in force"
    assert told.because == "max_completion_length is 512 as recorded and a completion of step 1 has 900 tokens"


def test_what_settings_would_explain_in_a_log_orders_no_findings_before_a_run() -> None:
    given = {"num_iterations": 4, "num_generations": 8, "gradient_accumulation_steps": 4}
    findings = judge_settings.lint(Settings(Path("train.py"), "a call", TRL, given))
    told = [(finding.fault, finding.grade) for finding in findings if finding.present]
    assert told[0] == ("unbounded ratio", "warning")
    assert ("clip saturation", "note") in told


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"trainer.fully_async.max_staleness_steps": 4}, True),
        ({}, False),
        ({"trainer.fully_async.max_staleness_steps": 4,
          "trainer.algorithm.off_policy_correction.tis_ratio_type": "token"}, False),
        ({"trainer.fully_async.max_staleness_steps": 4, "trainer.algorithm.policy_loss_type": "rollout_is"}, False),
    ],
)  # fmt: skip
def test_asynchronous_training_of_skyrl_without_a_clip(more: Mapping[str, Any], named: bool) -> None:
    given = {"trainer.algorithm.policy_loss_type": "regular", "generator.n_samples_per_prompt": 8} | more
    findings = judge_settings.lint(Settings(Path("run.sh"), "flags", SKYRL, given))
    assert ("idle clip range" in [finding.fault for finding in findings if finding.present]) == named


@pytest.mark.needs("lint", "runs")
def test_a_page_and_a_list_read_the_settings_beside_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As diagnose does: the same verdict of all three, and without the file of settings another one."""
    folder = tmp_path / "mine"
    folder.mkdir()
    run(folder, breaks_away, {})
    heads = {}
    for name in ("without", "with"):
        if name == "with":
            (folder / "config.yaml").write_text("\n".join(BEFORE))
        cli.main(["diagnose", str(folder), "--json"])
        judged_by = json.loads(capsys.readouterr().out)["sentence"]
        assert cli.main(["report", str(folder), "--json"]) == 0
        page = json.loads(capsys.readouterr().out.splitlines()[-1])["headline"]
        assert cli.main(["runs", str(tmp_path), "--json"]) == 0
        (line,) = json.loads(capsys.readouterr().out)["runs"]
        assert page == judged_by
        heads[name] = page, line["verdict"]
    assert "learning_rate" not in str(heads["without"])
    assert "learning_rate = 0.001" in heads["with"][0]
    assert "learning_rate = 0.001" in heads["with"][1]
