"""The policy that draws rollouts is not the one that is trained: how far apart they are, and what a correction does."""

from grposcope.core.instrument import Command, Instrument

INSTRUMENT = Instrument(
    "offpolicy",
    "How far is the sampler from the trainer, and which correction is worth it?",
    commands=(
        Command(
            "offpolicy",
            "look at a run",
            "say how far the sampler is from the trainer, and what each correction keeps",
            "grposcope.instruments.offpolicy.command",
        ),
    ),
)
