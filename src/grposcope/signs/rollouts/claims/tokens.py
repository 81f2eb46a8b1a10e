"""The right tokens are trained on: the mask against end of text, padding, prompt, tool output and truncation. Exact."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Bools, Ints
from grposcope.signs.lost_gradient import UNTRAINED
from grposcope.signs.rollouts import coverage
from grposcope.signs.rollouts.claims import turns
from grposcope.signs.rollouts.evidence import PipelineEvidence, Stated
from grposcope.signs.rollouts.findings import exact

_PROMPTS = 8
"""Different prompts from which on it is said how all of them begin."""

_BEGINS_TWICE = re.compile(r"(<\|begin_of_text\|>|<s>|<bos>|<｜begin▁of▁sentence｜>|\[BOS\])\s*\1")
_WRITTEN_TWICE = re.compile(
    r"<\|im_start\|>user\s*<\|im_start\|>|<\|start_header_id\|>user<\|end_header_id\|>\s*(?:<\|begin_of_text\|>)?"
    r"<\|start_header_id\|>|<start_of_turn>user\s*(?:<bos>)?<start_of_turn>"
)
"""Prompts that begin with the beginning of text twice, and templates in the turn of a template."""

_MOST_BEGIN = 0.9
"""Share of the prompts that begin with one id, from which on another is told."""

_ENCODE = (
    "Encode text that a chat template has written without special tokens (add_special_tokens=False), or hand ids to "
    "the sampler (vLLM: prompt_token_ids); the sampler's prompt ids and the trainer's must be equal."
)

_WRITTEN_BY_TEMPLATE = 6
"""Tokens from the end of a turn on, up to which a template may have written those behind it."""

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


RolloutBatch = Callable[[_Masked], bool]


@dataclass(frozen=True)
class _Kind:
    """One way in which masks go wrong.

    fault, brief: as in a finding. shows: rollouts in which it could be seen. wrong: those of them that have it.
    lacking: what the others lack, as words after "have". reason: why it cannot be tested where no rollout shows it;
    empty where it then needs no test.
    """

    fault: str
    brief: str
    shows: RolloutBatch
    wrong: RolloutBatch
    words: str
    held: str
    effect: str
    lacking: str
    reason: str


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Each way in which a mask goes wrong, the most telling first."""
    every = [row for row in evidence.rows if not row.dropped]
    yield from _begun_twice(every)
    yield from _not_begun(every)
    rows = [row for row in every if row.mask is not None and row.completion_ids is not None]
    if not rows:
        yield cannot_tell("No rollout has token ids and a mask of the trained tokens; write completion_ids and mask.")
        return
    stated = evidence.stated
    ends = stated.ends or _inferred_end(rows)
    if not ends:
        yield cannot_tell("No end token was recognised; state the ids of the tokens that end a completion (ends).")
    masked = [_masked(row, ends, stated) for row in rows]
    live = [one for one in masked if one.trained.any()]
    if live:
        found = [*_faults(live, _kinds(bool(ends)), len(every)), _untrained(rows)]
        broken = [test for test in found if test.present]
        yield from (broken or found)
    else:
        yield _untrained(rows)
    yield from _truncation(masked, stated, ends)


def _begun_twice(rows: Sequence[Rollout]) -> Iterator[Finding]:
    """That every prompt begins with the beginning of text twice, by its ids or its text, or has one chat template in
    another; nothing where it is not so."""
    encoded = [row.prompt_ids for row in rows if row.prompt_ids is not None and len(row.prompt_ids) > 2]
    texts = [row.prompt for row in rows if isinstance(row.prompt, str)]
    first, said = int(encoded[0][0]) if encoded else 0, ""
    if encoded and all(ids[1] == ids[0] == first and np.count_nonzero(ids == first) == 2 for ids in encoded):
        prompts = {ids.tobytes(): len(ids) for ids in encoded}
        if len(prompts) >= _PROMPTS and len(set(prompts.values())) > 1:
            said = (
                f"all {len(prompts):,} prompts begin with the id {first} twice, which none has later, as where the "
                "template writes the beginning of text and what encodes its text adds another"
            )
    if not said and len(count := set(texts)) >= _PROMPTS:
        if all(_BEGINS_TWICE.match(text.lstrip()) for text in texts):
            said = f"all {len(count):,} prompts begin with the beginning of text twice"
        elif all(_WRITTEN_TWICE.search(text) for text in texts):
            said = f"in all {len(count):,} prompts a turn of the user holds a chat template, as one applied twice does"
    if said:
        first_row = next(row for row in rows if row.prompt_ids is not None or isinstance(row.prompt, str))
        yield exact(
            "inputs differ", True, f"{said}; the first is {first_row.where}", held="", remedy=_ENCODE,
            effect="Completions are drawn after another prompt than the model was trained to answer.",
            onset=min(row.step for row in rows), brief="prompts are encoded twice", grades=("warning", "warning"),
        )  # fmt: skip


