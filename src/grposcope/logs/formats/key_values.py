"""Grammar of console lines that hold numbers with names, whoever prints them. A line becomes a list of `Named` numbers.

    2026-01-02 10:11:12,345 INFO train.py:88 - Epoch:[1/1](12/9751), Reward: -1.78, KL_ref: 0.01, len 217 tok
                                                     #1    #2       Reward         KL_ref        len

A number belongs to the words before it, with or without a colon, an equals sign or an "is" between; commas, semicolons,
bars and lone dashes end what came before, as does an "and" before a number with an "is". Numbers without words have
only their place, counted over all numbers of the line; a progress such as 12/9751 is one number with a total. Times of
day, dates, places in source files, log levels, progress bars, terminal escapes and the prefixes of Ray are no part of
the text. Everything here takes time in proportion to the length of the line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from grposcope.core.files import WRITTEN_NAN
from grposcope.logs.formats.console import clean

LONGEST = 20_000
"""Number of characters of a line that are looked at."""

WORDS_OF_A_KEY = 5
"""Words that a name may have; without a colon or an equals sign, at most 3. More are prose."""

_NOISE = (
    (".py:", re.compile(r"\b[\w./-]{1,80}\.py:\d+")),
    ("%|", re.compile(r"\b\d{1,3}%\|[^|]{0,200}\|")),
    (":", re.compile(
        r"\d{4}[-/]\d\d?[-/]\d\d?[T_ ]\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
        r"|\d{1,4}:\d\d:\d\d(?:[.,]\d+)?|\b\d{1,3}:\d\d<\d{1,3}:\d\d|(?<![\w.:])\d{1,2}:\d\d(?=[\s,<\]])"
    )),
    ("-", re.compile(r"\b\d{4}-\d\d?-\d\d?\b")),
    ("", re.compile(r"\b(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\b")),
)  # fmt: skip
"""What is no part of the text, each with a piece of text without which it cannot be there."""

_WRAPPED = re.compile(r"\b(?:(?:np|numpy|torch)\.\w{1,20}|tensor)\(\s*([^(),]{1,60})(?:,[^()]{0,80})?\)")
_SPLIT_PROGRESS = re.compile(r"(?<=\d) ?(?:/| of ) ?(?=\d)")
_CHUNK = re.compile(r"[-+]?\d+(?:,\d+)+(?:\.\d+)?|[,;|]|[()\[\]{}<>]|[:=]+|[^\s,;|()\[\]{}<>:=]+")
_NUMBER = re.compile(
    r"(?P<value>[-+]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(?P<unit>[^\W\d_]{1,8}(?:/\w{1,8})?|%)?"
)
_PROGRESS = re.compile(r"(?P<value>\d{1,15})/(?P<total>\d{1,15})")
_COMMAS = re.compile(r"[-+]?\d+(?:,\d+)+(?:\.\d+)?")
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(?:(?:,\d{3})+\.\d+|(?:,\d{3}){2,})")
_FACTORS = {"%": 0.01, "k": 1e3, "K": 1e3, "M": 1e6}
_UNITS = frozenset(
    ("s", "ms", "us", "µs", "sec", "secs", "seconds", "min", "mins", "h", "hr", "hrs", "x", "it/s", "s/it", "tok/s",
     "toks/s", "tokens/s", "tok", "toks", "tokens", "steps/s", "samples/s", "GB", "GiB", "MB", "MiB", "G", "nats",
     "bits", "%", "k", "K", "M")
)  # fmt: skip
_NO_NUMBER = {"nan": WRITTEN_NAN, "none": math.nan, "null": math.nan, "n/a": math.nan, "inf": math.inf,
              "+inf": math.inf, "-inf": -math.inf, "-nan": WRITTEN_NAN, "infinity": math.inf,
              "-infinity": -math.inf}  # fmt: skip
_STARTS = frozenset("0123456789+-.nNiI'\"")
_COPULAS = frozenset(("is", "was"))
_SPREAD = frozenset(("±", "+-", "+/-"))


Value = tuple[float, float | None, str]
"""Value, total and text with commas of a number, as in `Named`."""

Structure = tuple[tuple[str, ...], tuple[int, ...], Mapping[str, str], frozenset[str]]
"""Names of the numbers of a line, which of them are followed by a percent sign, its texts and its tags."""


@dataclass(frozen=True)
class Named:
    """A number of a line. name: its words, or "#3" for the third number of a line where it has none.

    value: NaN (WRITTEN_NAN) and infinities as printed, NaN for none and n/a; percent as shares. total: of a progress
    such as 12/9751, else None. comma: the text of a number with commas, which may be decimal or of thousands;
    `value` is NaN then.
    """

    name: str
    value: float
    total: float | None = None
    comma: str = ""


@dataclass(frozen=True)
class Line:
    """A line as its numbers in order, texts by name, and the words that belong to no number, in lower case."""

    numbers: tuple[Named, ...]
    texts: Mapping[str, str] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers, which tell what kind of line it is."""
        return tuple(number.name for number in self.numbers)


