"""Softmax bandits in which all of the dynamics can be tested, batched over runs."""

from grposcope.core.instrument import Command, Instrument

INSTRUMENT = Instrument(
    "bandit",
    "Does the closed form hold?",
    commands=(
        Command(
            "simulate",
            "plan the next one",
            "sweep softmax bandits under GRPO and compare with the closed form",
            "grposcope.instruments.bandit.command",
        ),
    ),
    uses=("stability",),
)
