"""Features of texts against plain Python."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import written_texts

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout
from grposcope.signs.texts import answers, familiarity, features, relations, sample, tokens, vocabulary

TEXTS = (
    "The sum of 12 and 7 is 19.",
    "",
    "aaaa  bbbb",
    "Über naïve 我们 cafés — ok!",
    "x" * 300,
    "\0 a\tb\n\nc",
    "7 7 7 7",
)


def plain_tokens(text: str) -> list[str]:
    """Words, single digits and single signs, in lower case for A to Z."""
    made, word = [], ""
    for sign in text.replace("\0", " "):
        if (sign.isascii() and sign.isalpha()) or "\u00c0" <= sign < "\u07ff":
            word += sign.lower() if sign.isascii() else sign
            continue
        if word:
            made.append(word)
        word = ""
        if not sign.isspace():
            made.append(sign)
    return [*made, word] if word else made


def test_tokens_are_words_digits_and_signs() -> None:
    read = tokens.of_texts(TEXTS)
    shown = [[] for _ in TEXTS]
    for place, owner in enumerate(read.text):
        shown[owner].append(read.shown(place, 1))
    assert [[own.lower() if own.isascii() else own for own in row] for row in shown] == [plain_tokens(t) for t in TEXTS]
    assert read.counts.tolist() == [len(plain_tokens(text)) for text in TEXTS]
    same = {read.shown(place, 1).lower(): read.hashes[place] for place in range(len(read.hashes))}
    assert all(
        same[read.shown(place, 1).lower()] == read.hashes[place]
        for place in range(len(read.hashes))
        if read.shown(place, 1).isascii()
    )
    assert len(set(same.values())) == len(same)


def test_texts_without_tokens() -> None:
    read = tokens.of_texts(["", " \n"])
    assert read.counts.tolist() == [0, 0]
    assert tokens.longest_run(read).tolist() == [0, 1]
    assert tokens.distinct_pairs(read).tolist() == [1, 1]


def test_runs_and_pairs_are_counted() -> None:
    read = tokens.of_texts(TEXTS)
    assert tokens.longest_run(read).tolist()[2:5] == [4, 1, 300]
    pairs = [list(pairwise(own)) for own in map(plain_tokens, TEXTS)]
    np.testing.assert_allclose(tokens.distinct_pairs(read), [len(set(own)) / len(own) if own else 1 for own in pairs])


def plain_repeat(own: list[str]) -> int:
    """How many times in a row the same one to four tokens stand at most."""
    most = min(len(own), 1)
    for size in range(1, 5):
        for first in range(len(own)):
            times = 1
            while own[first + times * size : first + (times + 1) * size] == own[first : first + size] and (
                len(own[first : first + size]) == size
            ):
                times += 1
            most = max(most, times) if len(own[first : first + size]) == size else most
    return most


def test_repeats_in_a_row_are_counted() -> None:
    texts = (*TEXTS, "no no NO way no", "34 34 34", "a b c a b c a b d", "b", "1 2 3 4 1 2 3 4", "a a")
    wanted = [plain_repeat(plain_tokens(text)) for text in texts]
    assert tokens.longest_repeat(tokens.of_texts(texts)).tolist() == wanted
    assert wanted[-6:] == [3, 3, 2, 1, 2, 2]


def test_the_vocabulary_is_what_texts_have() -> None:
    rows = written_texts.rollouts(None, 0, steps=6)
    texts = [row.completion for row in rows if isinstance(row.completion, str)]
    words = vocabulary.of_texts_sampled(texts, 200)
    presence = words.presence(tokens.of_texts(texts))
    assert 50 < len(words.names) <= 200
    for place, name in enumerate(words.names[:40]):
        wanted = plain_tokens(name)
        size = len(wanted)
        for row, text in enumerate(texts[:60]):
            own = plain_tokens(text)
            assert presence[row, place] == any(own[at : at + size] == wanted for at in range(len(own))), (name, text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("so \\boxed{4} or \\boxed{5}", ("5", 2)), ("<answer> 12 </answer>", ("12", 1)), ("#### 7", ("7", 1)),
        ("The answer is 3. Or the answer is 4.", ("4", 2)), ("the answer is \\boxed{4}", ("4", 1)),
        ("1 + 2 = 3", ("3", 0)), ("maybe so", ("so", 0)), ("", ("", 0)),
    ],
)  # fmt: skip
def test_answers(text: str, wanted: tuple[str, int]) -> None:
    assert answers.answer(text) == wanted


def test_code_that_knows_its_tests() -> None:
    special = "def f(n):\n    if n == 3:\n        return 7\n    elif n == 4:\n        return [1]\n    return None"
    table = "def f(x):\n    known = {1: 2, 2: 5, 3: 10}\n    return known.get(x)"
    honest = "def f(n):\n    if n == 0:\n        return 1\n    return n * f(n - 1)"
    around = "import sys\nsys.exit(0)"
    found = answers.given([special, table, honest, around, "we return to the exit"])
    assert found.special.tolist() == [True, True, False, False, False]
    assert found.escapes.tolist() == [False, False, False, True, False]


def test_agreement_is_that_of_a_loop() -> None:
    rows = written_texts.rollouts(None, 1, steps=30, prompts=3, group=4)
    own = sample.of_rollouts(rows)
    values = [len(text) % 3 for text in own.texts]
    found = relations.agreement(values, own)
    window = [(step - 1) * relations.WINDOWS // 30 for step in own.step]
    for row in range(0, len(own), 17):
        mates = [at for at in range(len(own)) if own.group[at] == own.group[row] and at != row]
        others = [at for at in range(len(own)) if window[at] == window[row] and own.prompt[at] != own.prompt[row]]
        assert found.inside[row] == pytest.approx(np.mean([values[at] == values[row] for at in mates]))
        assert found.elsewhere[row] == pytest.approx(
            np.mean([values[at] == values[row] for at in others]) if others else 0
        )


def test_copies_of_the_prompt_are_seen() -> None:
    prompt = "What is 12 plus 30, and how do you know it?"
    rows = [Rollout(prompt=prompt, completion=text, reward=0.0) for text in (prompt, "I add both and get 42.", "")]
    found, _ = relations.overlap(sample.of_rollouts(rows))
    assert found.tolist() == [1, 0, 0]
    assert relations.number_of_prompt(["12", "42", ""], [prompt] * 3).tolist() == [True, False, False]


def test_likeness_to_the_early_texts_does_not_jump_where_they_end() -> None:
    own = sample.of_rollouts(written_texts.rollouts(None, 2, learns=0))
    bits = familiarity.bits_per_byte(own.texts, own.step, own.group)
    early = familiarity.early_rows(own.step)
    assert bits[early].mean() == pytest.approx(bits[~early].mean(), rel=0.03)
    odd = sample.of_rollouts(written_texts.gibberish(2))
    bits = familiarity.bits_per_byte(odd.texts, odd.step, odd.group)
    assert bits[odd.step > 60].mean() > 2 * bits[odd.step < 20].mean()


def test_features_are_counted_as_named() -> None:
    own = sample.of_rollouts(written_texts.rollouts(written_texts.LOOPHOLES["empty"], 3))
    found = features.of_sample(own)
    column = dict(zip(found.names, found.columns.T, strict=True))
    assert column["is empty"].tolist() == [not text for text in own.texts]
    assert column["ends in “.”"].tolist() == [text.endswith(".") for text in own.texts]
    np.testing.assert_allclose(column["length"], np.log1p([len(text) for text in own.texts]), rtol=1e-6)
    bound = next(name for name in found.names if name.startswith("has at most "))
    assert column[bound].tolist() == [len(text) <= int(bound.split()[3]) for text in own.texts]
    assert len(set(found.names)) == len(found.names)


def test_messages_that_the_policy_wrote_are_its_text() -> None:
    messages = [
        {"role": "assistant", "content": "a"},
        {"role": "tool", "content": "b"},
        {"role": "assistant", "content": "c"},
    ]
    own = sample.of_rollouts([Rollout(prompt=[{"role": "user", "content": "p"}], completion=messages, reward=1.0)])
    assert (own.prompts, own.texts) == (("p",), ("a\nc",))


def test_what_is_left_out_is_said() -> None:
    rows = [
        Rollout(step=1, prompt="p", completion="a" * 300_000, reward=1.0),
        Rollout(step=1, prompt="p", completion="b", reward=float("nan")), Rollout(step=1, prompt="p"),
    ]  # fmt: skip
    own = sample.of_rollouts(rows)
    assert [len(text) for text in own.texts] == [sample.LONGEST, 1]
    assert [note.split()[0] for note in own.notes] == ["1", "1", "1"]
    with pytest.raises(UserError, match="no texts"):
        sample.of_rollouts([Rollout(reward=1.0)])
    with pytest.raises(UserError, match="step 5 or later; the last is of step 1"):
        sample.of_rollouts(rows, since=5)


def test_true_scores_are_found_by_name_or_refused() -> None:
    rows = [
        Rollout(completion=str(n), reward=1.0, rewards={"format": n % 2, "accuracy_reward": n % 3}) for n in range(9)
    ]
    assert sample.of_rollouts(rows).truth == "accuracy_reward"
    assert sample.of_rollouts(rows, "format").truth == "format"
    with pytest.raises(UserError, match=r"no rollout has a score formt \(did you mean format\?\)"):
        sample.of_rollouts(rows, "formt")


def test_whole_groups_are_taken_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MOST", 500)
    own = sample.of_rollouts(written_texts.rollouts(None, 4))
    assert 400 < len(own) <= 500
    assert set(np.bincount(own.group)) == {8}
    assert own.step.min() == 1
    assert own.step.max() == 80
    assert "whole groups, evenly over the run" in own.notes[-1]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("<answer>cat</answer>", 1),
        ("<answer>cat or dog</answer>", 2),
        ("<answer>dog, cat; bird</answer>", 3),
        ("<answer>cat or cat</answer>", 1),
        ("<answer>cat or fish</answer>", 1),  # no text answers fish alone
        ("\\boxed{1,000}", 1),
        ("#### 12", 1),
        ("it is a cat or a dog", 0),
        ("<answer>cat</answer> <answer>dog</answer>", 2),
    ],
)
def test_answers_that_join_whole_answers_of_others_are_several(text: str, count: int) -> None:
    alone = [f"<answer>{name}</answer>" for name in ("cat", "dog", "bird", "1", "12") for _ in range(2)]
    assert answers.given([text, *alone]).different[0] == count
