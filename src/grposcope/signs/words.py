"""The table of words: what a verdict says, by what became of the outcome, the worst fault, and what is logged.

An outcome (`outcome.State`) and a fault (a fact of the record, or shown by a test; one near its limit says nothing yet)
give the grade of the fault: GRADED. Outcome and worst grade give the first word: WORDS. Outcome and what is logged give
what the first line says after the levels: SAYS. tests/instruments/diagnosis/test_words_table.py goes through every
cell, and docs/diagnosis.md prints them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from grposcope.signs.outcome import State

Word = Literal["failing", "warning", "healthy", "cannot tell"]
"""The first word of a verdict."""

Basis = Literal["fact", "shown"]
"""What a flagged finding rests on: the record proves it, or a test shows it."""

Weighed = Literal["beside", "instead", "instead, at most a warning"]
"""Which grade of a rule a finding gets: that beside learning that goes well, that in place of it, or that capped."""

Worst = Literal["failing", "warning", "none"]
"""The worst grade of the findings of a run; notes, and what is near a limit, count as none."""

Logged = Literal["held-out", "failures", "few", "reward only"]
"""What is logged: a held-out score that says the outcome; areas enough for a failure to be seen; fewer; none."""

LOGGED: tuple[Logged, ...] = ("held-out", "failures", "few", "reward only")
"""Every value of `Logged`."""

MEANING: Mapping[State, str] = {
    "up": "a gain is shown",
    "small": "a gain is certain, but little of the range",
    "stalled": "a gain is shown, half of what there was or less, and none since the middle",
    "top": "stayed in the upper fifth of its range",
    "proxy": "right answers did not gain while the reward did",
    "hump": "less than half of the gain of the reward is lost, and its end is above its start",
    "lost": "a quarter of the gain is lost, or a fall is plain to see",
    "down": "a fall is shown",
    "level": "no change, or no gain where one should be seen by now",
    "undecided": "neither a gain nor its absence is shown",
}
"""State of an outcome -> what it means."""

GRADED: Mapping[State, Mapping[Basis, Weighed]] = {
    "up": {"fact": "beside", "shown": "beside"},
    "small": {"fact": "instead", "shown": "instead"},
    "stalled": {"fact": "instead", "shown": "instead"},
    "top": {"fact": "beside", "shown": "beside"},
    "proxy": {"fact": "instead", "shown": "instead"},
    "hump": {"fact": "instead", "shown": "instead, at most a warning"},
    "lost": {"fact": "instead", "shown": "instead"},
    "down": {"fact": "instead", "shown": "instead"},
    "level": {"fact": "instead", "shown": "instead"},
    "undecided": {"fact": "instead", "shown": "instead, at most a warning"},
}
"""How a fault is graded: what stands beside a gain may be a note; where no gain is shown, it is why."""

WORDS: Mapping[State, Mapping[Worst, Word]] = {
    "up": {"failing": "failing", "warning": "warning", "none": "healthy"},
    "small": {"failing": "failing", "warning": "warning", "none": "healthy"},
    "stalled": {"failing": "failing", "warning": "warning", "none": "healthy"},
    "top": {"failing": "failing", "warning": "warning", "none": "healthy"},
    "proxy": {"failing": "failing", "warning": "warning", "none": "warning"},
    "hump": {"failing": "failing", "warning": "warning", "none": "warning"},
    "lost": {"failing": "failing", "warning": "failing", "none": "failing"},
    "down": {"failing": "failing", "warning": "warning", "none": "warning"},
    "level": {"failing": "failing", "warning": "warning", "none": "cannot tell"},
    "undecided": {"failing": "failing", "warning": "warning", "none": "cannot tell"},
}
"""The first word. A gain without a visible failure is healthy as far as it is logged, whatever is not."""


GAMED = "gaming cannot be excluded"
"""What nobody can see in the reward alone."""

Tails = tuple[str, ...]
"""What a first line says after the levels, the longest first: what does not fit gives way to the next. {absent} stands
for what is not logged, {heldout} for what keeps a held-out score from deciding, {answers} for right answers that
stayed, with their levels."""

_GAIN: Mapping[Logged, Tails] = {
    "held-out": ("",),
    "failures": ("; held-out {heldout}",),
    "few": ("; not logged: {absent}", "; held-out {heldout}", ""),
    "reward only": (f"; only the reward is logged: {GAMED}", "; only the reward is logged", ""),
}
_NO_CAUSE = ", no gain shown and no cause found"
_LEVEL: Mapping[Logged, Tails] = {
    "held-out": (_NO_CAUSE, ", no gain shown"),
    "failures": (_NO_CAUSE, ", no gain shown"),
    "few": (", no gain shown; not logged: {absent}", _NO_CAUSE, ", no gain shown"),
    "reward only": (", no gain shown; no cause can be seen: only the reward is logged", ", no gain shown"),
}
_UNSURE: Mapping[Logged, Tails] = dict.fromkeys(LOGGED, (", gain not certain", ""))
_PROXY: Mapping[Logged, Tails] = dict.fromkeys(LOGGED, (" while {answers}", " while right answers did not follow"))
_FALL: Mapping[Logged, Tails] = dict.fromkeys(LOGGED, ("",))

SAYS: Mapping[State, Mapping[Logged, Tails]] = {
    "up": _GAIN,
    "small": _GAIN,
    "stalled": _GAIN,
    "top": _GAIN,
    "proxy": _PROXY,
    "hump": _FALL,
    "lost": _FALL,
    "down": _FALL,
    "level": _LEVEL,
    "undecided": _UNSURE,
}
"""What the first line says after the levels where no fault is named, by the outcome and what is logged."""

AREAS: Mapping[str, tuple[str, ...]] = {
    "groups": ("dead_fraction", "reward_std"),
    "entropy": ("entropy", "kl"),
    "lengths": ("length", "truncated"),
    "gradients": ("grad_norm", "loss", "clip"),
}
"""Where failures are seen, by the noun that a first line calls it: in the groups, the policy, the completions, the
update."""


def weighed(state: State, basis: Basis) -> Weighed:
    """Which of a rule's grades a finding on this basis gets beside this outcome."""
    return GRADED[state][basis]


def word(state: State, worst: Worst) -> Word:
    """The first word for an outcome and the worst grade of the findings."""
    return WORDS[state][worst]


def tails(state: State, logged: Logged) -> Tails:
    """What the first line says after the levels where no fault is named, the longest first."""
    return SAYS[state][logged]


def markdown() -> str:
    """The table of words as Markdown, for docs/diagnosis.md."""
    head = ("outcome", "no fault, a note, or near a limit", "a warning", "failing", "a fault that is shown is graded")
    rows = [
        (MEANING[state], row["none"], row["warning"], row["failing"],
         GRADED[state]["shown"].replace("beside", "beside a gain").replace("instead", "in place of one"))
        for state, row in WORDS.items()
    ]  # fmt: skip
    logged = {
        "held-out": "a held-out score to the end", "failures": f"two or more of {', '.join(AREAS)}",
        "few": "fewer of these, but some other metric", "reward only": "the reward alone",
    }  # fmt: skip
    tails = [(logged[what], *(_cell(SAYS[state][what][0]) for state in ("up", "level"))) for what in LOGGED]
    return f"{_table(head, rows)}\n\n{_table(('what is logged', 'after a gain', 'after none'), tails)}"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with this header."""
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(tail: str) -> str:
    """A tail of a first line in a table."""
    return "“…" + tail.format(absent="…", heldout="not logged", answers="…") + "”" if tail else "nothing"
