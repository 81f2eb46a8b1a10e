"""Every engine's log with its own keys is read without a word from the user: reward, held-out score,
length and the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from math import isnan
from pathlib import Path
from typing import Any

import engine_logs as logs
import numpy as np
import pytest
from engine_logs import EVERY, STEPS, written
from trainer_logs import trainer_state
from trap_logs import TRAPS

from grposcope.core.errors import UserError
from grposcope.core.run import Run
from grposcope.faults.judge import diagnose, diagnose_together
from grposcope.logs import Hints, read
from grposcope.logs.find import find
from grposcope.logs.trainers import prime_rl, trainer_named


def all_rows(of_step: Callable[[int], Iterable[logs.Row]]) -> list[logs.Row]:
    return [row for step in logs.steps() for row in of_step(step)]


def counted(of_step: Callable[[int], logs.Row], key: str = "step") -> list[logs.Row]:
    return [{key: step, **of_step(step)} for step in logs.steps()]


def text(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def _of_prime_folder(folder: Path) -> Path:
    written(folder / "run" / "trainer.jsonl", all_rows(logs.prime_trainer))
    written(folder / "run" / "orchestrator.jsonl", all_rows(logs.prime_orchestrator))
    written(folder / "run" / "requests.jsonl", [{"latency": 0.1, "at": k} for k in range(5)])
    return folder / "run"


def _of_prime_folders(folder: Path) -> Path:
    written(folder / "run" / "trainer" / "metrics.jsonl", all_rows(logs.prime_trainer))
    written(folder / "run" / "orchestrator" / "metrics.jsonl", all_rows(logs.prime_orchestrator))
    return folder / "run"


def _swift_state(folder: Path) -> Path:
    rows = [{**{key: value for key, value in logs.swift(step).items() if not isinstance(value, str)}, "step": step}
            for step in logs.steps()]  # fmt: skip
    rows += [{"step": step, "eval_reward": logs.value(step, 0.1)} for step in logs.steps() if step % EVERY == 0]
    return trainer_state(folder / "trainer_state.json", rows)


PRIME = ("reward", "entropy", "length", "truncated", "grad_norm", "lr", "mismatch/k3", "staleness/mean",
"staleness/max",
         "dead_fraction", "importance/masked")  # fmt: skip
ROLLED = ("reward", "entropy", "length", "grad_norm", "lr", "dead_fraction", "clip_fraction", "kl_loss", "policy_loss")
SWIFT = ("reward", "entropy", "length", "truncated", "grad_norm", "lr", "dead_fraction", "reward_std", "kl",
"clip_high",
         "mismatch/k1", "mismatch/k3", "mismatch/chi2_token", "importance/ess")  # fmt: skip
TWINKLED = ("reward", "entropy", "length", "grad_norm", "lr", "dead_fraction", "kl_old", "clip_fraction", "loss",
            "component/accuracy", "component_std/format")  # fmt: skip

ENGINES: dict[str, tuple[str, Callable[[Path], Path], tuple[str, ...], str]] = {
    "prime-rl, one file": (
        "prime-rl", lambda d: written(d / "metrics.jsonl", all_rows(logs.prime)), PRIME, "aime/all/agent/avg@8"
    ),
    "prime-rl, two files": ("prime-rl", _of_prime_folder, PRIME, "aime/effective/agent/pass@1"),
    "prime-rl, two folders": ("prime-rl", _of_prime_folders, PRIME, "aime/effective/agent/pass@1"),
    "verl, file": (
        "verl", lambda d: written(d / "a.jsonl", [{"step": s, "data": logs.verl(s)} for s in logs.steps()]),
        ("reward", "entropy", "length", "grad_norm", "mismatch/k1", "mismatch/k3", "staleness/mean", "weight_version"),
        "val-core/aime/reward/mean@8",
    ),
    "verl, console": (
        "verl", lambda d: text(d / "a.log", logs.verl_lines()),
        ("reward", "entropy", "length", "grad_norm", "mismatch/k1", "mismatch/k3", "staleness/mean", "weight_version"),
        "val-core/aime/reward/mean@8",
    ),
    "verl, console of fully asynchronous": (
        "verl", lambda d: text(d / "a.log", logs.verl_lines("FullyAsyncTaskRunner")), ("reward", "staleness/max"),
        "val-core/aime/reward/mean@8",
    ),
    "areal": (
        "areal", lambda d: written(d / "a.jsonl", counted(logs.areal, "global_step")),
        ("reward", "entropy_loss", "length", "grad_norm", "mismatch/log_ratio", "staleness/mean", "weight_version"),
        "reward",
    ),
    "roll, lines": ("roll", lambda d: written(d / "a.jsonl", counted(logs.roll)), ROLLED, "correct/all/mean"),
    "roll, stdout": (
        "roll", lambda d: text(d / "a.log", logs.roll_lines(map(logs.roll, logs.steps()))), ROLLED, "correct/all/mean"
    ),
    "ms-swift, logging.jsonl": (
        "ms-swift", lambda d: written(d / "logging.jsonl", logs.swift_rows()), SWIFT, "reward"
    ),
    "ms-swift, trainer_state.json": ("ms-swift", _swift_state, SWIFT, "reward"),
    "twinkle, lines": ("twinkle", lambda d: written(d / "a.jsonl", counted(logs.twinkle)), TWINKLED, ""),
    "twinkle, console": (
        "twinkle", lambda d: text(d / "a.log", logs.twinkle_lines(map(logs.twinkle, logs.steps()))), TWINKLED, ""
    ),
    "art": (
        "art", lambda d: written(d / "history.jsonl", all_rows(logs.art)),
        ("reward", "entropy", "grad_norm", "lr", "loss", "kl_estimate"), "reward",
    ),
    "art, before sections": (
        "art", lambda d: written(d / "history.jsonl", all_rows(logs.art_old)),
        ("reward", "entropy", "grad_norm", "lr", "loss", "policy_loss"), "reward",
    ),
    "verifiers": (
        "verifiers", lambda d: trainer_state(d / "trainer_state.json", list(map(logs.verifiers, logs.steps()))),
        ("reward", "entropy", "length", "grad_norm", "mismatch/k3", "importance/ratio", "component/format"), "",
    ),
    "tinker": (
        "tinker", lambda d: written(d / "metrics.jsonl", map(logs.tinker, logs.steps())),
        ("reward", "entropy", "length", "lr", "mismatch/k1", "mismatch/k2", "dead_fraction", "staleness/mean"),
        "reward",
    ),
    "skyrl": (
        "skyrl", lambda d: written(d / "a.jsonl", map(logs.skyrl, logs.steps())),
        ("reward", "entropy_loss", "length", "grad_norm", "mismatch/abs", "staleness/mean", "clip_fraction"),
        "all/avg_score",
    ),
    "nemo-rl": (
        "nemo-rl", lambda d: written(d / "a.jsonl", map(logs.nemo, logs.steps())),
        ("reward", "entropy_loss", "length", "grad_norm", "mismatch/k3", "mismatch/mult_error", "importance/ratio"),
        "accuracy",
    ),
    "slime, console": (
        "slime", lambda d: text(d / "a.log", logs.slime_lines()),
        ("reward", "entropy_loss", "length", "truncated", "grad_norm", "mismatch/abs", "kl_loss"), "aime",
    ),
}  # fmt: skip
"""Case -> engine, what writes its log, metrics that must be found, the held-out score."""

CURVES = {
    "reward": (0.3, 0.01), "entropy": (0.5, -0.005), "entropy_loss": (0.5, -0.005), "length": (700, 1),
    "truncated": (0.05, 0.001), "grad_norm": (0.3, 0.01), "dead_fraction": (0.3, 0.01), "staleness/mean": (1.5, 0.01),
}  # fmt: skip
"""Metric -> start and slope in every generated log."""


@pytest.mark.parametrize("case", ENGINES)
def test_read_without_options(tmp_path: Path, case: str) -> None:
    engine, write, metrics, heldout = ENGINES[case]
    run = read(write(tmp_path))
    assert run.meta.engine == engine
    assert set(metrics) <= run.table.keys(), set(metrics) - run.table.keys()
    step = run.table["step"] + (1 if engine == "slime" else 0)  # slime counts from 0
    assert step.tolist() == list(logs.steps())
    for metric, (start, slope) in CURVES.items():
        if metric in metrics and (engine, metric) != ("tinker", "staleness/mean"):
            there = ~np.isnan(run.table[metric])
            assert there.sum() >= STEPS - 2, metric
            np.testing.assert_allclose(run.table[metric][there], start + slope * step[there], atol=1e-5, err_msg=metric)
    if heldout:
        scores = run.evaluations.of(heldout)
        assert (scores.step + (1 if engine == "slime" else 0)).tolist() == list(range(EVERY, STEPS + 1, EVERY))
        np.testing.assert_allclose(scores.value, 0.1 + 0.01 * np.arange(EVERY, STEPS + 1, EVERY))


@pytest.mark.parametrize("engine", ["prime-rl, two files", "roll, lines", "tinker"])
def test_environments_one_by_one(tmp_path: Path, engine: str) -> None:
    path = ENGINES[engine][1](tmp_path)
    run = read(path)
    assert len(run.scopes) == 2
    for (name, part), start in zip(run.scopes.items(), (0.4, 0.2), strict=True):
        np.testing.assert_allclose(part.table["reward"], start + 0.01 * part.table["step"], atol=1e-5)
        assert read(path, Hints(scope=name)).keys["reward"] == part.keys["reward"]
        assert {"length", "dead_fraction"} <= part.table.keys()
    np.testing.assert_allclose(run.table["reward"], 0.3 + 0.01 * run.table["step"], atol=1e-5)


def test_environments_are_held_to_one_level(tmp_path: Path) -> None:
    """Holm's method goes over the rules of both environments,
    which log the same: the smallest p counts twice as much."""
    parts = list(read(TRAPS["environments in rows"](tmp_path).path).scopes.values())
    alone = min((found for part in parts for found in diagnose(part)), key=lambda found: (isnan(found.p), found.p))
    together = [one for findings in diagnose_together(parts) for one in findings if one.p == alone.p]
    assert alone.adjusted < 1e-6
    assert [one.adjusted for one in together] == [pytest.approx(2 * alone.adjusted)]


def test_two_runs_in_a_folder_are_not_joined(tmp_path: Path) -> None:
    for name, later in (("a", 0), ("b", 9)):
        written(tmp_path / f"{name}.jsonl", [{"step": s, **logs.roll(s + later)} for s in logs.steps()])
    with pytest.raises(UserError, match=r"logs of different runs \(a.jsonl, b.jsonl, …\)"):
        read(tmp_path)
    assert [found.path.name for found in find(tmp_path, Hints())] == ["a.jsonl", "b.jsonl"]


def test_programs_of_different_runs_are_refused(tmp_path: Path) -> None:
    """No metric in two of the files, but other steps: they cannot be of one run."""
    written(tmp_path / "trainer.jsonl", [{**row, "step": row["step"] + 500} for row in all_rows(logs.prime_trainer)])
    written(tmp_path / "orchestrator.jsonl", all_rows(logs.prime_orchestrator))
    with pytest.raises(UserError, match="logs of different runs: they have different steps"):
        read(tmp_path)


def test_a_joined_folder_is_one_run_among_others(tmp_path: Path) -> None:
    folder = _of_prime_folder(tmp_path)
    found = list(find(tmp_path, Hints()))
    assert [one.path for one in found] == [folder]
    assert found[0].run is not None
    assert "grad_norm" in found[0].run.table
    notes = read(folder).meta.notes
    assert any("orchestrator.jsonl gave 28 rows of steps 1 to 24" in note for note in notes)
    assert any("trainer.jsonl gave 120 rows" in note for note in notes)


def test_joined_files_of_a_resumed_run(tmp_path: Path) -> None:
    """The last attempt of every step counts, in each file by itself."""
    rows = all_rows(logs.prime_trainer)
    first = [{**row, "optim/grad_norm": 9.0} if "optim/grad_norm" in row else row for row in rows]
    again = [row for row in rows if row["step"] > 10]
    written(tmp_path / "trainer.jsonl", [row for row in first if row["step"] <= 14] + again)
    written(tmp_path / "orchestrator.jsonl", all_rows(logs.prime_orchestrator))
    run = read(tmp_path)
    assert run.steps == STEPS
    np.testing.assert_allclose(run.table["grad_norm"][:10], 9.0)
    np.testing.assert_allclose(run.table["grad_norm"][10:], 0.3 + 0.01 * np.arange(11, 25))
    assert not np.isnan(run.table["reward"]).any()


def test_a_restart_in_the_file_of_two_programs(tmp_path: Path) -> None:
    """The step falls for both programs once: an attempt of each, the second of which has the rows of both."""
    rows = [row for row in all_rows(logs.prime) if row["step"] <= 16]
    path = written(tmp_path / "metrics.jsonl", rows + [row for row in all_rows(logs.prime) if row["step"] > 12])
    run = read(path)
    assert len(run.segments) == 2
    np.testing.assert_allclose(run.table["reward"], 0.3 + 0.01 * np.arange(1, 25))
    late = run.segments[1].table
    assert not np.isnan(late["grad_norm"][2:-2]).any()


def test_the_agent_that_is_trained(tmp_path: Path) -> None:
    """Of a player and a judge, the reward is the player's; each is a scope of the run."""
    rows: list[dict[str, Any]] = []
    for step in logs.steps():
        row: dict[str, Any] = {"step": step}
        for agent, start in (("judge", 0.9), ("player", 0.3)):
            slope = 0.01 if agent == "player" else 0.0
            row |= logs.prime_scope("train/agg/all", step, logs.value(step, start, slope), agent)
            row[f"train/agg/all/{agent}/is_trainable/mean"] = float(agent == "player")
        rows.append(row)
    run = read(written(tmp_path / "metrics.jsonl", rows))
    np.testing.assert_allclose(run.table["reward"], 0.3 + 0.01 * np.arange(1, 25))
    assert any("agent player, the only one that is trained" in note for note in run.meta.notes)
    assert set(run.scopes) == {"judge", "player"}
    np.testing.assert_allclose(run.scopes["judge"].table["reward"], 0.9)