def _not_begun(rows: Sequence[Rollout]) -> Iterator[Finding]:
    """That a few prompts lack the id with which nearly all others begin and which none has later, as of the beginning
    of text; nothing where it is not so, or where those that lack it are as long as a limit that cuts prompts at their
    beginning."""
    encoded = [row for row in rows if row.prompt_ids is not None and len(row.prompt_ids) > 2]
    heads = Counter(int(row.prompt_ids[0]) for row in encoded if row.prompt_ids is not None)
    if not heads:
        return
    first, count = heads.most_common(1)[0]
    known = [(row, ids) for row in encoded if (ids := row.prompt_ids) is not None]
    lacking = [(row, ids) for row, ids in known if ids[0] != first]
    prompts = {ids.tobytes() for _, ids in known}
    if not lacking or count < _MOST_BEGIN * len(encoded) or len(prompts) < _PROMPTS:
        return
    if any(np.count_nonzero(ids == first) != (ids[0] == first) for _, ids in known):
        return
    longest = max(len(ids) for _, ids in known)
    if all(len(ids) == longest for _, ids in lacking):
        return
    yield exact(
        "inputs differ", True,
        f"{len(lacking):,} of {len(encoded):,} prompts do not begin with the id {first}, with which all others begin "
        f"and which none has later; the first is {lacking[0][0].where}",
        held="", brief="prompts lack their beginning", grades=("warning", "warning"),
        effect="Completions are drawn after another prompt than the model was trained to answer.",
        remedy="Print the first ten ids of two such prompts beside those of another: encode all by one template, and "
        "the beginning of text once.",
        onset=min(row.step for row, _ in lacking),
    )  # fmt: skip


def _untrained(rows: Sequence[Rollout]) -> Finding:
    """Steps in which no mask has a trained token although completions have tokens, and not all were cut."""
    written = [row for row in rows if row.completion_ids is not None and len(row.completion_ids)]
    if not written:
        return cannot_tell("No rollout has a token, so no mask can be tested.")
    trained = {row.step for row in written if row.mask is not None and row.mask.any()}
    due = {row.step for row in written if not row.truncated}
    empty = [row for row in written if row.step in due - trained]
    steps = len({row.step for row in written})
    none = len(due - trained)
    where = "the masks of all" if none == steps else f"in {none:,} of {steps:,} steps the masks of all"
    return exact(
        UNTRAINED,
        bool(empty),
        f"{where} {len(empty):,} rollouts are 0 throughout, so no token is trained on; the first is {empty[0].where}"
        if empty
        else "",
        held=f"In each of {steps:,} steps a token is trained on.",
        effect="There is no gradient.",
        remedy="Print the mask of one batch as the loss sees it, beside its tokens, and correct where it is built.",
        onset=min((row.step for row in empty), default=None),
    )


def _kinds(ends: bool) -> Iterator[_Kind]:
    """The ways to go wrong; ends: whether the tokens that end a completion are known."""
    yield _Kind(
        "prompt trained on", "",
        lambda one: one.row.prompt_trained is not None and bool(len(one.row.prompt_trained)),
        lambda one: one.row.prompt_trained is not None
        and bool(one.row.prompt_trained[: len(one.row.prompt_trained) - int(_shifted_left(one))].any()),
        "train on tokens of the prompt", "no prompt token is trained on",
        "The policy learns to write prompts, or to avoid them, by the sign of the advantage.",
        "no trained token or no mask of the prompt",
        "The masks are of completions alone, so whether prompt tokens are trained on was not seen; write the mask over "
        "prompt and completion, or prompt_trained.",
    )  # fmt: skip
    yield _Kind(
        "tool output trained on", "",
        lambda one: not _own_mask(one) and one.row.written is not None and bool((~one.row.written).any()),
        lambda one: one.row.written is not None and bool((one.trained & ~one.row.written).any()),
        "train on tokens that a tool wrote", "no token of a tool is trained on",
        "The policy learns to write the tool's answers itself.", "no tool output", "",
    )  # fmt: skip
    yield _Kind(
        "mask inverted", "", _inverts, lambda one: bool((one.trained == ~one.due).all()),
        "are trained on exactly where they should not be", "no mask is inverted",
        "Padding or a tool's answer gets the gradient that the policy's own tokens should have.",
        "no token that the mask should leave out", "",
    )  # fmt: skip
    if ends:
        yield from _at_the_end()
    yield _Kind(
        "tokens left out", "",
        _turns_told,
        lambda one: bool(_left_out(one)[: None if ends else -1].any()),
        "leave out tokens that the policy drew", "all tokens that were drawn are trained on",
        "Part of the completion gets no gradient.", "no trained token, or tokens that tools may have written",
        "The mask alone says which tokens the policy wrote; write tool_mask, 0 on what tools and environments wrote.",
    )  # fmt: skip


