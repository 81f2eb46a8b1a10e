"""The first line of a verdict: what became of the outcome that matters, and one cause, in at most MOST characters.

    failing: every completion is cut at the token limit in all 37 steps; reward 0.02 → 0.02
    failing: reward 0.85 → 0.5, down since step 150; actor/entropy 0.9 → 0.1 since step 210
    healthy: held-out accuracy 30% → 39% in 30 steps

A fact that prevents learning comes before the outcome, a cause behind it. Certainty is said by counts, uncertainty in
two or three words. "since step" stands only where a change of one metric is dated (`signs.onset`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from grposcope.core.finding import Finding
from grposcope.core.text import apart, brief, digits_of_shares, percent, visible
from grposcope.signs import heldout, words
from grposcope.signs.outcome import Outcome
from grposcope.signs.thresholds import HALF, UPPER
from grposcope.signs.words import Logged, Word

MOST = 110
"""Characters of a first line, at most."""

NAME = 28
"""Characters of the name of a held-out score."""

OF_REWARD = ("reward decline", "held-out decline")
"""Modes that say no more than an outcome that fell does."""

CROSSINGS = ("entropy collapse", "entropy explosion", "kl blow-up", "length", "gradient explosion", "starved")
"""Modes of one metric, whose first line says since when it has changed."""


def of_finding(word: str, outcome: Outcome, finding: Finding, steps: int) -> str:
    """The line where a mode is failing or a warning."""
    dated = finding.since if finding.fault in (*OF_REWARD, "reward hacking") else None
    became = levels(outcome, steps, dated.step if dated is not None else None)
    doubt = "" if outcome.fate != "cannot tell" else ", no gain shown" if outcome.no_gain else ""
    if not became:
        return _fitted(f"{word}: {finding.brief or finding.fault}")
    if finding.fault == "no learning":
        return _fitted(f"{word}: {became}, no gain")
    if finding.fault in OF_REWARD and outcome.direction == "down":
        return _fitted(f"{word}: {became}")
    cause = finding.brief or finding.fault
    of_answers = outcome.by_answers and heldout.name(outcome.name) in cause.partition(" ")[0].split("/")
    if finding.fault == "reward hacking" and (outcome.heldout or of_answers):
        return _fitted(f"{word}: {became} while the reward rose", f"{word}: {became}")
    since = f" {finding.since}" if finding.since is not None and finding.fault in CROSSINGS else ""
    since = "" if since.strip() in cause else since
    if finding.confidence == 1 and not since and outcome.direction != "down":
        bare = _without_time(became)
        said = (f"{cause}; {became}{doubt}", f"{cause}; {became}", f"{cause}; {bare}", cause)
        return _fitted(*(f"{word}: {text}" for text in said))
    bare = _without_time(became)
    said = (f"{became}; {cause}{since}", f"{became}; {cause}", f"{bare}; {cause}", f"{became}; {finding.fault}")
    return _fitted(*(f"{word}: {text}" for text in said))


def of_outcome(word: Word, outcome: Outcome, steps: int, logged: Logged, absent: Sequence[str], cause: str = "") -> str:
    """The line where nothing is failing or a warning, by the table of `words`. absent: nouns of what is not logged.

    cause: why a flat run learned nothing, in a few words; empty where that is not known.
    """
    became = levels(outcome, steps)
    if not became:
        return _fitted(f"{word}: {outcome.missing or 'the log has no metric to judge the run by'}")
    tails = words.tails(outcome.state, logged) if not outcome.missing else (", too short to judge",)
    if outcome.state == "undecided" and outcome.doubt == "lost":
        tails = (", may have lost its gain", "")
    if cause:
        tails = (f"{', no gain shown' if outcome.state == 'level' else ', gain not certain'}; {cause}", f"; {cause}")
    put = {
        "{absent}": ", ".join(absent),
        "{heldout}": "not logged" if "held-out" in absent else "undecided",
        "{answers}": _stayed(outcome),
    }
    for fault, text in put.items():
        tails = tuple(tail.replace(fault, text) for tail in tails)
    return _fitted(*(f"{word}: {became}{tail}" for tail in tails), f"{word}: {became}")


def _stayed(outcome: Outcome) -> str:
    """That right answers did not follow the reward, with their levels; empty where no outcome says so."""
    name, first, last = outcome.answers
    if not name:
        return ""
    a, b = _ends(first.value, last.value, told=False)
    lost = first.value - last.value
    fell = lost > HALF * first.value and lost > UPPER * math.hypot(first.se, last.se)
    verb = "stayed" if a == b else "fell" if fell else "went"
    return f"{short(name)} {verb} {a} → {b}"


def levels(outcome: Outcome, steps: int, since: int | None = None) -> str:
    """What became of the outcome: two levels and a length, or since when it is down, which is `since` where a finding
    of the same fall says so; empty where there are no levels."""
    if not outcome.name or math.isnan(outcome.end.value):
        return ""
    what = f"held-out {short(outcome.name)}" if outcome.heldout else "reward"
    what = short(outcome.name) if outcome.by_answers else what
    what += f" of {short(outcome.task)}" if outcome.task else ""
    down = outcome.direction == "down"
    first = (outcome.before if down else outcome.start).value
    last = outcome.end.value
    shares = outcome.heldout and heldout.are_shares([first, last, outcome.best.value])
    told = outcome.direction in ("up", "down")
    digits = digits_of_shares(first, last)
    a, b = (percent(first, digits), percent(last, digits)) if shares else _ends(first, last, told)
    if a == b and shares and told:
        a, b = percent(first, digits + 1), percent(last, digits + 1)
    if down and outcome.sudden and outcome.fall is not None:
        return f"{what} {a} → {b} at step {outcome.fall.step:,}"
    if down and outcome.before != outcome.start:
        begun = outcome.best_step if outcome.fall is None else max(outcome.fall.step, outcome.best_step)
        begun = begun if outcome.high is None else min(begun, max(outcome.high, outcome.best_step))
        begun = begun if since is None else max(since, outcome.best_step)
        return f"{what} {a} → {b}, down since step {begun:,}"
    return f"{what} {a} → {b} in {steps:,} step{'s' * (steps != 1)}"


def _without_time(became: str) -> str:
    """What `levels` says, without over how many steps or since when."""
    return re.sub(r"( in [\d,]+ steps?|, down since step [\d,]+)$", "", became)


def _ends(first: float, last: float, told: bool) -> tuple[str, str]:
    """Two levels in few characters; with as many digits as tell them apart where they differ beyond chance."""
    return apart(first, last) if told else (brief(first), brief(last))


def short(metric: str) -> str:
    """The name of a held-out score, its beginning left out where it is long."""
    name = heldout.name(metric)
    if len(name) <= NAME:
        return name
    end = name[1 - NAME :]
    _, slash, parts = end.partition("/")
    return f"…/{parts}" if slash and parts else "…" + end


def _fitted(*variants: str) -> str:
    """The first of these lines, which say ever less, that has at most MOST characters; the last is cut."""
    line = next((variant for variant in variants if len(visible(variant)) <= MOST), variants[-1])
    line = visible(line, 400)
    return line if len(line) <= MOST else line[: MOST - 1] + "…"
