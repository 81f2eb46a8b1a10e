"""The viewer of prompts and completions, with credit by token."""

from grposcope.core.instrument import Instrument

INSTRUMENT = Instrument(
    "rollouts",
    "What did the policy write?",
    answers="grposcope.instruments.rollouts.answer",
)