def _at_the_end() -> Iterator[_Kind]:
    """Faults that are seen by the token that ends a completion."""
    yield _Kind(
        "mask off by one", "", lambda one: bool(one.due.sum() >= 2),
        lambda one: _shifted_right(one) or _shifted_left(one),
        "have a mask that is shifted by one token", "no mask is shifted",
        "Every token gets the weight of its neighbour: the end, or the first token, is never learned.",
        "no trained token or only one",
        "No completion has two tokens, so a shifted mask would not be seen; write longer completions.",
    )  # fmt: skip
    no_end = "No completion has a token that ends it, so whether ends are trained on was not seen; write some that end."
    yield _Kind(
        "end of text masked", "", lambda one: one.ended is not None and one.ended > 0, _end_masked,
        "do not train on the token that ends them", "every token that ends a completion is trained on",
        "The policy never learns when to stop, so completions grow until they reach the token limit.",
        "no trained token before an end", no_end,
    )  # fmt: skip
    yield _Kind(
        "trained beyond the end", "end of text twice", lambda one: one.ended is not None, _end_twice,
        "train more than once on the token that ends them", "no completion ends twice",
        "The policy learns to write a superfluous second end token.", "no trained token or no end", no_end,
    )  # fmt: skip
    yield _Kind(
        "trained beyond the end", "template trained on", lambda one: bool(_inner_runs(one)), _template_trained,
        "train on the same tokens behind the end of every turn but the last, as a template writes them (a newline)",
        "no turn is trained on beyond its end",
        "The policy learns to write what the template writes, and the sampler never draws it there.",
        "one turn, or turns without an end", "",
    )  # fmt: skip
    yield _Kind(
        "mask inverted", "environment trained on, and no turn", lambda one: bool(_runs(one)) and one.ended is not None,
        _skips_first_and_last,
        "are trained on no token up to the first end and on none of the last, but on some between",
        "some token up to the first end, or of the last, is trained on",
        "What tools or the environment wrote gets the gradient that the policy's own turns should have.",
        "no trained token or no end", no_end,
    )  # fmt: skip
    yield _Kind(
        "trained beyond the end", "padding trained on", lambda one: one.ended is not None and _turns_told(one),
        lambda one: one.ended is not None and bool(one.trained[one.ended + 1 :].any()),
        "train on tokens after their end, such as padding", "no token after the end is trained on",
        "Tokens that were never drawn get a gradient.", "no trained token or no end", no_end,
    )  # fmt: skip


def _inverts(masked: _Masked) -> bool:
    """Whether an inverted mask would show: tokens that are due and others that are not."""
    return not _own_mask(masked) and bool(masked.due.any()) and not bool(masked.due.all())


def _faults(live: list[_Masked], each: Iterator[_Kind], whole: int) -> Iterator[Finding]:
    """One fault each; a row belongs to the first that fits it. whole: rollouts, those without a mask among them."""
    rest = set(range(len(live)))
    for kind in each:
        shown = [place for place, one in enumerate(live) if kind.shows(one)]
        if not shown:
            if kind.reason:
                yield cannot_tell(kind.reason)
            continue
        here = [place for place in shown if place in rest and kind.wrong(live[place])]
        rest -= set(here)
        first = live[here[0]].row if here else None
        yield exact(
            fault=kind.fault,
            brief=kind.brief,
            broken=bool(here),
            evidence=""
            if first is None
            else f"{len(here):,} of {len(live):,} rollouts {kind.words}; the first is {first.where}",
            held=f"In {coverage.share(len(shown), whole, kind.lacking)} {kind.held}.",
            effect=kind.effect,
            remedy=REMEDY,
            onset=None if first is None else min(live[place].row.step for place in here),
        )


