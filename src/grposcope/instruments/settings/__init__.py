"""Metrics that no other instrument shows, and the settings of the runs."""

from grposcope.core.instrument import Instrument

INSTRUMENT = Instrument(
    "settings",
    "What else is recorded?",
    answers="grposcope.instruments.settings.answer",
)
