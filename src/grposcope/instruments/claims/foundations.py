"""[PG] arXiv:2606.29238: one credit for all tokens, two directions, effective rank, sparsity, the group mean.

Measured on the shipped model, `tiny`, and its sums: a scale that is named, not the papers'. Rollouts are drawn once.

[PG] arXiv:2606.29238 §6: does the total return bias the gradient of a policy of several turns? By enumeration.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from grposcope.core.estimate import Estimate
from grposcope.instruments.claims.claim import Derived, Drawing, PaperClaim, PaperVerdict, Tell
from grposcope.instruments.claims.enumerated_policy import Array
from grposcope.instruments.gradient import group_rank, spectrum, weightings
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import advantages, recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.maths import dead_groups


class _Episodes:
    """Every trajectory of H turns of two actions, the history as state and a logit for each, a reward per turn.

    chances (N,), rewards (N, H), scores (N, H, D) of the turns, value (N, H) of the state before each. start: V(s_0).
    """

    def __init__(self, turns: int, seed: int):
        rng = np.random.default_rng([turns, seed])
        histories = [h for t in range(turns) for h in itertools.product((0, 1), repeat=t)]
        index = {history: i for i, history in enumerate(histories)}
        up = 1 / (1 + np.exp(-0.7 * rng.normal(size=len(histories))))
        pays = {(*h, a): float(rng.random() < 0.5) for h in histories for a in (0, 1)}
        paths = list(itertools.product((0, 1), repeat=turns))
        states = np.array([[index[path[:t]] for t in range(turns)] for path in paths])
        actions = np.array(paths)
        self.chances = np.where(actions == 1, up[states], 1 - up[states]).prod(1)
        self.rewards = np.array([[pays[path[: t + 1]] for t in range(turns)] for path in paths])
        self.scores = np.zeros((len(paths), turns, len(histories)))
        rows = np.arange(len(paths))
        for t in range(turns):
            self.scores[rows, t, states[:, t]] = actions[:, t] - up[states[:, t]]
        to_go = self.rewards[:, ::-1].cumsum(1)[:, ::-1]
        self.value = np.empty(self.rewards.shape)
        for t in range(turns):
            for state in np.unique(states[:, t]):
                here = states[:, t] == state
                self.value[here, t] = self.chances[here] @ to_go[here, t] / self.chances[here].sum()
        self.to_go, self.start = to_go, float(self.chances @ self.rewards.sum(1))

    def variance(self, credit: Array) -> float:
        """tr Var of Σ_h credit_h s_h of one trajectory, credit (N, H)."""
        estimate = np.einsum("nh,nhd->nd", credit, self.scores)
        mean = self.chances @ estimate
        return float(self.chances @ (estimate**2).sum(1) - mean @ mean)


def _multi_turn(tell: Tell, trees: int = 8) -> Derived:
    """What Bias_h = past reward + V(s_h) − V(s_0) adds to the gradient, and what the total return costs in variance."""
    worst, size, points, said = 0.0, 0.0, [], []
    for turns in (1, 2, 4, 6):
        ratios = []
        for seed in range(trees):
            toy = _Episodes(turns, seed)
            past = toy.rewards.cumsum(1) - toy.rewards
            bias = past + toy.value - toy.start
            added = np.einsum("n,nh,nhd->d", toy.chances, bias, toy.scores)
            worst, size = max(worst, float(np.abs(added).max())), max(size, float(np.abs(bias).max()))
            total = np.broadcast_to((toy.rewards.sum(1) - toy.start)[:, None], toy.rewards.shape)
            if (own := toy.variance(toy.to_go - toy.value)) > 0:
                ratios.append(toy.variance(total) / own)
        ratio = float(np.median(ratios))
        said.append(f"{ratio:.2f} at {turns} turn{'s' * (turns > 1)}")
        points.append(("total return ÷ reward to go", float(turns), ratio, 0.0))
    return Derived(
        "does not hold" if worst < 1e-12 < size else "holds",
        f"Bias_h is up to {size:.1f} on single histories and adds {worst:.0e} to the gradient; what it costs is "
        f"variance: that of the total return is, relative to reward to go less V(s_h), {', '.join(said)}",
        f"{trees} random trees a length, two actions a turn, every trajectory enumerated",
        Drawing("turns", "variance ÷ that of reward to go − V(s_h)", points),
    )


if TYPE_CHECKING:
    from grposcope.instruments.gradient.probe import Probe

PROMPTS, GROUP, ON = 48, 8, "the shipped model tiny on sums"


@cache
def _drawn(seed: int = 0) -> tuple[Policy, RolloutBatch]:
    """The model, and its live groups of 8 among 48."""
    policy, task = policies.load("tiny"), tasks.load("arithmetic")
    batch = collect(policy, task, task.problems("train"), recipes.GRPO, Sampling(task.max_tokens), (PROMPTS, GROUP),
                    seed, 0)  # fmt: skip
    live = (~advantages.dead(batch.rollouts.rewards)).nonzero()[:, 0]
    return policy, batch.rollouts.take(live)


@cache
def _probed() -> Probe:
    from grposcope.instruments.gradient import probe

    policy, rollouts = _drawn()
    return probe.probe(policy.model, rollouts, recipes.RLOO, leading=8)


def _one_credit(tell: Tell) -> Derived:
    """Spread of a rollout's token advantages, for five recipes."""
    _, rollouts = _drawn()
    names, worst = ("grpo", "dr_grpo", "rloo", "dapo", "gspo"), 0.0
    for name in names:
        weights = recipes.ALL[name].token_advantages(rollouts)
        high = weights.masked_fill(~rollouts.mask, -torch.inf).amax(-1)
        low = weights.masked_fill(~rollouts.mask, torch.inf).amin(-1)
        worst = max(worst, float((high - low).abs().max()))
    return Derived(
        "holds" if worst == 0 else "does not hold",
        f"largest difference in credit between two tokens of a rollout: {worst:g}, with {', '.join(names)}",
        f"{len(rollouts.mask)} rollouts of {ON}",
    )


