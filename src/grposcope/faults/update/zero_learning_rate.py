"""A learning rate of 0, with which nothing is learned.

What it is
    The rate is 0 or below, by a typing error or a schedule.
How it shows
    The learning rate is 0 on all rows of the log, and the reward does not move; or on ten rows or more up to the end.
What it does to the gradient
    Nothing: it is computed and multiplied by 0.
What to do
    Set a learning rate.
What decides
    The rate in the settings.
Sources
    method of this project"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs import run_outcome
from grposcope.signs.lasting_state import begins
from grposcope.signs.quantities import LEAST, MetricSeries, Quantities
from grposcope.signs.settings.names import EVERY, key_of
from grposcope.signs.settings.recipe import adapter_scale, has_adapters


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A learning rate that is not above 0."""
    scale = adapter_scale(config)
    if scale is not None and scale[0] == 0 and has_adapters(config):
        yield fact(True, "adapters are multiplied by alpha = 0", config.signs(*scale[1]), grade="failing",
                   explains=("no learning", "update not applied"), brief="nothing is learned",
                   remedy=f"set {scale[1][1]} to once or twice the rank")  # fmt: skip
    key = key_of(config, "lr")
    rate = config.number(key)
    if rate is None:
        yield cannot_tell(f"{key} is not known", key)
    elif rate <= 0:
        yield fact(True, f"the learning rate is {rate:g}", config.signs(key), grade="failing",
                   explains=("no learning", "update not applied"), brief="nothing is learned",
                   remedy=f"set {key}")  # fmt: skip


def check(quantities: Quantities) -> Finding:
    """A learning rate of exactly 0 on all rows."""
    rate = quantities.column("lr")
    if rate is None:
        return cannot_tell("the learning rate is not logged")
    if (first := begins(rate.values == 0)) is not None and rate.values[first - 1] > 0:
        return _since(rate, first)
    if len(rate) < LEAST or rate.values.any():
        return fact(False, "the learning rate is not 0")
    because = f"the learning rate is 0 on all {len(rate)} rows"
    return fact(True, because, (Sign("rows with a learning rate of 0", float(len(rate)), column="lr"),), brief=because,
                remedy="set a learning rate; check the warm-up and the length of the schedule",
                grades=run_outcome.although_it_learned(quantities.run))  # fmt: skip


def _since(rate: MetricSeries, first: int) -> Finding:
    """A learning rate of 0 from a row on, as after the end of a schedule."""
    step, count = int(rate.steps[first]), len(rate) - first
    because = f"the learning rate is 0 on the last {count} rows, since step {step:,}"
    evidence = (Sign("rows with a learning rate of 0", float(count), column="lr"),)
    return fact(True, because, evidence, step, brief=because,
                remedy="see whether the schedule has ended: it is as long as the steps that were planned, and a resume "
                "may count them anew")  # fmt: skip


FAULT = Fault(
    name="zero learning rate",
    rank=2.3,
    remedy="set a learning rate",
    beside="warning",
    log=LogTest(
        "zero learning rate",
        check,
        needs=(),
        where_logged=True,
        statistic="the learning rate of every row",
        threshold="0 on all rows, or on the last ten or more, a fact",
    ),
    settings=SettingsCheck("zero learning rate", _settings, EVERY[:-1], "a learning rate of 0", ("failing",)),
)
