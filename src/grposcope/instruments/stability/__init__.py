"""The closed form of the mean field and of one refresh cycle: what makes a run blow up. NumPy and SciPy only."""

from grposcope.core.instrument import Command, Instrument

INSTRUMENT = Instrument(
    "stability",
    "How long may rollouts be reused?",
    answers="grposcope.instruments.stability.answer",
    commands=(
        Command(
            "stability",
            "plan the next one",
            "how long rollouts may be reused before training blows up",
            "grposcope.instruments.stability.command",
        ),
    ),
    uses=("forecast",),
)
