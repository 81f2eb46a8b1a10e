"""The texts of rollouts with what is known of each, as arrays: what every reading of texts begins with.

N: rollouts with a text. Groups and prompts are numbered from 0.

Tokens of the tokenizer, where rollouts have their ids or their texts: sequences of one and two, and repeated pairs.

They show what texts hide: tokens that are left out of a decoded text, and one text that is written in other tokens.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import json_number
from grposcope.core.named_settings import nearest
from grposcope.core.rollouts import Bools, Floats, Ints, Rollout, Text, plain_text
from grposcope.core.run import Run
from grposcope.core.text import listed, visible
from grposcope.signs.texts import turn_features
from grposcope.signs.texts.turn_features import TextTurn

LONGEST = 100_000
"""Characters of a text that are read: half of them its first and half its last ones."""

MOST = 20_000
"""Rollouts that are read; of more, whole groups evenly over the run."""

STEPS = 100
"""Steps of a run that are read for its verdict and its page, which read more than the texts."""

CHARACTERS = 60_000_000
"""Characters that are read in all, likewise."""

SEVERAL_HISTORIES = (
    "each rollout has several histories, for the prompts of its turns do not begin with the turns before them, and its "
    "reward is of all of them; give each turn the whole text before it as its prompt, or leave out trajectory_id or "
    "rollout_id to read each turn by itself"
)
"""Why no text can be read where a trajectory is cut into turns that do not go on with one another."""

RUN_NAMES = ("run", "run_id", "run_name")
"""Columns that tell runs apart."""

RESUMED = 5
"""Times that a run may be resumed in a file."""

TRUE_SCORES = (
    "right", "correct", "correctness", "is_correct", "acc", "accuracy", "truth", "true", "exact_match", "solved",
)  # fmt: skip
"""Names of scores that are taken for the true one, in any spelling, where they are not the reward itself."""

_ITSELF = 1e-6
"""1 less the correlation of a score with the reward up to which it is the reward."""


@dataclass(frozen=True)
class TextSample:
    """Prompts, texts, rewards, steps, groups and prompts (N,) by number; NaN for a reward that is absent.

    truncated (N,): whether a limit of length cut it, None if not known. scores: other scores by name (N,). truth: the
    name of the one that is meant to count, empty where none is known. stepped: whether steps are known. notes: what was
    left out or assumed, a sentence each. turns: of each rollout, empty where all have one turn and no call.
    environments: names, empty where there are fewer than two. tokens: ids of what the policy wrote, empty unless all
    rollouts have them; spelled: the text of each id, where it is known. unpaid: names of the scores that are 0 on all.
    trained: the name of a function of the reward, where the true score, or what is named like one, is no other: it may
    show an exploit of other functions, and can clear none, since an exploit of it looks like success; else empty.
    sampled: whether rollouts of the run were left out because they are many, so that what is counted is of those read.
    """

    prompts: tuple[str, ...]
    texts: tuple[str, ...]
    reward: Floats
    step: Ints
    group: Ints
    prompt: Ints
    truncated: Bools | None = None
    scores: Mapping[str, Floats] = field(default_factory=dict)
    truth: str = ""
    stepped: bool = True
    notes: tuple[str, ...] = ()
    turns: tuple[tuple[TextTurn, ...], ...] = ()
    environments: tuple[str, ...] = ()
    tokens: tuple[Ints, ...] = ()
    spelled: Mapping[int, str] = field(default_factory=dict)
    unpaid: tuple[str, ...] = ()
    trained: str = ""
    sampled: bool = False

    @property
    def witness(self) -> str:
        """Why no score says whether what is paid is meant, a clause; empty where one beside the reward does."""
        if self.trained:
            whole = "part of" if self.truth else "the whole of"
            return (
                f"{visible(self.trained, 40)} is {whole} the reward, and a reward that trains is no witness of itself"
            )
        return "" if self.truth else "no score beside the reward is known"

    def __len__(self) -> int:
        return len(self.texts)

    def at(self, rows: Ints) -> TextSample:
        """The rollouts at these places, groups and prompts numbered anew."""
        places = [int(row) for row in rows]
        return replace(
            self, prompts=tuple(self.prompts[row] for row in places), texts=tuple(self.texts[row] for row in places),
            reward=self.reward[rows], step=self.step[rows], group=_numbered(self.group[rows].tolist()),
            prompt=_numbered(self.prompt[rows].tolist()),
            truncated=None if self.truncated is None else self.truncated[rows],
            scores={name: score[rows] for name, score in self.scores.items()},
            turns=tuple(self.turns[row] for row in places) if self.turns else (),
            environments=tuple(self.environments[row] for row in places) if self.environments else (),
            tokens=tuple(self.tokens[row] for row in places) if self.tokens else (),
        )  # fmt: skip


def of_rollouts(
    rows: Sequence[Rollout], truth: str = "", since: int | None = None, most: int | None = None
) -> TextSample:
    """The texts of rollouts. truth: name of the true score; empty to take one by its name. since: first step. most:
    rollouts that are read, MOST by default.

    UserError where no rollout has a text, for a true score that none has, and where no step is as late.
    """
    told, of_runs = _of_one_run([row for row in rows if is_readable(row)])
    if not told and any(row.completion is not None for row in rows):
        raise UserError(SEVERAL_HISTORIES)
    if not told:
        raise UserError("the rollouts have no texts; write prompt and completion, as texts or messages, with each")
    if since is not None and not any(row.step >= since for row in told):
        last = max(row.step for row in told)
        raise UserError(f"no rollout is of step {since:,} or later; the last is of step {last:,}")
    later = [row for row in told if since is None or row.step >= since]
    scores = _scores(later)
    name, trained = _witness(scores, truth, later)
    notes = (*of_runs, *_notes(rows, told, later))
    prompts = ["" if row.prompt is None else _short(plain_text(row.prompt)) for row in later]
    groups = [
        (row.step, prompt if row.group is None else row.group) for row, prompt in zip(later, prompts, strict=True)
    ]
    cuts = [row.truncated if row.truncated is not None else row.stop == "length" or None for row in later]
    sample = TextSample(
        tuple(prompts),
        tuple(_short(written(row.completion)) for row in later if row.completion is not None),
        np.array([_reward(row) for row in later]),
        np.array([row.step for row in later], np.int64),
        _numbered(groups),
        _numbered([prompt or (row.group or "") for row, prompt in zip(later, prompts, strict=True)]),
        np.array([bool(cut) for cut in cuts]) if any(cut is not None for cut in cuts) else None,
        scores, name, len({row.step for row in later}) > 1, notes, _turns(later), _environments(later),
        *_tokens(later), _unpaid(later), trained,
    )  # fmt: skip
    return _affordable(sample, MOST if most is None else most)


def is_readable(row: Rollout) -> bool:
    """Whether it has a text, and one history alone: what its reward was given for."""
    return row.completion is not None and row.continuations == ()


def _of_one_run(rows: Sequence[Rollout]) -> tuple[list[Rollout], tuple[str, ...]]:
    """The rollouts of one run, and what is left out.

    Where a column names several runs, the one with most rollouts is read. Where the steps go back, a run was resumed
    from there, or begun again: rollouts of that step or later that stand before it are left out. Rows that go back more
    often than RESUMED times are in no order of steps.
    """
    texts_kept, notes = list(rows), list[str]()
    for name in RUN_NAMES:
        counts = Counter(str(row.columns[name]) for row in texts_kept if name in row.columns)
        if len(counts) > 1:
            most = counts.most_common(1)[0][0]
            notes.append(f"The rollouts are of {len(counts):,} runs by the column {name}; those of {visible(most, 40)} "
                         "are read, which has most.")  # fmt: skip
            texts_kept = [row for row in texts_kept if str(row.columns.get(name)) == most]
            break
    back = [index for index in range(1, len(texts_kept)) if texts_kept[index].step < texts_kept[index - 1].step]
    if not back or len(back) > RESUMED:
        return texts_kept, tuple(notes)
    first = np.array([row.step for row in texts_kept])
    until = np.full(len(texts_kept), np.iinfo(np.int64).max)
    for index in back:
        until[:index] = np.minimum(until[:index], first[index])
    stay = [row for row, goes in zip(texts_kept, first >= until, strict=True) if not goes]
    if len(stay) < len(texts_kept):
        times = f"{len(back):,} time{'s' * (len(back) > 1)}"
        notes.append(f"The steps go back {times}, as where runs follow one another in a file; "
                     f"{len(texts_kept) - len(stay):,} rollouts of what was begun again are left out.")  # fmt: skip
    return stay, tuple(notes)


def recorded(run: Run, most: int | None = None) -> list[Rollout]:
    """The rollouts that a run has, each with its step, of at most STEPS steps, evenly over the run; files that are
    damaged are passed over. most: rollouts, in fewer steps where those of the first are as many in all."""
    steps, rows = list(run.rollouts), list[Rollout]()
    count = min(len(steps), STEPS)
    if most is not None and steps:
        count = max(min(count, most // max(len(_of_step(run, steps[0])), 1)), 1)
    for index in np.unique(np.linspace(0, len(steps) - 1, count).round().astype(np.int64)):
        rows += _of_step(run, steps[index])
    return rows


def _of_step(run: Run, step: int) -> list[Rollout]:
    """The rollouts of a step; none of a file that is damaged, of which the viewer of rollouts tells."""
    try:
        return [row if row.step else replace(row, step=step) for row in run.rollouts[step]]
    except UserError:
        return []


def written(completion: Text) -> str:
    """What the policy wrote: a text, or the messages of a conversation that are the assistant's, if any says so."""
    if isinstance(completion, str):
        return completion
    own = [message for message in completion if isinstance(message, dict) and message.get("role") == "assistant"]
    return plain_text(own or completion)


