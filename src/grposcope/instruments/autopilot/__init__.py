"""What to do about a run, and when: monitors that may be looked at after every step, and what follows from an alarm."""

from dataclasses import dataclass

from grposcope.core.instrument import Command, Instrument


@dataclass(frozen=True)
class AdviceSettings:
    """policy: text or YAML file of `policy.AutopilotPolicy`, empty for its defaults."""

    policy: str = ""


INSTRUMENT = Instrument(
    "autopilot",
    "What did an autopilot do, or what would it have done?",
    answers="grposcope.instruments.autopilot.answer",
    settings=AdviceSettings,
    commands=(
        Command(
            "advise",
            "look at a run",
            "say what an autopilot would have done in a run, at which step, and why",
            "grposcope.instruments.autopilot.command",
        ),
    ),
)
