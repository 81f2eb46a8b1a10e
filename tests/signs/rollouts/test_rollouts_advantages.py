"""Advantages by the plain loop of the helpers against the recipes, and every fault in them by its name."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pipelines
import pytest
import torch
from pipelines import Pipeline, Rows

from grposcope.core.finding import Finding
from grposcope.core.run import Floats
from grposcope.lab.objectives import advantages as objectives
from grposcope.signs.rollouts import pipeline_settings, recipes
from grposcope.signs.rollouts.claims.advantages import precision
from grposcope.signs.rollouts.recipes import AdvantageRecipe

SIZES = ((1, 4, 4), (2, 6, 8), (1, 64, 8))
"""Steps, prompts and rollouts per prompt; of fewer, a permutation often has several explanations."""


@pytest.mark.parametrize(("recipe", "name", "arguments"), [
    (AdvantageRecipe("mean", "group", 1, 1e-4), "standardized", {}),
    (AdvantageRecipe("mean", "group", 0, 1e-6), "standardized", {"ddof": 0, "eps": 1e-6}),
    (AdvantageRecipe("mean", "batch", 1, 1e-4), "batch_standardized", {}),
    (AdvantageRecipe("mean", "none"), "centered", {}),
    (AdvantageRecipe("leave-one-out", "none"), "leave_one_out", {}),
    (AdvantageRecipe("none", "none"), "none", {}),
    (AdvantageRecipe("batch", "batch", 1, 1e-4), "whitened", {}),
    (AdvantageRecipe("mean", "mean", 1, 1e-6), "mean_normalized", {}),
])  # fmt: skip
def test_recipes_are_those_of_the_objectives(recipe: AdvantageRecipe, name: str, arguments: dict[str, float]) -> None:
    """Against the functions that our own loop trains with, in double precision, also with rewards that are absent."""
    random = np.random.default_rng(0)
    rewards = random.random((6, 5))
    rewards[1] = 0.3
    rewards[2, 1] = np.nan
    due = getattr(objectives, name)(torch.from_numpy(rewards), **arguments).numpy().ravel()
    made, error = recipes.advantages(recipe, rewards.ravel(), np.repeat(np.arange(6), 5))
    there = ~np.isnan(made)
    assert there.tolist() == (~np.isnan(rewards)).ravel().tolist()
    np.testing.assert_allclose(made[there], due[there], atol=1e-12)
    assert (error[there] >= 0).all()
    assert (error[there & (np.abs(made) > 0.1)] < 1e-3).all()


def test_each_function_by_itself() -> None:
    """normalize_then_sum of TRL, written as its source does."""
    random = np.random.default_rng(1)
    parts, weights = random.random((2, 24)), np.array([1.0, 0.3])
    grouped = torch.from_numpy(parts.T).view(-1, 4, 2)
    alone = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
    total = (alone.view(-1, 2) * torch.from_numpy(weights)).sum(1)
    due = (total - total.mean()) / (total.std() + 1e-4)
    made, _ = recipes.advantages(
        AdvantageRecipe("mean", "each", 1, 1e-4), parts.sum(0), np.repeat(np.arange(6), 4), parts, weights
    )
    np.testing.assert_allclose(made, due.numpy(), atol=1e-12)


@pytest.mark.parametrize("recipe", ["grpo", "batch", "dr_grpo", "rloo"])
def test_sound_advantages_hold(recipe: str) -> None:
    """With and without the settings, for every kind of reward and of stored numbers; the recipe is named."""
    for reward, stored in itertools.product(("binary", "steps", "real", "two"), ("float32", "bfloat16", "decimals")):
        pipeline = Pipeline(recipe=recipe, reward=reward, stored=stored, steps=1)
        rows = pipeline.rows()
        for settings in (pipeline.settings, {}):
            result = pipelines.judged(rows, settings)["advantages"]
            assert result.status == ("holds" if settings else "cannot tell"), (reward, stored, result)
            assert not result.told[0].present
        if stored == "float32" and reward != "binary":
            words = {"grpo": "of the group with ddof 1 + 0.0001", "batch": "of the batch with ddof 1 + 0.0001",
                     "dr_grpo": "are r − group mean", "rloo": "mean of the others"}[recipe]  # fmt: skip
            assert words in result.told[0].because
            assert "do not state" in result.told[0].because


FAULTS = {
    pipelines.shuffled_in_group: {"shuffled in the group", "shifted among siblings"},
    pipelines.shuffled_across: {"shuffled across the batch"},
    pipelines.shifted: {"shifted in the batch"},
    pipelines.shifted_among_siblings: {"shifted among siblings", "shuffled in the group"},
    pipelines.of_batch: {"scale"},
    pipelines.other_ddof: {"ddof"},
    pipelines.other_epsilon: {"epsilon"},
    pipelines.other_sign: {"sign"},
    pipelines.doubled: {"factor"},
    pipelines.split_groups: {"groups split"},
    pipelines.interleaved_groups: {"groups in another order"},
    pipelines.unscaled: {"scale"},
}


@pytest.mark.parametrize("sizes", [SIZES[1:2], pytest.param(SIZES, marks=pytest.mark.slow)], ids=["small", "all"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_every_fault_is_seen_and_named(fault: pipelines.Fault, sizes: tuple[tuple[int, int, int], ...]) -> None:
    """At several sizes and for three kinds of reward: always broken, named in 80 % and more, since the right step."""
    named, count = 0, 0
    for (steps, prompts, group), reward in itertools.product(sizes, ("binary", "real", "two")):
        pipeline = Pipeline(seed=prompts, steps=steps, prompts=prompts, group=group, reward=reward)
        rows = pipelines.with_fault(pipeline, fault, since=steps)
        if _same([row["advantage"] for row in rows], [row["advantage"] for row in pipeline.rows()]):
            continue  # a permutation of equal rewards is no fault
        result = pipelines.judged(rows, pipeline.settings)["advantages"]
        assert result.status == "broken", (steps, prompts, group, reward)
        assert result.told[0].onset == steps
        count += 1
        named += result.told[0].brief in FAULTS[fault]
    assert count >= 2
    assert named >= 0.8 * count, (named, count)


def _same(one: list[float], other: list[float]) -> bool:
    return bool(np.allclose(one, other, atol=1e-5))


@pytest.mark.parametrize("fault", [
    pipelines.shuffled_in_group, pipelines.shuffled_across, pipelines.shifted, pipelines.other_sign
])  # fmt: skip
def test_permuted_rewards_may_be_the_file_alone(fault: pipelines.Fault) -> None:
    """Advantages are those of permuted rewards also where the file, and not training, has these in other rows."""
    pipeline = Pipeline(steps=1, prompts=16)
    told = pipelines.judged(pipelines.with_fault(pipeline, fault), pipeline.settings)["advantages"].told[0]
    undecided = "The file cannot tell the two apart; rewards graded again do" in told.effect
    assert undecided == (fault is not pipelines.other_sign)
    assert told.grade == ("warning" if undecided else "failing")


def test_forgotten_weights() -> None:
    """Advantages of the plain sum of two functions: the weights that explain them are found and said."""
    pipeline = Pipeline(reward="two", steps=1)
    rows = pipelines.with_fault(pipeline, pipelines.forgotten_weights)
    told = pipelines.judged(rows, pipeline.settings)["advantages"].told[0]
    assert told.present
    assert told.fault == "wrong reward weights"
    assert "weights 1, 1" in told.because


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("large", [1e300, 1e160, 1e39])
def test_an_advantage_whose_square_is_beyond_float_is_broken_and_no_crash(large: float) -> None:
    pipeline = Pipeline(reward="two", steps=1)
    rows = pipelines.with_fault(pipeline, pipelines.forgotten_weights)
    rows[3]["advantage"] = large
    assert pipelines.judged(rows, pipeline.settings)["advantages"].told[0].present


def test_weights_that_are_not_stated_are_found() -> None:
    """Two functions, no reward and no weights: the advantages hold, since one set of weights explains them."""
    pipeline = Pipeline(reward="two", steps=1)
    rows = [{**row, "reward": None} for row in pipeline.rows()]
    settings = {name: value for name, value in pipeline.settings.items() if name != "reward_weights"}
    judged = pipelines.judged(rows, settings)["advantages"]
    assert judged.status == "holds"
    assert " with r = " in judged.told[0].because


@pytest.mark.parametrize("stated", [True, False])
def test_one_of_two_rewards_is_subtracted(stated: bool) -> None:
    """Its weight is found also where a batch leaves it open: wrong where weights are stated, else said, not passed."""
    rng, rows = np.random.default_rng(0), []
    for place in range(160):
        right, form = (rng.integers(0, 2, 2) * (1, place >= 16)).tolist()  # the first two groups have no form
        rows.append({"step": 1 + place // 16, "group": f"g{place // 8}", "prompt": f"p{place // 8}", "completion": "x",
                     "rewards": {"right": right, "form": form}, "sum": right - form})  # fmt: skip
    for first in range(0, 160, 8):
        sums = np.array([row["sum"] for row in rows[first : first + 8]], float)
        made = (sums - sums.mean()) / (sums.std(ddof=1) + 1e-4)
        for row, advantage in zip(rows[first : first + 8], made.tolist(), strict=True):
            row["advantage"] = advantage
            del row["sum"]
    recipe = {"scale_rewards": "group", "loss_type": "grpo"}
    judged = pipelines.judged(rows, {"reward_weights": [1.0, 1.0]} if stated else recipe)["advantages"]
    told = judged.told
    if stated:
        assert (told[0].fault, told[0].present) == ("wrong reward weights", True)
        assert "use the function weights 1, -1" in told[0].because
    else:
        assert " with r = 1 × right + -1 × form" in told[0].because
        assert judged.status == "cannot tell"


@pytest.mark.parametrize("reward", ["binary", "real", "two"])
def test_the_sign_of_half_of_the_groups(reward: str) -> None:
    """As where one rank of two turns it: no rewards of other rollouts."""
    pipeline = Pipeline(reward=reward, steps=2, prompts=6, group=8)

    def of_half(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
        names = list(dict.fromkeys(row["group"] for row in rows))
        return [{**row, "advantage": row["advantage"] * (-1) ** names.index(row["group"])} for row in rows]

    told = pipelines.judged(pipelines.with_fault(pipeline, of_half), pipeline.settings)["advantages"].told[0]
    assert (told.fault, told.present) == ("reversed sign", True)


def test_one_wrong_row_of_many() -> None:
    """A single advantage is off: the row is named with both numbers."""
    pipeline = Pipeline(reward="real", steps=1)
    rows = pipeline.rows()
    right = rows[20]["advantage"]
    rows[20]["advantage"] = right + 0.01
    told = pipelines.judged(rows, pipeline.settings)["advantages"].told[0]
    assert told.present
    assert "row 21" in told.because
    assert f"{right + 0.01:.6g}" in told.because
    assert f"{right:.4g}"[:6] in told.because


@pytest.mark.parametrize(("values", "relative", "absolute"), [
    (np.array([0.123456789, 1.987654321]), 0.0, 0.0),
    (np.array([0.5, 0.71, -1.25, 0.33, 2.01]), 0.0, 0.51e-2),
    (np.array([0.7071, -0.7071]), 0.0, 0.51e-4),
    (np.array([0.70703125, -1.4140625]), 3 * 2.0**-9, 0.0),
])  # fmt: skip
def test_precision(values: Floats, relative: float, absolute: float) -> None:
    """Doubles, decimals and bfloat16."""
    assert precision(values) == pytest.approx((relative, absolute))


@pytest.mark.parametrize(("settings", "engine", "shape"), [
    ({"scale_rewards": "group"}, "trl", ("mean", "group", 1, 1e-4)),
    ({"scale_rewards": True}, "trl", ("mean", "group", 1, 1e-4)),
    ({"scale_rewards": False}, "trl", ("mean", "none", None, None)),
    ({"scale_rewards": "batch"}, "trl", ("mean", "batch", 1, 1e-4)),
    ({"scale_rewards": "group", "multi_objective_aggregation": "normalize_then_sum"}, "trl", ("mean", "each", 1, 1e-4)),
    ({"algorithm.adv_estimator": "grpo"}, "verl", ("mean", "group", 1, 1e-6)),
    ({"algorithm.adv_estimator": "grpo", "algorithm.norm_adv_by_std_in_grpo": False}, "verl",
     ("mean", "none", None, None)),
    ({"algorithm.adv_estimator": "rloo"}, "verl", ("leave-one-out", "none", None, None)),
    ({"algorithm.adv_estimator": "gae"}, "verl", (None, None, None, None)),
    ({"objective.advantage": "mean_normalized"}, "grposcope", ("mean", "mean", None, 1e-6)),
    ({}, "", (None, None, None, None)),
])  # fmt: skip
def test_settings_say_the_recipe(settings: dict[str, object], engine: str, shape: tuple[object, ...]) -> None:
    """In the words of each trainer; what they do not say stays None."""
    said = pipeline_settings.of_settings(settings, engine)
    assert (said.baseline, said.scale, said.ddof, said.epsilon) == shape


def _of_usual(fault: Callable[[Rows], Rows]) -> Finding:
    """What is told without settings of rewards 0 and 1, six steps with a fault in each."""
    pipeline = Pipeline(steps=6, prompts=6, group=8)
    return pipelines.judged(fault(pipeline.rows()), {})["advantages"].told[0]


def test_the_reward_of_the_first_rollout_as_the_baseline() -> None:
    """As in ServiceNow/PipelineRL #54, scaled or not; the mean and the deviation of the first alone."""
    for times in (1.0, 1e4):

        def of_first(rows: Rows, times: float = times) -> Rows:
            first: dict[tuple[int, object], float] = {}
            for row in rows:
                less = row["reward"] - first.setdefault((row["step"], row["group"]), row["reward"])
                row["advantage"] = times * less
            return rows

        told = _of_usual(of_first)
        assert (told.fault, told.present) == ("wrong baseline", True)
        assert "(r − reward of the first rollout of the group)" in told.because


