"""Off-policy probes of a run: pooled, they are one large probe; written and read; a drift is said."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from alike import alike
from asked import asked
from gradient_products import from_estimates
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.instruments.offpolicy import answer, error, over_steps, probe_file
from grposcope.instruments.offpolicy.probe_file import OffPolicyProbe
from grposcope.instruments.offpolicy.read import MismatchedRollouts
from grposcope.maths.corrections import ALL
from reference.offpolicy_policies import World

GROUP = 4
NAMES = ("none", "token_cap:2", "sequence_cap:2", "full")
BY_NAME = {one.name: one for one in ALL}


def probe(seed: int, prompts: int = 4, apart: float = 0.4, step: int = 1, world: World | None = None) -> OffPolicyProbe:
    """A probe of the rollouts of an enumerated policy, its scores listed token by token."""
    world = world or World(prompts=8, apart=apart, longest=3)
    at, drawn = world.draw(np.random.default_rng(seed), prompts, GROUP)
    rewards = world.rewards[at[:, None], drawn]
    shares = error.leave_one_out(rewards) / GROUP

    def estimates(name: str) -> NDArray:
        return np.einsum("pg,pgd->pd", shares, world.corrected(BY_NAME[name])[at[:, None], drawn])

    full = estimates("full")
    products = {name: from_estimates(estimates(name), full) for name in NAMES}
    pairs = [(x, y) for x, row in zip(at, drawn, strict=True) for y in row]
    norms = np.array([np.linalg.norm(world.token_scores[x][y].sum(0)) for x, y in pairs]).reshape(prompts, GROUP)
    norms[(rewards == rewards[:, :1]).all(1)] = np.nan
    logs = [np.asarray(world.log_ratios[x][y]) for x, y in pairs]
    rollouts = MismatchedRollouts(
        logs, 0, rewards.reshape(-1), None, np.repeat(np.arange(prompts), GROUP), True,
        [np.full(len(one), -1.0) for one in logs], behind=np.full(len(pairs), 2.0),
    )  # fmt: skip
    return OffPolicyProbe(step, 16, "sampler", rollouts, products, norms.reshape(-1))


def test_pooled_products_are_those_of_one_large_probe_by_listing_every_split() -> None:
    """Means of pooled ‖b‖², variance, ‖m‖² over all splits of six prompts in pairs of probes are the large probe's."""
    rng = np.random.default_rng(0)
    own, full = rng.normal(size=(6, 3)), rng.normal(size=(6, 3)) + 0.5
    large = error.measure(from_estimates(own, full), 0.0, batch=6)
    found = []
    for some in itertools.combinations(range(6), 3):
        halves = [list(some), [i for i in range(6) if i not in some]]
        pooled = error.pooled([from_estimates(own[half], full[half]) for half in halves])
        one = error.measure(pooled, 0.0, batch=6)
        found.append((one.bias2.value, one.variance.value))
    assert np.std([bias2 for bias2, _ in found]) > 0
    assert np.mean(found, 0) == pytest.approx([large.bias2.value, large.variance.value], rel=1e-12)


def test_variance_and_need_are_of_a_batch_of_the_size_that_is_asked_for() -> None:
    rng = np.random.default_rng(1)
    estimates = rng.normal(size=(8, 4)) + 1.0
    products = from_estimates(estimates, estimates)
    usual, larger = error.measure(products, 0.0), error.measure(products, 0.0, batch=64)
    assert larger.variance.value == pytest.approx(usual.variance.value / 8)
    assert larger.need.value == pytest.approx(usual.need.value / 8), "without a bias need is V / ‖g‖²"
    assert larger.bias2.value == usual.bias2.value


def test_many_small_probes_find_the_truth_of_the_enumerated_policy() -> None:
    """150 probes of four prompts: ‖b‖² and variance within four of their standard errors."""
    from reference.offpolicy_policies import truth

    world = World(prompts=4, apart=0.5, longest=2)
    probes = [probe(i, world=world) for i in range(150)]
    products = probe_file.products(probes)
    for name in ("none", "token_cap:2"):
        due, found = truth(world, BY_NAME[name], GROUP, 16), error.measure(products[name], 0.0, batch=16)
        assert abs(found.bias2.value - due.bias2) < 4 * found.bias2.se
        assert abs(found.variance.value - due.variance) < 4 * found.variance.se
        assert found.variance.se < 0.2 * due.variance