def _left_out(masked: _Masked) -> Bools:
    """Tokens (T,) that the policy drew and that are not trained on; none where all of them end turns, which the claim
    of turns tells."""
    missing = masked.due & ~masked.trained
    ends = turns.turn_ends(masked.row)
    return np.zeros_like(missing) if ends is not None and not (missing & ~ends).any() else missing


def _own_mask(masked: _Masked) -> bool:
    """Whether nothing but the mask itself says which tokens the policy wrote."""
    return masked.row.written is not None and masked.row.written is masked.row.mask


def _turns_told(masked: _Masked) -> bool:
    """Whether it is known which tokens of a completion the policy wrote, should it have several turns."""
    several = isinstance(masked.row.completion, list) and len(masked.row.completion) > 1
    several = several or _looks_of_several(masked)
    return not _own_mask(masked) and (masked.row.written is not None or not several)


def _looks_of_several(masked: _Masked) -> bool:
    """Whether the mask alone shows several turns: stretches before the last have an end, or there is none at all."""
    runs, ids, ended = _runs(masked), masked.row.completion_ids, masked.ended
    if ids is None or ended is None:
        return len(runs) > 1
    return any(bool((run == ids[ended]).any()) for run in runs[:-1])


def _runs(masked: _Masked) -> list[Ints]:
    """Tokens that are trained on, in stretches between those that are not."""
    ids, trained = masked.row.completion_ids, masked.trained
    if ids is None or len(ids) != len(trained) or not len(ids):
        return []
    edges = np.flatnonzero(np.diff(trained.astype(np.int8))) + 1
    return [run for run, own in zip(np.split(ids, edges), np.split(trained, edges), strict=True) if own[0]]


def _inner_runs(masked: _Masked) -> list[Ints]:
    """Of a rollout whose mask alone shows several turns: what each but the last is trained on from its end on, as
    token ids. Empty where a turn has no end, or more than one, and where the last does not stop at its own."""
    runs = _runs(masked)
    if len(runs) < 2 or masked.row.completion_ids is None or masked.ended is None or not masked.trained[-1]:
        return []
    end = masked.row.completion_ids[masked.ended]
    if any(np.count_nonzero(run == end) != 1 for run in runs) or runs[-1][-1] != end:
        return []
    return [run[int(np.argmax(run == end)) :] for run in runs[:-1]]


def _skips_first_and_last(masked: _Masked) -> bool:
    """Whether nothing up to the first end is trained on and nothing from an end on that is the last token, though
    something between them is: where the mask alone says what the policy wrote, its first turn and its last are not."""
    ids, trained, ended = masked.row.completion_ids, masked.trained, masked.ended
    if masked.row.written is not None or ids is None or ended is None or len(ids) != len(trained):
        return False
    return bool(ids[-1] == ids[ended] and len(ids) > ended + 1 and not trained[: ended + 1].any() and not trained[-1])


def _template_trained(masked: _Masked) -> bool:
    """Whether every turn but the last is trained on the same few tokens beyond its end."""
    runs = _inner_runs(masked)
    return 1 < len(runs[0]) <= _WRITTEN_BY_TEMPLATE and all(np.array_equal(run, runs[0]) for run in runs)


def _end_masked(masked: _Masked) -> bool:
    """The end alone is left out."""
    return masked.ended is not None and not masked.trained[masked.ended] and bool(masked.trained[: masked.ended].all())


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


def _inferred_end(rows: list[Rollout]) -> tuple[int, ...]:
    """The token that most completions shorter than the longest end with; empty where fewer than 80 % share one."""
    longest = max(len(row.completion_ids) for row in rows if row.completion_ids is not None)
    last = Counter(int(row.completion_ids[-1]) for row in rows
                   if row.completion_ids is not None and 0 < len(row.completion_ids) < longest)  # fmt: skip
    if not last:
        return ()
    token, times = last.most_common(1)[0]
    return (token,) if times >= 0.8 * sum(last.values()) and times > 2 else ()


def _shifted_right(masked: _Masked) -> bool:
    """The first due token is left out, and one more after the last is trained, if there is one."""
    if len(masked.due) < 2 or masked.due.sum() < 2 or masked.trained[0] or not masked.due[0]:
        return False
    moved = np.concatenate([[False], masked.due[:-1]])
    return bool((masked.trained == moved).all())


def _shifted_left(masked: _Masked) -> bool:
    """The last due token is left out, and the last of the prompt is trained."""
    before = masked.row.prompt_trained
    if before is None or not len(before) or not before[-1] or before[:-1].any() or not len(masked.due):
        return False
    moved = np.concatenate([masked.due[1:], [False]])
    return bool((masked.trained == moved).all())