def _reward(row: Rollout) -> float:
    """The reward of a rollout, else the sum of those of its functions; NaN where there is none."""
    if math.isfinite(row.reward):
        return row.reward
    parts = [value for value in row.rewards.values() if math.isfinite(value)]
    return math.fsum(parts) if parts else math.nan


def _turns(rows: Sequence[Rollout]) -> tuple[tuple[TextTurn, ...], ...]:
    made = tuple(turn_features.of_rollout(row) for row in rows)
    several = any(len(own) > 1 or own[0].calls for own in made)
    return tuple(tuple(replace(turn, text=_short(turn.text)) for turn in own) for own in made) if several else ()


def _environments(rows: Sequence[Rollout]) -> tuple[str, ...]:
    names = tuple(row.environment for row in rows)
    return names if len(set(names)) > 1 else ()


def _tokens(rows: Sequence[Rollout]) -> tuple[tuple[Ints, ...], dict[int, str]]:
    """Tokens of each rollout and their texts; nothing where any has none."""
    numbers: dict[str, int] = {}
    made = []
    for row in rows:
        own = _ids_of_rollout(row, numbers)
        if own is None:
            return (), {}
        made.append(own)
    return tuple(made), _spelled(rows, numbers)


def _ids_of_rollout(row: Rollout, numbers: dict[str, int]) -> Ints | None:
    """The tokens that the policy wrote, by id; by their texts where there are no ids, which `numbers` gives one each.
    None where neither is there."""
    ids = row.completion_ids
    if ids is None and row.tokens:
        ids = np.array([numbers.setdefault(token, len(numbers)) for token in row.tokens], np.int64)
    if ids is None:
        return None
    own = np.asarray(ids, np.int64)
    if row.written is not None and len(row.written) == len(own):
        own = own[row.written]
    return own if len(own) <= 2 * ENDS else np.concatenate([own[:ENDS], own[-ENDS:]])


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST // 2] + text[-LONGEST // 2 :]


