"""By how much two runs differ, and where they part, how they ended, and which settings differ."""

from grposcope.core.instrument import Command, Instrument

INSTRUMENT = Instrument(
    "compare",
    "Where do these runs part?",
    commands=(
        Command(
            "compare",
            "look at a run",
            "put runs side by side: by how much they differ, and where they part",
            "grposcope.instruments.compare.command",
        ),
    ),
    uses=("diagnosis",),
)
