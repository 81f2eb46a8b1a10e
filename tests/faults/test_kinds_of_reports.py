"""Kinds of causes that public reports have: which is named first, that what is said is true, and a sound twin of each.

Numbers are made; the reports are named where their kind is tested.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_reported_kinds import Row, false_claims, log, present, rows

from grposcope import cli
from grposcope.core.settings import Settings
from grposcope.faults.judge_settings import lint
from grposcope.instruments.lint.dialects import SLIME

Values = Mapping[str, float]


def verl(path: Path, n: int, values: Callable[[int, np.random.Generator], Values]) -> Path:
    """A console log of verl that goes well, with values of each step over it."""
    rng, lines = np.random.default_rng(0), []
    for k in range(n):
        row = {
            "actor/entropy": 0.4 + 0.01 * rng.normal(), "actor/pg_loss": 0.01 * rng.normal(),
            "actor/pg_clipfrac": 0.001 * np.exp(0.1 * rng.normal()), "actor/lr": 1e-6,
            "actor/grad_norm": 0.3 * np.exp(0.1 * rng.normal()), "critic/score/max": 1.0, "critic/score/min": 0.0,
            "critic/score/mean": 0.3 + 0.25 * k / n + 0.02 * rng.normal(),
            "response_length/mean": 1000 + 20 * rng.normal(), "response_length/max": 4096.0,
            "response_length/clip_ratio": 0.01 * np.exp(0.1 * rng.normal()),
        }  # fmt: skip
        row |= values(k, rng)
        lines.append(f"step:{k + 1} - " + " - ".join(f"{key}:{value:.6g}" for key, value in row.items()) + "\n")
    path.write_text("".join(lines))
    return path


def names(path: Path) -> list[str]:
    return [finding.fault for finding in present(path)]


def test_a_gradient_that_is_not_finite_in_any_row_comes_before_weights_that_stay(tmp_path: Path) -> None:
    """As in TTRL #33: the norm is NaN in every row, so that each step is skipped and the KL stays 0."""
    nan = float("nan")

    def lost(k: int, rng: np.random.Generator) -> Values:
        return {"actor/grad_norm": nan, "actor/kl_loss": 0.0, "critic/score/mean": 0.45 + 0.02 * rng.normal()}

    findings = present(verl(tmp_path / "a.log", 60, lost))
    assert [finding.fault for finding in findings][:2] == ["non-finite", "update not applied"]
    assert "before any weight moved" in findings[0].remedy
    assert "which is not finite" in findings[1].because
    sound = verl(tmp_path / "b.log", 60, lambda k, rng: {"actor/kl_loss": 0.0003 * k})
    assert "non-finite" not in names(sound)


def test_differences_of_probabilities_are_mismatch_and_growth_that_was_paid_is_none(tmp_path: Path) -> None:
    """As in verl #3595 and #3597: attention goes wrong on long texts, the gradient explodes, the reward goes."""

    def long(k: int, rng: np.random.Generator) -> Values:
        reward = 0.3 + 0.25 * min(k, 85) / 85 - (0.012 * (k - 85) if k > 85 else 0)
        return {
            "response_length/mean": 1500 + 55 * k + 20 * rng.normal(), "response_length/max": 16384.0,
            "training/rollout_probs_diff_mean": 0.006 * np.exp(0.03 * k + 0.05 * rng.normal()),
            "critic/score/mean": reward + 0.01 * rng.normal(),
            "actor/grad_norm": 0.3 * np.exp(0.12 * max(0, k - 80) + 0.1 * rng.normal()),
        }  # fmt: skip

    findings = present(verl(tmp_path / "a.log", 110, long))
    assert findings[0].fault == "sampler mismatch"
    assert "compare short completions with long ones" in findings[0].remedy
    assert "length" not in [finding.fault for finding in findings]

    def sound(k: int, rng: np.random.Generator) -> Values:
        return {"training/rollout_probs_diff_mean": 0.006 * np.exp(0.05 * rng.normal())}

    assert names(verl(tmp_path / "b.log", 110, sound)) == []

    def unpaid(k: int, rng: np.random.Generator) -> Values:
        return {"response_length/mean": 1500 + 55 * k, "critic/score/mean": 0.4 + 0.01 * rng.normal()}

    assert names(verl(tmp_path / "c.log", 110, unpaid))[0] == "length"