def _end_twice(masked: _Masked) -> bool:
    """The token after the end is the end again, and both are trained."""
    ids, place = masked.row.completion_ids, masked.ended
    assert ids is not None
    if place is None or place + 1 >= len(ids) or not masked.trained[place]:
        return False
    return bool(ids[place + 1] == ids[place] and masked.trained[place + 1] and not masked.trained[place + 2 :].any())


def _truncation(masked: list[_Masked], stated: Stated, ends: tuple[int, ...]) -> Iterator[Finding]:
    """Cut completions are trained on as the settings say, and are those that were cut."""
    flagged = [one for one in masked if one.row.truncated is not None]
    if not flagged:
        yield cannot_tell(
            "The rollouts do not say whether they were truncated; write truncated or finish_reason with each rollout."
        )
        return
    whole = len(masked)
    if cut := [one for one in flagged if one.row.truncated]:
        yield _cut(cut, stated)
    if not ends:
        return
    false = [
        one for one in flagged if one.row.truncated == (one.ended is not None) and not _appended_end(one.row, stated)
    ]
    false = [one for one in false if one.row.truncated or not _ends_in_padding(one.row, stated)]
    if stated.limit is None:
        if any(not one.row.truncated for one in false):
            yield cannot_tell("Some completions have no end and no truncation mark, which is right below the limit of "
                              "length alone; state the limit (max_completion_length).")  # fmt: skip
        false = [one for one in false if one.row.truncated]
    else:
        false = [one for one in false if one.row.truncated or len(one.trained) >= stated.limit]
    of = coverage.share(len(flagged), whole, "no mark")
    yield exact(
        fault="wrong truncation mark",
        broken=bool(false),
        evidence=f"{len(false):,} of {len(flagged):,} rollouts have a wrong truncation mark: marked although they end, "
        f"or unmarked although they do not; the first is {false[0].row.where}" if false else "",
        held=f"The truncation marks of {of} agree with their last token.",
        effect="The truncation rate is wrong, and so is whatever masks or punishes truncated completions.",
        remedy="Mark a completion as truncated if its end token is missing, not by its length.",
        onset=min((one.row.step for one in false), default=None),
    )  # fmt: skip


def _ends_in_padding(row: Rollout, stated: Stated) -> bool:
    """Whether the last token is the one for padding, which some trainers count as an end where it was drawn."""
    return row.completion_ids is not None and len(row.completion_ids) > 0 and row.completion_ids[-1] == stated.pad


def _appended_end(row: Rollout, stated: Stated) -> bool:
    """Whether a cut completion had the end put behind it, which the sampler did not draw.

    It stands last, beyond the limit of length, or without a log-probability of the sampler beside tokens that have one.
    """
    ids = row.completion_ids
    if not row.truncated or ids is None or not len(ids):
        return False
    if stated.limit is not None and len(ids) > stated.limit:
        return True
    drawn = row.sampler
    return (
        drawn is not None and len(drawn) == len(ids) > 1 and bool(np.isnan(drawn[-1]) and np.isfinite(drawn[:-1]).any())
    )


def _cut(cut: list[_Masked], stated: Stated) -> Finding:
    """Whether truncated completions are masked exactly where the settings say so."""
    if stated.masks_truncated is None:
        return cannot_tell(
            "The settings do not say whether truncated completions are masked; state mask_truncated_completions."
        )
    wrong = [one for one in cut if bool(one.trained.any()) == stated.masks_truncated]
    words = "are trained on although the settings mask them" if stated.masks_truncated else (
        "are masked although the settings do not say so"
    )  # fmt: skip
    return exact(
        fault="wrong truncation mask",
        brief="truncated completions trained on" if stated.masks_truncated else "truncated completions left out",
        broken=bool(wrong),
        evidence=f"{len(wrong):,} of {len(cut):,} truncated completions {words}; the first is {wrong[0].row.where}"
        if wrong
        else "",
        held=f"{len(cut):,} truncated completions are treated as the settings say.",
        effect="Truncated answers are punished for text that they could not finish."
        if stated.masks_truncated
        else "Long answers are never punished, so they grow.",
        remedy="Apply mask_truncated_completions where the mask is built, or state what you intend.",
        onset=min((one.row.step for one in wrong), default=None),
    )


PROOF = Proof("tokens", "The right tokens are trained on", "token ids and mask of rollouts; prompt ids, tool tokens "
              "and truncation where there are any", _tests)  # fmt: skip
