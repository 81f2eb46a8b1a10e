"""TRL's GRPO losses and advantages are ours, number for number, on one small random model.

TRL's own `_compute_loss` and ours see the same tensors; loss and parameter gradients must agree. Where
the two spell an option differently, the translation stands in `SAME`.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from small_trl import small_trainer
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.engines.trl import guard, settings
from grposcope.lab.objectives import Objective, advantages, ratios, recipes, reductions
from grposcope.lab.objectives.surrogates import Cispo, Clip
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.logprobs import token_logprobs

pytest.importorskip("trl")
pytest.importorskip("datasets")

PROMPTS, GROUP, WIDTH, LIMIT = 2, 4, 6, 10
TEMPERATURE = 0.7
TEXTS = ["ab", "cdefa"]
LENGTHS = [6, 2, 0, 4, 5, 6, 1, 3]  # the third completion is masked as a whole
REWARDS = torch.tensor([[1.0, 0.0, 0.5, 0.0], [0.2, 1.0, 0.7, 0.0]], dtype=torch.float64)


@dataclass(frozen=True)
class Batch:
    """One batch in both forms; old and ref (B, T) are noisy copies of the current log-probabilities."""

    rollouts: RolloutBatch
    inputs: dict[str, Tensor]
    credit: Tensor
    old: Tensor
    ref: Tensor


def reward(completions: list[str], **_: Any) -> list[float]:
    return REWARDS.reshape(-1).tolist()


def completions(prompts: list[str], trainer: Any) -> dict[str, Any]:
    """In place of generation: a token per rollout."""
    ids = [[3 + i] for i in range(len(prompts))]
    return {
        "prompt_ids": [trainer.processing_class(p).input_ids for p in prompts],
        "completion_ids": ids,
        "logprobs": None,
    }


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = small_trainer(
        tmp_path_factory.mktemp("trl"),
        TEXTS,
        reward,
        completions,
        per_device_train_batch_size=PROMPTS * GROUP,
        num_generations=GROUP,
        max_completion_length=LIMIT,
        temperature=TEMPERATURE,
    )
    made.model.double()  # so that terms that cancel differ by no more than formulas do
    return made


@pytest.fixture(scope="module")
def batch(trainer: Any) -> Batch:
    random = torch.Generator().manual_seed(1)
    encoded = trainer.processing_class(TEXTS, padding=True, return_tensors="pt")
    prompt_ids = encoded.input_ids.repeat_interleave(GROUP, 0)
    prompt_mask = encoded.attention_mask.repeat_interleave(GROUP, 0)
    mask = torch.arange(WIDTH) < torch.tensor(LENGTHS)[:, None]
    tokens = torch.randint(3, 16, mask.shape, generator=random) * mask
    empty = torch.zeros(mask.shape, dtype=torch.float64)
    rollouts = RolloutBatch(
        prompt_ids, prompt_mask.bool(), tokens, mask, empty, empty, torch.zeros(len(mask), dtype=torch.bool), REWARDS
    )
    with torch.no_grad():
        logp, _ = token_logprobs(trainer.model, rollouts, torch.arange(len(mask)), TEMPERATURE)
    old = logp + 0.6 * torch.randn(mask.shape, generator=random, dtype=torch.float64)
    old[0, 0] = logp[0, 0] - math.log(1.25)  # between the clips of GRPO and DAPO, credit positive
    ref = logp + 0.4 * torch.randn(mask.shape, generator=random, dtype=torch.float64)
    given = advantages.standardized(REWARDS)
    inputs = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": tokens,
        "completion_mask": mask.long(),
        "advantages": given.reshape(-1),
        "num_items_in_batch": mask.sum(),
        "old_per_token_logps": old,
        "ref_per_token_logps": ref,
    }
    return Batch(rollouts, inputs, given.reshape(-1, 1) * mask, old, ref)


@pytest.fixture(autouse=True)
def restored(trainer: Any) -> Iterator[None]:
    """What a test changes on the trainer and its arguments is taken back after it."""
    before, arguments = dict(vars(trainer)), dict(vars(trainer.args))
    yield
    vars(trainer).update(before)
    vars(trainer.args).update(arguments)


def theirs(trainer: Any, inputs: dict[str, Tensor], options: dict[str, Any]) -> tuple[float, Tensor]:
    """TRL's loss and its gradient, with options under the names that `_compute_loss` reads."""
    vars(trainer).update({"current_gradient_accumulation_steps": 1, **options})
    trainer._entropy_bonus_enabled = trainer.entropy_coef != 0
    for name in options.keys() & vars(trainer.args).keys():
        setattr(trainer.args, name, options[name])
    return descend(trainer.model.train(), trainer.compute_loss(trainer.model, inputs))