@pytest.mark.parametrize(("correlation", "first"), [(0.71, "inputs differ"), (0.995, "constant reward")])
def test_probabilities_that_hardly_correlate_are_of_other_tokens(
    tmp_path: Path, correlation: float, first: str
) -> None:
    """As in agent-lightning #326: what ends as a reward of 0 began in the first row."""

    def change(k: int, rng: np.random.Generator) -> Values:
        return {
            "critic/score/mean": max(0.0, 0.45 - 0.011 * k), "critic/score/max": 1.0 if k < 40 else 0.0,
            "training/rollout_probs_diff_mean": (0.041 if correlation < 0.9 else 0.005) * np.exp(0.05 * rng.normal()),
            "training/rollout_actor_probs_pearson_corr": correlation + 0.001 * rng.normal(),
        }  # fmt: skip

    findings = present(verl(tmp_path / "a.log", 60, change))
    assert findings[0].fault == first
    if first == "inputs differ":
        assert "at a correlation of 0.71, and numerics (FP8 among them) leave more than 0.9" in findings[0].because


def test_mismatch_that_grows_in_stretches_is_of_what_the_sampler_keeps(tmp_path: Path) -> None:
    """As in NeMo-RL #4018: prefixes that were cached under earlier weights, until the engine is started again."""

    def change(k: int, row: Row) -> None:
        noise = float(np.random.default_rng(k).normal())
        row["sampling/sampling_logp_difference/mean"] = 0.004 * 1.17 ** (k % 20) * np.exp(0.06 * noise)

    path = log(tmp_path / "a.jsonl", rows(4, change))
    (found,) = present(path)
    assert (found.fault, found.grade, found.basis) == ("sampler mismatch", "warning", "fact")
    assert "in each of 8 stretches of rows and falls back at once at steps 21, 41, 61, 81 …" in found.because
    assert "reset_prefix_cache" in found.remedy
    assert false_claims(path) == []

    def sound(k: int, row: Row) -> None:
        row["sampling/sampling_logp_difference/mean"] = 0.01 * np.exp(0.3 * float(np.random.default_rng(k).normal()))

    assert names(log(tmp_path / "b.jsonl", rows(4, sound))) == []


@pytest.mark.parametrize("lag", [2.5, None])
def test_mismatch_that_grows_at_a_lag_that_stays_is_no_matter_of_numerics_alone(
    tmp_path: Path, lag: float | None
) -> None:
    """As in tinker-cookbook #822: the same lag makes more of it, the farther each step goes."""

    def change(k: int, row: Row) -> None:
        noise = float(np.random.default_rng(k).normal())
        row["sampling/sampling_logp_difference/mean"] = 0.01 * np.exp(0.02 * k + 0.08 * noise)
        if lag is not None:
            row["sample/staleness_mean"] = lag + 0.01 * noise

    (found,) = [one for one in present(log(tmp_path / "a.jsonl", rows(5, change))) if one.fault == "sampler mismatch"]
    assert ("allow less of it" in found.remedy) == (lag is not None)
    assert ("stays at 2.5 versions: the same lag makes more of it" in found.because) == (lag is not None)


def batch(folder: Path, advantages: Callable[[np.ndarray], np.ndarray], **columns: Any) -> Path:
    """Rollouts of ten steps of four groups, with the advantages that a function makes of their rewards (P, G)."""
    rng, folder = np.random.default_rng(0), folder
    folder.mkdir(exist_ok=True)
    with (folder / "rollouts.jsonl").open("w") as file:
        for step in range(1, 11):
            rewards = rng.integers(0, 2, (4, 8)) + 0.2 * (np.arange(4)[:, None] % 2) * rng.random((4, 8))
            made = advantages(rewards)
            for k in range(4):
                for j in range(8):
                    row = {
                        "step": step, "group": f"{step}.{k}", "prompt": f"problem {step}.{k}", "completion": f"{k} {j}",
                        "reward": rewards[k, j], "advantage": made[k, j],
                    }  # fmt: skip
                    file.write(json.dumps(row) + "\n")
    return folder


def standardized(rewards: np.ndarray) -> np.ndarray:
    return (rewards - rewards.mean(1, keepdims=True)) / (rewards.std(1, ddof=1, keepdims=True) + 1e-4)


def by_the_batch(rewards: np.ndarray) -> np.ndarray:
    return (rewards - rewards.mean(1, keepdims=True)) / (rewards.std(ddof=1) + 1e-4)


