"""Metrics that an engine logs wrongly: found by version or by the numbers, and done without where they are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import engine_logs as logs
import numpy as np
import pytest
from engine_logs import written
from trainer_logs import trainer_state, trl_row

from grposcope.core.finding import Finding
from grposcope.core.run import Run
from grposcope.faults.judge_settings import lint
from grposcope.faults.known_task import Known
from grposcope.instruments.lint import read as lint_read
from grposcope.logs import read
from grposcope.logs.trainers import DEFECTS, TRAINERS

STEPS = 30


def verl(folder: Path, share: list[float], longest: list[float] | None, **settings: Any) -> Run:
    """A run of verl with these shares at the limit and longest completions."""
    rows = []
    for step in range(STEPS):
        row = logs.verl(step + 1) | {"response_length/clip_ratio": share[step]}
        row.pop("response_length/max")
        rows.append(
            {"step": step + 1, "data": row | ({} if longest is None else {"response_length/max": longest[step]})}
        )
    return read(written(folder / "log.jsonl", rows), settings)


MOVES = [1000.0 + 10 * (k % 7) for k in range(STEPS)]
LIMIT = [2048.0] * STEPS


@pytest.mark.parametrize(
    ("share", "longest", "version", "wrong"),
    [
        ([0.01] * STEPS, MOVES, None, True),  # above 0 although longer completions were not cut
        ([0.01] * STEPS, LIMIT, "0.9.1", False),  # the longest is the limit in every batch
        ([0.01] * STEPS, None, "0.9.1", True),
        ([0.01] * STEPS, None, "0.8.0", False),
        ([0.01] * STEPS, None, None, False),
        ([0.0, *[0.01] * (STEPS - 1)], MOVES, "0.9.1", False),  # 0, which the longest of a batch never is
    ],
)
def test_share_at_the_limit_of_verl(
    tmp_path: Path, share: list[float], longest: list[float] | None, version: str | None, wrong: bool
) -> None:
    run = verl(tmp_path, share, longest, **({"verl_version": version} if version else {}))
    assert ("at_limit" not in run.table) == wrong
    assert ("response_length/clip_ratio" in run.table) == wrong
    assert any("#7817" in note for note in run.meta.notes) == wrong
    assert run.reading is not None
    assert ("share at the limit" in run.reading.defects) == wrong


def test_share_of_high_sequences(tmp_path: Path) -> None:
    """0 throughout, though tokens are above the threshold: it was taken of capped weights."""
    for tokens, high, wrong in ((0.02, 0.0, True), (0.02, 0.01, False), (0.0, 0.0, False)):
        extra = {
            "rollout_corr/rollout_is_ratio_fraction_high": tokens,
            "rollout_corr/rollout_is_seq_fraction_high": high,
        }
        rows = [{"step": k, "data": logs.verl(k) | extra} for k in logs.steps()]
        run = read(written(tmp_path / "log.jsonl", rows))
        assert any("#6806" in note for note in run.meta.notes) == wrong


@pytest.mark.parametrize(("total", "wrong"), [("sum", True), ("weighted", False)])
def test_weights_of_rewards(tmp_path: Path, total: str, wrong: bool) -> None:
    rows = []
    for step in range(1, STEPS):
        row = trl_row(step)
        right, form = row["rewards/right/mean"], row["rewards/form/mean"]
        rows.append(row | {"reward": right + form if total == "sum" else 0.7 * right + 0.3 * form})
    run = read(trainer_state(tmp_path / "trainer_state.json", rows), {"reward_weights": [0.7, 0.3]})
    assert any("without reward_weights" in note for note in run.meta.notes) == wrong
    assert "reward" in run.table


def test_an_effective_share_above_one(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for step in logs.steps():
        for kind, number, row in logs.slime(step):
            counter = {"step": "train/step", "eval": "eval/step"}.get(kind, "rollout/step")
            rows.append({counter: number, **row} | ({"train/ess_ratio": 1.3} if kind == "step" else {}))
    assert any("#3230" in note for note in read(written(tmp_path / "a.jsonl", rows)).meta.notes)


def test_areals_share_at_the_limit(tmp_path: Path) -> None:
    rows = [{"global_step": k, **logs.areal(k)} for k in logs.steps()]
    assert "truncated" not in read(written(tmp_path / "a.jsonl", rows)).table  # ppo_actor/seq_len/max moves
    for row in rows:
        row["ppo_actor/seq_len/max"] = 2048.0
    assert "truncated" in read(written(tmp_path / "b.jsonl", rows)).table


def test_the_table_of_defects() -> None:
    for defect in DEFECTS:
        assert defect.engine in TRAINERS
        assert defect.in_version(".".join(map(str, defect.since)))
        assert defect.fixed is None or not defect.in_version(".".join(map(str, defect.fixed)))
        assert not defect.in_version("unknown")
        assert not defect.in_version(None)
    assert len({(defect.name, defect.engine) for defect in DEFECTS}) == len(DEFECTS)
    trl = next(defect for defect in DEFECTS if defect.engine == "trl")
    assert [trl.in_version(text) for text in ("0.26.2", "0.27.0", "0.29.1", "1.0.0", "1.16.0")] == [0, 1, 1, 0, 0]


def test_lint_names_them_for_the_version_of_a_run(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8 "
        "data.train_batch_size=64\n"
    )
    config = lint_read.read(script)

    def of(run: Run | None) -> list[Finding]:
        return [one for one in lint(config, Known(run=run)) if one.present and one.fault == "metric logged wrongly"]

    (found,) = of(verl(tmp_path, [0.01] * STEPS, MOVES))
    assert found.grade == "note"
    assert "response_length/clip_ratio is logged wrongly" in found.brief
    assert "longest completion of the batch" in found.because
    assert not of(verl(tmp_path, [0.01] * STEPS, LIMIT))
    assert not of(None)
    assert not np.isnan(verl(tmp_path, [0.01] * STEPS, LIMIT).table["at_limit"]).any()
