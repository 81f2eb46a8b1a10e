"""Made-up runs that a person judges at a glance, a kind for each way in which a verdict has gone wrong.

A kind is a function of a generator and a number of rows; its run and what may be said of it depend on them alone.
Everything else about a run is drawn at random: rows, prompts, group size, units of reward, noise, levels and dates, and
what is logged. Seeds from 50,000 on are for the last check of rules; nothing may be settled on them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Literal

import numpy as np
import plain_failing as bad
import plain_sound as sound
from plain_world import Plain

Make = Callable[[np.random.Generator, int], Plain]
Fate = Literal["failing", "warning", "healthy", "null", "cannot tell"]

ROWS: dict[Fate, dict[Make, tuple[int, int]]] = {
    "failing": {
        bad.all_cut: (11, 400), bad.mostly_cut: (30, 400), bad.constant_from: (45, 400),
        bad.never_a_right_one: (11, 400), bad.dying_groups: (101, 600), bad.dying_steps: (200, 600),
        bad.quick_fall: (60, 400), bad.dead_and_entropy_up: (60, 400), bad.drifts_down: (60, 600),
        bad.numbers_gone: (40, 400), bad.numbers_left_out: (40, 400), bad.reward_gone: (40, 400),
        bad.kl_explosion: (60, 400), bad.entropy_gone: (110, 600), bad.entropy_gone_reward_lost: (80, 600),
        bad.length_collapse: (60, 400), bad.hardly_any_gain: (101, 600), bad.held_out_lost: (60, 400),
        bad.right_never_paid: (40, 400), sound.well_formed_but_falling: (60, 400),
    },
    "warning": {
        bad.gain_with_entropy_spent: (60, 600), bad.gain_with_cuts: (60, 400), bad.reason_in_few_rows: (12, 29),
        bad.format_never_paid: (40, 400),
    },
    "healthy": {
        sound.slow_starter: (60, 600), sound.moved_far: (60, 600), sound.held_at_the_top: (40, 600),
        sound.rounded_top: (40, 400), sound.ppo_baseline: (80, 300), sound.dead_steps: (200, 600),
        sound.held_out_rises: (60, 400), sound.late_sigmoid: (60, 600), sound.longer_thoughts: (60, 400),
        sound.warmed_up: (60, 400), sound.imitation_first: (60, 400), sound.parts_that_spread: (60, 300),
        sound.repeated_batches: (60, 400), sound.without_a_term: (60, 400), sound.gradient_up_at_the_end: (60, 400),
        sound.short_answers: (60, 400), sound.few_live_groups: (60, 600), sound.dip_and_recovery: (80, 400),
        sound.harder_prompts: (80, 400), sound.evaluated_apart: (60, 400), sound.groups_counted: (60, 400),
    },
    "null": {sound.flat: (40, 600), sound.wandering: (40, 600), sound.same_order: (40, 600)},
    "cannot tell": {
        sound.too_short: (5, 9), sound.without_reward: (30, 400), sound.hardly_logged: (60, 400),
    },
}  # fmt: skip
"""What is right to say of a kind of run -> the kinds -> least and largest number of rows."""

KINDS: dict[str, tuple[Fate, Make]] = {make.__name__: (fate, make) for fate, kinds in ROWS.items() for make in kinds}
"""Name of a kind -> what becomes of it, and the function that makes it."""


def of_seed(name: str, seed: int) -> Plain:
    """The run of this kind and seed."""
    fate, make = KINDS[name]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    low, high = ROWS[fate][make]
    return make(rng, round(float(np.exp(rng.uniform(np.log(low), np.log(high))))))
