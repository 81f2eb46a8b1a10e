"""Rollouts of a prompt that are all the same text, because the sampler takes the likeliest token.

What it is
    The temperature is 0 or far below 1, or sampling is switched off.
How it shows
    Every completion of a prompt is the same, or next to it, and all or most groups are dead. The logged entropy is that
    of the policy, or, where it is taken at the temperature, next to 0 from the first row on.
What it does to the gradient
    It is 0: rewards within a group are equal.
What to do
    Sample at temperature 1, which is also the policy that importance ratios assume.
What decides
    Two completions of one prompt in a batch.
Sources
    ms-swift #4789, temperature 0.1: https://github.com/modelscope/ms-swift/issues/4789
    Transformers docs, generation strategies: https://huggingface.co/docs/transformers/generation_strategies
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import number
from grposcope.faults.known_task import Known
from grposcope.signs import run_outcome
from grposcope.signs.lasting_state import begins
from grposcope.signs.quantities import LEAST, SHORT, MetricSeries, Quantities
from grposcope.signs.settings.names import EVERY, by_our_names, key_of
from grposcope.signs.settings.verl import ROLLOUT

SAMPLE = ROLLOUT + "do_sample"
COLD = 0.05
"""Temperature up to which sampling is greedy in effect: a token half as likely as another has a chance of 1e-6."""

COOL = 0.3
"""Temperature up to which rollouts of a prompt are much alike: recipes in use have 0.6 to 1.2."""

BRIEF = 32
"""Tokens up to which an answer has few places in which rollouts may differ."""

DEAD = 0.5
"""Share of groups with equal rewards from which rollouts at such a temperature are too much alike."""

SURE = 1e-3
"""Nats of entropy per token up to which nothing is drawn."""

GONE = 1e-6
"""Nats up to which nothing is drawn where the entropy was more before: no policy comes so near to certain at once."""

AT_ONCE = 0.3
"""Share of the median of the rows before that each of them keeps where the entropy is gone from one row to the next."""

FOLLOWS = ("prompt decides the reward", "lost gradient", "starved", "saturated", "empty steps", "zero loss",
           "no learning", "constant reward", "never paid", "entropy collapse")  # fmt: skip
"""Faults that follow where all rollouts of a prompt are alike."""

GREEDY = "gconfig.greedy"

SAME = "all rollouts of a prompt are the same text, so every group is dead"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A temperature of COLD or less, one of COOL or less, or verl without sampling."""
    key, temperature = key_of(config, "temperature"), by_our_names(config).get("temperature")
    if isinstance(temperature, int | float) and not isinstance(temperature, bool) and 0 <= temperature <= COLD:
        alike = SAME if temperature == 0 else "rollouts of a prompt hardly differ, so nearly every group is dead"
        yield fact(True, f"at temperature {temperature:g} {alike}", config.signs(key), grade="failing",
                   explains=FOLLOWS, brief="sampling is greedy", remedy=f"set {key} to 1")  # fmt: skip
    elif isinstance(temperature, int | float) and COLD < temperature <= COOL:
        limit = key_of(config, "max_tokens")
        most = config.whole(limit) if config.says(limit) else None
        brief = most is not None and most <= BRIEF
        few = f", and answers of at most {most} tokens have few places to differ" if brief else ""
        yield fact(
            True,
            f"at temperature {temperature:g} rollouts of a prompt are much alike, so that their rewards are often "
            f"equal and such groups teach nothing{few}",
            config.signs(key, *([limit] if brief else [])),
            grade="warning",
            explains=FOLLOWS,
            brief=f"sampling at temperature {temperature:g}",
            remedy=f"set {key} to 1" + (f", and raise {limit} where right answers are longer" if brief else ""),
        )
    if config.dialect.name == "areal" and config.on(GREEDY):
        yield fact(True, f"with {GREEDY} {SAME}", config.signs(GREEDY), grade="failing", brief="sampling is greedy",
                   explains=FOLLOWS, remedy=f"leave {GREEDY} at false")  # fmt: skip
    if config.dialect.name == "verl" and config.off(SAMPLE):
        yield fact(True, f"without sampling {SAME}", config.signs(SAMPLE), grade="failing", brief="sampling is greedy",
                   explains=FOLLOWS,
                   remedy=f"leave {SAMPLE} at True")  # fmt: skip


