"""Texts whose marked answer is the one that the data set has beside the prompt, and what they are paid; and data sets
whose answers are others than those that the rollouts of a prompt agree on; equal answers that are paid differently."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.rollouts import Rollout
from grposcope.core.text import visible
from grposcope.signs.answers import pays_for_answers
from grposcope.signs.texts import answers
from grposcope.signs.texts.sample import is_readable, written

REFERENCES = (
    "answer", "solution", "ground_truth", "gold", "gold_answer", "label", "target", "reference", "reference_answer",
    "final_answer", "gts",
)  # fmt: skip
"""Columns of a data set that have the right answer, of which the first that is there is taken."""

_WITHIN = ("reward_model", "verification_info", "extra_info", "info", "metadata")
"""Columns that hold the answer among other things, as verl's data sets and those of verifiers have it."""

FEW = 20
"""Right texts below which nothing is said."""

UNPAID = 0.95
"""Share of the right texts that have the least score there is, from which on they are not paid."""

FOLLOWS = ("never paid", "starved", "empty steps", "zero loss", "no learning", "constant reward", "no baseline")
"""Faults that follow where right answers are not paid."""

REMEDY = (
    "grade one right text by hand with its row of the data set, and print what the grader takes for its answer: give "
    "the rubric the parser of the marks that the prompt asks for, and the answer in the form that it compares"
)

_SIBLINGS, _AGREEING, _GROUPS, _OTHERS = 4, 0.5, 20, 0.9
"""Answers that a group needs, and the share of them that must be one for it to agree; groups that agree, and the share
of them that agree on another answer than the data set's, from which on its answers are said to be others."""

_UNEQUAL, _UNEQUAL_SHARE, _ANY_LENGTH = 8, 0.05, 0.25
"""Groups in which equal answers have both scores, and their share of those that could show it, from which on it is
said; share of the pairs of such answers in which the unpaid one is the longer, beside which length may tell them
apart."""

_BY_ANSWERS = 0.6
"""Share of the unpaid among answers whose equal is paid, over that among all, below which answers are graded."""

_FORM = re.compile(r"</?[A-Za-z_][\w-]*>|\\boxed|####")
"""Marks of the form of a text, which graders may ask for."""

_GRADE_AGAIN = (
    "grade one of the unpaid texts again by hand: if it is paid now, count the time inside the worker, give the grader "
    "a longer limit, and leave out what it could not grade; if it is not, see what else the grader reads"
)
"""What to do where equal answers are graded differently."""

_LONG = 200
"""Signs of a column beyond which it is a solution, of which the marked answer counts."""

_COPIED = 0.95
"""Share of the prompts that hold the answer of their row word for word, from which on it may be copied from them."""

_FEW_SIGNS = 3
"""Signs of an answer below which it may stand in a prompt by chance."""

_REMEDY_OF_REFERENCES = (
    "print three prompts beside the answer that they were graded with: where it belongs to another prompt, take it "
    "from the row that the prompt came from (no second shuffle or sort between drawing and grading); where it is "
    "another column, name the right one to the reward function"
)

_LAST = re.compile(r"####\s*(.+?)\s*$", re.S)
_SIGNS = re.compile(r"[\s$,%*\\{}]|\\text|\.0*$")


def unpaid(rows: Sequence[Rollout]) -> Finding | None:
    """That right answers are not paid: those of the data set, or those that the rollouts of a prompt agree on, where
    the data set has others; or that of siblings with one answer some are paid and some are not; None where none is
    so."""
    return _at_the_least(rows) or _graded_by_others(rows) or _paid_differently(rows)


def _at_the_least(rows: Sequence[Rollout]) -> Finding | None:
    """That texts which end in the right answer have the least score of all, by the score of answers where there is one,
    else by the reward; None where it is not so, or where fewer than FEW are known to be right."""
    right = [row for row in rows if is_readable(row) and not row.dropped and not row.failed and _is_right(row)]
    for name in _scores(rows):
        scores = [_score(row, name) for row in right]
        every = [value for row in rows if math.isfinite(value := _score(row, name))]
        if len(scores) < FEW or not every:
            continue
        least = sum(value <= min(every) for value in scores)
        if least < UNPAID * len(scores):
            return None
        if min(every) == max(every) > 0:
            return None  # all are paid alike, and the right ones with them
        called = visible(name, 40) if name else "the reward"
        of_all = f", as {'every' if min(every) == max(every) else 'the least'} text has"
        because = (
            f"{least:,} of {len(scores):,} texts that mark the answer of the data set as theirs have {called} = "
            f"{min(every):g}{of_all}: the grader does not find the answer in them, or asks for something else first"
        )
        first = next(row for row in right if _score(row, name) <= min(every))
        evidence = (Sign(f"right texts with {called} = {min(every):g}", float(least), where=first.where),)
        brief = f"{least:,} of {len(scores):,} right answers are not paid"
        return fact(True, because, evidence, fault="right answers unpaid", brief=brief,
                    explains=FOLLOWS, remedy=REMEDY)  # fmt: skip
    return None


