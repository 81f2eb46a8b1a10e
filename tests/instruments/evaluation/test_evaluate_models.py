"""Evaluation problem by problem: nothing but the plan decides what is drawn, and nothing that was drawn is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grposcope.core.errors import UserError
from grposcope.instruments.evaluation import evaluate_models
from grposcope.instruments.evaluation import record as evaluation
from grposcope.instruments.evaluation.evaluate_models import draw, find_task
from grposcope.instruments.evaluation.record import EvaluatedProblem, EvaluationPlan, EvaluationView
from grposcope.lab import policies
from grposcope.lab.policies import Policy
from grposcope.lab.tasks import custom
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.tasks.base import Problem, Task

PLAN = EvaluationPlan(("tiny",), ("arithmetic",), 3, limit=12)
Rows = tuple[EvaluatedProblem, ...]


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return policies.load("tiny")


def evaluated(folder: Path, policy: Policy, task: Task, plan: EvaluationPlan = PLAN, batch: int = 256) -> Rows:
    found = {plan.tasks[0]: find_task(task, plan)}
    draw(folder, plan, found, lambda _: policy, EvaluationView(), batch)
    return evaluation.read(folder).rows[plan.models[0], plan.tasks[0]]


@pytest.mark.slow
def test_results_do_not_depend_on_how_many_are_drawn_at_a_time(tmp_path: Path, tiny: Policy) -> None:
    rows = [evaluated(tmp_path / str(n), tiny, Arithmetic(), batch=n) for n in (1, 2, 7, 256)]
    assert rows[0] == rows[1] == rows[2] == rows[3]
    assert len({one.text for row in rows[0] for one in row.completions}) > 12


def test_a_completion_depends_on_its_problem_its_number_and_the_seed_alone(tmp_path: Path, tiny: Policy) -> None:
    rows = evaluated(tmp_path / "a", tiny, Arithmetic())
    longer = evaluated(tmp_path / "b", tiny, Arithmetic(), replace(PLAN, limit=20, samples=5))
    assert [row.completions for row in rows] == [row.completions[:3] for row in longer[:12]]
    other = evaluated(tmp_path / "c", tiny, Arithmetic(), replace(PLAN, seed=1))
    assert [row.completions for row in rows] != [row.completions for row in other]


def test_completions_are_independent_draws_of_the_model(tmp_path: Path, tiny: Policy) -> None:
    """The first token of many completions of one prompt follows the model's probabilities."""
    import torch

    plan = replace(PLAN, samples=1500, limit=1, max_tokens=1)
    (row,) = evaluated(tmp_path / "a", tiny, Arithmetic(), plan, batch=400)
    ids, mask = policies.encode(tiny, [row.prompt])
    with torch.inference_mode():
        probabilities = tiny.model(ids, attention_mask=mask.long()).logits[0, -1].double().softmax(-1)
    for token in probabilities.topk(4).indices.tolist():
        text, p = tiny.tokenizer.decode([token], skip_special_tokens=True), float(probabilities[token])
        share = sum(one.text == text for one in row.completions) / 1500
        assert abs(share - p) < 4 * (p * (1 - p) / 1500) ** 0.5 + 1e-6


@pytest.mark.slow
def test_what_is_there_is_kept_and_the_rest_is_drawn(tmp_path: Path, tiny: Policy) -> None:
    whole = evaluated(tmp_path / "a", tiny, Arithmetic())
    path = tmp_path / "a" / evaluation.ROWS
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[i] for i in (0, 3, 4)) + lines[7][:40])
    told: list[int] = []
    found = {"arithmetic": find_task(Arithmetic(), PLAN)}
    draw(tmp_path / "a", PLAN, found, lambda _: tiny, EvaluationView(), 6, 0, lambda *about: told.append(about[2]))
    assert evaluation.read(tmp_path / "a").rows["tiny", "arithmetic"] == whole
    assert told == [3, 2, 2, 2, 2, 1]
    kept = path.read_bytes()

    def no_load(name: str) -> Policy:
        raise AssertionError("nothing is missing")

    draw(tmp_path / "a", PLAN, found, no_load, EvaluationView())
    assert path.read_bytes() == kept


def test_other_weights_under_the_same_name_are_refused(tmp_path: Path, tiny: Policy) -> None:
    evaluated(tmp_path / "a", tiny, Arithmetic())
    path = tmp_path / "a" / evaluation.ROWS
    path.write_bytes(path.read_bytes()[:500].rpartition(b"\n")[0])
    other = policies.load("tiny")
    weight = next(other.model.parameters())
    weight.data.reshape(-1)[0] += 1e-3
    assert evaluate_models._digest(other) != evaluate_models._digest(tiny)
    with pytest.raises(UserError, match="other weights of tiny"):
        evaluated(tmp_path / "a", other, Arithmetic())


class Odd(Arithmetic):
    """A verifier that fails on some completions; those of `broken`, on all."""

    broken = False

    def rewards(self, problems, completions):
        if self.broken or any(text.endswith("1") for text in completions):
            raise ValueError("cannot grade this")
        return super().rewards(problems, completions)