def _check(quantities: Quantities) -> Finding:
    """A temperature below COLD in the settings of the run, one below COOL beside DEAD of groups, or an entropy below
    SURE in every row."""
    temperature, entropy = quantities.run.setting("temperature"), quantities.get("entropy", LEAST)
    if (alike := _alike(quantities, temperature)) is not None:
        return alike
    if isinstance(temperature, int | float) and temperature <= COLD:
        because = f"rollouts are sampled at temperature {temperature:g}: {SAME}"
        evidence = (Sign("temperature", float(temperature), limit=f"greedy up to {COLD:g}"),)
        return fact(True, because, evidence, brief=f"sampled at temperature {temperature:g}", explains=FOLLOWS)
    if entropy is not None and (first := begins(np.abs(entropy.values) <= GONE)) is not None:
        before = entropy.values[max(0, first - SHORT) : first]
        if before.min() >= AT_ONCE * np.median(before) > SURE:
            return _since(quantities, entropy, first)
    if entropy is None or isinstance(temperature, int | float):
        return (
            cannot_tell("neither a temperature nor an entropy is logged") if entropy is None else _not_cold(temperature)
        )
    top, key = float(entropy.values.max()), quantities.key(entropy.name)
    evidence = (Sign(f"largest {entropy.name}", top, limit=f"greedy up to {SURE:g}", column=entropy.name),)
    if not 0 <= top <= SURE or run_outcome.of_run(quantities.run).direction == "up":
        return fact(False, "tokens are not all certain", evidence)
    because = (
        f"{key} is {number(top)} nats at most, from the first row on: every token was as good as certain, as at a "
        "temperature near 0"
    )
    brief = f"{key} is {number(top)} at most: every token is certain"
    return fact(True, because, evidence, brief=brief, explains=FOLLOWS)


def _alike(quantities: Quantities, temperature: object) -> Finding | None:
    """That at a temperature of COOL or less DEAD of the groups or more have equal rewards, and no gain; None if not."""
    dead = quantities.get("dead_fraction", SHORT)
    if not isinstance(temperature, int | float) or not COLD < temperature <= COOL or dead is None:
        return None
    share = float(dead.values.mean())
    if share < DEAD or run_outcome.of_run(quantities.run).direction == "up":
        return None
    evidence = (
        Sign("temperature", float(temperature), limit=f"alike up to {COOL:g}"),
        Sign(f"{dead.name}, all rows", share, limit=f"{DEAD:g}", column=dead.name),
    )
    because = (
        f"rollouts are sampled at temperature {temperature:g}, at which those of a prompt are much alike, and "
        f"{share:.0%} of groups have equal rewards"
    )
    brief = f"sampled at temperature {temperature:g}, {share:.0%} of groups equal"
    return fact(True, because, evidence, brief=brief, explains=FOLLOWS)


def _since(quantities: Quantities, entropy: MetricSeries, first: int) -> Finding:
    """An entropy that is 0 from one row to the next: a policy that collapses takes several."""
    step, key = int(entropy.steps[first]), quantities.key(entropy.name)
    because = (
        f"{key} is {number(float(np.abs(entropy.values[first:]).max()))} nats at most since step {step:,}, and was "
        f"{number(float(entropy.values[first - 1]))} in the row before: every token is as good as certain from one "
        "step to the next, as at a temperature near 0"
    )
    evidence = (Sign(f"largest {entropy.name} since", float(entropy.values[first:].max()), column=entropy.name),)
    return fact(True, because, evidence, step, brief=f"{key} is 0 since step {step:,}, at once",
                explains=(*FOLLOWS, "dead after a fall"))  # fmt: skip


def _not_cold(temperature: object) -> Finding:
    return fact(False, f"the temperature is {temperature}")


FAULT = Fault(
    name="greedy sampling",
    rank=2.2,
    remedy="sample at temperature 1",
    beside="warning",
    log=LogTest(
        "greedy sampling",
        _check,
        needs=(),
        where_logged=True,
        statistic="the temperature that the log states, else the largest entropy of all rows",
        threshold=f"{COLD:g}, or {COOL:g} with {DEAD:g} of groups dead and no gain, or {SURE:g} nats with no gain, a "
        "fact",
    ),
    settings=SettingsCheck(
        "greedy sampling", _settings, EVERY, "rollouts of a prompt that are all the same", ("failing", "warning")
    ),
)
