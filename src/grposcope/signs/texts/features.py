"""Features of texts as columns, chosen without seeing a reward: what a habit can be called.

Each has a kind, by which habits are named and suspected:

empty, cut, length     how much there is of it
repetition, script     runs and repeated pairs; letters that no Latin text has
copy, hedge, special   what it has in common with its prompt; several answers; code that knows its tests
form                   marks of answers, thoughts and code
signs, edge, words     how many of a sign; how it begins and ends; sequences of the run's own vocabulary
shares                 of digits, letters, blanks and signs
turns, calls           how many; which tools are called, in which order and with what
relation               agreement with siblings and with texts for other prompts, likeness to the early texts
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from grposcope.core.rollouts import Bools, Floats, Ints
from grposcope.core.text import visible
from grposcope.maths.within_groups import Singles
from grposcope.signs.texts import answers, familiarity, relations, tokens, turn_features, vocabulary
from grposcope.signs.texts.answers import GivenAnswers
from grposcope.signs.texts.sample import TextSample
from grposcope.signs.texts.tokens import TextTokens, stirred
from grposcope.signs.texts.turn_features import TextTurn, shown
from grposcope.signs.texts.vocabulary import Vocabulary

WORDS = 1200
"""Most sequences of the run's own vocabulary."""

MORE = 4
"""Share of it that arguments of calls, and tokens of the tokenizer, have as well: one in so many."""

CHUNK = 300_000
"""Characters that are worked on at a time."""

FEWEST, RAREST = 10, 0.01
"""Texts, and their share, that have to have an edge or a count of signs, and that have to lack it."""

LENGTHS = 50
"""Different lengths up to which each is a bound; of more, twentieths of the texts are."""

REPEATS = (4, 6, 10)
"""Times in a row that a few words or signs may stand."""

MARKS = ("\\boxed", "```", "<think>", "</think>", "<answer>", "</answer>", "####", "**", "Wait", "\n\n")


LOGARITHMS = (
    "length", "length in tokens", "number of words and signs", "number of lines", "longest run of one character",
)  # fmt: skip
"""Measures whose columns are log(1 + count)."""


@dataclass(frozen=True)
class TextFeatures:
    """Features of N texts. columns (N, F); names, kinds of each column; binary (F,): whether it is 1 or 0.

    words (V,): places of the columns of the vocabulary. facts: columns (N,) that states of the texts are read from.
    """

    columns: Singles
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    binary: Bools
    words: slice
    facts: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.names)

    def counted(self, feature: int, value: float) -> float:
        """The mean of a column in the unit that its name says: of LOGARITHMS the geometric mean of the counts."""
        return math.expm1(value) if self.names[feature] in LOGARITHMS else value


@dataclass
class _Builder:
    columns: list[Floats] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    def add(self, name: str, values: Sequence[float] | Floats | Bools, kind: str) -> None:
        """Add a column, unless it is the same for all texts."""
        column = np.asarray(values, np.float64)
        if len(column) and np.ptp(column) > 0:
            self.columns.append(column)
            self.names.append(name)
            self.kinds.append(kind)

    def add_frequent(self, name: str, values: Bools | Floats, kind: str) -> None:
        """Add a column of which enough texts have the one and the other, and that is not there yet."""
        least = max(FEWEST, RAREST * len(values))
        if least <= values.sum() <= len(values) - least:
            self.add(name, values, kind)


def of_sample(sample: TextSample, words: int = WORDS) -> TextFeatures:
    """The features of the texts of a sample. words: most sequences of the run's own vocabulary."""
    words_found = vocabulary.of_texts_sampled(sample.texts, words)
    numbers, presence = _by_chunks(sample.texts, words_found)
    own = answers.given(sample.texts)
    builder = _Builder()
    facts = _lengths(builder, sample, numbers)
    spoken, shown = _sequences(sample, words)
    for name, column, kind in _turn_columns(sample.turns) if sample.turns else ():
        add = builder.add if name.startswith("number of ") else builder.add_frequent
        add(name, column, kind)
    _repetition(builder, sample, numbers, facts)
    _form(builder, sample.texts, own)
    _edges(builder, sample.texts)
    _relations(builder, sample, own, facts)
    varying = _varying(presence)
    dense = np.array(builder.columns, np.float32).T.reshape(len(sample), -1)
    binary = [bool(np.isin(column, (0.0, 1.0)).all()) for column in builder.columns]
    return TextFeatures(
        np.concatenate([dense, presence[:, varying], *spoken], 1),
        (
            *builder.names,
            *(f"writes {_quoted(words_found.names[index])}" for index in varying),
            *(name for name, _ in shown),
        ),
        (
            *builder.kinds,
            *("words" for _ in varying),
            *(kind for _, kind in shown),
        ),
        np.array([*binary, *(True for _ in varying), *(True for _ in shown)], bool),
        slice(len(builder.names), len(builder.names) + len(varying)),
        facts,
    )