@pytest.mark.parametrize(("made", "broken"), [(standardized, True), (by_the_batch, False)])
def test_settings_beside_rollouts_are_read_without_a_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: Callable[[np.ndarray], np.ndarray], broken: bool
) -> None:
    """As in TRL #3991: scale_rewards is batch in the settings, and advantages are divided by that of the group."""
    folder = batch(tmp_path / "run", made)
    (folder / "config.yaml").write_text(
        "scale_rewards: batch\nnum_generations: 8\nper_device_train_batch_size: 8\nlearning_rate: 1e-6\n"
    )
    assert cli.main(["verify", str(folder), "--json"]) == int(broken)
    said = json.loads(capsys.readouterr().out)
    assert ("wrong divisor" in json.dumps(said["claims"])) == broken


def test_a_file_beside_a_run_that_is_of_no_trainer_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is anything read beside a log that is named itself."""
    log(tmp_path / "log.jsonl", rows(6))
    (tmp_path / "config.yaml").write_text("hidden_size: 64\n")
    assert cli.main(["diagnose", str(tmp_path)]) == 0
    assert "the settings are those of" not in capsys.readouterr().out
    (tmp_path / "config.yaml").write_text("learning_rate: 1e-6\nnum_generations: 8\nbeta: 0.04\nscale_rewards: group\n")
    assert cli.main(["diagnose", str(tmp_path)]) == 0
    assert f"the settings are those of {tmp_path / 'config.yaml'}" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["diagnose", str(tmp_path / "log.jsonl")]) == 0
    assert "the settings are those of" not in capsys.readouterr().out


def test_right_advantages_in_other_rows_of_the_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in tt-metal #46548: advantages are split over devices before rollouts are split into micro-batches."""

    def scattered(rewards: np.ndarray) -> np.ndarray:
        return standardized(rewards).reshape(4, 4, 2).transpose(1, 0, 2).reshape(4, 8)

    assert cli.main(["verify", str(batch(tmp_path / "a", scattered))]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "Misplaced rewards: " in shown
    assert "they are the right ones in another order of the rows" in shown
    assert cli.main(["verify", str(batch(tmp_path / "b", standardized))]) == 0
    assert "isplaced" not in capsys.readouterr().out


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_weights_of_rewards_that_are_in_force_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sign: int
) -> None:
    """As in alpamayo-recipes #29: a score that is to be high enters with a minus."""
    rng = np.random.default_rng(1)
    with (tmp_path / "rollouts.jsonl").open("w") as file:
        for k in range(160):
            parts = {"trajectory": float(rng.random()), "reasoning": float(rng.random())}
            total = parts["trajectory"] + sign * 0.5 * parts["reasoning"]
            row = {"step": 1 + k // 16, "group": f"{k // 8}", "prompt": f"scene {k // 8}", "completion": f"text {k}"}
            file.write(json.dumps(row | {"reward_components": parts, "reward": total}) + "\n")
    (tmp_path / "config.yaml").write_text(
        "reward_funcs: [trajectory, reasoning]\nreward_weights: [1.0, 0.5]\nnum_generations: 8\nlearning_rate: 1e-6\n"
    )
    cli.main(["verify", str(tmp_path)])
    shown = " ".join(capsys.readouterr().out.split())
    assert ("all of them are the sum with the weights trajectory 1, reasoning -0.5" in shown) == (sign < 0)
    assert ("Wrong reward weights" in shown) == (sign < 0)


@pytest.mark.parametrize(
    ("ended", "says"), [(0.6, "completions that end are paid as before"), (None, "read completions")]
)
def test_a_reward_that_the_cut_alone_takes(tmp_path: Path, ended: float | None, says: str) -> None:
    """As in UniRL #19: cut completions are paid 0, and ever more are cut; or those that end are paid less, too."""

    def change(k: int, row: Row) -> None:
        cut = min(0.9, 0.08 + 0.006 * k)
        paid = 0.6 if ended else 0.6 * (1 - k / 170)
        row["completions/clipped_ratio"], row["completions/mean_length"] = cut, 300 + 4.0 * k
        row["reward"] = paid * (1 - cut) + 0.008 * float(np.random.default_rng(k).normal())

    path = log(tmp_path / "a.jsonl", rows(7, change))
    first = present(path)[0]
    assert first.fault == "length"
    assert "of completions are cut" in first.because
    assert first.remedy.startswith(says)
    assert false_claims(path) == []


@pytest.mark.parametrize("rises", [False, True])
def test_a_reward_that_fell_without_having_risen_asks_for_the_sign(tmp_path: Path, rises: bool) -> None:
    """As in fla #1076, whose loss was negated twice; a reward that rose first needs a checkpoint from before."""

    def change(k: int, row: Row) -> None:
        noise = 0.02 * float(np.random.default_rng(k).normal())
        row["reward"] = max(
            0.0, (0.3 + 0.006 * k if rises and k < 60 else 0.52 * np.exp(-max(0, k - 60 * rises) / 75)) + noise
        )
        row["frac_reward_zero_std"] = min(0.9, 0.15 + 0.006 * max(0, k - 60 * rises))

    path = log(tmp_path / "a.jsonl", rows(8, change))
    first = present(path)[0]
    assert first.fault == "dead after a fall"
    assert ("see that updates make paid rollouts likelier" in first.remedy) == (not rises)
    assert "all rewards within a group" not in first.remedy
    assert false_claims(path) == []


@pytest.mark.parametrize(("mini", "named"), [(8, True), (256, False)])
def test_many_updates_on_a_batch_come_before_what_follows_from_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mini: int, named: bool
) -> None:
    """As in multimodal-search-r1 #19: 512 prompts in mini-batches of 8."""

    def change(k: int, rng: np.random.Generator) -> Values:
        far = max(0.0, (k - 8) / 60)
        return {
            "actor/pg_clipfrac": 0.02 + 0.28 * far, "actor/entropy": 0.4 + 1.8 * far + 0.01 * rng.normal(),
            "critic/score/mean": max(0.0, 0.5 - 0.4 * far) + 0.02 * rng.normal(), "response_length/max": 2048.0,
        }  # fmt: skip

    verl(tmp_path / "train.log", 60, change)
    (tmp_path / "config.yaml").write_text(
        "data:\n  train_batch_size: 512\n  max_response_length: 2048\nalgorithm:\n  adv_estimator: grpo\n"
        f"actor_rollout_ref:\n  actor:\n    ppo_mini_batch_size: {mini}\n  rollout:\n    n: 8\n"
    )
    cli.main(["diagnose", str(tmp_path), "--json"])
    first = json.loads(capsys.readouterr().out)["findings"][0]
    assert (first["fault"] == "clip saturation") == named
    assert ("used for 64 updates" in first["because"]) == named


