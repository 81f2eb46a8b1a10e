"""Groups whose rewards are all equal, which carry no gradient: how many, where, and how many chance explains."""

from grposcope.core.instrument import Instrument

INSTRUMENT = Instrument(
    "dead_groups",
    "Which groups teach nothing?",
    answers="grposcope.instruments.dead_groups.answer",
)
