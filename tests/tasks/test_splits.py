"""Hash splits: disjoint, complete, stable."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grposcope.tasks.base import Problem, is_heldout
from grposcope.tasks.splits import by_hash


def _problems(prompts: list[str]) -> list[Problem]:
    return [Problem(str(n), prompt) for n, prompt in enumerate(prompts)]


@given(st.lists(st.text("abcé ", max_size=3), max_size=30))
def test_the_splits_share_no_prompt_and_lose_no_problem(prompts: list[str]) -> None:
    problems = _problems(prompts)
    train, heldout = by_hash(problems, "train"), by_hash(problems, "heldout")
    assert not {p.prompt for p in train} & {p.prompt for p in heldout}
    assert sorted(int(p.id) for p in (*train, *heldout)) == list(range(len(problems)))
    if len(set(prompts)) > 1:
        assert train
        assert heldout


def test_about_a_tenth_is_held_out_in_the_order_given() -> None:
    problems = _problems([f"What is {n} + 1?" for n in range(5000)])
    heldout = by_hash(problems, "heldout")
    assert 400 < len(heldout) < 600
    assert [int(p.id) for p in heldout] == sorted(int(p.id) for p in heldout)


def test_adding_problems_moves_none_of_the_others() -> None:
    problems = _problems([str(n) for n in range(400)])
    before = {p.prompt for p in by_hash(problems[:200], "heldout")}
    after = {p.prompt for p in by_hash(problems, "heldout")}
    assert before == {p.prompt for p in problems[:200]} & after


def test_few_problems_are_divided_all_the_same_and_one_is_for_training() -> None:
    prompts = [text for text in map(str, range(50)) if not is_heldout(text)][:3]
    assert len(by_hash(_problems(prompts), "heldout")) == 1
    held = [text for text in map(str, range(100)) if is_heldout(text)][:2]
    assert len(by_hash(_problems(held), "train")) == 1
    assert len(by_hash(_problems(held[:1]), "train")) == 1
    assert by_hash(_problems(held[:1]), "heldout") == ()
