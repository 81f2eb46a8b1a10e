"""Curves through a reward and what they say of its future, with error bands."""

from dataclasses import dataclass

from grposcope.core.instrument import Command, Instrument


@dataclass(frozen=True)
class ForecastSettings:
    """What is forecast.

    horizon: steps to forecast, None for half of those seen. coverage: probability of the interval. until: the last step
    to be seen, None for all.
    """

    horizon: float | None = None
    coverage: float = 0.9
    until: float | None = None


INSTRUMENT = Instrument(
    "forecast",
    "Where is the reward going?",
    answers="grposcope.instruments.forecast.answer",
    settings=ForecastSettings,
    commands=(
        Command(
            "fit",
            "plan the next one",
            "fit and forecast the reward curve of a run",
            "grposcope.instruments.forecast.command",
        ),
    ),
)