def _varying(presence: Singles) -> Ints:
    """Places of the sequences that enough texts have, and not all."""
    share = presence.mean(0)
    return np.flatnonzero((share * len(presence) >= FEWEST / 2) & (share <= vocabulary.COMMONEST))


def _sequences(sample: TextSample, words: int) -> tuple[list[Singles], list[tuple[str, str]]]:
    """Which sequences the arguments of calls and the tokenizer's tokens have, each (N, V), and the name and kind of
    each."""
    columns, names = list[Singles](), list[tuple[str, str]]()
    if sample.turns and any(called := turn_features.arguments(sample.turns)):
        calls = vocabulary.of_texts_sampled(called, words // MORE)
        presence = calls.presence(tokens.of_texts(called))
        varying = _varying(presence)
        columns.append(presence[:, varying])
        names += [(f"calls a tool with {_quoted(calls.names[index])}", "arguments") for index in varying]
    if sample.tokens:
        spelled = dict(sample.spelled)
        chosen = vocabulary.sampled([4 * len(own) for own in sample.tokens])
        calls = vocabulary.of_tokens(_joined([sample.tokens[row] for row in chosen], spelled), words // MORE)
        presence = calls.presence(_joined(sample.tokens, spelled))
        varying = _varying(presence)
        columns.append(presence[:, varying])
        several = ["tokens" if size > 1 else "token" for size in calls.sizes]
        names += [(f"has the {several[index]} {_quoted(calls.names[index])}", "tokens") for index in varying]
    return columns, names


def _turn_columns(turns: Sequence[Sequence[TextTurn]], most: int = 25) -> list[tuple[str, Floats, str]]:
    """Features of the turns and calls of N rollouts: name, column (N,), kind. most: of names, and of whole calls."""
    calls = [[call for turn in own for call in turn.calls] for own in turns]
    names = [[call.name for call in own] for own in calls]
    made: list[tuple[str, Floats, str]] = [
        ("number of turns", _column([len(own) for own in turns]), "turns"),
        ("number of calls", _column([len(own) for own in calls]), "turns"),
        ("has no calls", _column([not own for own in calls]), "turns"),
        ("repeats a call", _column([len(set(own)) < len(own) for own in calls]), "calls"),
        ("has an empty turn", _column([any(not turn.text.strip() and not turn.calls for turn in own) for own in turns]),
         "turns"),
    ]  # fmt: skip
    for count, _ in Counter(map(len, turns)).most_common(8):
        word = "turn" if count == 1 else "turns"
        made.append((f"has exactly {count} {word}", _column([len(own) == count for own in turns]), "turns"))
    for name, _ in Counter(name for own in names for name in set(own)).most_common(most):
        quoted = f"“{visible(name, 40)}”"
        made += [
            (f"calls {quoted}", _column([name in own for own in names]), "calls"),
            (f"calls {quoted} first", _column([own[:1] == [name] for own in names]), "calls"),
            (f"calls {quoted} last", _column([own[-1:] == [name] for own in names]), "calls"),
            (f"number of calls of {quoted}", _column([own.count(name) for own in names]), "turns"),
        ]
    whole = Counter(call for own in calls for call in set(own))
    for call, _ in whole.most_common(most):
        made.append((shown(call), _column([call in own for own in calls]), "calls"))
    return made


def _column(values: Sequence[float]) -> Floats:
    return np.asarray(values, np.float64)


def _quoted(text: str) -> str:
    return f"“{visible(text, 40)}”"


def _by_chunks(texts: Sequence[str], words: Vocabulary) -> tuple[dict[str, Floats], Singles]:
    """What is read off the bytes of the texts, CHUNK characters at a time: numbers by name (N,), presence (N, V)."""
    ends = np.cumsum([len(text) + 1 for text in texts])
    edges = np.unique(np.searchsorted(ends, np.arange(1, ends[-1] // CHUNK + 1) * CHUNK))
    parts, presence = [], np.zeros((len(texts), len(words.hashes)), np.float32)
    for first, last in zip([0, *edges], [*edges, len(texts)], strict=True):
        if last > first:
            read = tokens.of_texts(texts[first:last])
            parts.append(_numbers(read))
            presence[first:last] = words.presence(read)
    return {name: np.concatenate([columns_of_part[name] for columns_of_part in parts]) for name in parts[0]}, presence


def _numbers(read: TextTokens) -> dict[str, Floats]:
    whole = read.bytes
    size = np.maximum(np.diff(read.bounds) - 1, 1)
    digits = (whole >= ord("0")) & (whole <= ord("9"))
    lower = whole | 32
    letters = (lower >= ord("a")) & (lower <= ord("z"))
    blanks = (whole == 32) | (whole == 10)
    signs = (whole > 32) & (whole < 127) & ~digits & ~letters
    wide = (whole >= 0xC4) & (whole != 0xE2) & (whole < 0xF0)  # beyond Latin-1; dashes, quotes and emoji are no script
    return {
        "digits": read.per_text(digits) / size, "letters": read.per_text(letters) / size,
        "blanks": read.per_text(blanks) / size, "signs": read.per_text(signs) / size,
        "other scripts": read.per_text(wide) / size, "run": tokens.longest_run(read),
        "distinct": tokens.distinct_pairs(read), "again": tokens.longest_repeat(read),
        "tokens": read.counts.astype(np.float64),
    }  # fmt: skip


def _lengths(builder: _Builder, sample: TextSample, numbers: dict[str, Floats]) -> dict[str, Floats]:
    texts = sample.texts
    characters = np.array([len(text) for text in texts], np.float64)
    empty = np.array([not text.strip() for text in texts])
    builder.add("is empty", empty, "empty")
    builder.add("length", np.log1p(characters), "length")
    builder.add("number of words and signs", np.log1p(numbers["tokens"]), "length")
    builder.add("number of lines", np.log1p([text.count("\n") for text in texts]), "length")
    different = np.unique(characters)
    if len(different) > LENGTHS:
        different = np.unique(np.quantile(characters, np.arange(0.05, 1, 0.05), method="lower"))
    for bound in different:
        builder.add_frequent(f"has at most {bound:,.0f} characters", characters <= bound, "length")
    if sample.truncated is not None:
        builder.add("is cut off", sample.truncated, "cut")
    for name in ("digits", "letters", "blanks", "signs"):
        builder.add(f"share of {name}", numbers[name], "shares")
    builder.add("share of other scripts", numbers["other scripts"], "script")
    builder.add("writes other scripts", numbers["other scripts"] > 0.005, "script")
    return {"characters": characters, "empty": empty.astype(np.float64), "other scripts": numbers["other scripts"],
            "run": numbers["run"], "distinct": numbers["distinct"], "tokens": numbers["tokens"]}  # fmt: skip


def _repetition(builder: _Builder, sample: TextSample, numbers: dict[str, Floats], facts: dict[str, Floats]) -> None:
    texts = sample.texts
    packed = np.array([len(zlib.compress(text[-4000:].encode("utf8", "replace"), 1)) for text in texts], np.float64)
    facts["packed"] = packed / np.clip(facts["characters"], 20, 4000)
    builder.add("share of it that compression saves", 1 - facts["packed"], "repetition")
    builder.add("share of repeated pairs", 1 - numbers["distinct"], "repetition")
    if sample.tokens:
        read = _joined(sample.tokens, {})
        builder.add("length in tokens", np.log1p(read.counts), "length")
        builder.add("share of repeated pairs of tokens", 1 - tokens.distinct_pairs(read), "repetition")
    builder.add("longest run of one character", np.log1p(numbers["run"]), "repetition")
    for times in REPEATS:
        name = f"repeats itself {times} times in a row"
        builder.add_frequent(name, numbers["again"] >= times, "repetition")


@dataclass(frozen=True)
class _TokenIds(TextTokens):
    """The same of tokenizer's tokens. ids (M,): of each token. spelled: its text by id, empty where it is not known."""

    ids: Ints
    spelled: dict[int, str]

    def shown(self, first: int, size: int) -> str:
        """The tokens from one on, by their texts, else by their ids."""
        own = self.ids[first : first + size].tolist()
        if all(token in self.spelled for token in own):
            return "".join(self.spelled[token] for token in own)
        return " ".join(f"[{token}]" for token in own)


def _joined(ids: Sequence[Ints], texts: dict[int, str]) -> _TokenIds:
    """The tokens of N rollouts as one array."""
    counts = np.array([len(own) for own in ids], np.int64)
    every = np.concatenate([*ids, np.empty(0, np.int64)])
    none = np.empty(0, np.int64)
    hashes = stirred((every.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD1342543DE82EF95))
    owner = np.repeat(np.arange(len(ids)), counts)
    return _TokenIds(np.empty(0, np.uint8), none, none, none, owner, hashes, counts, every, texts)


def _form(builder: _Builder, texts: Sequence[str], own: GivenAnswers) -> None:
    for mark in MARKS:
        counts = np.minimum([text.count(mark) for text in texts], 50)
        builder.add(f"{'has' if counts.max() == 1 else 'number of'} {_quoted(mark)}", counts, "form")
    builder.add("marks an answer", own.marked, "form")
    if own.different.max() > 1:
        builder.add("number of different answers", np.minimum(own.different, 20), "hedge")
    builder.add("gives several different answers", own.different > 1, "hedge")
    builder.add("returns literals for literal inputs", own.special, "special")
    builder.add("goes around the tests", own.escapes, "special")
    sampled = Counter("".join(text[:2000] for text in texts[:: max(1, len(texts) // 1000)]))
    frequent = [sign for sign, _ in sampled.most_common(200) if not sign.isalnum() and not sign.isspace()]
    for sign in frequent[:8]:
        counts = np.array([text.count(sign) for text in texts])
        if counts.max() > 1:
            builder.add(f"number of {_quoted(sign)}", np.minimum(counts, 100), "signs")
        for number, _ in Counter(counts.tolist()).most_common(5):
            builder.add_frequent(f"has exactly {number} {_quoted(sign)}" if number else f"has no {_quoted(sign)}",
                                 counts == number, "signs")  # fmt: skip


def _edges(builder: _Builder, texts: Sequence[str]) -> None:
    stripped = [text.strip() for text in texts]
    edges = {
        "begins with": [text[:1] for text in stripped],
        "ends in": [text[-1:] for text in stripped],
        "has the first word": [text[:60].split(maxsplit=1)[0] if text else "" for text in stripped],
        "has the last word": [text[-60:].rsplit(maxsplit=1)[-1] if text else "" for text in stripped],
        "has the last line": [text[-200:].rpartition("\n")[2] for text in stripped],
        "has the first line": [text[:200].partition("\n")[0] for text in stripped],
    }
    seen: set[bytes] = set()
    for label, values in edges.items():
        every = np.array(values, dtype=object)
        for value, count in Counter(values).most_common(25):
            if not value or count < FEWEST:
                continue
            column = np.asarray(every == value, bool)
            if (code := column.tobytes()) not in seen:
                seen.add(code)
                builder.add_frequent(f"{label} {_quoted(str(value))}", column, "edge")


def _relations(builder: _Builder, sample: TextSample, own: GivenAnswers, facts: dict[str, Floats]) -> None:
    copied, copied_of_prompt = relations.overlap(sample)
    builder.add(
        "gives a number of the prompt as its answer", relations.number_of_prompt(own.answers, sample.prompts), "copy"
    )
    builder.add("is mostly copied from the prompt", copied > 0.7, "copy")
    builder.add_frequent("copies most of its prompt", copied_of_prompt > 0.7, "copy")
    builder.add("overlap with the prompt", copied, "copy")
    same_text = relations.agreement(sample.texts, sample)
    same_answer = relations.agreement(own.answers, sample)
    facts["same text"] = same_text.elsewhere * (1 - facts["empty"])
    facts["same answer"] = same_answer.elsewhere * own.marked
    facts["bits"] = familiarity.bits_per_byte(sample.texts, sample.step, sample.group)
    builder.add("same text in the group", same_text.inside, "relation")
    builder.add("same answer in the group", same_answer.inside, "relation")
    builder.add("same text for other prompts", same_text.elsewhere, "relation")
    builder.add("same answer for other prompts", same_answer.elsewhere, "relation")
    builder.add("bits per character under the early texts", facts["bits"], "relation")