def test_a_form_that_is_never_paid_may_stand_in_the_prompt(tmp_path: Path) -> None:
    """As in TRL #6966: the template opens <think> in the prompt, and the function asks for it in the completion."""

    def change(k: int, row: Row) -> None:
        row["rewards/think_format_reward/mean"] = row["rewards/think_format_reward/std"] = 0.0
        row["rewards/accuracy_reward/mean"], row["rewards/accuracy_reward/std"] = row["reward"], 0.4

    (found,) = [one for one in present(log(tmp_path / "a.jsonl", rows(9, change))) if one.fault == "never paid"]
    assert "opens in the prompt (<think>)" in found.remedy

    def paid(k: int, row: Row) -> None:
        change(k, row)
        row["rewards/think_format_reward/mean"] = 0.9

    assert "never paid" not in names(log(tmp_path / "b.jsonl", rows(9, paid)))


@pytest.mark.parametrize(("size", "steps"), [(64, 4), (256, None)])
def test_a_stale_batch_that_is_used_for_several_steps(size: int, steps: int | None) -> None:
    """As in miles #2524: the bound on staleness does not count the steps on one batch."""
    given = {
        "max_weight_staleness": 2, "rollout_batch_size": 32, "n_samples_per_prompt": 8, "global_batch_size": size,
        "advantage_estimator": "grpo", "train_async": True, "use_tis": True,
    }  # fmt: skip
    found = [
        one for one in lint(Settings(Path("x"), "a file", SLIME, given)) if one.fault == "stale sampler" and one.present
    ]
    assert [one.brief for one in found] == ([] if steps is None else [f"{steps} steps on each stale batch"])


def texts(folder: Path, again: float, opens: bool) -> Path:
    """Rollouts of twelve steps of four prompts, of 20 words; again: the chance that one is the first of its group."""
    rng, words = np.random.default_rng(3), [f"word{number}" for number in range(40)]
    with (folder / "rollouts.jsonl").open("w") as file:
        for step in range(1, 13):
            for prompt in range(4):
                made = [" ".join(rng.choice(words, 20)) for _ in range(8)]
                for text in made:
                    said = made[0] if rng.random() < again else text
                    row = {
                        "step": step, "prompt": f"question {step}.{prompt}" + "\n<think>\n" * opens,
                        "completion": f"{'' if opens else '<think>'}{said}</think> so",
                        "reward": float(rng.random() < 0.4), "think_format_reward": float(not opens),
                    }  # fmt: skip
                    file.write(json.dumps(row) + "\n")
    return folder