def _graded_by_others(rows: Sequence[Rollout]) -> Finding | None:
    """That the rollouts of most prompts agree on an answer which is not the one that the data set has beside the
    prompt, which none of them gives, and which is not paid; None where too few groups agree, or too few of them so."""
    agreed = list(_agreed(rows))
    others = [(own, answer, due) for own, answer, due in agreed if answer != due]
    if len(agreed) < _GROUPS or len(others) < _OTHERS * len(agreed):
        return None
    if len({answer for _, answer, _ in others}) < _AGREEING * len(others):
        return None  # a closing that all texts have, and no answer
    scores = [row.reward for own, _, _ in others for row in own if math.isfinite(row.reward)]
    every = [row.reward for row in rows if math.isfinite(row.reward)]
    if not scores or sum(score <= min(every) for score in scores) < UNPAID * len(scores):
        return None
    copied = sum(_stands_in(own[0]) for own, _, _ in others)
    because = (
        f"in {len(others):,} of {len(agreed):,} groups whose rollouts agree on an answer it is another than the data "
        "set's, which none of them gives, and is not paid: unless nearly all prompts are answered wrongly in one way, "
        "the answers that they are graded with are those of other prompts, or of another column"
    )
    if copied >= _COPIED * len(others):
        because += f"; in {copied:,} of them the data set's stands word for word in the prompt, as what was given there"
    first = others[0][0][0]
    said, due = (visible(text.strip(), 40) for text in (_given(first, _reference(first)), _reference(first)))
    because += f" (the first: {said} against {due}, {first.where})"
    evidence = (Sign("groups that agree on another answer than the data set's", float(len(others)),
                     where=first.where),)  # fmt: skip
    brief = f"in {len(others):,} of {len(agreed):,} groups rollouts agree on another answer than the data set's"
    return fact(True, because, evidence, fault="right answers unpaid", brief=brief, explains=FOLLOWS,
                remedy=_REMEDY_OF_REFERENCES)  # fmt: skip


def _agreed(rows: Sequence[Rollout]) -> Iterator[tuple[list[Rollout], str, str]]:
    """Groups of one prompt and one answer of the data set whose texts agree on an answer: the rollouts that give it,
    that answer, and the data set's. Those in which fewer give the data set's, or in which one of the two has the other
    in it, as "5" and "5 apples", say nothing."""
    groups: dict[tuple[int, str, str], list[Rollout]] = {}
    for row in rows:
        reference = _reference(row)
        if reference and is_readable(row) and not row.dropped and not row.failed:
            groups.setdefault((row.step, str(row.prompt), reference), []).append(row)
    for (_, _, reference), own in groups.items():
        due, given = _plain(reference), [_plain(_given(row, reference)) for row in own]
        said = Counter(filter(None, given))
        if said.total() < _SIBLINGS or not due:
            continue
        answer, count = said.most_common(1)[0]
        alike = answer != due and (answer in due or due in answer or said[due] > 0)
        if count >= _AGREEING * said.total() and not alike:
            yield [row for row, one in zip(own, given, strict=True) if one == answer], answer, due


def _paid_differently(rows: Sequence[Rollout]) -> Finding | None:
    """That siblings which mark one answer in one form have both of the two values of a score; None where fewer than
    _UNEQUAL groups show it, or fewer than a share of them _UNEQUAL_SHARE, where that score has more values, and where
    the longer ones have one of them, as a limit or a price of the length would pay."""
    several = any(len(row.rewards) > 1 for row in rows)
    name = next(_scores(rows)) if several else ""
    values = sorted({value for row in rows if math.isfinite(value := _score(row, name))})
    if len(values) != 2 or (several and not name):
        return None
    groups = [list(forms.values()) for forms in _alike(rows, name).values()]
    least, can = values[0], sum(any(len(own) > 1 for own in sets) for sets in groups)
    both = [[own for own in sets if len({_score(row, name) for row in own}) > 1] for sets in groups]
    shown, unequal = [sets for sets in both if sets], [own for sets in both for own in sets]
    if len(shown) < _UNEQUAL or len(shown) < _UNEQUAL_SHARE * can or not _in_any_length(unequal, name, least):
        return None
    if not _goes_by_answers([[_score(row, name) > least for row in own] for sets in groups for own in sets]):
        return None
    lost = [row for own in unequal for row in own if _score(row, name) == least]
    low, high = (next(row for row in unequal[0] if _score(row, name) == value) for value in values)
    said = visible(answers.answer(written(low.completion or ""))[0], 40)
    right = sum(_is_right(row) for row in lost)
    beside = f", {right:,} of them that of the data set" if right else ""
    called = visible(name, 40) if name else "the reward"
    because = (
        f"in {len(shown):,} of {can:,} groups siblings that mark one answer in one form have {called} {least:g} and "
        f"{values[1]:g} ({len(lost):,} answers at {least:g}{beside}), and lengths do not tell them apart; the first is "
        f"{said}, {least:g} in {low.where} and {values[1]:g} in {high.where}: unless the way to the answer is graded "
        "as well, the grade is not of the answer alone, as where a time limit counts the wait in a queue, or a judge "
        "samples"
    )
    evidence = (Sign("groups in which equal answers are graded differently", float(len(shown)), where=low.where),)
    return fact(True, because, evidence, fault="reward not repeatable", grades=("warning", "warning"),
                brief=f"equal answers are graded differently in {len(shown):,} of {can:,} groups",
                remedy=_GRADE_AGAIN)  # fmt: skip


