"""Updates that are too large: a KL that is far within the first few steps, or a reward that falls slowly from the
start while the entropy rises."""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact, measured
from grposcope.core.text import apart, number
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs import run_outcome
from grposcope.signs.heldout import heldout_scores
from grposcope.signs.quantities import MetricSeries, Quantities
from grposcope.signs.thresholds import RISES

ROWS, STEPS = 5, 10
"""Rows after the first whose KL is looked at, and the steps within which they have to lie."""

FAR, START = 0.25, 0.02
"""Nats of KL per token from which the first updates went far, and at most of the first row, which is the start."""

AWAY, LEFT, BEHIND, CLEAR = 0.1, 0.6, 10, 3.0
"""Nats of KL per token and share of the first row's reward, in the median of BEHIND rows after ROWS, that show a
policy lost in its first steps; and the spreads of these rows that the reward fell."""

WARM = (
    "start again with a warm-up of 10 to 50 steps and a lower learning rate (1e-6 is usual for all weights, 1e-5 for "
    "adapters)"
)
"""What to do where the first steps lose what the model could do."""

FOLLOWS = (
    "kl blow-up", "reward decline", "constant reward", "starved", "dead after a fall", "empty steps", "length",
    "entropy collapse", "entropy explosion", "gradient explosion", "never paid",
)  # fmt: skip
"""Faults that follow where the policy was lost within its first steps."""


SLOW = 40
"""Rows of a slow fall, at least."""

PACE = {(0.2, 0.35): (0.08, 0.5), (0.6, 0.75): (0.5, 0.95)}
"""Parts of the run, and the shares of a change that are done there where it goes on at one pace from the start."""

MORE = 1.5
"""Times its first level to which the entropy rises."""

WORN = ("held-out decline", "reward decline", "entropy explosion")
"""Faults that follow where each update takes more from the policy than it adds."""


def _check(quantities: Quantities) -> Finding:
    """The KL starts at 0 and is beyond FAR in all of the next ROWS rows, within STEPS steps; or the reward and the
    held-out score fall from the start at one pace while the entropy rises."""
    worn = _wears_away(quantities)
    if worn is not None:
        return worn
    far = _far_at_once(quantities)
    return far if far.present else _lost_at_first(quantities) or far


def _wears_away(quantities: Quantities) -> Finding | None:
    """That the reward, and the held-out score, fall slowly from the first row on while the entropy rises; None if not.

    A reward that falls near the start of the policy with an entropy that stays is `reversed sign`."""
    reward, entropy = quantities.get("reward", SLOW), quantities.get("entropy", SLOW)
    heldout = next(iter(heldout_scores(quantities)), None)
    if reward is None or entropy is None or heldout is None or not _at_one_pace(reward, -1):
        return None
    down = [run_outcome.of_reward(quantities), run_outcome.of_run(quantities.run)]
    first, last = (entropy.level(span).value for span in (EARLY, LATE))
    grows = 0 < MORE * first <= last and _at_one_pace(entropy, 1)
    rose = heldout.score.values.max() > heldout.score.values[0] + 2 * float(heldout.variance) ** 0.5
    if rose or not grows or any(outcome.direction != "down" for outcome in down):
        return None
    went = quantities.went(entropy.name, first, last)
    paid = " → ".join(apart(reward.level(EARLY).value, reward.level(LATE).value))
    evidence = (
        Sign(f"{reward.name}, last 20%", reward.level(LATE).value, column=reward.name),
        Sign(f"{entropy.name}, last 20%, over the first 15%", last / first, limit=f"{MORE:g}", column=entropy.name),
    )
    because = (
        f"the reward ({paid}) and {heldout.title} fall slowly from the first rows on while {went}: each update takes "
        "more from the policy than it adds, as where steps are too large for the noise of their advantages"
    )
    brief = f"a slow fall, {went}"
    p = max(reward.change(EARLY, LATE).p_down, entropy.change(EARLY, LATE).p_up)
    return measured(p, because, evidence, explains=WORN, brief=brief, remedy=SMALLER)


