"""What is said of an evaluation: scores, pairs with Holm's p, how little small sets tell, what cannot be read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from grposcope.core.answer import Answer
from grposcope.core.errors import UserError
from grposcope.core.files import dumps
from grposcope.core.text import number
from grposcope.instruments.evaluation import answer, scores
from grposcope.instruments.evaluation import record as evaluation
from grposcope.instruments.evaluation.record import (
    Completion,
    EvaluatedProblem,
    EvaluatedTask,
    EvaluationPlan,
    EvaluationRecord,
    EvaluationView,
    Verdict,
)
from grposcope.maths.holm import holm
from grposcope.render.document import of_answer


def record(
    folder: Path, right: dict[tuple[str, str], Sequence[int]], samples: int = 4, other: Verdict = "wrong",
    answer: str | None = "7", truncated: bool = False,
) -> EvaluationRecord:  # fmt: skip
    """A folder with so many right completions of each problem, by model and task."""
    models, tasks = tuple(dict.fromkeys(m for m, _ in right)), tuple(dict.fromkeys(t for _, t in right))
    plan = EvaluationPlan(models, tasks, samples)
    found = {task: EvaluatedTask(task, max(len(right[m, task]) for m in models), 99, 8, "d") for task in tasks}
    with evaluation.opened(folder, plan, found, EvaluationView(), {}, "2026-01-01T00:00:00+00:00") as writer:
        for (model, task), counts in right.items():
            rows = []
            for i, count in enumerate(counts):
                good = [Completion("1", "right", 1.0, 2, False)] * count
                bad = [Completion("x", other, 0.0, 6, truncated, answer)] * (samples - count)
                rows.append(EvaluatedProblem(model, task, i, f"p{i}", "1+0=", "1", (*good, *bad)))
            writer.add(rows)
    return evaluation.read(folder)


def test_pairs_are_compared_on_the_same_problems_with_holms_p(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    p = rng.beta(1, 1, 60)
    right = {(m, t): rng.binomial(4, np.clip(p + shift, 0, 1)).tolist()
             for m, shift in (("a", 0.0), ("b", 0.0), ("c", 0.4)) for t in ("x", "y")}  # fmt: skip
    folder = record(tmp_path / "e", right)
    found = scores.of_record(folder, (1, 2))
    assert [(one.task, one.k, one.first, one.second) for one in found.differences if one.k == 1] == [
        (t, 1, a, b) for t in ("x", "y") for a, b in (("a", "b"), ("a", "c"), ("b", "c"))
    ]
    for k in (1, 2):
        of_k = [one for one in found.differences if one.k == k]
        assert [one.adjusted for one in of_k] == holm([one.mean.p for one in of_k])
    one = next(x for x in found.differences if (x.task, x.k, x.first, x.second) == ("y", 1, "a", "c"))
    assert one.mean.value == pytest.approx((np.mean(right["c", "y"]) - np.mean(right["a", "y"])) / 4)
    said = answer._answer(folder)
    assert "c is better than a" in said.sentence
    assert not any("b is better" in sentence for sentence in said.paragraphs)
    assert said.word == "told"
    assert len(said.tables[1].rows) == len(said.document["differences"]) == 12
    json.loads(dumps(of_answer(said)))


def test_problems_that_only_one_model_was_asked_are_left_out_of_pairs(tmp_path: Path) -> None:
    folder = record(tmp_path / "e", {("a", "x"): [4, 0, 4, 4], ("b", "x"): [4, 0]})
    found = scores.of_record(folder, (1,))
    assert found.differences[0].mean.problems == 2
    assert found.differences[0].mean.value == 0
    said = answer._answer(folder)
    assert (said.word, said.document["missing"]) == ("cannot tell", 2)
    assert any("not evaluated yet" in note for note in said.text)


@pytest.mark.slow
def test_thirty_problems_say_how_little_they_tell(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    small = rng.binomial(4, rng.beta(0.3, 1.5, 30)).tolist()
    folder = record(tmp_path / "e", {("a", "aime"): small, ("b", "aime"): small[::-1]})
    found, said = scores.of_record(folder, (1,)), answer._answer(folder)
    assert said.sentence.startswith("No two models differ in pass@1 beyond noise")
    (sentence,) = said.missing
    assert f"less than {number(float(f'{100 * found.differences[0].mean.detectable:.3g}'))} points" in sentence
    assert found.differences[0].mean.detectable > answer.LITTLE
    large = rng.binomial(4, rng.beta(5, 5, 3000)).tolist()
    assert not answer._answer(record(tmp_path / "m", {("a", "aime"): large})).missing
    one = answer._answer(record(tmp_path / "o", {("a", "aime"): [2]}))
    assert one.sentence == "aime: a has pass@1 50.0%."
    assert list(one.missing) == one.document["sentences"] == ["aime: 1 problem cannot tell models apart."]


def unread(said: Answer) -> str:
    """The share of answers that could not be read, as the table of scores has it."""
    return said.tables[0].rows[0][-2]


def test_what_the_grader_cannot_read_is_counted_and_shown(tmp_path: Path) -> None:
    folder = record(tmp_path / "e", {("a", "x"): [4, 3, 2, 0]}, other="unread", answer="")
    assert scores.of_record(folder, (1,)).scores[0].unread.value == pytest.approx(7 / 16)
    assert unread(answer._answer(folder)) == "43.8%"
    failed = record(tmp_path / "f", {("a", "x"): [4, 3, 2, 0]}, other="failed")
    assert scores.of_record(failed, (1,)).scores[0].failed == pytest.approx(7 / 16)
    assert any("grading failed on 43.8%" in note for note in answer._answer(failed).document["notes"])


def test_a_reward_that_does_not_say_what_it_reads_is_not_taken_for_one_that_reads_all(tmp_path: Path) -> None:
    said = answer._answer(record(tmp_path / "e", {("a", "x"): [4, 0]}, answer=None))
    assert unread(said) == "not told"
    assert said.document["scores"][0]["unread"] is None
    assert any("does not say which answers" in note for note in said.text)


def test_completions_that_were_cut_off_are_told(tmp_path: Path) -> None:
    folder = record(tmp_path / "e", {("a", "x"): [4, 0]}, truncated=True)
    assert scores.of_record(folder, (1,)).scores[0].truncated.value == 0.5
    assert any("were cut" in note for note in answer._answer(folder).text)


def test_the_noise_of_completions_alone_is_told_where_it_is_known(tmp_path: Path) -> None:
    found = scores.of_record(record(tmp_path / "e", {("a", "x"): [1, 2, 3, 0]}), (1, 4))
    expected = math.sqrt(sum(p * (1 - p) / 3 for p in (0.25, 0.5, 0.75, 0))) / 4
    assert found.scores[0].se_samples[1] == pytest.approx(expected)
    assert math.isnan(found.scores[0].se_samples[4])


def test_seeds_of_one_training_are_one_arm(tmp_path: Path) -> None:
    right = {(m, "x"): c for m, c in (("base", [0, 1, 2, 3]), ("runs/s0", [1, 2, 3, 4]), ("runs/s1", [3, 3, 3, 4]))}
    arms = {"base": ("base",), "trained": ("runs/s0", "runs/s1")}
    found = scores.of_record(record(tmp_path / "e", right), (1,), arms)
    assert [(score.arm, score.passes[1].trainings) for score in found.scores] == [("base", 1), ("trained", 2)]
    assert found.scores[1].passes[1].value == pytest.approx((10 + 13) / 32)
    assert found.scores[1].passes[1].se_trainings == pytest.approx(3 / 16 / 2)
    assert found.differences[0].mean.value == pytest.approx((10 + 13) / 32 - 6 / 16)


@pytest.mark.parametrize("k", [0, 5])
def test_a_k_that_the_completions_do_not_give_is_refused(tmp_path: Path, k: int) -> None:
    with pytest.raises(UserError, match=f"pass@{k} needs"):
        scores.of_record(record(tmp_path / "e", {("a", "x"): [1, 2]}), (k,))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["tiny"], ["tiny"]),
        (["runs/a/model", "runs/b/model"], ["a/model", "b/model"]),
        (["runs/a/model"], ["a/model"]),
        (["x/m", "y/m", "tiny"], ["x/m", "y/m", "tiny"]),
        (["Qwen/Qwen2.5-0.5B", "tiny"], ["Qwen2.5-0.5B", "tiny"]),
    ],
)
def test_names_are_short_and_different(names: list[str], expected: list[str]) -> None:
    assert scores.labels(names) == expected
