r"""Tasks of reasoning-gym: extraction, thresholds, splits, and answers that must not be evaluated."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import pytest

from grposcope.core.errors import UserError
from grposcope.lab.tasks import reasoning_gym as room
from grposcope.lab.tasks.limits import time_limit
from grposcope.lab.tasks.reasoning_gym import ReasoningGym, _extracted

pytest.importorskip("reasoning_gym", reason="needs reasoning-gym")


@pytest.fixture(scope="module")
def sums() -> ReasoningGym:
    return ReasoningGym("chain_sum", size=50, heldout=20, min_terms=2, max_terms=3)


@pytest.mark.parametrize(
    ("completion", "lines", "answer"),
    [
        ("169", 1, "169"),
        ("I think\n169\n\n", 1, "169"),
        ("I think\n#### 169", 1, "169"),
        ("#### 1 2\n3 4\n", 2, "1 2\n3 4"),
        ("it is \\boxed{169}.", 1, "169"),
        ("<answer> 169 </answer> indeed", 1, "169"),
        ("So:\n1 2\n3 4", 2, "1 2\n3 4"),
        ("", 1, ""),
    ],
)
def test_extraction(completion: str, lines: int, answer: str) -> None:
    assert _extracted(completion, lines) == answer


def test_only_a_full_score_is_rewarded(sums: ReasoningGym) -> None:
    problem = sums.problems("train")[0]
    right = problem.answer
    assert sums.reward(problem, f"First I add.\n#### {right}") == 1.0
    assert sums.reward(problem, right) == 1.0
    assert sums.reward(problem, f"The answer is {right}.") == 0.0  # a partial score there
    assert sums.reward(problem, f"#### {int(right) + 1}") == 0.0
    assert sums.reward(problem, "") == 0.0


def test_graded_gives_the_score_itself() -> None:
    task = ReasoningGym("chain_sum", size=3, graded=True)
    problem = task.problems("train")[0]
    assert task.reward(problem, problem.answer) == 1.0
    assert 0 < task.reward(problem, f"The answer is {problem.answer}.") < 1


def test_splits_are_disjoint_and_the_same_every_time(sums: ReasoningGym) -> None:
    train, heldout = sums.problems("train"), sums.problems("heldout")
    assert len(train) == 50
    assert 0 < len(heldout) <= 20
    assert not {p.prompt for p in train} & {p.prompt for p in heldout}
    again = ReasoningGym("chain_sum", size=50, heldout=20, min_terms=2, max_terms=3)
    assert [p.prompt for p in again.problems("train")] == [p.prompt for p in train]
    assert [p.prompt for p in ReasoningGym("chain_sum", size=50, seed=7).problems("train")] != [p.prompt for p in train]


def test_prompts_seen_in_training_are_dropped() -> None:
    small = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    task = ReasoningGym("chain_sum", size=60, heldout=200, **small)
    trained, heldout = {p.prompt for p in task.problems("train")}, [p.prompt for p in task.problems("heldout")]
    assert not trained & set(heldout)
    assert len(heldout) == len(set(heldout)) < 200
    with pytest.raises(UserError, match="all problems occur in training"):
        ReasoningGym("chain_sum", size=5000, heldout=5, **small).problems("heldout")


@pytest.mark.parametrize("name", ["gsm_symbolic", "countdown", "gcd", "fraction_simplification", "manipulate_matrix"])
def test_reference_answers_earn_the_reward(name: str) -> None:
    task = ReasoningGym(name, size=5)
    for problem in task.problems("train"):
        assert task.reward(problem, f"Well.\n#### {problem.answer}") == 1.0
        assert task.reward(problem, "####") == 0.0


def test_puzzles_without_a_reference_answer_are_problems_too() -> None:
    assert ReasoningGym("graph_color", size=2).problems("train")[0].answer == ""


def test_a_scorer_that_raises_means_no_reward() -> None:
    task = ReasoningGym("prime_factorization", size=2)
    assert task.reward(task.problems("train")[0], "#### not × numbers") == 0.0


@pytest.mark.parametrize("name", ["countdown", "n_queens", "polynomial_multiplication", "string_insertion"])
def test_code_in_an_answer_is_not_run(tmp_path: Path, name: str) -> None:
    task, trace = ReasoningGym(name, size=2), tmp_path / "trace"
    problem = task.problems("train")[0]
    for code in (f"open({str(trace)!r}, 'w')", f"__import__('pathlib').Path({str(trace)!r}).touch()"):
        assert task.reward(problem, f"#### {code}") == 0.0
    assert not trace.exists()
    assert task.reward(problem, f"#### {problem.answer}") == 1.0


def test_names_are_whitelisted_where_formulas_are_evaluated() -> None:
    task = ReasoningGym("simple_integration", size=1)
    problem = task.problems("train")[0]
    assert task.reward(problem, f"#### {problem.answer}") == 1.0
    task._dataset.score_answer = lambda answer, entry: 1.0  # what passes the guard is rewarded now
    assert task.reward(problem, "#### sin(x)**2/3 + C") == 1.0
    for code in ("exec(x)", "x.args", "chr(1)", "__x__", "x[0]", "print(1)", "'a'", "lambda x: x"):
        assert task.reward(problem, f"#### {code}") == 0.0, code


def test_a_scorer_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ReasoningGym("countdown", size=1)
    problem = task.problems("train")[0]
    start = time.monotonic()
    assert task.reward(problem, "#### 9**9**9**9") == 0.0
    assert time.monotonic() - start < 1
    monkeypatch.setattr(room, "time_limit", partial(time_limit, 0.3))
    monkeypatch.setattr(task._dataset, "score_answer", lambda answer, entry: time.sleep(30))
    assert task.reward(problem, "#### 1") == 0.0
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("chainsum", {}, "did you mean chain_sum"),
        ("qqqqqqq", {}, "the names are ab, acre"),
        ("chain_sum", {"terms": 3}, "no option 'terms'; its options are allow_negation, graded, heldout"),
        ("chain_sum", {"min_terms": 5, "max_terms": 2}, "max_terms must be >= min_terms"),
        ("chain_sum", {"size": 0}, "size=0 is outside"),
        ("chain_sum", {"heldout": 2_000_000}, "heldout=2000000 is outside"),
    ],
)
def test_bad_names_and_options(name: str, options: dict[str, int], said: str) -> None:
    with pytest.raises(UserError, match=said):
        ReasoningGym(name, **options)  # type: ignore[arg-type]


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(UserError, match=r"pip install '.*\[reasoning\]'"):
        ReasoningGym("chain_sum")