def _at_one_pace(series: MetricSeries, sign: int) -> bool:
    """Whether a metric goes in a direction beyond chance, at PACE."""
    first, last = (series.level(span).value for span in (EARLY, LATE))
    contrast = series.change(EARLY, LATE)
    if (contrast.p_up if sign > 0 else contrast.p_down) >= RISES or first == last:
        return False
    done = {span: (series.level(span).value - first) / (last - first) for span in PACE}
    return all(low <= done[span] <= high for span, (low, high) in PACE.items())


def _lost_at_first(quantities: Quantities) -> Finding | None:
    """That the reward falls below LEFT of its first row within the ROWS rows after it, for the BEHIND rows that follow,
    while the KL goes from its start to AWAY or more; else None."""
    kl, reward = quantities.require_computed_kl(), quantities.get("reward", SLOW)
    span = slice(ROWS, ROWS + BEHIND)
    if reward is None or quantities.run.window > 1 or len(kl) < ROWS + BEHIND or kl.values[0] > START:
        return None
    if max(series.steps[span][-1] - series.steps[0] for series in (kl, reward)) > 2 * (ROWS + BEHIND):
        return None
    first, after = float(reward.values[0]), float(np.median(reward.values[span]))
    noise = float(reward.values[span].std())
    away = float(np.median(kl.values[span]))
    if away < AWAY or after > LEFT * first or first - after < CLEAR * noise:
        return None
    rate = quantities.column("lr")
    at = f", at a learning rate of {rate.values[0]:.2g} in the first row" if rate is not None else ""
    paid, rows = apart(first, after), f"rows {ROWS + 1} to {ROWS + BEHIND}"
    went = f"{quantities.key(kl.name)} from {number(float(kl.values[0]))} to {number(away)} nats per token"
    because = (
        f"the reward goes from {' to '.join(paid)} and {went} between the first row and {rows}{at}: the first steps "
        "are too large, as those of Adam are without a warm-up"
    )
    evidence = (Sign(f"{kl.name}, {rows}", away, limit=f"counts from {AWAY:g}", column=kl.name),
                Sign(f"{reward.name}, {rows}", after, column=reward.name))  # fmt: skip
    brief = f"reward {' → '.join(paid)} in the first {ROWS + BEHIND} rows"
    return fact(True, because, evidence, explains=FOLLOWS, brief=brief, remedy=WARM)


def _far_at_once(quantities: Quantities) -> Finding:
    """The KL starts at 0 and is beyond FAR in all of the next ROWS rows, within STEPS steps."""
    kl = quantities.require_computed_kl()
    near = kl.steps[1 : ROWS + 1] - kl.steps[0] <= STEPS
    if quantities.run.window > 1 or not near.all():
        return cannot_tell("rows are too far apart to show the first steps")
    first = kl.values[1 : ROWS + 1]
    evidence = (Sign(f"{kl.name}, rows 2 to {ROWS + 1}", float(np.median(first)), column=kl.name),)
    if kl.values[0] > START or first.min() < FAR:
        return fact(False, "the first steps do not lead far from the start", evidence)
    rate = quantities.column("lr")
    at = f" at a learning rate of {rate.values[0]:.2g}" if rate is not None else ""
    because = (
        f"{quantities.key(kl.name)} is {number(first[0])} nats per token at step {int(kl.steps[1]):,}{at}: sound first "
        "steps move it by 0.001 or so"
    )
    brief = f"{quantities.key(kl.name)} {number(first[0])} nats at step {int(kl.steps[1]):,}"
    return fact(True, because, evidence, explains=FOLLOWS, brief=brief, remedy=REMEDY)


REMEDY = (
    "lower the learning rate to a tenth or less (1e-6 is usual for all weights, 1e-5 for adapters), with a warm-up, "
    "and start again: no checkpoint of this run is sound"
)

SMALLER = (
    "start again with a third of the learning rate, or a batch of four times as many prompts, and a KL penalty to the "
    "start; grade one good and one bad rollout by hand first, as a reward of the wrong sign falls likewise"
)
"""What to do where a policy is worn away."""

TEST = LogTest(
    "high learning rate",
    _check,
    needs=("kl",),
    statistic="KL of the first rows; or reward, held-out score and entropy from the first rows on",
    threshold=f"0 in the first row, > {FAR:g} nats in each of the next {ROWS} within {STEPS} steps; or {AWAY:g} nats "
    f"and {LEFT:g} of the first row's reward {ROWS} rows later; or a fall at one pace beside {MORE:g} × the entropy",
)
