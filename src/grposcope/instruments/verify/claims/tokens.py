"""The right tokens are trained on: the mask against end of text, padding, prompt, tool output and truncation. Exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Rollout
from grposcope.core.run import Bools
from grposcope.instruments.verify.claim import Claim, ClaimTest, NotTestable
from grposcope.instruments.verify.evidence import PipelineEvidence, Stated

REMEDY = "Print the tokens and the mask of the named rollout side by side, and correct the mask where it is built."


@dataclass(frozen=True)
class _Masked:
    """A rollout with its tokens, the mask as it is and as it should be without regard to truncation, all (T,).

    ended: place of the end of text, None where there is none.
    """

    row: Rollout
    trained: Bools
    due: Bools
    ended: int | None


Wrong = Callable[[_Masked], bool]


def tests(evidence: PipelineEvidence) -> Iterator[ClaimTest | NotTestable]:
    """Each way in which a mask goes wrong, the most telling first."""
    rows = [row for row in evidence.rows if row.mask is not None and row.completion_ids is not None and not row.dropped]
    if not rows:
        yield NotTestable("No rollout has token ids and a mask of the trained tokens; write completion_ids and mask.")
        return
    stated = evidence.stated
    ends = stated.ends or inferred_end(rows)
    if not ends:
        yield NotTestable("No end token was recognised; state the ids of the tokens that end a completion (ends).")
    masked = [_masked(row, ends, stated) for row in rows]
    live = [one for one in masked if one.trained.any()]
    several = _several_turns(rows, ends)
    found = list(_faults(live, bool(ends), several))
    broken = [test for test in found if test.broken]
    yield from (broken or found)
    yield from _truncation(masked, stated, ends)


def _faults(live: list[_Masked], ends: bool, several: bool) -> Iterator[ClaimTest]:
    """One fault each; a row belongs to the first that fits it."""
    kinds: list[tuple[str, Wrong, str, str, str]] = []
    kinds.append(
        (
            "prompt trained on",
            lambda one: (
                one.row.prompt_trained is not None
                and bool(one.row.prompt_trained[: len(one.row.prompt_trained) - int(_shifted_left(one))].any())
            ),
            "train on tokens of the prompt",
            "no prompt token is trained on",
            "The policy learns to write prompts, or to avoid them, by the sign of the advantage.",
        )
    )
    if any(one.row.written is not None for one in live):
        kinds.append(
            (
                "tool output trained on",
                lambda one: one.row.written is not None and bool((one.trained & ~one.row.written).any()),
                "train on tokens that a tool wrote",
                "no token of a tool is trained on",
                "The policy learns to write the tool's answers itself.",
            )
        )
    if ends:
        kinds.append(
            (
                "mask off by one",
                lambda one: _shifted_right(one) or _shifted_left(one),
                "have a mask that is shifted by one token",
                "no mask is shifted",
                "Every token gets the weight of its neighbour: the end, or the first token, is never learned.",
            )
        )
        kinds.append(
            (
                "end of text masked",
                lambda one: (
                    one.ended is not None
                    and not one.trained[one.ended]
                    and bool(one.trained[: one.ended].all())
                    and one.ended > 0
                ),
                "do not train on the token that ends them",
                "every token that ends a completion is trained on",
                "The policy never learns when to stop, so completions grow until they reach the token limit.",
            )
        )
        kinds.append(
            (
                "end of text twice",
                _end_twice,
                "train more than once on the token that ends them",
                "no completion ends twice",
                "The policy learns to write a superfluous second end token.",
            )
        )
        kinds.append(
            (
                "padding trained on",
                lambda one: not several and one.ended is not None and bool(one.trained[one.ended + 1 :].any()),
                "train on tokens after their end, such as padding",
                "no token after the end is trained on",
                "Tokens that were never drawn get a gradient.",
            )
        )
        kinds.append(("tokens left out", lambda one: not several and bool((one.due & ~one.trained).any()),
                      "leave out tokens that the policy drew", "all tokens that were drawn are trained on",
                      "Part of the completion gets no gradient."))  # fmt: skip
    else:
        kinds.append(
            (
                "tokens left out",
                lambda one: not several and bool((one.due & ~one.trained)[:-1].any()),
                "leave out tokens that the policy drew",
                "all tokens that were drawn are trained on",
                "Part of the completion gets no gradient.",
            )
        )
    rest = list(range(len(live)))
    for fault, wrong, words, held, effect in kinds:
        here = [place for place in rest if wrong(live[place])]
        rest = [place for place in rest if place not in set(here)]
        first = live[here[0]].row if here else None
        yield ClaimTest(
            fault=fault,
            broken=bool(here),
            evidence=""
            if first is None
            else f"{len(here):,} of {len(live):,} rollouts {words}; the first is {first.where}",
            held=f"In {len(live):,} rollouts {held}.",
            effect=effect,
            remedy=REMEDY,
            since=None if first is None else min(live[place].row.step for place in here),
        )


def _masked(row: Rollout, ends: tuple[int, ...], stated: Stated) -> _Masked:
    """The mask that is due: all tokens that the policy wrote, up to the first end in its last turn."""
    assert row.mask is not None
    assert row.completion_ids is not None
    ids = row.completion_ids
    written = row.written if row.written is not None and len(row.written) == len(ids) else np.ones(len(ids), bool)
    start = int(np.flatnonzero(~written)[-1]) + 1 if (~written).any() else 0
    places = np.flatnonzero(np.isin(ids[start:], ends)) + start if ends else np.empty(0, np.int64)
    if len(places):
        ended: int | None = int(places[0])
    else:
        ended = None
    due = written.copy()
    if ended is not None:
        due[ended + 1 :] = False
    elif stated.pad is not None and len(ids):
        last = np.flatnonzero(ids != stated.pad)
        due[(int(last[-1]) + 1 if len(last) else 0) :] = False
    trained = row.mask if len(row.mask) == len(ids) else np.ones(len(ids), bool)
    return _Masked(row, trained, due, ended)


def inferred_end(rows: list[Rollout]) -> tuple[int, ...]:
    """The token that most completions shorter than the longest end with; empty where fewer than 80 % share one."""
    longest = max(len(row.completion_ids) for row in rows if row.completion_ids is not None)
    last = Counter(int(row.completion_ids[-1]) for row in rows
                   if row.completion_ids is not None and 0 < len(row.completion_ids) < longest)  # fmt: skip
    if not last:
        return ()
    token, times = last.most_common(1)[0]
    return (token,) if times >= 0.8 * sum(last.values()) and times > 2 else ()


def _several_turns(rows: list[Rollout], ends: tuple[int, ...]) -> bool:
    """Whether completions are conversations of several turns, in which an end is not the last."""
    return any(isinstance(row.completion, list) and len(row.completion) > 1 for row in rows) or any(
        row.written is not None and bool((~row.written).any()) for row in rows
    )


def _shifted_right(one: _Masked) -> bool:
    """The first due token is left out, and one more after the last is trained, if there is one."""
    if len(one.due) < 2 or one.due.sum() < 2 or one.trained[0] or not one.due[0]:
        return False
    moved = np.concatenate([[False], one.due[:-1]])
    return bool((one.trained == moved).all())


def _shifted_left(one: _Masked) -> bool:
    """The last due token is left out, and the last of the prompt is trained."""
    before = one.row.prompt_trained
    if before is None or not len(before) or not before[-1] or before[:-1].any() or not len(one.due):
        return False
    moved = np.concatenate([one.due[1:], [False]])
    return bool((one.trained == moved).all())


def _end_twice(one: _Masked) -> bool:
    """The token after the end is the end again, and both are trained."""
    ids, place = one.row.completion_ids, one.ended
    assert ids is not None
    if place is None or place + 1 >= len(ids) or not one.trained[place]:
        return False
    return bool(ids[place + 1] == ids[place] and one.trained[place + 1] and not one.trained[place + 2 :].any())


def _truncation(masked: list[_Masked], stated: Stated, ends: tuple[int, ...]) -> Iterator[ClaimTest | NotTestable]:
    """Cut completions are trained on as the settings say, and are those that were cut."""
    flagged = [one for one in masked if one.row.truncated is not None]
    if not flagged:
        yield NotTestable(
            "The rollouts do not say whether they were truncated; write truncated or finish_reason with each rollout."
        )
        return
    cut = [one for one in flagged if one.row.truncated]
    if stated.masks_truncated is None:
        yield NotTestable(
            "The settings do not say whether truncated completions are masked; state mask_truncated_completions."
        )
    else:
        wrong = [one for one in cut if bool(one.trained.any()) == stated.masks_truncated]
        fault = "truncated trained on" if stated.masks_truncated else "truncated left out"
        words = "are trained on although the settings mask them" if stated.masks_truncated else (
            "are masked although the settings do not say so"
        )  # fmt: skip
        yield ClaimTest(
            fault=fault,
            broken=bool(wrong),
            evidence=f"{len(wrong):,} of {len(cut):,} truncated completions {words}; the first is {wrong[0].row.where}"
            if wrong
            else "",
            held=f"{len(cut):,} truncated completions are treated as the settings say.",
            effect="Truncated answers are punished for text that they could not finish."
            if stated.masks_truncated
            else "Long answers are never punished, so they grow.",
            remedy="Apply mask_truncated_completions where the mask is built, or state what you intend.",
            since=min((one.row.step for one in wrong), default=None),
        )
    if not ends:
        return
    false = [one for one in flagged if one.row.truncated == (one.ended is not None)]
    if stated.limit is None:
        false = [one for one in false if one.row.truncated]
    else:
        false = [one for one in false if one.row.truncated or len(one.trained) >= stated.limit]
    yield ClaimTest(
        fault="wrong truncation flag",
        broken=bool(false),
        evidence=f"{len(false):,} of {len(flagged):,} rollouts have a wrong truncation mark: marked although they end, "
        f"or unmarked although they do not; the first is {false[0].row.where}" if false else "",
        held=f"{len(flagged):,} truncation marks agree with the last token of their rollout.",
        effect="The truncation rate is wrong, and so is whatever masks or punishes truncated completions.",
        remedy="Mark a completion as truncated if its end token is missing, not by its length.",
        since=min((one.row.step for one in false), default=None),
    )  # fmt: skip


CLAIM = Claim("tokens", "The right tokens are trained on", "token ids and mask of rollouts; prompt ids, tool tokens "
              "and truncation where there are any", tests)  # fmt: skip
