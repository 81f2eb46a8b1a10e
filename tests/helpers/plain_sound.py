"""Made-up runs with nothing to complain of, or of which nothing can be told; `plain_runs` lists them.

Each is a function of a generator and a number of rows.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import plain_world as worlds
from plain_world import Array, Plain, World, plain
from scipy.special import expit
from synthetic_series import Columns, ar1

from grposcope.core.files import WRITTEN_NAN

Generator = np.random.Generator

HEALTHY = ("healthy",)
NOTED = ("healthy", "warning")
UNKNOWN = ("cannot tell", "no failure found")
NO_SPIKES = (r"spike",)
NO_SWINGS = (r"oscillat", r"swing")


def learning(w: World, low: float = 0.25, high: float = 0.75) -> tuple[Columns, Array]:
    """Columns of a run that learns, and its success rates (N,)."""
    rate = worlds.rise(w, low, high)
    return worlds.columns(w, worlds.rollouts(w, rate), (rate - low) / (high - low)), rate


def slow_starter(rng: Generator, n: int) -> Plain:
    """60 % of completions are cut for the first fifth to half; then they end in time, and the reward rises."""
    w = worlds.world(rng, n)
    begin = rng.uniform(0.2, 0.5)
    way = expit((w.u - begin - 0.15) / 0.05)
    cut = 0.6 - rng.uniform(0.53, 0.58) * way
    rate = (1 - cut) * (0.05 + rng.uniform(0.5, 0.75) * way)
    table = worlds.columns(w, worlds.rollouts(w, rate), way)
    return plain(w, table | worlds.cut_columns(w, cut, 0.5), HEALTHY)


def moved_far(rng: Generator, n: int) -> Plain:
    """A large gain; KL grows to 0.3 nats and entropy halves."""
    w = worlds.world(rng, n)
    table, _ = learning(w, 0.2, rng.uniform(0.65, 0.9))
    table["kl"] = w.noisy(1e-3 + 0.3 * w.u ** rng.uniform(0.7, 2), 0.15)
    table["entropy"] = w.noisy(rng.uniform(0.3, 1.5) * (1 - 0.5 * w.u), 0.05)
    return plain(w, table, HEALTHY, keep=("kl",))


def held_at_the_top(rng: Generator, n: int) -> Plain:
    """97 % right throughout, so that most groups are solved and bring no gradient."""
    w = worlds.world(rng, n, spread=rng.uniform(0.5, 1.5))
    table = worlds.columns(w, worlds.rollouts(w, np.full(n, rng.uniform(0.96, 0.98))))
    return plain(w, table, HEALTHY, keep=("reward_min", "reward_max"))


def rounded_top(rng: Generator, n: int) -> Plain:
    """All right in all rows, written with the rounding of half precision: 1 less at most 4e-5."""
    w = worlds.world(rng, n, low=0.0, high=1.0, parts=1)
    table = worlds.columns(w, worlds.rollouts(w, np.ones(n)))
    table["reward"] = 1 - 2e-5 * rng.integers(0, 3, n)
    return plain(w, table, HEALTHY, false=(r"swing", r"oscillat", r"noise explains"))


def ppo_baseline(rng: Generator, n: int) -> Plain:
    """0.43 to 0.71 by PPO, whose log knows no groups; two rows whose gradient is 4.8 × the median."""
    w = worlds.world(rng, n, low=0.0, high=1.0, parts=1, spread=0.5, prompts=64)
    table, _ = learning(w, 0.43, 0.71)
    table["reward_std_batch"] = np.sqrt(table["reward"] * (1 - table["reward"]))
    for name in ("dead_fraction", "reward_std"):
        del table[name]
    table["grad_norm"] = w.noisy(rng.uniform(0.2, 1.0), 0.15)
    table["grad_norm"][rng.choice(np.arange(10, n - 1), 2, replace=False)] = 4.8 * np.median(table["grad_norm"])
    return plain(w, table, HEALTHY, false=NO_SPIKES)


def dead_steps(rng: Generator, n: int) -> Plain:
    """A gain with two prompts a step, often neither live: gradients of 0 among others; this may be warned of."""
    w = worlds.world(rng, n, prompts=2, group=8, spread=rng.uniform(1.5, 2.5), wander=0.1, parts=1)
    rewards = worlds.rollouts(w, worlds.rise(w, 0.15, rng.uniform(0.6, 0.8)), rng.uniform(0.3, 0.6))
    table = worlds.columns(w, rewards, w.u)
    table["grad_norm"] = worlds.live_norms(w, table)
    return plain(w, table, NOTED, keep=("grad_norm",), false=NO_SPIKES)


def gradient_up_at_the_end(rng: Generator, n: int) -> Plain:
    """A gain; in the last 4 to 8 rows the gradient norm grows smoothly to 2.5 to 4 times what it was."""
    w = worlds.world(rng, n)
    table, _ = learning(w)
    last = int(rng.integers(4, 9))
    table["grad_norm"] = w.noisy(rng.uniform(0.2, 1.0), 0.1) * rng.uniform(2.5, 4) ** worlds.ramp(n, n - last, last)
    return plain(w, table, HEALTHY, false=NO_SPIKES)


def short_answers(rng: Generator, n: int) -> Plain:
    """A gain on a task of short answers: 2 to 4 tokens at first, twice as many in the end."""
    w = worlds.world(rng, n)
    table, rate = learning(w)
    table["length"] = w.noisy(rng.uniform(2, 4) * 2 ** ((rate - 0.25) / 0.5), 0.03)
    table["truncated"] = np.zeros(n)
    return plain(w, table, HEALTHY, false=(r"\bstub", r"shrink"))


def few_live_groups(rng: Generator, n: int) -> Plain:
    """A hard task that is learned, from 0.02 to 0.3 or more, though most groups stay dead; that may be warned of."""
    w = worlds.world(rng, n, spread=3.0, prompts=64, group=4, parts=1)
    table, _ = learning(w, 0.02, rng.uniform(0.3, 0.45))
    return plain(w, table, NOTED, false=(r"no gain", r"no learning"))


def dip_and_recovery(rng: Generator, n: int) -> Plain:
    """A gain with a dip of half of it in the middle, from which it recovered."""
    w = worlds.world(rng, n)
    dip = np.exp(-0.5 * ((w.u - rng.uniform(0.4, 0.6)) / rng.uniform(0.02, 0.05)) ** 2)
    rate = 0.25 + 0.5 * np.minimum(w.u / 0.4, 1) - 0.25 * dip
    return plain(w, worlds.columns(w, worlds.rollouts(w, rate), w.u), HEALTHY)


def harder_prompts(rng: Generator, n: int) -> Plain:
    """Prompts become harder at one step, so that the reward falls by a third; held-out accuracy rises throughout."""
    w = worlds.world(rng, n)
    rate = worlds.rise(w, 0.4, 0.7) * np.where(w.u < rng.uniform(0.4, 0.6), 1.0, rng.uniform(0.6, 0.7))
    held = worlds.evaluated(w, worlds.rise(w, 0.3, rng.uniform(0.55, 0.75)))
    return plain(w, worlds.columns(w, worlds.rollouts(w, rate), w.u), NOTED, held=held, must=(r"held|accuracy|eval",))


def evaluated_apart(rng: Generator, n: int) -> Plain:
    """Read from a file: held-out accuracy in rows of its own, fewer than the reward's, rises as the reward does."""
    w = worlds.world(rng, n)
    table, rate = learning(w)
    key, every = str(rng.choice(["eval/accuracy", "eval_accuracy", "val/acc", "test/accuracy"])), max(n // 12, 4)
    apart = [{"step": float(w.steps()[row]), key: rng.binomial(500, 0.9 * rate[row]) / 500}
             for row in range(every - 1, n, every)]  # fmt: skip
    last = [row[key] for row in apart[-max(5, len(apart) // 5) :]]
    made = plain(w, table, HEALTHY, must=(r"held|acc|eval",))
    run = worlds.through_the_reader(made.run.table, apart)
    return replace(made, run=run, now=(min(last), max(last)), ends=(0.0, 1.0))


def groups_counted(rng: Generator, n: int) -> Plain:
    """A gain; what stands for the share of dead groups is their number, so that no share may be said of them."""
    w = worlds.world(rng, n)
    table, _ = learning(w)
    table["dead_fraction"] = 1 + np.round(table["dead_fraction"] * w.prompts)
    return plain(w, table, (*NOTED, *UNKNOWN, "refused"), false=(r"(?!100\b)\b\d{3,} ?%",))


def held_out_rises(rng: Generator, n: int) -> Plain:
    """The training reward and held-out accuracy rise together."""
    w = worlds.world(rng, n)
    table, rate = learning(w)
    return plain(w, table, HEALTHY, held=worlds.evaluated(w, 0.9 * rate))


def late_sigmoid(rng: Generator, n: int) -> Plain:
    """Nothing for over half of the run, then a gain of 0.4 or more."""
    w = worlds.world(rng, n)
    way = expit((w.u - rng.uniform(0.55, 0.75)) / rng.uniform(0.03, 0.06))
    rate = rng.uniform(0.1, 0.3) + rng.uniform(0.4, 0.6) * way
    return plain(w, worlds.columns(w, worlds.rollouts(w, rate), way), HEALTHY, false=NO_SWINGS)


def longer_thoughts(rng: Generator, n: int) -> Plain:
    """Completions grow three- to sixfold as the reward rises, far below the limit."""
    w = worlds.world(rng, n)
    table, rate = learning(w)
    table["length"] = w.noisy(rng.uniform(150, 400) * rng.uniform(3, 6) ** ((rate - 0.25) / 0.5), 0.05)
    table["truncated"] = rng.binomial(w.prompts * w.group, 0.01, n) / (w.prompts * w.group)
    return plain(w, table, HEALTHY)


def warmed_up(rng: Generator, n: int) -> Plain:
    """The learning rate rises from 0 in the first 5 to 15 % of the run, then stays; the reward rises."""
    w = worlds.world(rng, n)
    table, _ = learning(w)
    table["lr"] = table["lr"] * np.minimum(w.u / rng.uniform(0.05, 0.15), 1)
    return plain(w, table, HEALTHY, keep=("lr",))


def imitation_first(rng: Generator, n: int) -> Plain:
    """The first 5 to 15 % of the rows are supervised: a loss of 2 that falls, larger gradients, and no reward."""
    w = worlds.world(rng, n)
    table, _ = learning(w)
    first = np.arange(n) < max(int(n * rng.uniform(0.05, 0.15)), 3)
    for name in table.keys() - {"loss", "grad_norm", "lr"}:
        table[name][first] = math.nan
    table["loss"] = np.where(first, w.noisy(1.0 + 1.2 * np.exp(-20 * w.u), 0.05), table["loss"])
    table["grad_norm"] = np.where(first, w.noisy(3.0, 0.2), table["grad_norm"])
    return plain(w, table, HEALTHY, keep=("loss",), false=(r"\bloss\b", *NO_SPIKES))


def parts_that_spread(rng: Generator, n: int) -> Plain:
    """Two components of prompts that differ widely: each spreads more over the batch than their sum in a group."""
    w = worlds.world(rng, n, low=0.0, high=1.0, parts=1, spread=rng.uniform(2.0, 3.0), prompts=64)
    right, form = (worlds.rollouts(w, worlds.rise(w, low, high)) for low, high in ((0.25, 0.7), (0.5, 0.9)))
    table = worlds.columns(w, right + form, w.u)
    for name, rewards in (("correctness", right), ("format", form)):
        table[f"component/{name}"] = rewards.mean((1, 2))
        table[f"component_std/{name}"] = rewards.reshape(n, -1).std(1, ddof=1)
    made = plain(replace(w, high=2.0), table, HEALTHY, keep=("reward_std",), false=(r"cancel",))
    last = table["component/correctness"][-max(5, n // 5) :]
    return replace(made, now=(float(last.min()), float(last.max())))


def repeated_batches(rng: Generator, n: int) -> Plain:
    """Each batch is trained on in 2 to 4 steps that log the same rewards anew; they rise. Readers count each once."""
    w = worlds.world(rng, n)
    table, _ = learning(w)
    again = int(rng.integers(2, 5))
    fresh = np.arange(n) // again * again
    for name in ("reward", "reward_std", "dead_fraction", "reward_min", "reward_max", "length", "truncated"):
        table[name] = np.where(np.arange(n) == fresh, table[name], np.nan)
    return plain(w, table, HEALTHY, false=NO_SWINGS)


def without_a_term(rng: Generator, n: int) -> Plain:
    """TRL writes NaN for the KL of a run without a KL term, in all rows; the reward rises."""
    w = worlds.world(rng, n)
    table, _ = learning(w)
    table["kl"] = np.full(n, WRITTEN_NAN)
    return plain(w, table, HEALTHY, keep=("kl",), false=(r"NaN",))


def hardly_logged(rng: Generator, n: int) -> Plain:
    """The reward rises, but beside it there are only entropy and length under names that nobody knows."""
    w = worlds.world(rng, n)
    table, _ = learning(w)
    names = (str(rng.choice(["H_tok", "unc", "ent_bits"])), str(rng.choice(["n_out", "gen_sz", "toks"])))
    seen = {"reward": table["reward"], names[0]: table["entropy"], names[1]: table["length"]}
    return plain(w, seen, ("healthy",), must=(r"logged",), false=(r"only the reward is logged",))


def flat(rng: Generator, n: int) -> Plain:
    """Nothing is learned and nothing is wrong: 30 to 70 % right of groups of 8 or more."""
    w = worlds.world(rng, n, group=int(rng.choice([8, 16])), spread=rng.uniform(0.3, 1.0))
    return plain(w, worlds.columns(w, worlds.rollouts(w, np.full(n, rng.uniform(0.3, 0.7)))), UNKNOWN)


def wandering(rng: Generator, n: int) -> Plain:
    """A stationary reward at the middle of its range: an AR(1) of up to 0.8 and white noise."""
    w = worlds.world(rng, n, group=8, spread=0.5)
    table = worlds.columns(w, worlds.rollouts(w, np.full(n, 0.5)))
    slow = rng.uniform(0.01, 0.04) * ar1(rng, n, rng.uniform(0.2, 0.8))
    table["reward"] = w.low + w.range * (rng.uniform(0.4, 0.6) + slow + rng.uniform(0.01, 0.04) * rng.normal(size=n))
    return plain(w, table, UNKNOWN)


def same_order(rng: Generator, n: int) -> Plain:
    """Nothing is learned: prompts come in the same order in each epoch, so that the reward repeats itself."""
    w = worlds.world(rng, n, group=8, spread=rng.uniform(0.3, 1.0))
    epoch = max(n // int(rng.integers(2, 6)), 10)
    hard = np.tile(rng.normal(size=epoch), n // epoch + 1)[:n]
    rate = expit(rng.uniform(-0.8, 0.8) - rng.uniform(0.1, 0.4) * hard)
    return plain(w, worlds.columns(w, worlds.rollouts(w, rate)), UNKNOWN)


def too_short(rng: Generator, n: int) -> Plain:
    """Five to nine rows of a run that may rise, fall or stay."""
    w = worlds.world(rng, n)
    table = worlds.columns(w, worlds.rollouts(w, np.linspace(*rng.uniform(0.3, 0.6, 2), n)))
    return plain(w, table, UNKNOWN, must=(r"short|few|rows|steps",))


def without_reward(rng: Generator, n: int) -> Plain:
    """Everything is logged but the reward, and nothing is wrong."""
    w = worlds.world(rng, n)
    table, _ = learning(w)
    seen = {name: column for name, column in table.items() if not name.startswith("reward")}
    return plain(w, seen, UNKNOWN, must=(r"reward",))


ADJECTIVES = ("valid_action", "valid_json", "test_parse_ok", "valid_format")


def well_formed_but_falling(rng: Generator, n: int) -> Plain:
    """The reward falls by half or more; a share of well-formed answers, named like a test, is 0.97 on every row."""
    w = worlds.world(rng, n, low=0.0, high=1.0, parts=1)
    rate = rng.uniform(0.6, 0.8) * (1 - rng.uniform(0.5, 0.8) * w.u)
    table = {"step": w.steps(), **worlds.columns(w, worlds.rollouts(w, rate), w.u)}
    name, count = str(rng.choice(ADJECTIVES)), w.prompts * w.group
    table[name] = rng.binomial(count, 0.97, n) / count
    kept = {key: column for key, column in table.items() if not key.startswith(("reward_", "dead"))}
    made = plain(w, table, ("failing", "warning", "cannot tell"), began=(0, n // 2),
                 false=(r"^healthy", r"near the top", r"held[- ]out (?!not|is not).{0,40}0?\.?9"))  # fmt: skip
    return replace(made, run=worlds.through_the_reader(kept))
