"""Plain curves of recorded metrics."""

from grposcope.core.instrument import Instrument

INSTRUMENT = Instrument(
    "course",
    "What did training do, step by step?",
    answers="grposcope.instruments.course.answer",
)