def parse(text: str) -> Line:
    """The numbers of a console line with their names; no numbers for a line without any."""
    values: list[Value] = []
    structure: list[str] = []
    for chunk in _CHUNK.findall(_plain(text[:LONGEST])):
        value = _value(chunk) if chunk[0] in _STARTS else None
        structure.append(chunk if value is None else "")
        if value is not None:
            values.append(value)
    names, shares, texts, tags = _structure(tuple(structure))
    numbers = [Named(name, *value) for name, value in zip(names, values, strict=True)]
    for k in shares:
        numbers[k] = Named(numbers[k].name, numbers[k].value / 100, numbers[k].total, numbers[k].comma)
    return Line(tuple(numbers), texts, tags)


@lru_cache(4096)
def _structure(chunks: tuple[str, ...]) -> Structure:
    """What the chunks around the numbers say of them; lines of one kind share it. "" stands for a number."""
    return _Scanner().scan(chunks)


def _plain(text: str) -> str:
    text = clean(text)
    if not any(map(str.isdigit, text)) and "nan" not in text.lower() and "inf" not in text.lower():
        return ""
    if "(" in text:
        text = _WRAPPED.sub(r"\1", text)
    for part, pattern in _NOISE:
        if part in text:
            text = pattern.sub(" ", text)
    for mark in _SPREAD:
        if mark in text:
            text = text.replace(mark, " ± ")
    return _SPLIT_PROGRESS.sub("/", text) if "/" in text or " of " in text else text


class _Scanner:
    """State while the chunks of one line go by: the words and separator since the last number."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.shares: list[int] = []
        self.texts: dict[str, str] = {}
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.unit: list[str] = []
        self.separated = self.after_value = self.spread = False

    def scan(self, chunks: Sequence[str]) -> Structure:
        for chunk in chunks:
            if not chunk:
                self._number()
            elif chunk == "±":
                self.spread = True
            elif chunk[0].isalpha() or any(map(str.isalnum, chunk)):
                self._word(chunk.strip("'\"`*").rstrip("."))
            else:
                self._mark(chunk)
        self._end()
        return tuple(self.names), tuple(self.shares), self.texts, frozenset(self.tags)

    def _number(self) -> None:
        words, limit = self.words, WORDS_OF_A_KEY if self.separated else 3
        if len(words) > 1 and words[-1] in _COPULAS:  # "the reward is 0.9 and kl is 0.1"
            words = words[words[0] == "and" : -1]
        name = " ".join(words) if 0 < len(words) <= limit and not self.spread else ""
        if name in self.names:
            name = f"{name} ({sum(other.startswith(name) for other in self.names) + 1})"
        if words and not name:
            self.tags.update(word.lower() for word in words)
        self.names.append(name or f"#{len(self.names) + 1}")
        self._reset(after_value=True)

    def _mark(self, chunk: str) -> None:
        if chunk[0] in ":=":
            self.words = self.words or self.unit
            self.separated = bool(self.words)
        elif chunk in "()[]{}<>":
            if chunk == "]" and not self.separated:
                self._end()
        elif chunk == "%" and self.after_value:
            self.shares.append(len(self.names) - 1)
        else:
            self._end()

    def _word(self, word: str) -> None:
        if not word:
            return
        if self.after_value and not self.words and word in _UNITS:
            self.after_value, self.unit = False, [word]
            return
        if self.separated:  # a text, or the words so far headed others
            key = " ".join(self.words)
            self.tags.update(word.lower() for word in self.words)
            self.texts.setdefault(key, word)
            self._reset()
        self.words.append(word)
        self.unit = []

    def _end(self) -> None:
        self.tags.update(word.lower() for word in self.words)
        self._reset()

    def _reset(self, after_value: bool = False) -> None:
        self.words, self.unit = [], []
        self.separated, self.after_value, self.spread = False, after_value, False


def _value(chunk: str) -> Value | None:
    """(value, total, text of a number with commas) of a chunk; None if it is no number."""
    if not (chunk[0].isdigit() or chunk[0] in "+-."):
        return _named_or_quoted(chunk)
    if len(chunk) > 60:
        return None
    if match := _PROGRESS.fullmatch(chunk):
        return float(match["value"]), float(match["total"]), ""
    if "," in chunk:
        if _GROUPED.fullmatch(chunk):
            return float(chunk.replace(",", "")), None, ""
        return (math.nan, None, chunk) if _COMMAS.fullmatch(chunk) else None
    if chunk.lower() in _NO_NUMBER:
        return _NO_NUMBER[chunk.lower()], None, ""
    text = chunk[:-1] if chunk.endswith(".") and chunk.count(".") > 1 else chunk
    match = _NUMBER.fullmatch(text)
    if match is None or (match["unit"] and match["unit"] not in _UNITS):
        return None
    value = float(match["value"])
    return value * _FACTORS.get(match["unit"] or "", 1.0), None, ""


def _named_or_quoted(chunk: str) -> Value | None:
    """`_value` of a chunk that begins with no digit or sign: a word such as nan, or a number in quotes."""
    first = chunk[0]
    value = _NO_NUMBER.get(chunk.strip("'\"").lower()) if first in "nNiI'\"" else None
    if value is not None:
        return value, None, ""
    quoted = first in "'\"" and 2 < len(chunk) < 50 and chunk[-1] == first
    return _value(chunk[1:-1]) if quoted else None