def ours(trainer: Any, batch: Batch, objective: Objective, given: Tensor | None = None) -> tuple[float, Tensor]:
    """Our loss and its gradient; `given` (B, T) in place of the standardized outcome credit."""
    model, rows = trainer.model, torch.arange(PROMPTS * GROUP)
    logp, entropy = token_logprobs(model, batch.rollouts, rows, TEMPERATURE, entropy=True)
    given = batch.credit if given is None else given
    loss = objective.loss(logp, batch.old, batch.rollouts, credit=given, logp_ref=batch.ref, entropy=entropy)
    return descend(model, loss)


def agree(one: tuple[float, Tensor], other: tuple[float, Tensor]) -> None:
    (loss, gradient), (their_loss, their_gradient) = one, other
    scale = float(their_gradient.abs().max())
    assert scale > 1e-2
    assert float((gradient - their_gradient).abs().max()) < 1e-5 * scale
    assert loss == pytest.approx(their_loss, rel=1e-5, abs=1e-6)


def descend(model: torch.nn.Module, loss: Tensor) -> tuple[float, Tensor]:
    model.zero_grad(set_to_none=True)
    loss.backward()
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    return float(loss.detach()), flat


GSPO_CLIP = {"importance_sampling_level": "sequence", "epsilon_low": 0.1, "epsilon_high": 0.15}
GSPO = replace(recipes.GSPO, surrogate=Clip(0.1, 0.15))

# name: what TRL is told, what we are told
SAME: dict[str, tuple[dict[str, Any], Objective]] = {
    "grpo": ({"loss_type": "grpo"}, recipes.GRPO),
    "bnpo": ({"loss_type": "bnpo"}, replace(recipes.GRPO, reduction=reductions.token_mean)),
    "dr_grpo": ({"loss_type": "dr_grpo"}, recipes.DR_GRPO.at_length(LIMIT)),
    "dapo": ({"loss_type": "dapo", "epsilon_high": 0.28}, recipes.DAPO),
    # TRL clamps at epsilon_high itself, we at 1 + high
    "cispo": ({"loss_type": "cispo", "epsilon_high": 1.5}, replace(recipes.CISPO, surrogate=Cispo(high=0.5))),
    "gspo": ({"loss_type": "grpo", **GSPO_CLIP}, GSPO),
    "luspo": ({"loss_type": "luspo", **GSPO_CLIP}, replace(GSPO, reduction=reductions.sequence_sum)),
    "delta": ({"loss_type": "grpo", "delta": 1.5}, replace(recipes.GRPO, surrogate=Clip(bound=1.5))),
    "kl": ({"loss_type": "grpo", "beta": 0.3, "use_bias_correction_kl": False}, replace(recipes.GRPO, kl=0.3)),
    "kl, corrected": (
        {"loss_type": "grpo", "beta": 0.3, "use_bias_correction_kl": True},
        replace(recipes.GRPO, kl=0.3, kl_weighted=True),
    ),
    "entropy": ({"loss_type": "dr_grpo", "entropy_coef": 0.2}, replace(recipes.DR_GRPO.at_length(LIMIT), entropy=0.2)),
}


@pytest.mark.parametrize("name", SAME)
def test_loss_and_gradient_are_those_of_trl(trainer: Any, batch: Batch, name: str) -> None:
    options, objective = SAME[name]
    agree(ours(trainer, batch, objective), theirs(trainer, batch.inputs, options))


def test_credit_per_token_is_that_of_trl(trainer: Any, batch: Batch) -> None:
    """TRL takes (B, T) advantages where a subclass provides them: the way in for per-step credit."""
    given = batch.credit * torch.linspace(-1.0, 2.0, WIDTH)
    inputs = {**batch.inputs, "advantages": given}
    agree(ours(trainer, batch, recipes.GRPO, given), theirs(trainer, inputs, {"loss_type": "grpo"}))