def exported(folder: Path, steps: range) -> Path:
    """Token exports of two sequences a step, of which one token each is not trained on."""
    for step in steps:
        sequences = [
            {"schema_version": 1, "step": step, "rank": 0, "env_name": env, "token_ids": [1, 2, 3],
             "loss_mask": [False, True, True], "advantages": [0.0, 0.5, 0.5], "entropy": [9.0, 0.4, 0.6],
             "mismatch_kl": [9.0, 0.001 * step, None], "importance_ratio": [9.0, 0.9, 1.1],
             "is_masked": [True, False, env == "math"]}
            for env in ("math", "code")
        ]  # fmt: skip
        path = folder / prime_rl.EXPORTS / f"step_{step}" / "rank_0.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in sequences))
    return folder / prime_rl.EXPORTS


def test_token_exports(tmp_path: Path) -> None:
    """Means over the tokens trained on, over all and over those of each environment."""
    run = read(exported(tmp_path, range(8, 14)))
    assert run.table["step"].tolist() == list(range(8, 14))
    np.testing.assert_allclose(run.table["mismatch/k3"], 0.001 * np.arange(8, 14))
    np.testing.assert_allclose(run.table["entropy"], 0.5)
    np.testing.assert_allclose(run.table["importance/masked"], 0.25)
    assert "mismatch_kl/math/mean" in run.table
    assert run.meta.engine == "prime-rl"


