"""An evaluation as logs of inspect-ai (its JSON format, version 2), so that its viewer and tools open them.

One log is one model on one task: a sample per completion, the completions of a problem being its epochs, and scores "C"
or "I". The public schema is that of `inspect_ai.log.EvalLog`
(https://inspect.aisi.org.uk/eval-logs.html); what an evaluation does not have is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grposcope
from grposcope.core.errors import UserError
from grposcope.core.files import atomic, dumps
from grposcope.instruments.evaluation.record import Completion, EvaluatedProblem, EvaluationRecord
from grposcope.instruments.evaluation.scores import of_record

VERSION = 2
"""Of inspect-ai's log format."""

SCORER = "grposcope"

VALUES = {"right": "C", "wrong": "I", "unread": "I", "failed": "I"}
"""Verdict -> inspect-ai's value of the score."""


def write(record: EvaluationRecord, path: Path) -> list[Path]:
    """Write a log per model and task that has rows: `path` itself for one, else with a number before its suffix."""
    made = [
        (model, task) for model in record.plan.models for task in record.plan.tasks if record.rows.get((model, task))
    ]
    if not made:
        raise UserError(f"{record.folder} has no rows yet, so there is no log to write; continue the evaluation")
    written = []
    for number, (model, task) in enumerate(made, 1):
        target = path if len(made) == 1 else path.with_name(f"{path.stem}-{number}{path.suffix or '.json'}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic(target) as file:
                file.write(dumps(_log(record, model, task), indent=1).encode() + b"\n")
        except OSError as error:
            raise UserError(f"cannot write {target}: {error.strerror}; choose another file") from None
        written.append(target)
    return written


def _log(record: EvaluationRecord, model: str, task: str) -> dict[str, Any]:
    """The log of one model on one task."""
    plan, rows = record.plan, record.rows[model, task]
    evaluated = record.tasks[task]
    identity = _identity(record, model, task)
    config = {"temperature": plan.temperature, "max_tokens": evaluated.max_tokens, "seed": plan.seed}
    of_one = of_record(record, (1,), {model: (model,)})
    score = next(score for score in of_one.scores if score.task == task)
    mean = score.passes[1]
    metrics = {
        "accuracy": {"name": "accuracy", "value": mean.value},
        "stderr": {"name": "stderr", "value": mean.se if mean.se == mean.se else 0.0},
    }
    complete = len(rows) == evaluated.problems
    total = evaluated.problems * plan.samples
    return {
        "version": VERSION,
        "status": "success" if complete else "cancelled",
        "eval": {
            "eval_id": identity,
            "run_id": identity,
            "created": record.started,
            "task": task,
            "task_id": identity,
            "dataset": {
                "name": evaluated.name,
                "samples": evaluated.problems,
                "sample_ids": [_sample_id(row) for row in rows],
                "shuffled": False,
            },
            "model": f"{SCORER}/{model}",
            "model_generate_config": config,
            "config": {"epochs": plan.samples, "limit": plan.limit},
            "packages": {"grposcope": grposcope.__version__},
            "metadata": {"weights": record.models.get(model), "split": plan.split, "dtype": plan.dtype},
        },
        "plan": {"name": "plan", "steps": [{"solver": "generate", "params": {}}], "config": config},
        "results": {
            "total_samples": total,
            "completed_samples": len(rows) * plan.samples,
            "scores": [{"name": SCORER, "scorer": SCORER, "params": {}, "metrics": metrics}],
        },
        "stats": {"started_at": record.started, "completed_at": record.started, "model_usage": {}},
        "samples": [
            _sample(row, epoch, completion, model)
            for row in rows
            for epoch, completion in enumerate(row.completions, start=1)
        ],
    }


def _sample_id(row: EvaluatedProblem) -> str:
    """An id that is unique even where the task gives an id twice."""
    return f"{row.index}:{row.id}"


def _identity(record: EvaluationRecord, model: str, task: str) -> str:
    text = f"{record.started}\n{model}\n{record.models.get(model)}\n{task}\n{dumps(record.plan)}"
    return hashlib.sha256(text.encode()).hexdigest()[:22]


def _sample(row: EvaluatedProblem, epoch: int, completion: Completion, model: str) -> dict[str, Any]:
    said = {"role": "assistant", "content": completion.text, "source": "generate", "model": model}
    return {
        "id": _sample_id(row),
        "epoch": epoch,
        "input": row.prompt,
        "target": row.answer,
        "messages": [{"role": "user", "content": row.prompt, "source": "input"}, said],
        "output": {
            "model": model,
            "choices": [{"message": said, "stop_reason": "max_tokens" if completion.truncated else "stop"}],
            "usage": {"input_tokens": 0, "output_tokens": completion.tokens, "total_tokens": completion.tokens},
        },
        "scores": {SCORER: _score(completion)},
        "metadata": {"reward": completion.reward, "verdict": completion.verdict},
    }


def _score(completion: Completion) -> dict[str, Any]:
    explanation: Sequence[str] = {
        "unread": "no answer that the grader can read", "failed": completion.reason or "grading failed"
    }.get(completion.verdict, "")  # fmt: skip
    answer = {"answer": completion.answer} if completion.answer else {}
    return {"value": VALUES[completion.verdict], **answer, **({"explanation": explanation} if explanation else {})}
