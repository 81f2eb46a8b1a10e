"""The page of an evaluation, and its logs for inspect-ai."""

from __future__ import annotations

import json
import re
from pathlib import Path

import altair as alt
import pytest

from grposcope.core.errors import UserError
from grposcope.instruments.evaluation import answer, inspect_log, scores
from grposcope.instruments.evaluation import record as evaluation
from grposcope.instruments.evaluation.record import (
    Completion,
    EvaluatedProblem,
    EvaluatedTask,
    EvaluationPlan,
    EvaluationRecord,
    EvaluationView,
)
from grposcope.render.page import html

HOSTILE = "</script><script>alert(1)</script>\x1b[31m\u202e"


@pytest.fixture
def record(tmp_path: Path) -> EvaluationRecord:
    plan = EvaluationPlan(("tiny", "runs/x"), ("sums", "words"), 3)
    found = {task: EvaluatedTask(task, 4, 9, 8, "d") for task in plan.tasks}
    kinds = (
        Completion("1", "right", 1.0, 2, False),
        Completion(HOSTILE, "wrong", 0.0, 8, True, "7"),
        Completion("", "unread", 0.0, 1, False, ""),
        Completion("2", "failed", 0.0, 2, False, None, "took too long"),
    )
    with evaluation.opened(tmp_path / "e", plan, found, EvaluationView(), {}, "2026-01-01T10:00:00+00:00") as writer:
        for model in plan.models:
            for task in plan.tasks:
                rows = [
                    EvaluatedProblem(
                        model, task, i, "same id", HOSTILE, "1", tuple(kinds[(i + j) % 4] for j in range(3))
                    )
                    for i in range(4)
                ]
                writer.add(rows if (model, task) != ("runs/x", "words") else rows[:2])
    return evaluation.read(tmp_path / "e")


def test_the_page_shows_scores_differences_problems_and_completions(record: EvaluationRecord) -> None:
    content = answer.document(record)
    assert [section.name for section in content.sections] == ["scores", "problems", "rollouts"]
    of_scores, differences = content.top.tables
    charts, problems, completions = content.sections
    assert [figure.name for figure in charts.figures] == ["pass_at_1", "pass_at_3"]
    assert [row[:3] for row in of_scores.rows] == [
        ("sums", "tiny", "4"), ("sums", "x", "4"), ("words", "tiny", "4"), ("words", "x", "2"),
    ]  # fmt: skip
    assert len(differences.rows) == 4
    assert [row[2:] for row in problems.tables[1].rows] == [("1/3", "1/3"), ("0/3", "0/3"), ("1/3", ""), ("1/3", "")]
    assert [[step["step"] for step in one["steps"]] for one in completions.data["runs"]] == [["sums", "words"]] * 2
    text = html(content)
    assert HOSTILE not in text
    assert "alert(1)</script>" not in text


def test_the_charts_are_valid(record: EvaluationRecord) -> None:
    for figure in answer.document(record).figures:
        spec = json.loads(json.dumps(figure.spec))
        alt.LayerChart.from_dict(spec)
        assert {len(column) for column in figure.data["scores"].values()} == {4}


def test_a_log_per_model_and_task(record: EvaluationRecord, tmp_path: Path) -> None:
    paths = inspect_log.write(record, tmp_path / "logs" / "x.json")
    assert [path.name for path in paths] == [f"x-{n}.json" for n in (1, 2, 3, 4)]
    logs = [json.loads(path.read_text()) for path in paths]
    assert [(one["eval"]["task"], one["eval"]["model"], one["status"]) for one in logs] == [
        ("sums", "grposcope/tiny", "success"),
        ("words", "grposcope/tiny", "success"),
        ("sums", "grposcope/runs/x", "success"),
        ("words", "grposcope/runs/x", "cancelled"),
    ]
    log = logs[0]
    found = scores.of_record(record, (1,)).scores[0].passes[1]
    metrics = log["results"]["scores"][0]["metrics"]
    assert (metrics["accuracy"]["value"], metrics["stderr"]["value"]) == pytest.approx((found.value, found.se))
    samples = log["samples"]
    assert len({(one["id"], one["epoch"]) for one in samples}) == len(samples) == 12
    assert sum(one["scores"]["grposcope"]["value"] == "C" for one in samples) / 12 == pytest.approx(found.value)
    assert samples[1]["output"]["choices"][0]["stop_reason"] == "max_tokens"
    assert samples[1]["scores"]["grposcope"]["answer"] == "7"
    assert "took too long" in samples[3 * 1 + 2]["scores"]["grposcope"]["explanation"]


SCHEMA = {
    "": {"version", "status", "eval", "plan", "results", "stats", "samples"},
    "eval": {"eval_id", "run_id", "created", "task", "task_id", "dataset", "model", "model_generate_config", "config",
             "packages", "metadata"},
    "results": {"total_samples", "completed_samples", "scores"},
    "samples": {"id", "epoch", "input", "target", "messages", "output", "scores", "metadata"},
}  # fmt: skip
"""The fields that we write, all of inspect_ai.log.EvalLog and its parts in 0.3.285, which reads our logs."""


def test_the_fields_are_those_of_the_public_schema(record: EvaluationRecord) -> None:
    log = inspect_log._log(record, "tiny", "sums")
    assert set(log) == SCHEMA[""]
    assert log["version"] == 2
    assert set(log["eval"]) == SCHEMA["eval"]
    assert set(log["results"]) == SCHEMA["results"]
    assert all(set(sample) == SCHEMA["samples"] for sample in log["samples"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", log["eval"]["created"])


def test_inspect_ai_reads_the_logs(record: EvaluationRecord, tmp_path: Path) -> None:
    """With the package inspect-ai installed, which is no dependency of ours."""
    reading = pytest.importorskip("inspect_ai.log")
    for path in inspect_log.write(record, tmp_path / "x.json"):
        read = reading.read_eval_log(str(path))
        assert read.results.scores[0].metrics["accuracy"].value == json.loads(path.read_text())["results"]["scores"][0][
            "metrics"]["accuracy"]["value"]  # fmt: skip


def test_an_evaluation_without_rows_has_no_log(tmp_path: Path) -> None:
    plan = EvaluationPlan(("tiny",), ("sums",), 3)
    tasks = {"sums": EvaluatedTask("sums", 4, 9, 8, "d")}
    with evaluation.opened(tmp_path / "e", plan, tasks, EvaluationView(), {}, "now"):
        pass
    record = evaluation.read(tmp_path / "e")
    with pytest.raises(UserError, match="no rows yet"):
        inspect_log.write(record, tmp_path / "x.json")
    content = answer.document(record)
    assert "not evaluated yet" in " ".join(content.top.paragraphs)
