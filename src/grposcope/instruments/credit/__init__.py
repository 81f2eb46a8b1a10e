"""What each source of credit would save and cost, measured on one pool of rollouts."""

from grposcope.core.instrument import Command, Instrument

INSTRUMENT = Instrument(
    "credit",
    "Would finer credit help, and which kind pays?",
    answers="grposcope.instruments.credit.answer",
    commands=(
        Command(
            "credit",
            "plan the next one",
            "say whether finer credit would help, what it would save and cost",
            "grposcope.instruments.credit.command",
        ),
    ),
)