def test_twinkle_with_several_updates_to_a_batch(tmp_path: Path) -> None:
    """Rows after the first of a batch have no rewards, and none are made up."""
    rows = []
    for step in logs.steps():
        row = logs.twinkle(step)
        rows.append(row if step % 4 == 1 else {k: v for k, v in row.items() if "reward" not in k and "length" not in k})
    run: Run = read(text(tmp_path / "a.log", logs.twinkle_lines(rows)))
    there = ~np.isnan(run.table["reward"])
    assert run.table["step"][there].tolist() == list(range(1, 25, 4))
    assert not np.isnan(run.table["grad_norm"]).any()


@pytest.mark.parametrize(("engine", "key", "metric"), [
    ("openrlhf", "vllm_kl", "mismatch/k1"), ("openrlhf", "rollout/truncated_rate", "truncated"),
    ("tinker", "async/staleness_mean", "staleness/mean"), ("art", "train/steps_off_policy", "staleness/mean"),
    ("art", "loss/kl_policy_ref", "kl_k1"), ("skyrl", "policy/response_length", None),
])  # fmt: skip
def test_keys_by_their_definition_in_the_source(engine: str, key: str, metric: str | None) -> None:
    assert trainer_named(engine).metric(key) == metric


def test_rows_of_every_kind_of_number(tmp_path: Path) -> None:
    """Rows of plain numbers are packed at once; nulls, truths, numbers beyond any float and texts are not lost."""
    kinds: list[tuple[Any, float]] = [
        (1, 1.0), (0.5, 0.5), (True, 1.0), (None, np.nan), ("2.5", 2.5), (-0.0, 0.0), (10**400, np.inf),
        (2**60, 2.0**60),
    ]  # fmt: skip
    path = written(tmp_path / "a.jsonl", [
        {"step": step, "reward": 0.1 * step, "odd": value} for step, (value, _) in enumerate(kinds, 1)
    ])  # fmt: skip
    np.testing.assert_array_equal(read(path).table["odd"], [value for _, value in kinds])
