"""The verdict on a run from its findings, with every clause that terminal, page, lists of runs and alerts show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from grposcope.core.finding import Finding, Interval
from grposcope.core.metrics import VARIANTS
from grposcope.core.run import Run, once
from grposcope.faults import judge_claims, judge_settings, judge_texts
from grposcope.faults.judge import diagnose, facts
from grposcope.instruments.diagnosis import first_line, learning
from grposcope.signs import heldout, ladder, run_outcome, single_rows, unmeasured, words
from grposcope.signs.ladder import Rung
from grposcope.signs.outcome import Outcome
from grposcope.signs.quantities import Quantities
from grposcope.signs.thresholds import ENOUGH
from grposcope.signs.words import AREAS, Logged, Word, Worst

FEW = 3
"""Modes that cannot be told which are named; the list of rules has all of them."""

SIGNAL = ("saturated", "starved", "dead after a fall", "empty steps", "constant reward")
"""Modes that say themselves how many groups or steps teach nothing."""

CLOCK = re.compile(r"(?:step|epoch|lr|time|timing|timing_s|seconds|tokens|perf|system|progress|runtime)(?:$|[_/])")
"""Names of columns that say how far a run is and how fast, and nothing of what it does."""

NEAR = "near the limit: "
"""How a remark on a mode begins that is near its limit."""

MAYBE = "may be gamed: "
"""Begins the remark about a habit of the texts that is paid, where no true score decides."""

PAST = "past the limit by no more than chance: "
"""How a remark on a mode begins whose level is past its limit, which noise may have done."""


@dataclass(frozen=True)
class Verdict:
    """The first thing to know of a run: what became of it, what is wrong, and what to do.

    word: the worst grade. line: begins with it and says the outcome and one cause (`first_line`). mode: the failure
    mode of the headline, empty where there is none. because, advice: of that mode. others: number of facts that are
    failing or a warning besides it. outcome: what became of the run, in a clause. notes: a clause per mode that is
    a note. near: a clause per mode that is near its limit, or past it by no more than chance. beside: clauses on
    what stands beside the outcome: other held-out scores that fell, groups without signal, how the parts of the
    reward went. untold: modes that cannot be told, if none is flagged. ladder: the rungs of a flat run, which say why
    nothing was learned where no mode does.
    """

    word: Word
    line: str
    fault: str = ""
    because: str = ""
    remedy: str = ""
    others: int = 0
    outcome: str = ""
    notes: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    ladder: tuple[Rung, ...] = ()

    @property
    def do(self) -> str:
        """The advice, and how many more modes are failing or a warning; empty without advice."""
        more = f". {self.others} more problem{'s' * (self.others > 1)} found" if self.others else ""
        return self.remedy + more

    @property
    def remarks(self) -> tuple[str, ...]:
        """Clauses beside the line, its reason and the advice: notes, what is near a limit, what is untold."""
        untold = "the log has too little data for" if self.word == "cannot tell" else "cannot tell"
        return (
            *(f"note: {note}" for note in self.notes),
            *self.beside,
            *self.near,
            *([f"{untold}: {_few(self.untold)}"] if self.untold else []),
        )

    @property
    def clauses(self) -> tuple[str, ...]:
        """Clauses that follow the line: the advice, the reason, the outcome, and the remarks."""
        because = f"because {self.because}" if self.because else ""
        do = f"what to do: {self.do}" if self.do else ""
        return tuple(clause for clause in (do, because, self.outcome, *self.remarks) if clause)

    def __str__(self) -> str:
        return self.line


@once
def findings_of(run: Run) -> tuple[Finding, ...]:
    """The findings of a run, looked for once; none without steps."""
    findings = judge_claims.with_rollouts(run, diagnose(run)) if run.steps else ()
    return judge_settings.with_settings(run, findings)


def verdict(run: Run, findings: Sequence[Finding]) -> Verdict:
    """The verdict on a run from its findings, in the order in which `diagnose` returns them."""
    outcome, settings = run_outcome.of_run(run), judge_settings.alone(run, findings)
    run = run.scopes.get(outcome.task, run)
    steps = run_outcome.steps(run)
    flagged = [finding for finding in findings if finding.status == "present"]
    bad = [finding for finding in flagged if finding.grade != "note"]
    notes = tuple(_note(finding) for finding in flagged if finding.grade == "note")
    near = tuple(_near(finding) for finding in findings if finding.status == "possible")
    said = learning.clause(outcome, steps)
    of_groups = any(finding.fault in SIGNAL for finding in flagged)
    single = single_rows.clause(Quantities(run), frozenset(finding.since.step for finding in bad if finding.since))
    dead = "" if of_groups else learning.dead_groups(run)
    also = learning.beside(run, outcome, [finding.fault for finding in flagged])
    odd = unmeasured.clause(Quantities(run))
    clauses = (*also, odd, dead, learning.parts(run), single, settings)
    beside = tuple(clause for clause in clauses if clause)
    rungs = ladder.of_run(run, findings)
    worst: Worst = "none" if not bad else "failing" if any(finding.grade == "failing" for finding in bad) else "warning"
    word = words.word(outcome.state, worst)
    if bad:
        first = bad[0]
        line = first_line.of_finding(word, outcome, first, steps)
        failing = ladder.first_failing(rungs)
        told = worst == "failing" or not rungs or (failing is not None and failing.because == first.because)
        return Verdict(
            word, line, first.fault, first.because, first.remedy, len(facts(bad)) - 1, said, notes, near=near,
            beside=beside if told else (*beside, ladder.clause(rungs)), ladder=rungs,
        )  # fmt: skip
    judged = Verdict(word, "", outcome=said, notes=notes, near=near, beside=beside, ladder=rungs)
    return _of_nothing_bad(run, outcome, findings, judged)


def _of_nothing_bad(run: Run, outcome: Outcome, findings: Sequence[Finding], judged: Verdict) -> Verdict:
    """The verdict where nothing is failing or a warning: of a flat run the first rung that fails is the cause."""
    flagged = any(finding.status == "present" for finding in findings)
    untold = () if flagged else tuple(finding.fault for finding in findings if finding.status == "cannot tell")
    rung = ladder.first_failing(judged.ladder) if outcome.known else None
    cause = "" if rung is None else rung.brief
    steps = run_outcome.steps(run)
    line = first_line.of_outcome(judged.word, outcome, steps, *_what_is_logged(run, outcome), cause)
    judged = replace(judged, line=line, untold=untold)
    if rung is not None:
        return replace(judged, because=rung.because, remedy=ladder.first_to_see(judged.ladder, rung))
    remedy = (UNPAID if outcome.proxy else BACK) if judged.word in ("failing", "warning") else ""
    told = ladder.clause(judged.ladder) if outcome.known else ""
    if not remedy and told:  # of a flat run no rung fails: what the log does not answer is the next thing to see
        unanswered = next((rung for rung in judged.ladder if rung.answer == "cannot tell" and rung.do), None)
        remedy = "" if unanswered is None else f"{unanswered.do} (the log does not answer: {unanswered.question})"
    return replace(judged, remedy=remedy, beside=(*judged.beside, *([told] if told else [])))


BACK = "go back to the checkpoint with the highest score, and find out what changed after it"
"""What to do where the outcome fell and no rule says why."""

UNPAID = (
    "read late completions that are paid and not right, and put a right answer to the reward function by hand: what is "
    "learned is another part of it"
)
"""What to do where the reward rose and right answers stayed: no checkpoint has more of them."""


def _what_is_logged(run: Run, outcome: Outcome) -> tuple[Logged, tuple[str, ...]]:
    """How much is logged that would show a failure, and the nouns of what is not."""
    quantities = Quantities(run)
    seen = [noun for noun, area in AREAS.items() if any(quantities.logged(name) for name in area)]
    absent = tuple(noun for noun in AREAS if noun not in seen)
    if outcome.heldout:
        return "held-out", absent
    absent = absent if heldout.of_run(run) else ("held-out", *absent)
    if len(seen) >= ENOUGH:
        return "failures", absent
    beside = [name for name in run.table if name not in VARIANTS["reward"] and not CLOCK.match(name)]
    return "few" if seen or beside or len(run.evaluations) else "reward only", absent


def _near(finding: Finding) -> str:
    """A mode that is near its limit, on which side of it, or a habit that may be an exploit, and what was seen."""
    if judge_texts.undecided(finding):
        return f"{MAYBE}{finding.fault}, {finding.because}: whether it should be paid, a true score decides"
    return f"{PAST if finding.past else NEAR}{finding.fault}, {finding.because}"


def _few(modes: Sequence[str]) -> str:
    """The first of these modes, and how many more there are."""
    rest = len(modes) - FEW
    return ", ".join(modes[:FEW]) + (f" and {rest} more" if rest > 0 else "")


def _note(finding: Finding) -> str:
    """A mode that is a note: what was seen, and what it may cost."""
    return f"{finding.fault}: {finding.because}" + (f" ({finding.effect})" if finding.effect else "")


def present_faults(findings: Sequence[Finding]) -> list[str]:
    """The modes that are flagged, in the order of what to look at first."""
    return [finding.fault for finding in findings if finding.status == "present"]


def conclusion(word: str, mode: str, since: Interval | None) -> str:
    """What is wrong, how bad it is, and since which step where that is known, as a clause."""
    return f"{word}: {mode}" + ("" if since is None else f", {since}")