def _alike(
    rows: Sequence[Rollout], name: str
) -> Mapping[tuple[int, str, str, str], Mapping[tuple[str, ...], list[Rollout]]]:
    """Whole texts of one turn without code that mark one answer and have a score, by group and prompt, then by what
    they mark and the form that they have."""
    alike: dict[tuple[int, str, str, str], dict[tuple[str, ...], list[Rollout]]] = {}
    for row in rows:
        text = written(row.completion or "")
        if not is_readable(row) or row.dropped or row.failed or row.truncated or (row.turn_count or 1) > 1:
            continue
        last, different = answers.answer(text)
        if different == 1 and "```" not in text and math.isfinite(_score(row, name)):
            key = row.step, str(row.group), str(row.prompt), _reference(row)
            alike.setdefault(key, {}).setdefault((last, *_FORM.findall(text)), []).append(row)
    return alike


def _goes_by_answers(sets: Sequence[Sequence[bool]]) -> bool:
    """Whether an answer whose equal is paid is paid far more often than another: else it is not what is graded."""
    every = [paid for own in sets for paid in own]
    beside_paid = sum(sum(own) * (len(own) - 1) for own in sets)
    unpaid_beside = sum(sum(own) * (len(own) - sum(own)) for own in sets)
    return unpaid_beside < _BY_ANSWERS * beside_paid * (1 - sum(every) / len(every))


def _in_any_length(sets: Sequence[Sequence[Rollout]], name: str, least: float) -> bool:
    """Whether, of equal answers with both scores, the unpaid one is the longer in neither few nor most pairs."""
    longer = 0.0
    pairs = 0
    for own in sets:
        sizes = [len(written(row.completion or "")) for row in own]
        low = [size for size, row in zip(sizes, own, strict=True) if _score(row, name) == least]
        high = [size for size, row in zip(sizes, own, strict=True) if _score(row, name) != least]
        longer += sum((one > other) + 0.5 * (one == other) for one in low for other in high)
        pairs += len(low) * len(high)
    return _ANY_LENGTH < longer / pairs < 1 - _ANY_LENGTH


def _given(row: Rollout, reference: str) -> str:
    """The answer of a text: the marked one; else its last line where the data set's is more than a number or word."""
    text = written(row.completion or "")
    last, marked = answers.answer(text)
    if marked:
        return last
    return "" if re.fullmatch(r"[\w.+-]*", reference.strip()) else text.strip().rpartition("\n")[2]


def _stands_in(row: Rollout) -> bool:
    """Whether the answer of the data set stands word for word in its prompt."""
    reference, prompt = _reference(row).strip(), row.prompt
    given = prompt if isinstance(prompt, str) else " ".join(str(message.get("content")) for message in prompt or ())
    return len(reference) > _FEW_SIGNS and reference in given


def _reference(row: Rollout) -> str:
    """The answer of the data set beside a rollout: that which its text marks, else all of it, on one line; empty where
    there is none."""
    given = [row.columns, *(own for name in _WITHIN if isinstance(own := row.columns.get(name), dict))]
    value = next((own[name] for own in given for name in REFERENCES if own.get(name) not in (None, "")), None)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None or isinstance(value, list | dict):
        return ""
    due = str(value)
    if match := _LAST.search(due):
        return str(match[1])
    if len(due) > _LONG or "\n" in due.strip():
        last, marked = answers.answer(due)
        return last if marked else ""
    return due


def _scores(rows: Sequence[Rollout]) -> Iterator[str]:
    """Names of the rewards that pay for right answers; the empty one, of the whole reward, where there is none."""
    names = dict.fromkeys(name for row in rows for name in row.rewards if pays_for_answers(name))
    yield from names or ("",)


def _score(row: Rollout, name: str) -> float:
    return row.rewards.get(name, math.nan) if name else row.reward


def _is_right(row: Rollout) -> bool:
    """Whether the answer that a text marks last is the one of the data set, as a number where both are."""
    due = _reference(row)
    if not due or row.completion is None:
        return False
    last, marked = answers.answer(written(row.completion))
    return bool(marked) and _plain(last) == _plain(due) != ""


def _plain(answer: str) -> str:
    """An answer without signs that graders leave out, a number in one form."""
    bare = _SIGNS.sub("", answer.strip().rstrip(".")).casefold()
    try:
        return f"{float(bare):.10g}"
    except ValueError:
        return bare