@pytest.mark.parametrize("batch", [1, 256])
def test_a_completion_whose_grading_fails_is_counted_with_its_reason(tmp_path: Path, tiny: Policy, batch: int) -> None:
    rows = evaluated(tmp_path / "a", tiny, Odd(), batch=batch)
    plain = evaluated(tmp_path / "b", tiny, Arithmetic())
    for row, other in zip(rows, plain, strict=True):
        for one, graded in zip(row.completions, other.completions, strict=True):
            assert (one.verdict == "failed") == one.text.endswith("1")
            assert ("cannot grade this" in one.reason) == (one.verdict == "failed")
            assert one.verdict in ("failed", graded.verdict)
    assert any(one.verdict == "failed" for row in rows for one in row.completions)


def test_a_verifier_that_always_fails_ends_the_evaluation(tmp_path: Path, tiny: Policy) -> None:
    task = Odd()
    task.broken = True
    with pytest.raises(UserError, match="cannot grade this"):
        evaluated(tmp_path / "a", tiny, task)


class Picky(Arithmetic):
    """A verifier that can read no answer in completions that end with an even digit."""

    def reward(self, problem, completion):
        return super().reward(problem, completion) if self.answer_in(problem, completion) else 0.0

    def answer_in(self, problem, completion):
        return "" if completion[-1:] in "02468" else super().answer_in(problem, completion)


def test_answers_that_cannot_be_read_are_told_from_wrong_ones(tmp_path: Path, tiny: Policy) -> None:
    rows = evaluated(tmp_path / "a", tiny, Picky())
    every = [one for row in rows for one in row.completions]
    assert {one.verdict for one in every} == {"right", "wrong", "unread"}
    assert all((one.verdict == "unread") == (one.text[-1:] in "02468") for one in every)
    assert all(one.answer == "" for one in every if one.verdict == "unread")


def test_problems_do_not_share_random_numbers(tmp_path: Path, tiny: Policy) -> None:
    class Twice(Arithmetic):
        def problems(self, split):
            return (super().problems(split)[1],) * 2

    first, second = evaluated(tmp_path / "a", tiny, Twice(), replace(PLAN, samples=20))
    assert first.prompt == second.prompt
    assert [one.text for one in first.completions] != [one.text for one in second.completions]


@pytest.mark.parametrize(("split", "expected"), [("heldout", 1), ("train", 19), ("all", 20)])
def test_splits(tmp_path: Path, split: str, expected: int) -> None:
    lines = [json.dumps({"prompt": f"{n}?", "answer": n}) for n in range(20)]
    (tmp_path / "own.jsonl").write_text("\n".join(lines))
    pytest.importorskip("math_verify")
    task = custom.Custom(str(tmp_path / "own.jsonl"))
    found = find_task(task, replace(PLAN, split=split, limit=None))
    assert (len(found.problems), found.found.of) == (len(task.problems(split)),) * 2 if split != "all" else (20, 20)
    assert len(find_task(task, replace(PLAN, split="all", limit=7)).problems) == 7
    assert find_task(task, replace(PLAN, split="all", limit=7)).found.of == 20
    assert expected > 0


def test_a_prompt_that_does_not_fit_is_told_before_anything_is_drawn(tmp_path: Path, tiny: Policy) -> None:
    class Long(Arithmetic):
        def problems(self, split):
            return (*super().problems(split)[:3], Problem("long", "1+" * 400 + "1=", "401"))

    plan = replace(PLAN, tasks=("arithmetic", "long"))
    found = {"arithmetic": find_task(Arithmetic(), plan), "long": find_task(Long(), plan)}
    with pytest.raises(UserError, match="tokens of context"):
        draw(tmp_path / "a", plan, found, lambda _: tiny, EvaluationView())
    assert (tmp_path / "a" / evaluation.ROWS).read_bytes() == b""


@pytest.mark.slow
def test_an_evaluation_that_is_killed_goes_on_with_what_it_had(tmp_path: Path) -> None:
    """kill -9 while rows are being written; the end is as if nothing had happened."""
    words = ["evaluate", "tiny", "--task", "arithmetic", "--limit", "40", "--samples", "2", "--batch", "4", "--json"]
    start = [sys.executable, "-m", "grposcope", *words, "--threads", "1", "--out"]
    path = tmp_path / "killed" / evaluation.ROWS
    process = subprocess.Popen([*start, str(tmp_path / "killed")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        if path.exists() and path.stat().st_size > 500:
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.002)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    before = path.read_bytes()
    assert 0 < before.count(b"\n") < 40
    done = subprocess.run([*start, str(tmp_path / "killed")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    plan = EvaluationPlan(("tiny",), ("arithmetic",), 2, limit=40)
    whole = evaluated(tmp_path / "whole", policies.load("tiny"), Arithmetic(), plan)
    assert evaluation.read(tmp_path / "killed").rows["tiny", "arithmetic"] == whole
    assert json.loads(done.stdout)["missing"] == 0
