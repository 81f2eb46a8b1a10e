"""Seconds per step by phase, and tokens per second."""

from grposcope.core.instrument import Instrument

INSTRUMENT = Instrument(
    "timing",
    "Where does the time go?",
    answers="grposcope.instruments.timing.answer",
)
