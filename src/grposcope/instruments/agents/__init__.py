"""Rollouts with turns, tools and environments: how many turns and calls, what ended them, and what turns are paid."""

from grposcope.core.instrument import Instrument

INSTRUMENT = Instrument(
    "agents", "What do the turns and calls of tools do?", answers="grposcope.instruments.agents.answer"
)
