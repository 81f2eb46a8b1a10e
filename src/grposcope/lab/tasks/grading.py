r"""Whether a completion gives the reference answer of a maths problem, decided by math-verify.

What is graded is the answer a completion commits to, one answer only:

1. the text after its last `####` (that line), in its last `\boxed{}` or in its last `<answer>`
   tags, whichever comes last;
2. without such a mark, what math-verify finds in the whole text: an expression after the word
   "answer" if there is one, else the last expression or number.

An answer in words (`Purple`, `3:30 p.m.`) is compared as text. Only the end of a long completion
is looked at. math-verify's time limits are signals: in the main thread a hopeless comparison ends
after `limits.SECONDS` and counts as wrong; in another thread there is no such limit.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.installing import install
from grposcope.lab.tasks.limits import SECONDS, interruptible, runaway, time_limit

TAIL = 4000
"""Characters at the end of a completion in which a mark is looked for."""
LONGEST = 1000
"""Characters, of those, that are searched for an answer."""
WHOLE = 400
"""Characters that an answer may have to be read as one expression; reading gets slow with length."""

INSTRUCTION = "Think briefly, step by step. Put the final answer alone on the last line, after ####"

_GOLD_SECONDS = 10  # once per problem, so that a busy machine does not make an answer unreadable
_DIGITS = 6  # decimals that must agree; for a reference below 1, digits after its leading zeros
_TEX = re.compile(r"\\[A-Za-z]+(?:\s*\{[A-Za-z~ .,]*\})*")  # a command and the arguments of it that are words
_WORDS = re.compile(r"(?<![A-Za-z])(?!(?:and|or)\b)[A-Za-z]{3,}|^\W*\d[\d.,/]*\s+(?!(?:and|or)\b)[A-Za-z]{2,}")
_QUANTITY = re.compile(r"[-−+$€£\s]*\d[\d.,/]*\s*[A-Za-z%][^\d:]*")  # 72 apples, but neither 3:30 p.m. nor two numbers
_SCIENTIFIC = re.compile(r"([-+]?\d+(?:\.\d*)?|[-+]?\.\d+)[eE]([-+]?\d+)")
_STATED = re.compile(r"(?:answer is|answer:|=)\s*", re.IGNORECASE)


def equal(answer: str, completion: str) -> bool:
    """Whether the completion's answer equals the reference answer; a completion that gives none is wrong.

    Raises UserError if math-verify is not installed.
    """
    verify = engine().verify
    marked_answer = marked(completion, line=True)
    text = (marked_answer or completion)[-LONGEST:]
    if marked_answer and _plain(marked_answer) == _plain(answer):
        return True
    if runaway(text):
        return False
    gold, decimals = _gold(_clean(answer))
    if not gold:
        return not marked_answer and _plain(_stated(completion)) == _plain(answer) != ""
    return bool(verify(gold, _parsed(_clean(text)), float_rounding=decimals, timeout_seconds=_limit(SECONDS)))


def answer_in(answer: str, completion: str) -> str:
    """What of a completion `equal` compares with the reference answer; "" where it can read no answer there."""
    marked_answer = marked(completion, line=True)
    if not _gold(_clean(answer))[0]:  # compared as text
        return marked_answer or _stated(completion)
    text = (marked_answer or completion)[-LONGEST:]
    if runaway(text):
        return marked_answer if marked_answer and _plain(marked_answer) == _plain(answer) else ""
    parsed = _parsed(_clean(text))
    return (marked_answer or str(parsed[-1])) if parsed else ""


def marked(completion: str, line: bool = False) -> str | None:
    """The text that the completion marks as its answer, by whichever mark comes last, or None.

    line: of the text after `####`, take its first line that is not blank rather than all of it.
    """
    tail = completion[-TAIL:]
    for at, mark in sorted(((tail.rfind(mark), mark) for mark in _MARKS), reverse=True):
        text = "" if at < 0 else _MARKS[mark](tail[at + len(mark) :]).strip()
        if text:
            return text.splitlines()[0].strip() if line and mark == "####" else text
    return None


def closed(text: str) -> str:
    r"""The text up to the brace that closes it, as after `\boxed{`; "" if none does."""
    depth = 1
    for at, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if not depth:
            return text[:at]
    return ""


@cache
def engine() -> ModuleType:
    """The package math-verify, which is told to log errors only, since it logs whole completions."""
    try:
        import math_verify
    except ImportError:
        raise UserError(f"maths answers are graded by math-verify, which is missing; {install('math')}") from None
    for name in ("math_verify", "latex2sympy2_extended"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return math_verify


_MARKS: dict[str, Callable[[str], str]] = {
    "####": str,
    "\\boxed{": closed,
    "<answer>": lambda text: text.split("</answer>")[0],
}
"""What opens an answer, and how much of the text after it belongs to it."""


@lru_cache(maxsize=50_000)
def _gold(answer: str) -> tuple[list[Any], int]:
    """The reference answer parsed as one whole ([] if it is words) and the decimals that must agree."""
    if not _is_words(answer):
        parsed = _expressions(f"\\boxed{{{answer}}}", _GOLD_SECONDS)
    else:
        parsed = _expressions(answer, _GOLD_SECONDS) if _QUANTITY.fullmatch(answer) else []
    try:
        with time_limit():
            size = abs(float(parsed[0])) if parsed else 0.0
    except Exception:  # no number, or one that takes too long
        size = 0.0
    return parsed, _DIGITS + (math.ceil(-math.log10(size)) if 0 < size < 1 else 0)


def _parsed(text: str) -> list[Any]:
    """The expression given: the whole text where it is only maths, else what math-verify finds in it."""
    whole = f"\\boxed{{{text}}}" if len(text) <= WHOLE else ""
    if _is_words(text) or "\n" in text:
        return _expressions(text) or _expressions(whole)
    return _expressions(whole) or _expressions(text)


def _expressions(text: str, seconds: int = SECONDS) -> list[Any]:
    return list(engine().parse(text, fallback_mode="no_fallback", parsing_timeout=_limit(seconds)))


def _limit(seconds: int) -> int | None:
    """math-verify's time limit, which it refuses outside the main thread."""
    return seconds if interruptible() else None


def _clean(text: str) -> str:
    """The text without dollar signs, bold type and closing stop; 4.5e33 as a product with a power."""
    text = text.strip().strip("*").strip()
    if not _is_words(text):
        text = text.replace("\\$", "").replace("$", "")
    text = re.sub(r"\.$", "", text).strip()
    scientific = _SCIENTIFIC.fullmatch(text)
    return f"{scientific[1]} \\times 10^{{{scientific[2]}}}" if scientific else text


def _is_words(text: str) -> bool:
    """Whether the text holds words outside LaTeX commands, or a number with a unit."""
    return _WORDS.search(_TEX.sub(" ", text)) is not None


def _stated(completion: str) -> str:
    """Text after "answer is", "answer:" or "=" in the last line, else all of that line."""
    lines = completion[-TAIL:].strip().splitlines()
    return _STATED.split(lines[-1])[-1] if lines else ""


def _plain(text: str) -> str:
    r"""The text without $, \text{}, bold type, closing stop, upper case and double spaces, to be compared as text."""
    text = re.sub(r"\\text(?:bf|rm)?\{([^{}]*)\}", r"\1", text.replace("$", ""))
    return " ".join(text.strip(" \t\n*").rstrip(".").split()).casefold()
