"""Parsing of console output: lines without escapes, printed numbers, and printed dicts."""

from __future__ import annotations

import math
import re

from grposcope.core.files import WRITTEN_NAN

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_RAY = re.compile(r"^\s*\((?:[\w.:<>]+(?: [\w.:<>]+)* )?pid=\d+(?:, ip=[^)]*)?\)(?: \[repeated \d+x[^\]]*\])?\s?")
_VALUE = (
    r"(?:(?:np|numpy)\.\w+\(|tensor\()?"
    r"(?P<value>[-+]?(?:\d[\d_]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf|NaN|[Ii]nfinity)|None|True|False"
    r"|'[^'\n]{0,300}'|\"[^\"\n]{0,300}\")(?P<open>[,)}\]\s]|$)"
)
_PAIR = re.compile(r"(?P<quote>['\"])(?P<key>[^'\"\n]{1,300})(?P=quote)\s*:\s*" + _VALUE)
_WRAPPED = re.compile(r"(?:np|numpy)\.\w+\((.*)\)|tensor\((.*?)(?:, .*)?\)")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|nan|inf(?:inity)?)", re.I)


def clean(text: str) -> str:
    """A console line without terminal escapes and without the prefix that Ray puts before every line."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "pid=" in text[:200] and (match := _RAY.match(text[:400])):
        return text[match.end() :]
    return text


def printed_number(text: str) -> float | None:
    """A number as Python prints it, also nan, inf, True, None, np.float64(…) and tensor(…); None for anything else.

    WRITTEN_NAN for nan; NaN for None, which stands for an absent value.
    """
    text = text.strip()
    if len(text) > 400:
        return None
    if "(" in text and (match := _WRAPPED.fullmatch(text)):
        text = (match[1] or match[2] or "").strip()
    if _NUMBER.fullmatch(text):
        value = float(text)
        return WRITTEN_NAN if math.isnan(value) else value
    return {"None": math.nan, "null": math.nan, "True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0}.get(text)


def printed_pairs(text: str) -> dict[str, float | str]:
    """Pairs 'key': value of a printed Python dict; strings that are numbers become numbers. Nothing is evaluated."""
    values: dict[str, float | str] = {}
    for match in _PAIR.finditer(text):
        raw = match["value"]
        inner = raw[1:-1] if raw[0] in "'\"" else raw
        value = printed_number(inner)
        values[match["key"]] = inner if value is None else value
    return values