def _numbered(names: Iterable[Hashable]) -> Ints:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)


def _scores(rows: Sequence[Rollout]) -> dict[str, Floats]:
    """Scores of single functions and further columns of numbers that nearly all rollouts have and that vary."""
    names = dict.fromkeys(name for row in rows for name in (*row.rewards, *row.columns))
    scores = {}
    for name in names:
        values = np.array([_value(row.rewards.get(name, row.columns.get(name))) for row in rows])
        finite = values[np.isfinite(values)]
        if len(finite) >= 0.5 * len(rows) and np.ptp(finite) > 0:
            scores[name] = values
    return scores


def _unpaid(rows: Sequence[Rollout]) -> tuple[str, ...]:
    """Scores of single functions and further columns of numbers that are 0 on every rollout."""
    names = dict.fromkeys(name for row in rows for name in (*row.rewards, *row.columns))
    values = ([_value(row.rewards.get(name, row.columns.get(name))) for row in rows] for name in names)
    return tuple(name for name, own in zip(names, values, strict=True) if all(value == 0 for value in own))


def _value(value: Any) -> float:
    number = json_number(value) if isinstance(value, bool | int | float) else None
    return math.nan if number is None or not math.isfinite(number) else number


def _truth(scores: Mapping[str, Floats], asked: str, rows: Sequence[Rollout]) -> str:
    """The name of the true score, rather none of a function of the reward; UserError for one that no rollout has."""
    if asked:
        if asked not in scores:
            every = sorted({name for row in rows for name in (*row.rewards, *row.columns)})
            if asked in every:
                raise UserError(f"the score {visible(asked, 40)} has no numbers, or one for all rollouts; name another")
            names = listed([visible(name, 40) for name in list(scores)[:8]]) or "none"
            raise UserError(
                f"no rollout has a score {visible(asked, 40)}{nearest(asked, list(scores))}; there are: {names}"
            )
        return asked
    trained = {name for row in rows for name in row.rewards}
    for name in sorted(scores, key=trained.__contains__):
        word = name.lower().rpartition("/")[2].removesuffix("_func").removesuffix("_reward")
        if word in TRUE_SCORES:
            return name
    return ""


