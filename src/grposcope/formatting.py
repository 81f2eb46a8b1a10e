"""Numbers and names as people read them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

UNSEEN = (
    "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u115f\\u1160\\u180e"
    "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb"
)
"""Characters that are not seen or that move others (controls, ANSI escapes, bidi, zero-width), all but newline
and tab: what stands between [ and ] of a regular expression, in Python and JavaScript alike."""

CONTROLS = [
    *("NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "TAB", "LF", "VT", "FF", "CR", "SO", "SI"),
    *("DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US"),
]
"""Names of the first 32 characters."""

_UNSEEN = re.compile(f"[{UNSEEN}\\n\\t\ud800-\udfff\U000e0000-\U000e007f]")


def visible(text: str, limit: int = 200) -> str:
    """A name on one line, unseen characters shown as [ESC] or [U+202E], cut after `limit` characters."""
    shown = _UNSEEN.sub(_mark, text[:limit])
    return shown if len(text) <= limit else f"{shown}… ({len(text):,} characters)"


def _mark(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"[{CONTROLS[code]}]" if code < len(CONTROLS) else f"[U+{code:04X}]"


def percent(value: float, digits: int = 0) -> str:
    """A share as a percentage; NaN stays visible."""
    if not math.isfinite(value):
        return "NaN"
    shown = f"{100 * value:.{digits}f}"
    return f"{shown.removeprefix('-') if not float(shown) else shown}%"  # no −0%


def duration(seconds: float) -> str:
    """Seconds in the two largest units that matter."""
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
    """Three significant digits; thousands with commas; NaN and infinities as such."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.2e}"


def listed(items: Sequence[str]) -> str:
    """a, b and c."""
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
