"""Each rung of the ladder of a flat run: a made-up run that fails it, its clean twin, and one that cannot tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_series import U, ar1, run

from grposcope.core.finding import Finding, fact
from grposcope.core.run import Run
from grposcope.signs import ladder
from grposcope.signs.ladder import Rung

NAMES = ("gradient", "weights", "sampler", "learning rate", "grader", "room", "groups", "horizon")

Columns = dict[str, np.ndarray]


def flat(**columns: np.ndarray | float) -> Columns:
    """Columns of a run of 120 steps that goes nowhere although every rung holds; None takes a column away."""
    rng = np.random.default_rng(1)
    table: Columns = {
        "reward": 0.4 + 0.02 * ar1(rng, 120, 0.0),
        "reward_min": np.zeros(120),
        "reward_max": np.ones(120),
        "reward_std": np.full(120, 0.4),
        "dead_fraction": 0.1 + 0.01 * ar1(rng, 120, 0.0),
        "kl": 0.02 * U + 1e-4,
        "grad_norm": 0.5 + 0.05 * ar1(rng, 120, 0.0),
        "lr": np.full(120, 2e-6),
        "mismatch/k3": 1e-3 + 1e-5 * ar1(rng, 120, 0.0),
        "truncated": 0.02 + 0.002 * ar1(rng, 120, 0.0),
    }
    return {**table, **{name: np.broadcast_to(np.asarray(value, float), 120) for name, value in columns.items()}}


def without(*names: str) -> Columns:
    return {name: column for name, column in flat().items() if name not in names}


def rung(name: str, made: Run, *findings: Finding) -> Rung:
    rungs = ladder.of_run(made, findings)
    assert tuple(each.name for each in rungs) == NAMES
    return rungs[NAMES.index(name)]


def grade(finding: Finding, fault: str) -> Finding:
    return replace(finding, fault=fault, grade="warning", remedy="mend it")


def test_every_rung_of_the_twin_holds() -> None:
    rungs = ladder.of_run(run(flat(), group=8), ())
    assert [each.answer for each in rungs] == ["yes"] * len(NAMES)
    assert ladder.first_failing(rungs) is None
    assert ladder.clause(rungs) == f"checks of a run without a gain: {', '.join(NAMES[:-1])} and horizon pass"


def test_weights_that_do_not_move_at_a_usual_rate_have_other_causes() -> None:
    moved = rung("weights", run(flat(kl=1e-5)))
    assert "at a learning rate of up to 2.00e-6" in moved.because
    assert moved.do.startswith("compare the coefficient of the KL")
    low = rung("weights", run(flat(kl=1e-5, lr=2e-7)))
    assert low.do.startswith("raise the learning rate")


def test_a_part_of_the_reward_that_rose_shows_that_moved_weights_draw() -> None:
    table = {name: column for name, column in flat().items() if name not in ("kl", "mismatch/k3")}
    noise = 0.02 * ar1(np.random.default_rng(3), 120, 0.0)
    rose = table | {"component/format": 0.5 + 0.4 * U + noise, "component/right": 0.4 + noise}
    for name in ("weights", "sampler"):
        assert rung(name, run(table)).answer == "cannot tell"
        assert rung(name, run(rose)).answer == "yes"
        assert "component/format rose from" in rung(name, run(rose)).because


def test_a_run_that_learns_has_no_ladder() -> None:
    table = flat(reward=0.2 + 0.6 * U + 0.02 * ar1(np.random.default_rng(0), 120, 0.0))
    assert ladder.of_run(run(table), ()) == ()


@pytest.mark.parametrize(
    ("name", "columns", "says"),
    [
        ("gradient", {"grad_norm": np.where(np.arange(120) == 3, 0.1, 0.0)}, "grad_norm is 0 in 119 of 120 rows"),
        (
            "weights",
            {"kl": 1e-5},
            "kl is 1.00e-5 nats in the last fifth of 120 steps at a learning rate of up to 2.00e-6",
        ),
        ("learning rate", {"lr": 2e-8}, "the largest learning rate is 2.00e-8, too little for all weights"),
        ("grader", {"reward": 0.25, "reward_std": 0.0}, "the reward is exactly 0.25 in all 120 rows"),
        ("grader", {"accuracy": 0.0}, "accuracy is 0 in all 120 rows"),
        ("room", {"truncated": 0.2}, "20% of completions are cut at the token limit in the last fifth"),
        ("groups", {"dead_fraction": 0.7}, "70% of groups have equal rewards in the last fifth"),
        (
            "horizon",
            {"reward": 0.4 + 0.3 * ar1(np.random.default_rng(4), 120, 0.9)},
            "would hardly have been seen in 120 steps",
        ),
    ],
)
def test_a_rung_fails_alone_and_says_why(name: str, columns: Columns, says: str) -> None:
    made = run(flat(**columns), group=8)
    assert says in rung(name, made).because
    failing = ladder.first_failing(ladder.of_run(made, ()))
    assert failing is not None
    assert failing.name == name
    assert failing.brief
    assert failing.do
    assert ladder.clause(ladder.of_run(made, ())) == (
        f"checks of a run without a gain, the first that fails ({name}): {failing.because}"
    )


def test_a_fault_that_is_present_fails_its_rung_and_a_note_does_not() -> None:
    lost = grade(fact(True, "the sampler has the first weights"), "weights never arrived")
    seen = rung("sampler", run(flat()), lost)
    assert (seen.answer, seen.because, seen.do) == ("no", "the sampler has the first weights", "mend it")
    assert rung("sampler", run(flat()), replace(lost, grade="note")).answer == "yes"
    assert rung("sampler", run(flat()), replace(lost, status="excluded")).answer == "yes"


@pytest.mark.parametrize(
    ("name", "absent", "do"),
    [
        ("gradient", ("grad_norm", "kl"), "log the gradient norm"),
        ("weights", ("kl",), "log the KL to the start"),
        ("sampler", ("mismatch/k3",), "run grposcope verify"),
        ("learning rate", ("lr",), "give the file of the settings"),
        ("room", ("truncated",), "log the share of completions cut at the token limit"),
        ("groups", ("dead_fraction", "reward_std"), "given a success rate of 0.4"),
    ],
)
def test_what_is_not_logged_cannot_be_told_and_the_rung_says_how_to(
    name: str, absent: tuple[str, ...], do: str
) -> None:
    seen = rung(name, run(without(*absent)))
    assert seen.answer == "cannot tell"
    assert do in seen.do


def test_a_policy_that_moves_while_its_rollouts_stand_still_does_not_draw_them() -> None:
    moved = {**without("mismatch/k3"), "kl": 0.4 * U + 1e-4}
    still = moved | {"length": 200 + ar1(np.random.default_rng(5), 120, 0.0)}
    seen = rung("sampler", run(still))
    assert seen.answer == "no"
    assert "kl 0.028 → 0.36 nats per token, while reward and length of what is sampled stand still" in seen.because
    assert "grposcope verify" in seen.do
    for other in (
        moved,  # nothing else of the rollouts is logged
        moved | {"length": 200 + 60 * U},
        still | {"kl": 0.05 * U + 1e-4},
        still | {"kl": np.full(120, 0.4)},
    ):
        assert rung("sampler", run(other)).answer == "cannot tell"


def test_a_policy_that_moved_had_a_gradient() -> None:
    assert rung("gradient", run(without("grad_norm"))).answer == "yes"
    assert rung("gradient", run({**without("grad_norm"), "kl": np.full(120, 1e-4)})).answer == "cannot tell"


def test_clipped_ratios_show_that_weights_move() -> None:
    clipped = np.where(np.arange(120) % 4 == 0, 0.01, 0.0)
    seen = rung("weights", run({**without("kl"), "clip_fraction": clipped}))
    assert (seen.answer, seen.because) == ("yes", "clip_fraction is above 0 in 30 of 120 rows")
    assert rung("weights", run({**without("kl"), "clip_fraction": 0 * U})).answer == "cannot tell"


def test_weights_that_are_compared_show_that_they_move() -> None:
    seen = rung("weights", run({**without("kl"), "weights_moved": np.full(120, 0.97)}))
    assert (seen.answer, seen.because) == (
        "yes",
        "the median step changes 97% of the weights that have a gradient",
    )
    still = rung("weights", run({**without("kl"), "weights_moved": np.r_[np.ones(40), np.zeros(80)]}))
    assert still.answer != "yes"


def test_a_few_steps_do_not_show_that_the_policy_stands_still() -> None:
    short = {name: column[:40] for name, column in flat(kl=1e-5).items()}
    assert rung("weights", run(short)).answer == "cannot tell"


@pytest.mark.parametrize(
    ("logged", "answer"),
    [
        ({"lora_rank": 16}, "no"),
        ({"lora_rank": 0}, "yes"),
        ({"model": {"use_peft": False}}, "yes"),
        ({}, "cannot tell"),
    ],
)
def test_a_rate_for_all_weights_fails_where_adapters_are_trained(logged: dict[str, object], answer: str) -> None:
    made = run(flat(lr=5e-7))
    assert rung("learning rate", replace(made, config={**made.config, "logged": logged})).answer == answer


def test_groups_of_a_low_success_rate_are_dead_by_the_formula() -> None:
    rare = 0.01 + 0.002 * ar1(np.random.default_rng(2), 120, 0.0)
    table = {**without("dead_fraction", "reward_std"), "reward": rare}
    seen = rung("groups", run(table, group=8))
    assert seen.answer == "no"
    assert "at least 92% of groups of 8 have equal rewards at a success rate of 0.01" in seen.because
    assert "lint on the settings, given a success rate of 0.01" in seen.do
    assert rung("groups", run({**table, "reward": 0.3 + rare}, group=8)).answer == "cannot tell"


def test_a_longer_look_at_the_same_noise_shows_smaller_gains() -> None:
    noise = ar1(np.random.default_rng(5), 120, 0.0)
    below = [float(rung("horizon", run(flat(reward=0.4 + scale * noise))).because.split()[3]) for scale in (0.1, 0.02)]
    assert below[0] == pytest.approx(5 * below[1], rel=0.1)


def test_a_kl_of_exactly_0_may_not_be_computed() -> None:
    """A trainer without a KL coefficient may log 0: that does not say that the weights stand still."""
    zero = "kl is exactly 0 in every row"
    made = run(flat(kl=0.0))
    own, other = (replace(made, meta=replace(made.meta, engine=engine)) for engine in ("grposcope", "trl"))
    seen = rung("weights", other)
    assert (seen.answer, seen.because) == ("cannot tell", f"{zero}: it is not computed, or no weight moves")
    stated = replace(other, config={"settings": {"kl": 0.04}})
    assert stated.setting("kl") == 0.04
    assert [rung("weights", sure).answer for sure in (own, stated)] == ["no", "no"]


@pytest.mark.parametrize(("key", "trained"), [("lora_rank", True), ("anything", False)])
def test_adapters_that_go_less_far_while_their_rollouts_stand_still(key: str, trained: bool) -> None:
    noise = np.random.default_rng(5)
    still = without("mismatch/k3") | {
        "kl": 0.05 * U + 1e-4, "length": 200 + ar1(noise, 120, 0.0), "entropy": 0.4 + 0.01 * ar1(noise, 120, 0.0)
    }  # fmt: skip
    seen = run(still)
    seen = replace(seen, config={**seen.config, "logged": {key: 16}})
    told = rung("sampler", seen)
    assert (told.answer == "no") == trained
    assert ("so it is when the new adapters do not reach the sampler" in told.because) == trained


def test_whether_weights_move_is_seen_before_a_longer_run_where_a_kl_of_0_leaves_it_open() -> None:
    noisy = {"reward": 0.4 + 0.3 * ar1(np.random.default_rng(4), 120, 0.9)}
    for kl, first in ((0.0, "compare the weights of two checkpoints"), (0.02, "train longer")):
        rungs = ladder.of_run(run(flat(kl=kl, **noisy), group=8), ())
        failing = ladder.first_failing(rungs)
        assert failing is not None
        assert ladder.first_to_see(rungs, failing).startswith(first)
        assert ladder.first_to_see(rungs, failing).endswith(failing.do)
