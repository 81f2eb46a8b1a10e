"""Every number by which an outcome is judged and worded, with its reason. Limits of single failures stand with these.

"Chosen on" names what a number was settled by: made-up runs whose truth is known (benchmarks/plain.py, grades.py), or
logs that people graded (benchmarks/graded.py, corpus.py). The others follow from what the words mean.
"""

from __future__ import annotations

RISES = 0.05
"""One-sided p-value of a gain. Chosen on made-up runs without any trend: at 300 rows under 3 % of them gain."""

CERTAIN = 1e-3
"""p-value of a gain that counts however small it is, and is then said with its size. A gain below LITTLE of the range
with a larger p-value is none: 1 in 20 runs without a trend has one at RISES."""

FALLS = 0.01
"""One-sided p-value of a fall, from the best part times the number of parts. It is less than RISES, because a fall is
an alarm by itself and the best of several parts is chosen for its noise too."""

WHITE = 0.01
"""p-value below which a change is more than noise that rows do not share, so that only wandering may explain it."""

LOST = 0.25
"""Share of a gain that is lost at least where a run lost it: what graders call failing (benchmarks/corpus.md)."""

HALF = 0.5
"""Share of what there was to gain, at or below which a run that stands still has stalled; and share of its gain that a
training reward may lose and still be a warning, where it ends above its start."""

SOLVED = 0.8
"""Share of the range above which there is little left to gain: a run that begins and ends there held the top."""

STILL = 0.1
"""A change by less than this share of the range is none in words ("the reward stayed"). Chosen on made-up runs."""

LITTLE = 0.05
"""A gain whose 95 % upper bound is below this share of the range is none: half of STILL."""

ROOM = 0.2
"""The same as a share of what was left to gain, for rewards that begin near their top."""

PLAIN = 0.15
"""Share of the range by which a reward is lower at the end than at best, where the eye sees plainly that it fell.
Chosen on made-up runs (drifts_down, wandering): it parts a lasting fall from a slow wandering about a level."""

SPREADS = 4
"""As many standard deviations of rows are plain to the eye where the range is not known."""

LONG = 100
"""Steps after which a gain that cannot be shown counts as none."""

UPPER = 1.96
"""Standard errors from an estimate to its 95 % bound."""

FEW = 10
"""Rows of the reward below which nothing is told but their number."""

FEWEST = 4
"""Evaluations without a standard error below which nothing is told: three second differences are too few."""

PROBLEMS = 100
"""Problems that an evaluation is taken to have where a log of fewer than FEWEST evaluations does not say: a share of
right answers is then known to about five points. Held-out sets are seldom smaller."""

HALVES = 4
"""Values from which on the second half of a run has more than its end."""

BEGIN = (0.0, 0.0)
"""The first evaluation, which often is of the policy before training."""

MIDDLE = (0.4, 0.6)
"""The middle of the run, since which a run that stalled stands still."""

ENOUGH = 2
"""Areas that must be logged for a failure to be seen; one less where a held-out score says that the run learned."""

UNMOVED = 3e-4
"""KL to the start, in nats per token, below which a policy hardly moved after MANY_STEPS steps that had a gradient."""

MANY_STEPS = 50
"""Steps after which a policy that is trained has moved."""

MOST_ZERO = 0.9
"""Share of the rows whose gradient is exactly 0 above which there is none."""

LORA_RATE = 1e-6
"""Learning rate of Adam up to which adapters hardly move: a tenth of the usual one, 1e-5."""

FULL_RATE = 1e-7
"""Learning rate of Adam up to which all weights hardly move: a tenth of the usual one, 1e-6."""

DETECTED = 2.5
"""A gain of so many standard errors of the change is shown at RISES by four of five such runs: 1.645 + 0.842."""

OTHERS = 0.1
"""Share of the range that runs which learn gain: of 29 public logs with a gain (benchmarks/graded.py) 26 gained more,
and half of them 0.37 or more."""
