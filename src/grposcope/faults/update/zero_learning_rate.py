"""A learning rate of 0, with which nothing is learned.

What it is
    The rate is 0 or below, by a typing error or a schedule, such as one that was made for the number of batches and
    steps at every update of the optimiser.
How it shows
    The learning rate is 0 on all rows of the log, and the reward does not move; or on ten rows or more up to the end.
What it does to the gradient
    Nothing: it is computed and multiplied by 0.
What to do
    Set a learning rate.
What decides
    The rate in the settings.
Sources
    SkyRL #873, a schedule that is too short: https://github.com/NovaSky-AI/SkyRL/pull/873
    open-instruct #537, the same: https://github.com/allenai/open-instruct/issues/537
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
from grposcope.signs.settings.recipe import adapter_scale, has_adapters, interval


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


def _check(quantities: Quantities) -> Finding:
    """A learning rate of exactly 0 on all rows."""
    rate = quantities.column("lr")
    if rate is None:
        return cannot_tell("the learning rate is not logged")
    if (first := begins(rate.values == 0)) is not None and rate.values[first - 1] > 0:
        return _since(quantities, rate, first)
    if len(rate) < LEAST or rate.values.any():
        return fact(False, "the learning rate is not 0")
    because = f"the learning rate is 0 on all {len(rate)} rows"
    return fact(True, because, (Sign("rows with a learning rate of 0", float(len(rate)), column="lr"),), brief=because,
                remedy="set a learning rate; check the warm-up and the length of the schedule",
                grades=run_outcome.although_it_learned(quantities.run))  # fmt: skip


_UNITS = 0.1
"""Share by which the steps of the log over those with a rate may differ from the updates on a batch and be them."""


def _since(quantities: Quantities, rate: MetricSeries, first: int) -> Finding:
    """A learning rate of 0 from a row on, as after the end of a schedule, and whether it ends where one would that
    steps at every update of the optimiser and was made for the number of batches."""
    step, count = int(rate.steps[first]), len(rate) - first
    because = brief = f"the learning rate is 0 on the last {count} rows, since step {step:,}"
    asked = quantities.run.asked
    updates = interval(asked.settings, None) if asked is not None else None
    if updates is not None and updates > 1 and abs(len(rate) / first / updates - 1) <= _UNITS:
        because += (
            f"; each batch has {updates} updates, and the rate ends after 1/{updates} of the rows: as where a schedule "
            "steps at every update and was made for the number of batches"
        )
    evidence = (Sign("rows with a learning rate of 0", float(count), column="lr"),)
    return fact(True, because, evidence, step, brief=brief,
                remedy="see what the schedule counts: it is to have as many steps as the optimiser takes in the whole "
                "run (batches × updates on each), and a resume may count them anew; or have it constant")  # fmt: skip


FAULT = Fault(
    name="zero learning rate",
    rank=2.3,
    remedy="set a learning rate",
    beside="warning",
    log=LogTest(
        "zero learning rate",
        _check,
        needs=(),
        where_logged=True,
        statistic="the learning rate of every row",
        threshold="0 on all rows, or on the last ten or more, a fact",
    ),
    settings=SettingsCheck("zero learning rate", _settings, EVERY[:-1], "a learning rate of 0", ("failing",)),
)
