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

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import number, percent
from grposcope.faults.known_task import Known
from grposcope.signs import run_outcome
from grposcope.signs.heldout import heldout_scores
from grposcope.signs.quantities import LEAST, Quantities
from grposcope.signs.settings.names import EVERY, by_our_names, key_of

HOT = 1.5
"""Temperature from which sampling is hot: recipes in use have 0.6 to 1.2."""


FIRST = 5
"""Rows that are the first."""

SEEN, LESS, UNSURE = 0.1, 0.2, 1.0
"""First held-out score that is one, share of it below which rollouts are paid far less, and nats of entropy that are
many."""

FOLLOWS = ("starved", "no learning", "empty steps", "entropy explosion", "length", "never paid")
"""Faults that follow where most rollouts fail by unlikely tokens."""


def _check(quantities: Quantities) -> Finding:
    """A temperature of HOT or more in the settings of the run, and no gain."""
    temperature = quantities.run.setting("temperature")
    if not isinstance(temperature, int | float):
        return _below_its_evaluation(quantities)
    evidence = (Sign("temperature", float(temperature), limit=f"hot from {HOT:g}"),)
    outcome = run_outcome.of_run(quantities.run)
    if temperature < HOT or outcome.direction == "up" or quantities.get("reward", LEAST) is None:
        return fact(False, f"the temperature is {temperature:g}", evidence)
    entropy = quantities.get("entropy", LEAST)
    beside = (
        "" if entropy is None else f", the entropy {number(float(entropy.values[:5].mean()))} nats in the first rows"
    )
    because = f"rollouts are sampled at temperature {temperature:g}{beside}, and the reward does not rise"
    return fact(True, because, evidence, brief=f"sampled at temperature {temperature:g}", explains=FOLLOWS)


def _below_its_evaluation(quantities: Quantities) -> Finding:
    """Without a temperature in the log: first rows that are paid a fifth of what the first evaluation scores, at a high
    entropy."""
    reward, entropy = quantities.get("reward", LEAST), quantities.get("entropy", LEAST)
    heldout = next(iter(heldout_scores(quantities)), None)
    if reward is None or entropy is None or heldout is None:
        return cannot_tell("the temperature is not logged")
    paid, nats = (float(series.values[:FIRST].mean()) for series in (reward, entropy))
    score = float(heldout.score.values[0])
    shares = min(heldout.score.values.min(), reward.values.min()) >= 0 and max(score, paid) <= 1
    begins = heldout.score.steps[0] <= reward.steps[FIRST - 1]
    rises = run_outcome.of_reward(quantities).direction == "up"
    if not (shares and begins and score >= SEEN and paid <= LESS * score and nats >= UNSURE) or rises:
        return fact(False, "the first rows are not far below the first evaluation")
    evidence = (
        Sign(f"{heldout.title}, first", score), Sign("reward, first rows", paid, column=reward.name),
        Sign(f"{entropy.name}, first rows", nats, limit=f"high from {UNSURE:g}", column=entropy.name),
    )  # fmt: skip
    because = (
        f"{heldout.title} is {percent(score)} at first where rollouts are paid {number(paid)}, at an entropy of "
        f"{number(nats)} nats: so it is when training samples at a far higher temperature than the evaluation"
    )
    brief = f"rollouts are paid {number(paid)} where the evaluation scores {percent(score)}"
    return fact(True, because, evidence, brief=brief, explains=FOLLOWS)


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A temperature of HOT or more."""
    value, key = by_our_names(config).get("temperature"), key_of(config, "temperature")
    if isinstance(value, int | float) and value >= HOT:
        yield fact(
            True,
            f"at temperature {value:g} most models write what they would not at 1, so that rollouts fail",
            config.signs(key),
            grade="warning",
            explains=FOLLOWS,
            brief=f"temperature {value:g}",
            remedy=f"set {key} to 1",
        )


FAULT = Fault(
    name="hot sampling",
    rank=2.25,
    remedy="sample at temperature 1; for rollouts that differ use prompts that are solved sometimes and larger groups",
    beside="note",
    log=LogTest(
        "hot sampling",
        _check,
        needs=(),
        where_logged=True,
        statistic="the temperature that the log states, beside what became of the reward; else reward and entropy of "
        "the first rows beside the first evaluation",
        threshold=f"{HOT:g} with no gain, a fact; where it does not: first rows paid {LESS:g} of the first evaluation "
        f"or less, at {UNSURE:g} nats of entropy",
    ),
    settings=SettingsCheck("hot sampling", _settings, EVERY, "a temperature far above 1", ("warning",)),
)
