"""Whether a verdict says what a person sees at a glance, on made-up runs of every kind that it has got wrong.

    python benchmarks/plain.py --seeds 0 40
    python benchmarks/plain.py --seeds 0 40 --only quick_fall numbers_gone --lines

The runs are those of tests/helpers/plain_runs.py. A verdict is right if its grade is one of those that are right for
the run and its words say what they must. False words: a pattern that the run rules out, or an outcome whose present
level ("0.71 → 0.63") is none of the run's last fifth. Jargon: p-values, words of our own and lists of rules not tested,
on the first line. A date is right within five rows, or a tenth of them. Rates have 95 % Wilson intervals. The last line
is JSON.

Seeds from 50,000 on are kept for the last check: settle nothing on them.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import plain_runs
from plain_world import Plain

from grposcope.core.errors import UserError
from grposcope.core.run import Run
from grposcope.instruments.diagnosis import answer, diagnose
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.maths.intervals import wilson

LONGEST = 110
"""Characters of a first line at most."""

JARGON = re.compile(r"\bp ?[=<]|starved|\w and \d+ more", re.I)
"""What has no place on a first line: p-values, words of our own, lists of rules that were not tested."""

_SINCE = re.compile(r"since step ([\d,]*\d)")
_NOW = re.compile(r"→ ?([-−]?\d[\d,]*\.?\d*(?:e-?\d+)?) ?(%?)")


def first_line(run: Run) -> tuple[str, str, str]:
    """The grade of a run, the first line of its verdict, and all that is said of what is wrong."""
    findings = diagnose(run)
    judged, said = verdict(run, findings), answer.of_run(run, findings)
    flagged = [" ".join(map(str, row)) for table in said.tables if table.title in ("Flagged", "What to do")
               for row in table.rows]  # fmt: skip
    return judged.word, str(judged), "\n".join([said.sentence, said.because, said.do, *said.text, *flagged])


Judge = Callable[[Run], tuple[str, str, str]]
"""What `first_line` does."""


@dataclass(frozen=True)
class Score:
    """How good the verdict on a run is.

    right: grade and words; graded: the grade alone. false: the false words; jargon: what should not be on the first
    line. dated: whether "since step N" is right, None where no date is said or none is known.
    """

    word: str
    line: str
    graded: bool
    right: bool
    false: tuple[str, ...]
    jargon: tuple[str, ...]
    dated: bool | None


def score(made: Plain, judge: Judge = first_line) -> Score:
    """The verdict on a run against what may be said of it; a UserError has the grade "refused", others "error"."""
    try:
        word, line, whole = judge(made.run)
    except UserError as error:
        word, line, whole = "refused", str(error), ""
    except Exception as error:
        return Score("error", repr(error), False, False, ("error",), (), None)
    graded = word in made.words
    said = all(_says(one, line) for one in made.must) and all(_says(one, line + "\n" + whole) for one in made.named)
    false = [one for one in made.false if _says(one, line) or _says(one, whole)]
    if not level_is_right(made, line):
        false.append("level")
    jargon = tuple(found.group() for found in JARGON.finditer(line))
    return Score(word, line, graded, graded and said, tuple(false), jargon, dated(made, line))


def _says(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.I | re.M) is not None


def level_is_right(made: Plain, line: str) -> bool:
    """Whether one of the present levels of a line is the outcome's, or none is said."""
    ends = [float(number.replace("−", "-").replace(",", "")) / (100 if share else 1)
            for number, share in _NOW.findall(line)]  # fmt: skip
    if made.now is None or not ends:
        return True
    slack = 0.05 * made.scale
    return any(made.now[0] - slack <= end <= made.now[1] + slack for end in ends)


def dated(made: Plain, line: str) -> bool | None:
    """Whether the first "since step N" of a line is right; None if there is none, or no truth of it."""
    said = _SINCE.search(line)
    if made.began is None or said is None:
        return None
    step = int(said[1].replace(",", ""))
    return made.began[0] - made.late <= step <= made.began[1] + made.late


