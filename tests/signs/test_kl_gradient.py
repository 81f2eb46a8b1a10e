"""What each KL estimator has the gradient of, on a policy of two tokens whose completions are all listed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grposcope.core.settings import Dialect, Settings
from grposcope.instruments.lint.dialects import NEMO_RL, OPENRLHF, OPENRLHF_BEFORE, OWN, RLOO, SKYRL, SLIME, TRL, VERL
from grposcope.lab.objectives import divergences
from grposcope.signs import kl_gradient
from grposcope.signs.kl_gradient import KlTerm
from grposcope.signs.settings import kl

LETTERS = 3
FORWARD, REVERSE = "KL(π_ref‖π)", "KL(π‖π_ref)"


def tables(theta: Tensor, features: Tensor) -> Tensor:
    """Log-probabilities (4, 3) of the next token at the start and behind each first token."""
    return torch.log_softmax(features @ theta, -1)


def completions(table: Tensor) -> Tensor:
    """Log-probabilities (9, 2) of the two tokens of every completion."""
    first = table[0].repeat_interleave(LETTERS)
    return torch.stack([first, table[1:].reshape(-1)], 1)


@pytest.fixture(scope="module")
def world() -> dict[str, Tensor]:
    """Gradients (D,) of both KLs of completions and, summed over visited states, of the next token; and of estimators.

    A key "k3 loss" is Σ over completions of π(y) ∇ Σ_t k3, "k3 reward" Σ π(y) s(y) Σ_t k3.
    """
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(4, LETTERS, 5, dtype=torch.float64, generator=generator)
    theta = torch.randn(5, dtype=torch.float64, generator=generator).requires_grad_()
    fixed = tables(torch.randn(5, dtype=torch.float64, generator=generator), features)
    table = tables(theta, features)
    own, other = completions(table), completions(fixed)
    chance, of_reference = own.sum(1).exp().detach(), other.sum(1).exp()
    visits = torch.cat([torch.ones(1, dtype=torch.float64), table[0].exp().detach()])

    def gradient(value: Tensor) -> Tensor:
        return torch.autograd.grad(value, theta, retain_graph=True)[0]

    found = {
        f"{REVERSE} of completions": gradient((own.sum(1).exp() * (own - other).sum(1)).sum()),
        f"{FORWARD} of completions": gradient((of_reference * (other - own).sum(1)).sum()),
        f"{REVERSE} of the next token": gradient((visits * (table.exp() * (table - fixed)).sum(-1)).sum()),
        f"{FORWARD} of the next token": gradient((visits * (fixed.exp() * (fixed - table)).sum(-1)).sum()),
    }
    for name, estimator in divergences.ALL.items():
        value = estimator(own, other)
        ratio = (own - own.detach()).exp()
        found[f"{name} loss"] = gradient((chance * value.sum(1)).sum())
        found[f"{name} loss weighted"] = gradient((chance * (ratio * value).sum(1)).sum())
        found[f"{name} reward"] = gradient((chance * own.sum(1) * value.sum(1).detach()).sum())
    return found


def near(one: Tensor, other: Tensor) -> bool:
    """Equal to rounding."""
    return bool((one - other).abs().max() < 1e-12)


@pytest.mark.parametrize(
    ("term", "of"),
    [
        (KlTerm("k2"), REVERSE),
        (KlTerm("k3"), FORWARD),
        (KlTerm("k1", weighted=True), REVERSE),
        (KlTerm("k3", weighted=True), REVERSE),
    ],
)
def test_a_term_of_the_loss_is_of_the_next_token_and_of_neither_kl_of_completions(
    term: KlTerm, of: str, world: dict[str, Tensor]
) -> None:
    gradient = world[f"{term.estimator} loss{' weighted' * term.weighted}"]
    assert near(gradient, world[f"{of} of the next token"])
    assert f"gradient of {of} of the next token" in term.climbs()
    assert "of neither KL of completions" in term.climbs()
    for other in (FORWARD, REVERSE):
        assert (gradient - world[f"{other} of completions"]).norm() > 0.05 * gradient.norm()


def test_k1_in_the_loss_has_no_gradient_and_in_the_reward_that_of_completions(world: dict[str, Tensor]) -> None:
    assert near(world["k1 loss"], torch.zeros(5, dtype=torch.float64))
    assert KlTerm("k1").idle
    assert not KlTerm("k1", weighted=True).idle
    assert near(world["k1 reward"], world[f"{REVERSE} of completions"])
    assert f"gradient of {REVERSE} of completions" in KlTerm("k1", "reward").climbs()


def test_k3_in_the_reward_is_of_neither(world: dict[str, Tensor]) -> None:
    assert near(world["k3 reward"], world[f"{REVERSE} of completions"] - world["k3 loss"])
    for of in (FORWARD, REVERSE):
        assert (world["k3 reward"] - world[f"{of} of completions"]).norm() > 0.05 * world["k3 reward"].norm()
    assert "of neither KL" in KlTerm("k3", "reward").climbs()


def test_nothing_short_is_true_of_k2_in_the_reward(world: dict[str, Tensor]) -> None:
    assert not KlTerm("k2", "reward").climbs()
    known = [gradient for name, gradient in world.items() if name != "k2 reward"]
    assert not any(near(world["k2 reward"], gradient) for gradient in known)


LOSS = {kl.IN_LOSS: True, kl.LOSS_COEFFICIENT: 0.01}
REWARD = {kl.IN_REWARD: True}


@pytest.mark.parametrize(
    ("dialect", "given", "terms"),
    [
        (VERL, LOSS, [KlTerm("k3")]),
        (VERL, LOSS | {"actor_rollout_ref.actor.kl_loss_type": "kl"}, [KlTerm("k1")]),
        (VERL, LOSS | {"actor_rollout_ref.actor.kl_loss_type": "k3+"}, [KlTerm("k2")]),
        (VERL, LOSS | {"actor_rollout_ref.actor.kl_loss_type": "abs"}, []),
        (VERL, LOSS | {kl.LOSS_COEFFICIENT: 0.0}, []),
        (VERL, REWARD, [KlTerm("k1", "reward")]),
        (VERL, REWARD | {"algorithm.kl_penalty": "low_var_kl"}, [KlTerm("k3", "reward")]),
        (VERL, {}, []),
        (TRL, {"beta": 0.04}, [KlTerm("k3", weighted=True)]),
        (TRL, {"beta": 0.04, "use_bias_correction_kl": False}, [KlTerm("k3")]),
        (TRL, {"beta": 0.0}, []),
        (RLOO, {"num_generations": 4}, [KlTerm("k1", "reward")]),
        (SLIME, {"use_kl_loss": True, "kl_loss_coef": 0.01, "kl_loss_type": "k1"}, [KlTerm("k1")]),
        (SLIME, {"kl_loss_coef": 0.01, "kl_loss_type": "k1"}, []),
        (SKYRL, {"generator.n_samples_per_prompt": 5}, [KlTerm("k3")]),
        (SKYRL, {"trainer.algorithm.kl_estimator_type": "k1"}, [KlTerm("k1")]),
        (SKYRL, {"trainer.algorithm.use_kl_loss": False}, []),
        (SKYRL, {"trainer.algorithm.kl_estimator_type": "abs"}, []),
        (
            SKYRL,
            {
                "trainer.algorithm.kl_estimator_type": "k1",
                "trainer.algorithm.use_kl_loss": False,
                "trainer.algorithm.use_kl_in_reward": True,
            },
            [KlTerm("k1", "reward")],
        ),
        (OPENRLHF, {"algo.kl.use_loss": True, "algo.kl.init_coef": 1e-3}, [KlTerm("k1")]),
        (OPENRLHF, {"algo.kl.use_loss": True, "algo.kl.estimator": "k2"}, [KlTerm("k2")]),
        (OPENRLHF, {"algo.kl.init_coef": 1e-3}, [KlTerm("k1", "reward")]),
        (OPENRLHF_BEFORE, {"use_kl_loss": True, "kl_estimator": "k3"}, [KlTerm("k3")]),
        (OPENRLHF_BEFORE, {"use_kl_loss": True, "init_kl_coef": 0.0}, []),
        (OWN, {"kl": 0.01, "divergence": "k2"}, [KlTerm("k2")]),
        (OWN, {"kl": 0.01, "kl_weighted": True}, [KlTerm("k3", weighted=True)]),
        (NEMO_RL, {"loss_fn.reference_policy_kl_penalty": 0.01}, []),
    ],
)
def test_terms_are_read_from_settings(dialect: Dialect, given: Mapping[str, Any], terms: list[KlTerm]) -> None:
    found = list(kl.terms(Settings(Path("settings"), "a file", dialect, given)))
    assert [(term.estimator, term.inside, term.weighted) for term in found] == [
        (term.estimator, term.inside, term.weighted) for term in terms
    ]


def test_verl_takes_the_gradient_of_k2_with_a_plus() -> None:
    assert kl_gradient.named("low_var_kl+") == "k2"
    assert kl_gradient.named("nothing+") == ""
