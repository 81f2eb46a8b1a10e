"""A run's levels are one set of numbers: headline, sentence, tile, JSON, `runs`, `compare` and `watch` say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import fixture_logs
import made_logs
import pytest
from made_logs import Made

from grposcope.core.run import Run
from grposcope.core.text import number, percent
from grposcope.instruments.diagnosis import answer, learning, verdict_chart
from grposcope.instruments.diagnosis.verdict import findings_of, verdict
from grposcope.instruments.runs import overview
from grposcope.instruments.runs.command_runs import _line_of_run
from grposcope.instruments.runs.compare import answer as compare
from grposcope.logs import read
from grposcope.signs import levels, run_outcome
from grposcope.watch.follow import Watcher

KINDS = ("constant_from", "quick_fall", "kl_explosion", "entropy_gone", "held_out_lost", "held_out_rises",
         "drifts_down", "evaluated_apart", "gain_with_cuts", "harder_prompts")  # fmt: skip


def logs(folder: Path) -> Iterator[Made]:
    """Fixtures, one log of each engine, and made-up runs that fall, rise and are evaluated."""
    yield from (made for made in fixture_logs.logs(folder) if " " not in made.name)
    for place, kind in enumerate(KINDS):
        (folder / kind).mkdir()
        yield made_logs.made(folder / kind, kind, 40 + place)


@pytest.mark.slow
def test_one_level_and_one_onset_everywhere(tmp_path: Path) -> None:
    """Over every log: first line, sentence, tile, JSON, table of runs, comparison, chart and the lines of `watch`."""
    wrong = []
    for made in logs(tmp_path):
        run = read(made.path)
        if run.steps > 1:
            wrong += [f"{made.name}: {problem}" for problem in (*levels_differ(run, made.path), *onsets_differ(run))]
    assert not wrong, "\n".join(wrong)


def levels_differ(run: Run, path: Path) -> Iterator[str]:
    """What names another last level of the reward or of the held-out score than the outcome has."""
    line, paid, held = _line_of_run(run), levels.of_reward(run), levels.of_heldout(run)
    watcher = Watcher(path)
    watcher.look(2e9)
    screen = watcher.screen(2e9, 160)
    if paid is not None:
        if line.shown_reward != number(paid.last.value):
            yield "runs, reward"
        end = compare._ends([run]).get(paid.name)
        if end is not None and end[0] != paid.last.value:
            yield f"compare, {end} for {paid.last.value}"
        shown = re.search(r"^Reward .*[▁-█×] +([^\s,]+)(?:, last row .*)?$", screen, re.M)
        if shown and paid.name == "reward" and shown[1] != number(paid.last.value):
            yield f"watch, {shown.group()} for {paid.last.value}"
    if held is not None:
        tile = next(one for one in overview.of_run(run).numbers if one.name.startswith("held-out"))
        if tile.value.value != held.last.value:
            yield "tile, held-out"
        if line.heldout is None or line.heldout.value != held.last.value:
            yield "runs, held-out"
        ends = learning.ends(run)
        if ends is not None and ends["last"]["value"] != held.last.value:
            yield "JSON, held-out"
        shown = re.search(r"^Held-out .*[▁-█×] +([^\s,]+)", screen, re.M)
        form = percent if held.shares else number
        if shown and shown[1] != form(held.last.value):
            yield f"watch, {shown.group()} for {held.last.value}"
    yield from said_differ(run)


def said_differ(run: Run) -> Iterator[str]:
    """Whether first line, sentence and JSON name other levels than those of the outcome."""
    outcome, seen = run_outcome.of_run(run), levels.of_run(run)
    found = verdict(run, findings_of(run))
    pairs = re.search(r"→ (-?[\d.,e-]+)(%?)", found.line[found.line.find(levels_name(outcome.name)) :])
    if seen is None or pairs is None or not outcome.known:
        return
    document = answer.learned([run])
    levels_said = next(iter(document.document.values()))["levels"] if document is not None else None
    if levels_said is not None and levels_said["last"]["value"] != outcome.end.value:
        yield "JSON, outcome"
    scale = 100 if pairs[2] else 1
    if abs(float(pairs[1].replace(",", "")) - scale * outcome.end.value) > 0.06 * max(
        abs(scale * outcome.end.value), 1
    ):
        yield f"first line, {found.line} for {outcome.end.value}"
    sentence = number(outcome.end.value)
    if not outcome.heldout and sentence not in found.outcome:
        yield f"sentence, {found.outcome} for {outcome.end.value}"


def levels_name(name: str) -> str:
    """How the first line begins to name an outcome."""
    return "reward" if name.startswith("reward") else name[-8:]


def onsets_differ(run: Run) -> Iterator[str]:
    """Whether first line, advice, table and the dashed line of the chart date the headline's fault differently."""
    findings = findings_of(run)
    judged = verdict(run, findings)
    head = next((one for one in findings if one.fault == judged.fault and one.present), None)
    if head is None or head.onset is None:
        return
    dates = re.findall(r"(?:since|before|after) step ([\d,]+)", f"{judged.line}; {judged.remedy}")
    assert head.since is not None
    may = {head.onset, head.since.first}  # advice goes back to before the first step of its interval
    fall = run_outcome.of_run(run).fall
    may |= set() if fall is None else {fall.first}  # or to before the outcome fell, where it was best
    if any(int(date.replace(",", "")) not in may for date in dates):
        yield f"dates {dates} for {head.onset}"
    chart = verdict_chart.of_run(run, findings)
    if chart is not None and f"since step {head.onset:,}" not in chart.caption:
        yield f"chart, {chart.caption} for {head.onset}"
