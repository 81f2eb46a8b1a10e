"""What a screen of `diagnose` claims, and whether the raw log bears it out: every number, step, count and name in it.

`untrue` goes through the lines. A claim is a pattern and a check of its groups against the log (`claim_patterns`); the
text it matches is taken out, and a digit that is left belongs to no claim and fails. CONSTANTS are the numbers that are
no statement about the log, each with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from claim_patterns import CLAIMS
from claims_of_causes import CAUSES_CONSTANTS
from claims_of_kinds import KINDS_CONSTANTS
from claims_of_shapes import SHAPES_CONSTANTS
from raw_log import RawLog

CONSTANTS: Sequence[tuple[str, str]] = (
    *CAUSES_CONSTANTS,
    *KINDS_CONSTANTS,
    *SHAPES_CONSTANTS,
    (r"± ?[\d.e-]+", "a standard error: its method has tests of its own"),
    (r"\(?confidence (?:above )?0\.\d+\)?", "a confidence: the same"),
    (r"\(limit 10 × the first rows' [\d.e-]+\)", "limits of a rule"),
    (r"\(limit \d\.?\d*\)|\(limits: 1\.5 × the first without more reward, 0\.2 × the first\)", "limits of a rule"),
    (r"\(collapsed below 0\.2 × early\)|\(exploded above 3 × early\)", "limits of a rule"),
    (r"\(0\.5 and 5 × the first half, or 3\)|\(100 nats and 1000 × the median\)", "limits of a rule"),
    (r"\(counts from [\d.]+ ?×?\)|\(explosion from 5 ×\)", "limits of a rule"),
    (r"at least (?:30|10|4) (?:rows )?are needed", "the least number of rows of a test"),
    (r"20 to 80% of rollouts|log\(0\)|float16|4 or more|or 0 for a reward|is not 0; if|\b1 − p\b", "words of advice"),
    (r"TRL (?:up to )?0\.\d+|from 0\.\d+|pass@\d+|mean@\d+|acc@\d+", "versions of a trainer, names of metrics"),
    (r"gsm8k|k[123]\b|log₁₀", "names"),
    (r"hardly moved below 0\.0005|\(grows above 1\)", "a limit of a rule"),
    (
        r"share of the detrended variance: 0\.\d+|modulus of the multiplier per row: \d\.\d+",
        "of the curve that is fitted to swings: its method has tests of its own",
    ),
    (r"make less than [01]\.\d", "what numerics may do, a limit"),
    (r"FP8|sleep level 2|b?float(?:16|32)|\(learning rate × steps\)\^[\d.]+", "a name, and an exponent that is fitted"),
    (
        r"^Of \d+ rules, .*cannot tell\.$|and \d+ more\b|\d+ more problems? found|\d+ more remarks?",
        "counts of rules, which are held to the JSON document",
    ),
    (r"numbered from 1\.", "how rows are numbered"),
)
"""Patterns of what is no statement about the log, and why."""


def untrue(screen: str, raw: RawLog) -> list[str]:
    """The claims of a screen that the log does not bear out, and the lines with numbers that belong to no claim."""
    wrong = []
    raw = without_copies(raw, screen)
    for line in screen.split("\n"):
        scope = re.match(r"(\w+): (?:failing|warning|healthy|cannot tell): ", line)
        of_line = raw.scopes[scope[1]] if scope and scope[1] in raw.scopes else raw
        rest = line
        for name, of_task in raw.scopes.items():  # of tasks in turn, what is said is said of one
            if re.search(rf"reward of {name}\b|: {name}: |^Because {name}: |^ +{name}: ", line):
                of_line = of_task
                rest = rest.replace(f"reward of {name}", "reward").replace(f"{name}: ", "")
        for pattern, check in CLAIMS:
            while match := re.search(pattern, rest):
                problem = check(of_line, match)
                if problem:
                    wrong.append(f"{problem} | {match.group()} | {line}")
                rest = rest[: match.start()] + "§" + rest[match.end() :]
        for pattern, _ in CONSTANTS:
            rest = re.sub(pattern, "§", rest)
        if re.search(r"\d", rest):
            wrong.append(f"unaccounted: {rest} | {line}")
    return wrong + undated(screen)


def undated(screen: str) -> list[str]:
    """Dates of the first line and of the advice that are none of a finding below, or not that of the first of them."""
    lines = screen.split("\n")
    found = [line for line in lines if line.startswith(("✗", "·"))]
    below = {step for line in found for step in re.findall(r"since step ([\d,]*\d)", line)}
    advice = next((line for line in lines if line.startswith("What to do")), "")
    said = {
        *re.findall(r"(?<!down )since step ([\d,]*\d)", lines[0]),
        *re.findall(r"(?:(?<!from )before|after) step ([\d,]*\d)", advice),
    }
    return [f"step {step} is the date of no finding" for step in sorted(said - below)]


def without_copies(raw: RawLog, screen: str) -> RawLog:
    """The log with values counted once that the screen says (?:was|were) copied onto the steps after them."""
    said = re.search(r"(?:was|were) copied onto the steps after them \(([^)]*)\)", screen)
    if said is None:
        return raw
    columns = dict(raw.columns)
    for key in said[1].split(", "):
        series = columns.get(key, [])
        columns[key] = [row for i, row in enumerate(series) if i == 0 or row[1] != series[i - 1][1]]
    return replace(raw, columns=columns)