def test_no_two_of_the_compared_losses_coincide(trainer: Any, batch: Batch) -> None:
    """Otherwise one comparison would pass on another's formula."""
    gradients = {name: ours(trainer, batch, objective)[1] for name, (_, objective) in SAME.items()}
    names = list(gradients)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            difference = (gradients[first] - gradients[second]).abs().max()
            assert float(difference) > 1e-3 * float(gradients[first].abs().max()), (first, second)


def test_the_clips_are_reached(trainer: Any, batch: Batch) -> None:
    mask = batch.rollouts.mask
    with torch.no_grad():
        logp, _ = token_logprobs(trainer.model, batch.rollouts, torch.arange(len(mask)), TEMPERATURE)
    token, sequence = ratios.token(logp, batch.old, mask), ratios.sequence(logp, batch.old, mask)
    for surrogate, ratio in ((Clip(), token), (Clip(0.1, 0.15), sequence), (Cispo(low=0.5, high=0.5), token)):
        assert all((side & mask).any() for side in surrogate.held(ratio, batch.credit))
    assert ((token > 1.5) & (batch.credit < 0) & mask).any()  # the dual clip


@pytest.mark.parametrize(
    ("scale_rewards", "advantage"),
    [
        ("group", advantages.standardized),
        ("batch", advantages.batch_standardized),
        ("none", advantages.centered),
    ],
)
def test_advantages_are_those_of_trl(trainer: Any, scale_rewards: str, advantage: Callable[[Tensor], Tensor]) -> None:
    trainer.scale_rewards = scale_rewards
    trainer.model.train()
    rows = [{"prompt": text} for text in TEXTS for _ in range(GROUP)]
    out = trainer._generate_and_score_completions(rows)
    torch.testing.assert_close(out["advantages"], advantage(REWARDS).reshape(-1).float(), rtol=1e-5, atol=1e-6)


def arguments(trainer: Any, options: dict[str, Any]) -> Any:
    """TRL's arguments with these options, which are spelled as `_compute_loss` reads them."""
    args = copy.copy(trainer.args)
    for name, value in {"loss_type": "grpo", **options}.items():
        setattr(args, {"epsilon_low": "epsilon"}.get(name, name), value)
    return args


@pytest.mark.parametrize("name", SAME)
def test_settings_of_trl_are_translated(trainer: Any, batch: Batch, name: str) -> None:
    """The objective that `settings` makes of TRL's arguments has the gradient of TRL's loss, with ratios far from 1."""
    options, _ = SAME[name]
    agree(
        ours(trainer, batch, settings._objective(arguments(trainer, options))), theirs(trainer, batch.inputs, options)
    )


@pytest.mark.parametrize("name", settings.REDUCTIONS)
def test_every_loss_on_fresh_rollouts(trainer: Any, batch: Batch, name: str) -> None:
    """Also losses with a factor for the ratio that we do not have: at ratio 1 it is 1, and so is its slope."""
    options = {"loss_type": name, "epsilon_high": 1.5 if name == "cispo" else 0.2}
    objective, left_out = settings.fresh(arguments(trainer, options))
    assert not left_out
    with torch.no_grad():
        now, _ = token_logprobs(trainer.model, batch.rollouts, torch.arange(len(batch.rollouts.mask)), TEMPERATURE)
    gradient = ours(trainer, replace(batch, old=now), objective)[1]
    inputs = {key: value for key, value in batch.inputs.items() if key != "old_per_token_logps"}
    expected = theirs(trainer, inputs, options)[1]
    assert float((gradient - expected).abs().max()) < 1e-5 * float(expected.abs().max())