def test_advantages_that_are_standardized_twice() -> None:
    """As in axon-rl/gem #113: by another number in each step, which is no factor of all."""

    def again(rows: Rows) -> Rows:
        for step in {row["step"] for row in rows}:
            values = np.array([row["advantage"] for row in rows if row["step"] == step])
            for row in rows:
                if row["step"] == step:
                    row["advantage"] = float((row["advantage"] - values.mean()) / (values.std(ddof=1) + 1e-8))
        return rows

    told = _of_usual(again)
    assert (told.fault, told.present) == ("wrong divisor", True)
    assert "by another number in each step" in told.because
    assert "divided by their standard deviation in the batch once more" in told.because

    def scaled(rows: Rows) -> Rows:
        """Each step by a number that has nothing to do with its spread."""
        for row in rows:
            row["advantage"] *= 1.5 + 0.5 * row["step"]
        return rows

    told = _of_usual(scaled)
    assert (told.fault, told.present) == ("scaled by a factor", True)
    assert "by another number in each step" in told.because
    assert "once" not in told.because + told.remedy


def test_the_best_of_a_group_alone() -> None:
    """As in EasyR1 #585: pass@k gives the best its distance to the second; there all others kept their rewards."""

    def rows(others: Callable[[float], float]) -> Rows:
        made, random = [], np.random.default_rng(0)
        for group in range(12):
            rewards = np.round(random.beta(1, 2, 8), 3)
            first, second = np.sort(rewards)[[-1, -2]]
            gained = (first - second) / (rewards.std(ddof=1) + 1e-6)
            made += [
                {"step": 1 + group // 6, "group": f"g{group}", "reward": float(reward),
                 "advantage": float(gained) if reward == first else others(float(reward))}
                for reward in rewards
            ]  # fmt: skip
        return made

    stated = {"algorithm.adv_estimator": "grpo_passk"}
    assert pipelines.judged(rows(lambda reward: 0.0), stated)["advantages"].status == "holds"
    (told, *_) = pipelines.judged(rows(lambda reward: reward), stated)["advantages"].told
    assert (told.fault, told.present) == ("wrong baseline", True)
    assert "84 of 96 advantages are not (r − second best of the group" in told.because
    assert "they are r for others than the best of their group" in told.because