def _witness(scores: Mapping[str, Floats], asked: str, rows: Sequence[Rollout]) -> tuple[str, str]:
    """The name of the true score, empty where it is the reward itself, and `trained` as in TextSample."""
    name = _truth(scores, asked, rows)
    if asked or not any(name in row.rewards for row in rows):
        return name, ""
    return "" if _is_the_reward(scores[name], rows) else name, name


def _is_the_reward(score: Floats, rows: Sequence[Rollout]) -> bool:
    """Whether a score (N,) is the reward of the rows, but for its scale."""
    reward = np.array([_reward(row) for row in rows])
    both = np.isfinite(score) & np.isfinite(reward)
    if not both.any() or not np.ptp(score[both]) or not np.ptp(reward[both]):
        return False
    return bool(np.corrcoef(score[both], reward[both])[0, 1] > 1 - _ITSELF)


def _notes(rows: Sequence[Rollout], told: Sequence[Rollout], later: Sequence[Rollout]) -> tuple[str, ...]:
    notes = []
    without = sum(row.completion is None for row in rows)
    if without:
        notes.append(f"{without:,} of {len(rows):,} rollouts have no text and are left out.")
    several = sum(row.completion is not None and row.continuations != () for row in rows)
    if several:
        notes.append(f"{several:,} of {len(rows):,} rollouts have several histories and are left out.")
    if len(later) < len(told):
        notes.append(f"{len(told) - len(later):,} rollouts of earlier steps are left out, as was asked.")
    summed = sum(not math.isfinite(row.reward) and math.isfinite(_reward(row)) for row in later)
    if summed:
        notes.append(
            f"{summed:,} of {len(later):,} rollouts have rewards of functions and no total: their sum is taken, each "
            "counted once."
        )
    absent = sum(not math.isfinite(_reward(row)) for row in later)
    if absent:
        notes.append(f"{absent:,} of {len(later):,} rollouts have no finite reward and count for what changes alone.")
    long = sum(isinstance(row.completion, str) and len(row.completion) > LONGEST for row in later)
    if long:
        notes.append(
            f"{long:,} texts are longer than {LONGEST:,} characters; their first and last halves of that are read."
        )
    return tuple(notes)


def _affordable(sample: TextSample, most: int) -> TextSample:
    """At most `most` rollouts and CHARACTERS characters: whole groups, evenly over the run."""
    characters = sum(map(len, sample.texts))
    share = min(most / max(len(sample), 1), CHARACTERS / max(characters, 1))
    if share >= 1:
        return sample
    count = int(sample.group.max()) + 1
    first = np.full(count, len(sample))
    np.minimum.at(first, sample.group, np.arange(len(sample)))
    step = sample.step[first]
    order = np.lexsort((np.arange(count), step))
    shown = order[np.unique(np.linspace(0, count - 1, max(int(count * share), 1)).round().astype(np.int64))]
    rows = np.flatnonzero(np.isin(sample.group, shown))
    note = f"{len(rows):,} of {len(sample):,} rollouts are read: {len(shown):,} whole groups, evenly over the run."
    return replace(sample.at(rows), notes=(*sample.notes, note), sampled=True)


ENDS = 25_000
"""Tokens that are read at either end of a rollout."""


def _spelled(rows: Sequence[Rollout], numbers: dict[str, int]) -> dict[int, str]:
    """The text of each token by the id that `_ids_of_rollout` gives it."""
    if all(row.completion_ids is None for row in rows):
        return {number: token for token, number in numbers.items()}
    made: dict[int, str] = {}
    for row in rows:
        if row.completion_ids is not None and len(row.tokens) == len(row.completion_ids):
            made.update(zip(row.completion_ids.tolist(), row.tokens, strict=True))
    return made
