"""The first things to know of a run or a probe, and a line for each of many runs."""

from grposcope.core.instrument import Command, Instrument

INSTRUMENT = Instrument(
    "overview",
    "How is this run?",
    commands=(
        Command(
            "runs",
            "look at a run",
            "list all runs of a folder with their verdicts",
            "grposcope.instruments.overview.command",
        ),
    ),
    uses=("diagnosis",),
)