def _class_means(tell: Tell) -> Derived:
    """Share of each group's gradient in the span of its two class means."""
    tell("probe of the shipped model")
    share = _probed().class_means().reduced
    return Derived(
        "holds" if share.value > 1 - 1e-6 else "does not hold",
        f"share of a group's squared gradient in the span of its two class means: {share.value:.8f}, mean of {share.n} "
        "groups",
        f"mixed groups of {GROUP}, {ON}, all weights",
    )


def _ranks(tell: Tell, groups: int) -> dict[str, dict[str, list[float]]]:
    """Weighting and R -> name of the rank -> its mean over layers, one value a group."""
    from grposcope.instruments.gradient import probe

    policy, rollouts = _drawn()
    errors: dict[str, dict[str, list[float]]] = {}
    recipe = replace(recipes.RLOO, name="outcome", advantage=advantages.standardized)
    for number in range(min(groups, len(rollouts.rewards))):
        tell(f"ranks of group {number + 1} of {groups}")
        prompt = rollouts.take(torch.tensor([number]))
        order = prompt.rewards[0].argsort(descending=True)  # a success first and a failure second: every R is mixed
        prompt = prompt.columns(torch.cat((order[:1], order[-1:], order[1:-1])))
        measured = probe.probe(policy.model, prompt, recipe, tier="exact", sweep=(2, 4), controls=True, check=False)
        for name in measured.weightings:
            means = measured.mean_ranks(name)
            by_size = errors.setdefault(name, {})
            for rank in spectrum.NAMES:
                by_size.setdefault(rank, []).append(means[rank].value)
    return errors


@cache
def _rank_estimates(tell: Tell, groups: int) -> dict[str, dict[str, Estimate]]:
    return {
        name: {rank: Estimate.mean(values) for rank, values in ranks.items()}
        for name, ranks in _ranks(tell, groups).items()
    }


def _rank_two(tell: Tell, groups: int = 12) -> Derived:
    """Every effective rank of a group's gradient, layer by layer, for R = 2, 4, 8."""
    ranks = _rank_estimates(tell, groups)
    own = {size: ranks[name] for size, name in ((2, "outcome, G=2"), (4, "outcome, G=4"), (8, "outcome"))}
    stable = {size: by_rank["stable"] for size, by_rank in own.items()}
    near = all(abs(error.value - 2) - 1.96 * error.se <= 0.5 for error in stable.values())
    others = [by_rank.value for error in own.values() for rank, by_rank in error.items() if rank != "stable"]
    shown = ", ".join(f"{error.value:.2f} ± {error.se:.2f} at R = {size}" for size, error in stable.items())
    verdict: PaperVerdict = "holds in part" if near and max(others) > 3 else "holds" if near else "does not hold"
    return Derived(
        verdict,
        f"stable rank {shown}; by other definitions {min(others):.1f} to {max(others):.1f}",
        f"{groups} mixed groups of {ON}, mean over layers",
        Drawing(
            "rollouts of a group R",
            "effective rank, mean over layers",
            [
                (rank, size, error.value, error.se)
                for rank in spectrum.NAMES
                for size, by_rank in own.items()
                for error in (by_rank[rank],)
            ],
            log=True,
        ),
    )


