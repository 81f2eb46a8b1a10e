"""By how much two runs differ, and where they part, how they ended, and which settings differ."""

from grposcope.core.instrument import Command, Instrument

INSTRUMENT = Instrument(
    "compare",
    "Where do these runs differ?",
    commands=(
        Command(
            "compare",
            "look at a run",
            "compare runs: by how much they differ, and since when",
            "grposcope.instruments.compare.command",
        ),
    ),
    uses=("diagnosis",),
)