def rate(hits: int, of: int) -> str:
    """A share in percent with its interval."""
    if not of:
        return "–"
    low, high = wilson(hits / of, of)
    return f"{100 * hits / of:.0f} ({100 * low:.0f}–{100 * high:.0f})"


def row(name: str, fate: str, scores: Sequence[Score]) -> str:
    """The row of a kind of runs."""
    n = len(scores)
    dates = [one.dated for one in scores if one.dated is not None]
    words = Counter(one.word for one in scores)
    lengths = [len(one.line) for one in scores]
    wrong = next((one for one in scores if one.false or not one.right), scores[0])
    cells = [
        name, fate, n, rate(sum(one.right for one in scores), n), rate(sum(one.graded for one in scores), n),
        rate(sum(bool(one.false) for one in scores), n), f"{rate(sum(dates), len(dates))} of {len(dates)}",
        f"{statistics.median(lengths):.0f} / {max(lengths)}",
        ", ".join(f"{word} {count}" for word, count in words.most_common()), wrong.line.replace("|", "¦")[:200],
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


HEADER = (
    "kind", "truth", "n", "right %", "grade right %", "false words %", "date right %", "line: median / longest",
    "grades", "an example, a wrong one first",
)  # fmt: skip


def totals(scores: dict[str, list[Score]]) -> Iterable[str]:
    """Sentences of all kinds together."""
    fates: dict[str, list[Score]] = {}
    for name, found in scores.items():
        fates.setdefault(plain_runs.KINDS[name][0], []).extend(found)
    for fate, words, title in (
        ("healthy", ("failing",), "healthy called failing"), ("healthy", ("failing", "warning"), "healthy flagged"),
        ("null", ("failing", "warning"), "nulls flagged"), ("failing", ("healthy",), "failing called healthy"),
        ("failing", ("failing",), "failing called failing"),
    ):  # fmt: skip
        found = fates.get(fate, [])
        hits = sum(one.word in words for one in found)
        yield f"{title}: {hits} of {len(found)}, {rate(hits, len(found))} %"
    everything = [one for found in scores.values() for one in found]
    lengths = [len(one.line) for one in everything]
    long, jargon = sum(length > LONGEST for length in lengths), sum(bool(one.jargon) for one in everything)
    middle = statistics.median(lengths)
    yield f"first lines: median {middle:.0f} characters, {long} over {LONGEST}, {jargon} with jargon"
    yield f"errors: {sum(one.word == 'error' for one in everything)}"
    good = [name for name, found in scores.items() if sum(one.right for one in found) >= 0.9 * len(found)]
    clean = [name for name, found in scores.items() if sum(bool(one.false) for one in found) <= 0.05 * len(found)]
    yield f"kinds of which 90 % are right: {len(good)} of {len(scores)}; with false words in at most 5 %: {len(clean)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=__doc__.rsplit("\n\n", 1)[1])
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 20), metavar=("FIRST", "COUNT"),
                        help="seeds from 50,000 on are kept for the last check")  # fmt: skip
    parser.add_argument("--only", nargs="+", default=[*plain_runs.KINDS], choices=[*plain_runs.KINDS], metavar="KIND")
    parser.add_argument("--lines", action="store_true", help="print every first line that is wrong, with its seed")
    arguments = parser.parse_args()
    first, count = arguments.seeds
    scores: dict[str, list[Score]] = {}
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for name in arguments.only:
        scores[name] = [score(plain_runs.of_seed(name, seed)) for seed in range(first, first + count)]
        print(row(name, plain_runs.KINDS[name][0], scores[name]), flush=True)
        for seed, one in zip(range(first, first + count), scores[name], strict=True):
            if arguments.lines and (one.false or not one.right or one.dated is False):
                print(f"    seed {seed}, false: {list(one.false)}, date: {one.dated}: {one.line}")
    print("\n" + "\n".join(f"- {line}" for line in totals(scores)) + "\n")
    print(json.dumps({name: [asdict(one) for one in found] for name, found in scores.items()}))


if __name__ == "__main__":
    main()