def _rank_null(tell: Tell) -> Derived:
    """The rank of orthogonal rows by R and K, and of a cut at two values, over random scores."""
    closed, cut, points = 0.0, 0.0, []
    rng = np.random.default_rng(0)
    for group in (2, 4, 8):
        for right in range(1, group // 2 + 1):
            rewards = np.array([[1.0] * right + [0.0] * (group - right)])
            ranks = group_rank.measure(rewards, [np.eye(group)])
            null = 4 * right * (group - right) / group
            closed = max(closed, abs(float(ranks.rank[0, 0]) - null))
            points.append((f"K = {right}", float(group), null, 0.0))
            for width in (3, 30, 300):
                scores = rng.normal(size=(group, width))
                cut = max(cut, float(group_rank.measure(rewards, [scores @ scores.T]).rank_of_two[0, 0]))
    at_two = float(group_rank.measure(np.array([[1.0, 0.0]]), [np.eye(2)]).rank[0, 0])
    shows = abs(at_two - 2) > 1e-9 or cut > 2 + 1e-9
    return Derived(
        "holds" if shows or closed > 1e-9 else "does not hold",
        "orthogonal scores of equal norm have 4K(R−K)/R: 2 at R = 2, 3 or 4 at R = 4, 3.5 to 8 at R = 8; cut at two "
        f"singular values the rank of random scores was at most {cut:.4f}",
        "algebra, and random scores",
        Drawing("rollouts of a group R", "rank of orthogonal rows", points),
    )


def _zero_sum(tell: Tell, groups: int = 12) -> Derived:
    """The stable rank of gradients whose credit does not sum to zero, against the advantages'."""
    ranks = _rank_estimates(tell, groups)
    own, bare, nll = (ranks[name]["stable"] for name in ("outcome", "no_baseline", "nll"))
    distinct = all(abs(slope.value - own.value) > 1 for slope in (bare, nll))
    return Derived(
        "holds" if distinct else "does not hold",
        f"stable rank {own.value:.2f} ± {own.se:.2f} with advantages, {bare.value:.2f} ± {bare.se:.2f} with the bare "
        f"rewards, {nll.value:.2f} ± {nll.se:.2f} with 1 for every rollout",
        f"{groups} mixed groups of {ON}, mean over layers",
    )


def _baseline(tell: Tell) -> Derived:
    """The best baseline less the mean reward."""
    best = _probed().baseline()[0]
    low, high = best.covariance.interval()
    return Derived(
        "does not hold" if high < 0 or low > 0 else "cannot tell",
        f"Cov(r, ‖s‖²) is {best.covariance.value:.3g} ± {best.covariance.se:.2g}; the excess variance of the "
        f"group mean is {best.excess_mean.value:.2g} of the remaining variance",
        f"{len(_drawn()[1].rewards)} mixed groups of {GROUP}, {ON}",
    )


def _sparsity(tell: Tell, seeds: int = 3, steps: int = 60) -> Derived:
    """Sparsity of tokens, groups and parameters over a short training: last quarter less first."""
    changes: dict[str, list[float]] = {"tokens": [], "dead groups": [], "parameters": []}
    points: list[tuple[str, float, float, float]] = []
    for seed in range(seeds):
        tell(f"training {seed + 1} of {seeds}, {steps} steps")
        rows = _trained(seed, steps)
        for name, kept in changes.items():
            curve = [row[name] for row in rows]
            quarter = max(1, len(curve) // 4)
            points += [(f"{name}, seed {seed}", row["step"], row[name], 0.0) for row in rows]
            kept.append(sum(curve[-quarter:]) / quarter - sum(curve[:quarter]) / quarter)
    means = {name: Estimate.mean(values) for name, values in changes.items()}
    rises = {name: change.value > 2 * change.se for name, change in means.items()}
    verdict: PaperVerdict = (
        "holds" if all(rises.values()) else "holds in part" if any(rises.values()) else "does not hold"
    )
    shown = ", ".join(f"{name} {change.value:+.3f} ± {change.se:.3f}" for name, change in means.items())
    return Derived(
        verdict,
        f"change of the Gini index of tokens, the share of dead groups, and the Hoyer sparsity of parameters: {shown}",
        f"{seeds} trainings of {steps} steps, {ON}",
        Drawing("optimiser step", "sparsity", points),
    )


def _trained(seed: int, steps: int, every: int = 10, shape: tuple[int, int] = (16, 8)) -> list[dict[str, float]]:
    """Sparsity by kind along a training of GRPO with AdamW at the model's own learning rate."""
    from grposcope.instruments.gradient import probe

    policy, task = policies.load("tiny"), tasks.load("arithmetic")
    objective, rows, position = recipes.GRPO, [], 0
    optimizer = torch.optim.AdamW(policy.model.parameters(), policy.learning_rate, weight_decay=0.0)
    for step in range(steps):
        batch = collect(
            policy, task, task.problems("train"), objective, Sampling(task.max_tokens), shape, seed, position
        )
        position = batch.position
        if step % every == 0 or step == steps - 1:
            live = (~advantages.dead(batch.rollouts.rewards)).nonzero()[:, 0][:8]
            measured = probe.probe(policy.model, batch.rollouts.take(live), objective, leading=8, check=False)
            rows.append({
                "step": step,
                "tokens": measured.token_sparsity()["gini"],
                "dead groups": dead_groups.share(batch.rollouts.rewards.cpu().numpy()).value,
                "parameters": measured.parameters["hoyer"].value,
            })  # fmt: skip
        weights = weightings.of_recipe(objective, batch.rollouts).weights
        optimizer.zero_grad()
        (weights * _logprobs(policy, batch.rollouts)).sum().backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
    return rows


def _logprobs(policy: Policy, rollouts: RolloutBatch) -> Tensor:
    """log π of every token, (B, T), with its graph."""
    ids = torch.cat([rollouts.prompt_ids, rollouts.tokens], 1)
    seen = torch.cat([rollouts.prompt_mask, rollouts.mask], 1).long()
    index = (seen.cumsum(-1) - 1).clamp(min=0)
    logits = policy.model(input_ids=ids, attention_mask=seen, position_ids=index).logits
    width = rollouts.tokens.shape[1]
    logp = logits[:, -width - 1 : -1].log_softmax(-1).gather(-1, rollouts.tokens[..., None])[..., 0]
    return logp.where(rollouts.mask, 0.0)


CLAIMS = (
    PaperClaim(
        "one-credit", "pg", "With an outcome reward every token of a rollout carries the same credit",
        "holds if all tokens of a rollout have the same credit, with five recipes", True, "", _one_credit, "theorem",
    ),
    PaperClaim(
        "class-means", "pg", "A group's gradient of a binary outcome lies in the span of two class means",
        "holds if the share of the squared gradient in that span is 1 to six digits", True, "geometry_rank.py",
        _class_means, "ours",
    ),
    PaperClaim(
        "rank-two", "pg", "The gradient has effective rank of about 2 for R = 2, 4, 8",
        "holds if the 95% interval of a rank reaches 2 ± 0.5 at every R by all definitions; in part if only by the "
        "stable rank", False,
        "geometry_rank.py", _rank_two, "measurement",
    ),
    PaperClaim(
        "zero-sum", "pg", "The gradient has rank two because advantages sum to zero",
        "holds if credit that does not sum to zero has a stable rank that differs by more than 1", False,
        "geometry_rank.py", _zero_sum, "hypothesis",
    ),
    PaperClaim(
        "sparsity", "pg", "Sparsity intensifies during training",
        "holds if tokens, groups and parameters all get sparser by more than two standard errors; in part if only "
        "some do", False, "geometry_training.py", _sparsity, "ours",
    ),
    PaperClaim(
        "baseline", "pg", "The group mean is the right baseline",
        "does not hold if the 95% interval of Cov(r, ‖s‖²) excludes 0; otherwise cannot tell", False,
        "geometry_baseline.py", _baseline, "assumption",
    ),
    PaperClaim(
        "rank-null", "pg", "A rank (Σσ)²/Σσ² of about 2 at R = 2, 4, 8 shows that a group's rows span two directions",
        "does not hold if orthogonal scores have 2 at R = 2 too, and a cut at two values at most 2 for any scores",
        True, "geometry_group_rank.py", _rank_null, "measurement",
    ),
    PaperClaim(
        "multi-turn", "pg", "With rewards per turn the total return biases the gradient, the more the longer (§6)",
        "does not hold if what Bias_h adds to the gradient is 0 up to rounding although it is not 0 itself", True, "",
        _multi_turn, "theorem",
    ),
)  # fmt: skip
