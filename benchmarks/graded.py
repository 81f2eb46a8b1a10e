"""Verdicts on logs that people graded before any tool ran: how many are right, by grade and by source.

    python benchmarks/graded.py --graded graded.json --runs FOLDER
    python benchmarks/graded.py --corpus --runs FOLDER --json
    python benchmarks/graded.py --corpus --runs FOLDER --by-source

graded.json: file name -> its repository, the words that are accepted ("refused" where the file has no rewards at all),
and what a person saw. With --corpus the entries are those of benchmarks/corpus.json. FOLDER holds the logs under their
names; those that are not there are named and left out. Shares have 95 % Wilson intervals; logs of one source are alike,
so the mean over sources is said beside the share of logs. --by-source prints a matrix of grades and verdicts for every
source, and what is right of all others where it is left out: how much one source decides. With --json the last line is
the whole as JSON.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from corpus import CORPUS, GRADES, REFUSED, rate

from grposcope.core.errors import UserError
from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read

NO_REWARD = "refused"
"""What is accepted of a file without rewards: that it is not read, or that nothing is told."""


@dataclass(frozen=True)
class Judged:
    """What is said of a graded log: the words accepted, the best one first, the word and the first line."""

    name: str
    source: str
    accepted: tuple[str, ...]
    word: str
    line: str

    @property
    def right(self) -> bool:
        """Whether the word is one of those accepted."""
        return self.word in self.accepted or (NO_REWARD in self.accepted and self.word in (REFUSED, "cannot tell"))


def entries_of(document: Any) -> list[tuple[str, str, tuple[str, ...]]]:
    """File name, source and accepted words of every entry of graded.json, or of corpus.json."""
    if isinstance(document, Mapping):
        return [(name, entry["repository"], tuple(entry["accept"])) for name, entry in document.items()]
    return [(e["file"], e["source"], (e["grade"], *e["also_acceptable"])) for e in document]


def judged(path: Path, name: str, source: str, accepted: tuple[str, ...]) -> Judged:
    """The verdict on one log, read without options."""
    try:
        run = read(path)
    except UserError as error:
        return Judged(name, source, accepted, REFUSED, str(error))
    said = verdict(run, diagnose(run))
    return Judged(name, source, accepted, said.word, str(said).partition("\n")[0])


def matrix(rows: Sequence[Judged]) -> str:
    """The word that was accepted first down, the words given across, as a Markdown table."""
    given = (*GRADES, REFUSED)
    counts = Counter((row.accepted[0], row.word) for row in rows)
    lines = [f"| accepted | {' | '.join(given)} | right |", "|---|" + "---|" * (len(given) + 1)]
    for name in dict.fromkeys(row.accepted[0] for row in rows):
        of = [row for row in rows if row.accepted[0] == name]
        right = rate(sum(row.right for row in of), len(of))
        lines.append(f"| {name} | {' | '.join(str(counts[name, word]) for word in given)} | {right} |")
    return "\n".join(lines)


def by_source(rows: Sequence[Judged]) -> dict[str, tuple[int, int]]:
    """Source -> logs judged right, and logs."""
    counts: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        counts[row.source].append(row.right)
    return {source: (sum(right), len(right)) for source, right in sorted(counts.items())}


def of_each_source(rows: Sequence[Judged]) -> str:
    """For every source the words accepted first and those given, as counts; its share right, and that of the rest."""
    given = (*GRADES, REFUSED)
    lines = [
        f"| source | accepted | {' | '.join(given)} | right | right without this source |",
        "|---|---|" + "---|" * (len(given) + 2),
    ]
    for source in by_source(rows):
        own, rest = ([row for row in rows if (row.source == source) is mine] for mine in (True, False))
        shares = [rate(sum(row.right for row in part), len(part)) if part else "–" for part in (own, rest)]
        counts = Counter((row.accepted[0], row.word) for row in own)
        for place, grade in enumerate(dict.fromkeys(row.accepted[0] for row in own)):
            cells = " | ".join(str(counts[grade, word]) for word in given)
            ends = shares if place == 0 else ["", ""]
            lines.append(f"| {source if place == 0 else ''} | {grade} | {cells} | {ends[0]} | {ends[1]} |")
    return "\n".join(lines)


def summary(rows: Sequence[Judged]) -> list[str]:
    """The shares that the script is run for, in sentences."""
    sources = by_source(rows)
    mean = float(np.mean([right / n for right, n in sources.values()])) if sources else float("nan")
    failing, healthy = ([row for row in rows if row.accepted == (word,)] for word in ("failing", "healthy"))
    pairs = (("failing", failing), ("healthy", healthy))
    said = [rate(sum(row.word == word for row in of), len(of)) for word, of in pairs]
    return [
        f"right: {rate(sum(row.right for row in rows), len(rows))}",
        f"mean over {len(sources)} sources: {mean:.0%}",
        f"failing alone accepted: called failing {said[0]}, healthy {sum(r.word == 'healthy' for r in failing)}",
        f"healthy alone accepted: called healthy {said[1]}, failing {sum(r.word == 'failing' for r in healthy)}",
    ]


def main() -> None:
    """Judge all logs that are there and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--graded", type=Path, help="graded.json, the names of logs and the words accepted")
    parser.add_argument("--corpus", action="store_true", help="the entries of benchmarks/corpus.json instead")
    parser.add_argument("--runs", type=Path, required=True, help="folder with the logs")
    parser.add_argument("--only", default="", help="part of the names of the logs that are judged")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--by-source", action="store_true", help="a matrix of every source, and of all others")
    parser.add_argument("--json", action="store_true", help="end with everything as one line of JSON")
    arguments = parser.parse_args()
    grades = CORPUS if arguments.corpus else arguments.graded
    if grades is None or not grades.is_file():
        raise SystemExit(f"no grades at {grades}: name graded.json with --graded, or take --corpus")
    if not arguments.runs.is_dir():
        raise SystemExit(f"no folder {arguments.runs}: the logs are not part of the project; name it with --runs")
    entries = [entry for entry in entries_of(json.loads(grades.read_text())) if arguments.only in entry[0]]
    here = [(arguments.runs / name, name, source, words) for name, source, words in entries
            if (arguments.runs / name).is_file()]  # fmt: skip
    left = {entry[0] for entry in entries} - {name for _, name, _, _ in here}
    with ProcessPoolExecutor(arguments.workers) as pool:
        rows = list(pool.map(judged, *zip(*here, strict=True))) if here else []
    for row in rows:
        print(f"{'  ' if row.right else 'NO'} {row.name}: accepted {' / '.join(row.accepted)}\n     {row.line}")
    print("", matrix(rows), "", "| source | right | of |\n|---|---|---|", sep="\n")
    print(*(f"| {source} | {right} | {n} |" for source, (right, n) in by_source(rows).items()), sep="\n")
    print("", *(f"- {line}" for line in summary(rows)), sep="\n")
    if arguments.by_source:
        print("", of_each_source(rows), sep="\n")
    if left:
        print(f"not there: {', '.join(sorted(left))}")
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
