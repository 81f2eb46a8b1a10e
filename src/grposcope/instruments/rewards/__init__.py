"""Several rewards in one advantage: what each was meant to weigh, and what it weighs in what trains."""

from dataclasses import dataclass

from grposcope.core.instrument import Command, Instrument


@dataclass(frozen=True)
class RewardSettings:
    """How rewards were combined, where the log does not say it.

    weights: of the rewards, in their order or by name, such as "1,0.5" or "right=1,format=0.5"; empty for what the log
    says. aggregation: a name of `maths.aggregation.METHODS`, with :SCALE behind sum_then_normalize. verified: names of
    the rewards that cannot be gamed, with commas.
    """

    weights: str = ""
    aggregation: str = ""
    verified: str = ""


INSTRUMENT = Instrument(
    "rewards",
    "What do my rewards weigh?",
    answers="grposcope.instruments.rewards.answer",
    settings=RewardSettings,
    commands=(
        Command(
            "rewards",
            "look at a run",
            "say what each of several rewards weighs in the advantage, against its setting",
            "grposcope.instruments.rewards.command",
        ),
    ),
)
