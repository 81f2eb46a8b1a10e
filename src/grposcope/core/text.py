"""Numbers and names for people, and the one place that makes text safe for a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

UNSEEN = (
    "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u115f\\u1160\\u180e"
    "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ud800-\\udfff\\ufeff\\ufff9-\\ufffb"
)
"""Characters that are invisible or act on a terminal (controls, ANSI escapes, bidirectional and zero-width marks, lone
surrogates), all but newline and tab. Written as the inside of a character class [...] that Python and JavaScript share;
the tags U+E0000 to U+E007F, which the two write differently, belong to it as well."""

HIDDEN = re.compile(f"[{UNSEEN}\U000e0000-\U000e007f]")
"""One of these characters."""

CONTROLS = [
    *("NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "TAB", "LF", "VT", "FF", "CR", "SO", "SI"),
    *("DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US"),
]
"""Names of the first 32 characters."""

_HIDDEN_OR_BREAK = re.compile(f"{HIDDEN.pattern}|[\n\t]")


BLOCKS = "▁▂▃▄▅▆▇█"
"""Heights of a sparkline."""


def visible(text: str, limit: int = 200) -> str:
    """Text on one line, with hidden characters shown as [ESC] or [U+202E] and cut after `limit` characters."""
    shown = _HIDDEN_OR_BREAK.sub(_mark, text[:limit])
    return shown if len(text) <= limit else f"{shown}… ({len(text):,} characters)"


def printable(text: str) -> str:
    """Text of any lines, with hidden characters shown as in `visible`."""
    return HIDDEN.sub(_mark, text)


def _mark(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"[{CONTROLS[code]}]" if code < len(CONTROLS) else f"[U+{code:04X}]"


def plain(text: str) -> str:
    """A sentence made by code, as a person would write it: "1 rows are" → "1 row is", "2.68e+03" → "2,680"."""
    if "1 " in text:
        text = _ONE.sub(_singular, text)
    return _POWER.sub(_written_out, text) if "e" in text else text


_VERBS = {
    "are": "is",
    "were": "was",
    "have": "has",
    "repeat": "repeats",
    "lie": "lies",
    "differ": "differs",
    "count": "counts",
}

_ONE = re.compile(
    r"(?<![\w.,=–−-])(?<!step )(?<!steps )(?<!epoch )1 (?P<kind>[a-z-]+ )??(?P<noun>alert|change|checkpoint|claim|"
    r"completion|entrie|evaluation|file|group|key|line|log|model|point|problem|probe|prompt|record|reward|rollout|row|"
    rf"run|spike|step|table|time|token|update|value)s\b(?:(?P<verb> (?:{'|'.join(_VERBS)})\b)(?P<rest>[^.:;,]*))?"
)

_POWER = re.compile(r"(?<![\w./-])(?P<digits>[−-]?\d(?:\.\d+)?)e(?P<sign>[+-])0?(?P<power>\d\d?)(?![\w/])(?!\.\d)")
"""A number as Python writes it; not one inside a name or a path."""

WRITTEN_OUT = 6
"""Largest power of ten that is written out."""


def _singular(match: re.Match[str]) -> str:
    noun = "entry" if match["noun"] == "entrie" else match["noun"]
    verb = f" {_VERBS[match['verb'].strip()]}" if match["verb"] else ""
    rest = re.sub(r"\band (were|are|have|count)\b", lambda m: f"and {_VERBS[m[1]]}", match["rest"] or "")
    return f"1 {match['kind'] or ''}{noun}{verb}{rest}"


def _written_out(match: re.Match[str]) -> str:
    power = int(match["power"])
    if match["sign"] == "+" and power <= WRITTEN_OUT:
        return f"{round(float(match['digits'].replace('−', '-')) * 10**power):,}"
    return f"{match['digits']}e{'-' if match['sign'] == '-' else ''}{power}"


def percent(value: float, digits: int = 0) -> str:
    """Share as a percentage, without a minus before 0; "NaN" where it is not finite."""
    if not math.isfinite(value):
        return "NaN"
    shown = f"{100 * value:.{digits}f}"
    return f"{shown.removeprefix('-') if not float(shown) else shown}%"  # no −0%


def digits_of_shares(*shares: float) -> int:
    """Decimals of shares in per cent in one sentence: as many as leave the largest with two digits, at most 2."""
    largest = max((abs(share) for share in shares if math.isfinite(share)), default=0.0)
    return 0 if largest == 0 or largest >= 0.0995 else 1 if largest >= 0.00995 else 2


def duration(seconds: float) -> str:
    """Duration in its two largest units, such as "3 h 20 min"; two digits below ten seconds."""
    if not math.isfinite(seconds):
        return "an unknown time"
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    for size, unit, smaller, rest in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {rest}"
    return f"{whole} s"


def number(value: float) -> str:
    """Number with three significant digits, commas between thousands; NaN, ∞ and −∞ as such."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else plain(f"{value:.2e}")


def signed(value: float) -> str:
    """A difference with its sign."""
    return ("+" if value > 0 else "") + number(value)


def apart(first: float, last: float) -> tuple[str, str]:
    """Two numbers with two significant digits, or as many, up to four, as tell them apart."""
    for digits in (2, 3, 4):
        shown = brief(first, digits), brief(last, digits)
        if shown[0] != shown[1]:
            break
    return shown if first != last else (brief(first), brief(last))


def apart_shares(first: float, last: float) -> str:
    """A share that went from one level to another, in per cent; once where it did not."""
    shown = [f"{100 * share:.0f}%" for share in (first, last)]
    return shown[0] if shown[0] == shown[1] else " → ".join(shown)


def brief(value: float, digits: int = 2) -> str:
    """A number in few characters: this many significant digits, whole thousands with commas, and below 1 one more where
    it would become 1."""
    if not math.isfinite(value) or not 1e-3 <= abs(value) < 1e6:
        return "0" if value == 0 else number(value) if not math.isfinite(value) else plain(f"{value:.{digits - 1}e}")
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    below = abs(value) < 1 <= abs(float(f"{value:.{digits}g}"))
    return f"{float(f'{value:.{digits + below}g}'):g}"


def listed(items: Sequence[str]) -> str:
    """Enumeration such as "a, b and c"; empty for no items."""
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def span(low: float, high: float, form: Callable[[float], str] = number) -> str:
    """An interval as "low to high"."""
    return f"{form(low)} to {form(high)}"


def table(rows: Sequence[Sequence[str]], indent: str = "", right: bool = False) -> str:
    """Rows of cells with aligned columns for a terminal; the first row is the header.

    right: align all columns but the first to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if right:
            cells[1:] = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def sparkline(values: Sequence[float], width: int) -> str:
    """The values as blocks between their least and largest, means of `width` bins at most; × where none is finite."""
    count = min(width, len(values))
    bins = [values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)]
    means = []
    for bin in bins:
        finite = [v for v in bin if math.isfinite(v)]
        means.append(math.fsum(finite) / len(finite) if finite else math.nan)
    known = [m for m in means if math.isfinite(m)]
    if not known:
        return "×" * count
    least, span = min(known), max(known) - min(known)
    return "".join(
        "×" if not math.isfinite(m) else BLOCKS[min(7, int(8 * (m - least) / span))] if span > 0 else BLOCKS[3]
        for m in means
    )


def capitalised(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]