def test_what_has_no_counterpart_is_named(trainer: Any) -> None:
    for options, words in (
        ({"loss_type": "sapo", "num_iterations": 2}, "loss_type sapo has a factor for the ratio"),
        ({"loss_type": "bnpo", "gradient_accumulation_steps": 2}, "each of 2 micro-batches"),
        ({"loss_type": "dapo", "steps_per_generation": 2}, "the whole batch of rollouts"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, "every reward function by itself"),
        ({"top_entropy_quantile": 0.2}, "top_entropy_quantile=0.2"),
        ({"off_policy_mask_threshold": 0.5, "num_iterations": 2}, "off_policy_mask_threshold"),
        ({"loss_type": "fancy"}, "use one of grpo, bnpo"),
    ):
        with pytest.raises(UserError) as said:
            settings._objective(arguments(trainer, options))
        assert words in str(said.value)
        assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "grpo"),
        ({"loss_type": "dapo"}, "grpo, dapo loss"),
        ({"loss_type": "dr_grpo", "scale_rewards": "none"}, "dr_grpo"),
        ({"scale_rewards": False}, "dr_grpo, grpo loss"),
        ({"scale_rewards": "batch", "loss_type": "bnpo"}, "batch_grpo, bnpo loss"),
        (GSPO_CLIP, "gspo"),
    ],
)
def test_an_objective_is_named_by_the_recipe_of_its_advantage(trainer: Any, options: Any, name: str) -> None:
    """What the best group size depends on is the advantage; `instruments.group_size.size` knows recipes by name."""
    objective = settings._objective(arguments(trainer, options))
    assert objective.name == name
    assert name.split(",")[0] in recipes.ALL


@pytest.mark.parametrize("method", guard.METHODS)
@pytest.mark.parametrize("kind", ["GRPOTrainer", "RLOOTrainer"])
def test_the_methods_that_our_trainer_overrides_are_as_known(kind: str, method: str) -> None:
    """When TRL changes one, this fails with its name, as does the construction of GRPOscopeTrainer."""
    import trl

    found = getattr(getattr(trl, kind), method, None)
    assert found is not None, f"{kind}.{method} is gone"
    assert tuple(inspect.signature(found).parameters) == guard.METHODS[method], f"{kind}.{method} has changed"


def test_what_our_trainer_reads_of_trl_is_there(trainer: Any) -> None:
    """Attributes behind the methods: where metrics and the table of completions are gathered."""
    for name in ("_metrics", "_logs", "num_generations", "reward_weights", "reward_funcs", "accelerator", "state"):
        assert hasattr(trainer, name), f"GRPOTrainer.{name} is gone"
    trainer._metrics["train"]["something"].append(1.0)
    assert trainer._logs["advantages"].maxlen == trainer.args.generation_batch_size


def test_a_ratio_of_sequences_averages_credit_per_token_away(trainer: Any, batch: Batch) -> None:
    """Why `importance_sampling_level="sequence"` is refused: TRL's gradient is that of each rollout's mean credit."""
    given = batch.credit * torch.linspace(-1.0, 2.0, WIDTH)
    mask = batch.rollouts.mask
    mean = (given.where(mask, 0.0).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)) * mask
    options = {"loss_type": "grpo", "importance_sampling_level": "sequence"}
    inputs = {key: value for key, value in batch.inputs.items() if key != "old_per_token_logps"}
    with torch.no_grad():
        now, _ = token_logprobs(trainer.model, batch.rollouts, torch.arange(len(mask)), TEMPERATURE)
    fresh, plain = replace(batch, old=now), settings._objective(arguments(trainer, options))
    gradient = theirs(trainer, {**inputs, "advantages": given}, options)[1]
    averaged, per_token = (ours(trainer, fresh, plain, credit)[1] for credit in (mean, given))
    assert float((gradient - averaged).abs().max()) < 1e-5 * float(averaged.abs().max())
    assert float((gradient - per_token).abs().max()) > 0.1 * float(per_token.abs().max())


def test_losses_that_look_at_signs_treat_credit_per_token_otherwise(trainer: Any, batch: Batch) -> None:
    """Why they are refused: a rollout is dropped, or weighed, in parts."""
    given = batch.credit * torch.linspace(-1.0, 2.0, WIDTH)
    for options in ({"loss_type": "grpo", "off_policy_mask_threshold": 1e-3}, {"loss_type": "vespo"}):
        vars(trainer).update(options)
        mask = batch.rollouts.mask.long()
        if "off_policy_mask_threshold" in options:
            kept = trainer.get_off_policy_mask(given, batch.old - 1, batch.old, mask, 1e-3)
        else:
            kept = trainer.get_gamma_weights(given, batch.ref - batch.old, mask, None)
        assert (kept.max(1).values != kept.min(1).values).any()  # not one number for a rollout