@pytest.mark.parametrize(("again", "opens"), [(0.6, False), (0.0, True), (0.0, False)])
def test_what_texts_say_of_siblings_that_are_one_text_and_of_tags_in_the_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], again: float, opens: bool
) -> None:
    """As in TRL #5783, whose sampler was colder than asked, and TRL #6966, whose template opens <think>."""
    assert cli.main(["texts", str(texts(tmp_path, again, opens))]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert ("of pairs of siblings are one text" in shown) == (again > 0)
    assert ("print the temperature, top-k and top-p in force" in shown) == (again > 0)
    assert ("think_format_reward is 0 for all 384 completions; the prompts end with <think>." in shown) == opens


@pytest.mark.parametrize("ordered", [True, False])
def test_texts_that_repeat_at_one_distance_are_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ordered: bool
) -> None:
    rng, words = np.random.default_rng(5), [f"word{number}" for number in range(40)]
    with (tmp_path / "rollouts.jsonl").open("w") as file:
        for step, prompt in ((step, prompt) for step in range(1, 13) for prompt in range(4)):
            made = [" ".join(rng.choice(words, 20)) for _ in range(2)] * 4
            for text in made if ordered else rng.permutation(made):
                row = {"step": step, "prompt": f"question {step}.{prompt}", "completion": text,
                       "reward": float(rng.random() < 0.4)}  # fmt: skip
                file.write(json.dumps(row) + "\n")
    assert cli.main(["texts", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert ("each is the text that stands 2 places before it" in shown) == ordered
    assert ("print the temperature, top-k" in shown) != ordered


@pytest.mark.parametrize("sign", [1, -1])
def test_a_reward_that_changes_with_the_length_alone(tmp_path: Path, sign: int) -> None:
    """As in TRL #2771, whose example paid the distance from the wanted length and not its opposite."""

    def change(k: int, row: Row) -> None:
        row["reward"] = sign * abs(20 - 4.3 * row["completions/mean_length"])

    path = log(tmp_path / "a.jsonl", rows(10, change))
    (found,) = [one for one in present(path) if one.fault == "length pays"]
    assert found.grade == "note"
    assert f"batches of {'longer' if sign > 0 else 'shorter'} completions are paid more" in found.because
    assert f"(correlation {sign} over 159 changes)" in found.because
    assert "a distance from the wanted length is paid as it is" in found.remedy
    assert false_claims(path) == []

    def harder(k: int, row: Row) -> None:
        """Batches of harder prompts have longer and worse answers."""
        row["reward"] -= 0.002 * (row["completions/mean_length"] - 300)

    assert "length pays" not in names(log(tmp_path / "b.jsonl", rows(10, harder)))


@pytest.mark.parametrize(("name", "weight", "turned"), [
    ("length_penalty", 1.0, True), ("length_penalty", -1.0, False), ("length_reward", 1.0, False),
])  # fmt: skip
def test_a_penalty_that_pays_longer_answers(tmp_path: Path, name: str, weight: float, turned: bool) -> None:
    """Unless it is subtracted, or its name does not say that it penalises length."""

    def change(k: int, row: Row) -> None:
        right = float(np.random.default_rng(k).uniform(0.2, 0.6))
        longer = row["completions/mean_length"] / 1024
        row.update({"rewards/right/mean": right, f"rewards/{name}/mean": longer, "reward": right + weight * longer})

    path = log(tmp_path / "a.jsonl", rows(10, change))
    found = [one for one in present(path) if one.fault == "length pays"]
    assert bool(found) == turned
    for one in found:
        assert one.grade == "warning"
        assert "rewards/length_penalty/mean has a name of a penalty for length" in one.because
        assert one.remedy.startswith("print this part for a short and a long answer")
        claims = [claim for claim in false_claims(path) if "Parts of the reward" not in claim]
        assert claims == []


def test_one_jump_of_reward_and_length_is_no_pay_for_length(tmp_path: Path) -> None:
    """As in slime #2091: from the second rollout on noise up to the limit, which is paid nothing."""

    def broken(k: int, row: Row) -> None:
        if k > 40:
            row.update(reward=0.0, reward_std=0.0, frac_reward_zero_std=1.0)
            row.update({"completions/mean_length": 1024.0, "completions/clipped_ratio": 1.0})

    assert "length pays" not in names(log(tmp_path / "a.jsonl", rows(11, broken)))

    def jumps(k: int, row: Row) -> None:
        row["reward"] += 5.0 * (k > 80)
        row["completions/mean_length"] += 900.0 * (k > 80)

    assert "length pays" not in names(log(tmp_path / "b.jsonl", rows(11, jumps)))
