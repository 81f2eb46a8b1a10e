"""Sampling at a temperature at which the model does not write what it can.

What it is
    A temperature far above 1, to make rollouts differ, or copied from another model.
How it shows
    The temperature is 1.5 or more, and the reward does not rise; often it is far below what an evaluation at
    temperature 1 gives, and the entropy is high from the first step on.
What it does to the gradient
    Most rollouts fail by unlikely tokens, so that groups die at a reward of 0; what is learned is to be sure at that
    temperature.
What to do
    Sample at temperature 1; for rollouts that differ use prompts that are solved sometimes and larger groups.
What decides
    The success rate of the first policy at temperature 1 and at this one: grposcope evaluate MODEL.
Sources
    DeepSeek-R1, arXiv:2501.12948, which trains at temperature 1
    method of this project
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import OWN_METHOD, Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import number
from grposcope.faults.known import Known
from grposcope.signs import run_outcome
from grposcope.signs.quantities import LEAST, Quantities
from grposcope.signs.settings.names import EVERY, TEMPERATURE, by_our_names, key_of

HOT = 1.5
"""Temperature from which sampling is hot: recipes in use have 0.6 to 1.2."""


def check(quantities: Quantities) -> Finding:
    """A temperature of HOT or more in the settings of the run, and no gain."""
    temperature = quantities.run.setting("temperature")
    if not isinstance(temperature, int | float):
        return cannot_tell("the temperature is not logged")
    evidence = (Sign("temperature", float(temperature), limit=f"hot from {HOT:g}"),)
    outcome = run_outcome.of_run(quantities.run)
    if temperature < HOT or outcome.direction == "up" or quantities.get("reward", LEAST) is None:
        return fact(False, f"the temperature is {temperature:g}", evidence)
    entropy = quantities.get("entropy", LEAST)
    beside = (
        "" if entropy is None else f", the entropy {number(float(entropy.values[:5].mean()))} nats in the first rows"
    )
    because = f"rollouts are sampled at temperature {temperature:g}{beside}, and the reward does not rise"
    explains = ("starved", "no learning", "empty steps", "entropy explosion", "length", "never paid")
    return fact(True, because, evidence, brief=f"sampled at temperature {temperature:g}", explains=explains)


def settings(config: Settings, known: Known) -> Iterator[Finding]:
    """A temperature of HOT or more."""
    value, key = by_our_names(config).get("temperature"), key_of(config, TEMPERATURE)
    if isinstance(value, int | float) and value >= HOT:
        yield fact(
            True,
            f"at temperature {value:g} most models write what they would not at 1, so that rollouts fail",
            config.signs(key),
            grade="warning",
            brief=f"temperature {value:g}",
            remedy=f"set {key} to 1",
        )


FAULT = Fault(
    name="hot sampling",
    rank=2.25,
    remedy="sample at temperature 1; for rollouts that differ use prompts that are solved sometimes and larger groups",
    source=OWN_METHOD,
    beside="note",
    log=LogTest(
        "hot sampling",
        check,
        needs=(),
        where_logged=True,
        statistic="the temperature that the log states, beside what became of the reward",
        threshold=f"{HOT:g} with no gain, a fact",
    ),
    settings=SettingsCheck("hot sampling", settings, EVERY, "a temperature far above 1", ("warning",)),
)