def test_a_probe_comes_back_as_it_was_written(tmp_path: Path) -> None:
    one = probe(0, step=40)
    assert probe_file.write(tmp_path, one) == tmp_path / "offpolicy" / "step-000040.npz"
    (found,) = probe_file.in_folder(tmp_path)
    assert (found.step, found.batch, found.source, found.shape) == (40, 16, "sampler", (4, GROUP))
    for was, now in zip(one.rollouts.log_ratios, found.rollouts.log_ratios, strict=True):
        assert np.array_equal(was, now)
    assert np.array_equal(one.norms, found.norms, equal_nan=True)
    assert found.rollouts.lags is not None
    assert found.rollouts.lags.tolist() == [2.0] * 16
    for name in NAMES:
        for which in ("own", "cross", "full"):
            assert np.array_equal(getattr(one.products[name], which), getattr(found.products[name], which))


@pytest.mark.parametrize("harm", ["text", "shape", "array", "format"])
def test_a_damaged_file_is_named_with_the_remedy(tmp_path: Path, harm: str) -> None:
    path = probe_file.write(tmp_path, probe(0))
    with np.load(path) as file:
        arrays = dict(file)
    if harm == "text":
        path.write_text("nothing")
    else:
        changed = {"shape": {"own": arrays["own"][:, :2]}, "format": {"format": 9}, "array": {}}[harm]
        arrays = {name: array for name, array in arrays.items() if harm != "array" or name != "norms"} | changed
        np.savez(path, **arrays)
    words = {
        "format": "format 9.*update",
        "array": "no array 'norms'.*delete it",
        "text": "is not a NumPy array.*delete it",
        "shape": "cannot be read.*delete it",
    }[harm]
    with pytest.raises(UserError, match=f"step-000001.npz.*{words}"):
        probe_file.in_folder(tmp_path)


def test_the_command_pools_the_probes_of_a_run(tmp_path: Path) -> None:
    probes = [probe(i, step=10 * i + 1) for i in range(6)]
    for one in probes:
        probe_file.write(tmp_path, one)
    _, document = asked("offpolicy", tmp_path)
    drawn, found = over_steps.measure(probes)
    assert found.errors is not None
    assert document["rollouts"] == 6 * 4 * GROUP
    assert [row["step"] for row in document["pooled"]["steps"]] == [1, 11, 21, 31, 41, 51]
    assert document["errors"]["none"]["variance"]["value"] == pytest.approx(found.errors["none"].variance.value)
    said = answer.of_drawn(drawn, found)
    live = sum(one.live for one in probes)
    assert f"6 probes of steps 1 to 51 pooled: 24 prompts, {live} of them with unequal rewards" in said.text[0]


def test_a_drift_is_said_with_the_choice_of_the_later_half() -> None:
    """Six probes near the trainer and six far away; then twelve that are alike."""
    drifting = [probe(i, apart=0.05 if i < 6 else 0.8, step=i + 1) for i in range(12)]
    drawn, found = over_steps.measure(drifting)
    assert found.pooled is not None
    assert found.pooled.drifts
    _, alone = over_steps.measure(drifting[6:])
    assert alike(found.pooled.later, alone.choice)
    assert "The later half alone says:" in answer.of_drawn(drawn, found).text[1]
    drawn, found = over_steps.measure([probe(i, apart=0.4, step=i + 1) for i in range(12)])
    assert "no drift beyond chance" in answer.of_drawn(drawn, found).text[1]


def test_probes_of_another_kind_are_left_out_and_few_say_no_drift() -> None:
    probes = [probe(0), probe(1, step=2), probe(2, prompts=6, step=3), replace(probe(3, step=4), source="earlier")]
    drawn, found = over_steps.measure(probes)
    assert len(drawn.log_ratios) == 2 * 4 * GROUP
    text = answer.of_drawn(drawn, found).text
    assert "2 probes of another size" in text[1]
    assert "Fewer than 4 probes" in text[2]


def test_probes_without_a_gradient_are_refused() -> None:
    one = probe(0)
    dead = replace(one, norms=np.full(len(one.norms), np.nan))
    with pytest.raises(UserError, match="rewards of every group are equal"):
        over_steps.measure([dead])