def test_a_prompt_that_is_drawn_twice_in_a_step() -> None:
    """As in NeMo-RL #3882: groups are formed by the tokens of the prompt, so that its two draws are one group."""

    def rows(by_draw: bool) -> Rows:
        made: Rows = []
        random = np.random.default_rng(1)
        for step in range(1, 7):
            drawn = [(group, group % 5) for group in range(6)]  # the first prompt comes again
            rewards = {
                group: random.permutation([1.0] * (1 + group % 4) + [0.0] * (7 - group % 4)) for group, _ in drawn
            }
            for group, prompt in drawn:
                own = [group] if by_draw else [other for other, same in drawn if same == prompt]
                pool = np.concatenate([rewards[other] for other in own])
                made += [
                    {"step": step, "group": f"{step}-{group}", "prompt_ids": [step, prompt, 7],
                     "reward": float(reward), "advantage": float((reward - pool.mean()) / (pool.std(ddof=1) + 1e-6))}
                    for reward in rewards[group]
                ]  # fmt: skip
        return made

    assert pipelines.judged(rows(by_draw=True), {})["advantages"].status != "broken"
    for settings in ({}, {"algorithm.adv_estimator": "grpo"}):
        (told, *_) = pipelines.judged(rows(by_draw=False), settings)["advantages"].told
        assert (told.fault, told.brief, told.grade) == ("wrong baseline", "equal prompts are one group", "warning")
        assert "96 of 288 advantages are" in told.because
        assert "6 groups have the prompt of another group of their step" in told.because
