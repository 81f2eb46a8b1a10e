"""A watched run as metrics for Prometheus, in the exposition formats of its client library (extra `metrics`).

The number of series is bounded whatever a log holds: a rule, a status and a quantity are names of this package; of the
log come only the name of the run, of its engine and of its held-out score, one value each at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from grposcope.core.errors import UserError
from grposcope.core.finding import Status
from grposcope.core.text import visible
from grposcope.signs.words import Word
from grposcope.watch.changes import WatchedState
from grposcope.watch.follow import Watcher
from grposcope.watch.receivers.program import SEVERITIES

NEEDED = "the package prometheus_client is not installed; pip install 'grposcope[metrics]'"

LONGEST = 80
"""Characters of a name that comes from a log."""


@dataclass(frozen=True)
class RunLevels:
    """The run at the last look as numbers. state: verdict and findings. run, engine: names.

    rows: rows read. planned: steps of the run, NaN if unknown. changed: when the run was last written, in seconds since
    1970, 0 if it has not begun. levels: quantity -> its latest value. score, heldout, heldout_step: name, value and
    step of the last held-out evaluation. alarms: how many were raised.
    """

    state: WatchedState = field(default_factory=WatchedState)
    run: str = ""
    engine: str = ""
    phase: str = ""
    rows: int = 0
    planned: float = math.nan
    ended: bool = False
    changed: float = 0.0
    levels: Mapping[str, float] = field(default_factory=dict)
    score: str = ""
    heldout: float = math.nan
    heldout_step: int = 0
    alarms: int = 0


def levels_of(watcher: Watcher, now: float) -> RunLevels:
    """The run as its watcher last saw it."""
    run = watcher.snapshot(now)
    step, score = run.heldout[-1] if run.heldout else (0, None)
    return RunLevels(
        watcher.state(now),
        run="/".join(run.place.parts[-2:]),
        engine=run.engine,
        phase=run.phase,
        rows=run.rows,
        planned=math.nan if run.planned is None else run.planned,
        ended=run.ended,
        changed=run.changed,
        levels={quantity: float(values[-1]) for quantity, (_, values) in run.metrics.items() if len(values)},
        score=run.score if score is not None else "",
        heldout=math.nan if score is None else score.value,
        heldout_step=step,
        alarms=len(watcher.alarms.raised),
    )


def exposition(run: RunLevels, now: float, accept: str = "") -> tuple[bytes, str]:
    """The metrics as text and its content type, in the format that `accept` asks for; now: seconds since 1970.

    UserError where prometheus_client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder
    except ImportError:
        raise UserError(NEEDED) from None

    class Collector:
        def collect(self) -> Iterator[Any]:
            return _families(run, now)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


def _families(run: RunLevels, now: float) -> Iterator[Any]:
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        InfoMetricFamily,
        StateSetMetricFamily,
    )

    def gauge(name: str, told: str, value: float) -> Any:
        return GaugeMetricFamily(f"grposcope_{name}", told, value=value)

    state = run.state
    yield InfoMetricFamily(
        "grposcope_run", "the run that is watched, its trainer and its phase",
        {"run": _name(run.run), "engine": _name(run.engine), "phase": _name(run.phase)},
    )  # fmt: skip
    if state.verdict is not None:
        words = {_word(word): word == state.verdict.word for word in get_args(Word)}
        yield StateSetMetricFamily("grposcope_verdict", "grade of the verdict on the run as a whole", words)
        cause = {"rule": _word(state.verdict.fault) or "none"}
        yield InfoMetricFamily("grposcope_verdict_cause", "fault that the verdict names first", cause)
    statuses = StateSetMetricFamily("grposcope_rule_status", "status of each fault when last judged", labels=["rule"])
    grades = GaugeMetricFamily(
        "grposcope_rule_severity", "0 not flagged, 1 note, 2 warning, 3 failing", labels=["rule"]
    )
    onsets = GaugeMetricFamily("grposcope_rule_onset_step", "step at which a flagged failure began", labels=["rule"])
    for finding in state.findings:
        rule = [_word(finding.fault)]
        statuses.add_metric(rule, {_word(status): status == finding.status for status in get_args(Status)})
        grades.add_metric(rule, SEVERITIES.get(finding.grade or "", 0.0))
        if finding.grade is not None and finding.onset is not None:
            onsets.add_metric(rule, finding.onset)
    yield from (statuses, grades, onsets)
    levels = GaugeMetricFamily(
        "grposcope_level", "latest value of a quantity, NaN where the last row has none", labels=["quantity"]
    )
    for quantity, value in run.levels.items():
        levels.add_metric([quantity], value)
    yield levels
    if run.score:
        scores = GaugeMetricFamily("grposcope_heldout", "latest held-out score", labels=["score"])
        scores.add_metric([_name(run.score)], run.heldout)
        yield scores
        yield gauge("heldout_step", "step of the latest held-out evaluation", run.heldout_step)
    yield gauge("step", "last optimiser step that was read", state.step)
    if math.isfinite(run.planned):
        yield gauge("steps_planned", "steps that the run will take", run.planned)
    yield gauge("rows_read", "rows of the run that were read", run.rows)
    if run.changed:
        silent = max(now - run.changed, 0.0)
        yield gauge("seconds_since_last_row", "seconds since the run was last written", silent)
    yield gauge("stalled", "1 if the run has written nothing for a long time", float(bool(state.stalled)))
    yield gauge("readable", "0 if the log cannot be read", float(not state.problem))
    yield gauge("ended", "1 if the run has ended", float(run.ended))
    yield CounterMetricFamily("grposcope_alarms", "alarms that were raised", value=run.alarms)


def _name(text: str) -> str:
    """A name from a log, without control characters and not too long; the client escapes quotes and newlines."""
    return visible(text, LONGEST)


def _word(text: str) -> str:
    """A name of ours as a label: words joined by underscores."""
    return text.replace(" ", "_").replace("-", "_")
