"""Experiment: how good are forecasts of success rates, and would the model's first token make them better?

Two questions, no training.

**Records.** Of runs of `allocation.py`, and of older ones with forecasts in their record: Brier skill over the base
rate and over the task's difficulty alone, slope and intercept of log odds, the reliability curve, and what forecasting
and choosing took of a step. Intervals are over problems within a run, so they say nothing of other seeds.

**First token.** For problems that have no history, `lab.allocation.forecast` knows difficulty, its square and the
prompt's length. The model knows more: the entropy of its first token, and the probability of the likeliest one, cost a
pass over the prompt. 1,500 training problems × 8 rollouts of each model; a logistic regression on three quarters of the
problems forecasts the rest, in four folds, with and without the two. Reported: the share of the Brier score that they
take off, interval over problems, and the seconds of the pass over as many prompts as the optimal draw chooses from for
one batch.

    worth building    the skill's interval lies above 1 % on each model given, and the pass takes at most 1 % of a step,
                     3 % of the sampling of a batch of 128 rollouts
    not worth it      otherwise

    python experiments/allocation_forecasts.py --records RUN … --models tiny MODEL …
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from allocators import forecasts, scores
from allocators.policies import Optimal
from numpy.typing import NDArray

from grposcope.lab import policies, tasks
from grposcope.lab.allocation.forecast import _features, _updated, _Weights
from grposcope.lab.policies import Policy, encode
from grposcope.lab.sampling.rollouts import DrawSettings, draw, generator
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks import Problem, Task
from grposcope.logs import read

Floats = NDArray[np.float64]
PROBLEMS, GROUP, FOLDS, CHUNK = 1500, 8, 4, 250


def of_record(folder: Path) -> None:
    """Print how good the forecasts of a run were."""
    found = forecasts.of_run(folder)
    if found is None:
        print(f"{folder}: no forecasts")
        return
    given = found.successes, found.rollouts, found.problem
    print(f"\n{folder}: {len(found)} groups of {len(np.unique(found.problem))} problems")
    for reference in ("base", "difficulty"):
        one = scores.skill(found.forecast, getattr(found, reference), *given)
        print(f"  Brier {one.brier:.4f}, skill over {reference} {_interval(one.skill, one.interval)}")
    told = scores.calibration(found.forecast, *given)
    low, high = told.slope_interval
    print(f"  slope of log odds {told.slope:.2f} ({low:.2f} to {high:.2f}), intercept {told.intercept:.2f}")
    print("  forecast: observed ± error  " + "  ".join(
        f"{b.forecast:.2f}: {b.observed.value:.2f} ± {b.observed.se:.2f}" for b in told.bins))  # fmt: skip
    table = read(folder).table
    step = table["seconds_sample"] + table["seconds_grade"] + table["seconds_update"]
    print(f"  forecasting and choosing took {np.sum(table['allocation/seconds']) / np.sum(step):.2%} of a step")


def of_model(name: str, seed: int = 0) -> bool:
    """Print what the first token adds for a model; whether it is worth building."""
    task, policy = tasks.load("arithmetic:size=20000", None), policies.load(name, torch.float32, "cpu")
    problems = list(task.problems("train"))[-PROBLEMS:]
    success, seconds = _successes(policy, task, problems, seed)
    pool = Optimal().pool
    first, pass_seconds = _first_tokens(policy, task, problems)
    pass_seconds *= pool / len(problems)
    plain = _features([task.difficulty(p) for p in problems], [len(p.prompt) for p in problems])
    z = (first - first.mean(0)) / first.std(0)
    without, with_it = (_forecast(x, success) for x in (plain, np.concatenate([plain, z, z**2 - 1], 1)))
    n = np.full(len(success), float(GROUP))
    level = np.full(len(success), success.mean() / GROUP)
    who = np.arange(len(success))
    gain = scores.skill(with_it, without, success, n, who)
    print(f"\n{name}: {success.mean() / GROUP:.3f} solved, {len(problems)} problems × {GROUP} rollouts")
    for text, forecast in (("difficulty and length", without), ("and the first token", with_it)):
        over = scores.skill(forecast, level, success, n, who)
        print(f"  {text}: Brier {over.brier:.4f}, skill over the base rate {_interval(over.skill, over.interval)}")
    best = _best_possible(success)
    print(f"  the first token adds {_interval(gain.skill, gain.interval)}; no forecast can be below {best:.4f}")
    sampling = seconds * 128 / (success.size * GROUP)
    print(f"  a pass over {pool} prompts: {pass_seconds:.2f} s; sampling 128 rollouts: {sampling:.2f} s")
    return gain.interval[0] > 0.01 and pass_seconds <= 0.03 * sampling


def _successes(policy: Policy, task: Task, problems: list[Problem], seed: int) -> tuple[Floats, float]:
    """Successes of GROUP rollouts of each problem, (n,), and the seconds of sampling."""
    found, seconds = [], 0.0
    for start in range(0, len(problems), CHUNK):
        part = problems[start : start + CHUNK]
        drawn = draw(
            policy, task, part, GROUP, DrawSettings(Sampling(task.max_tokens)), generator(seed, "first", start)
        )
        found.append(drawn.rollouts.rewards.sum(1).double().numpy())
        seconds += drawn.sample_seconds
    return np.concatenate(found), seconds


@torch.no_grad()
def _first_tokens(policy: Policy, task: Task, problems: list[Problem]) -> tuple[Floats, float]:
    """Entropy of each problem's first token and log probability of the likeliest, (n, 2), and the seconds of it."""
    found, began = [], time.perf_counter()
    for start in range(0, len(problems), CHUNK):
        prompts = [problem.prompt for problem in problems[start : start + CHUNK]]
        ids, mask = encode(policy, prompts, task.instruction, task.max_tokens)
        logits = policy.model(input_ids=ids, attention_mask=mask, logits_to_keep=1).logits[:, -1]
        logp = logits.float().log_softmax(-1)
        found.append(torch.stack([-(logp.exp() * logp).sum(-1), logp.max(-1).values], -1).double().numpy())
    return np.concatenate(found), time.perf_counter() - began


def _forecast(x: Floats, success: Floats) -> Floats:
    """Forecasts of each problem by a regression that has not seen it, (n,)."""
    out, fold = np.empty(len(x)), np.arange(len(x)) % FOLDS
    for k in range(FOLDS):
        seen = fold != k
        known = _Weights.start(x.shape[1])
        known = _updated(known, x[seen], success[seen], np.full(seen.sum(), float(GROUP)), 1e9)
        out[~seen] = known.rates(x[~seen])
    return out


def _best_possible(success: Floats) -> float:
    """Mean of p(1 − p) over the problems, without bias."""
    return float((success * (GROUP - success) / (GROUP * (GROUP - 1))).mean())


def _interval(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.1%} ({interval[0]:.1%} to {interval[1]:.1%})"


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, nargs="*", default=[])
    parser.add_argument("--models", nargs="*", default=[])
    given = parser.parse_args()
    torch.set_num_threads(1)
    for folder in given.records:
        of_record(folder)
    worth = [of_model(name) for name in given.models]
    if worth:
        print(f"\nthe first token as a feature: {'worth building' if all(worth) else 'not worth it'}")


if __name__ == "__main__":
    main()
