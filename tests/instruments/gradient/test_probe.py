"""The whole probe: its numbers against a backward per rollout, both tiers, weightings, bad input, interruption."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from geometry_models import batch, build, logprobs, one_by_one
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import backward, memory, probe, spectrum, weightings
from grposcope.instruments.gradient.score import Score
from grposcope.lab import cpu, policies
from grposcope.lab.objectives import recipes
from grposcope.lab.rollout_batch import RolloutBatch


@pytest.fixture(scope="module")
def model() -> Any:
    return build("llama")


@pytest.fixture(scope="module")
def rollouts() -> RolloutBatch:
    return batch(prompts=2, group=4)


@pytest.fixture(scope="module")
def measured(model: Any, rollouts: RolloutBatch) -> probe.Probe:
    return probe.probe(
        model,
        rollouts,
        recipes.GRPO,
        tier="exact",
        sweep=(2, 4),
        also=[recipes.RLOO],
        controls=True,
        learning_rate=1e-3,
    )


def loss_gradient(model: Any, rollouts: RolloutBatch, recipe: Any) -> dict[str, Tensor]:
    """The gradient of the recipe's own loss through autograd, log-probabilities from unpadded rows."""
    model.zero_grad()
    rows = []
    for row in range(len(rollouts.mask)):
        rows.append(
            torch.zeros(rollouts.mask.shape[1], dtype=torch.float64).masked_scatter(
                rollouts.mask[row], logprobs(model, rollouts, row)
            )
        )
    logp = torch.stack(rows)
    recipe.loss(logp, logp.detach(), rollouts).backward()
    out = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    return out


@pytest.mark.parametrize(
    "recipe", [recipes.GRPO, recipes.RLOO, recipes.DAPO, recipes.GSPO, recipes.CISPO, recipes.REINFORCE]
)
def test_layer_spectra_are_those_of_the_gradient_of_the_loss(model: Any, rollouts: RolloutBatch, recipe: Any) -> None:
    measured = probe.probe(model, rollouts, recipe, tier="exact")
    gradient = loss_gradient(model, rollouts, recipe)
    for layer in measured.layers:
        if layer.kind != "vector":
            values = torch.linalg.svdvals(gradient[layer.name]).numpy()
            np.testing.assert_allclose(layer.spectra[recipe.name].values, values, rtol=1e-6, atol=1e-7)
            assert measured.ranks(recipe.name)[layer.name] == pytest.approx(spectrum.ranks(values), rel=1e-4)


def test_gram_and_rollout_spectrum(model: Any, rollouts: RolloutBatch, measured: probe.Probe) -> None:
    scores = one_by_one(model, rollouts)
    rows = torch.stack([torch.cat([g.flatten() for g in one.values()]) for one in scores])
    np.testing.assert_allclose(measured.gram, (rows @ rows.mT).numpy(), rtol=1e-9)
    weights = recipes.GRPO.weights(torch.zeros(8, 5), torch.zeros(8, 5), rollouts)[:, 0].double()
    values = torch.linalg.svdvals(weights[:, None] * rows).numpy()
    np.testing.assert_allclose(measured.rollout_spectrum("grpo").values, values, rtol=1e-6, atol=1e-7)


def test_weights_that_vary_along_rollouts_get_a_pass_of_their_own(
    model: Any, rollouts: RolloutBatch, measured: probe.Probe
) -> None:
    for name in ("steps", "random_tokens"):
        one = measured.weightings[name]
        assert one.per_rollout is None
        parts = one_by_one(model, rollouts, one.weights)
        total = {n: sum(p[n] for p in parts) for n in parts[0]}
        for layer in measured.layers:
            if layer.kind != "vector":
                values = torch.linalg.svdvals(total[layer.name]).numpy()  # type: ignore[arg-type]
                np.testing.assert_allclose(layer.spectra[name].values, values, rtol=1e-6, atol=1e-7)
        rows = torch.stack([torch.cat([g.flatten() for g in p.values()]) for p in parts])
        np.testing.assert_allclose(measured.rollout_grams[name], (rows @ rows.mT).numpy(), rtol=1e-9, atol=1e-12)


def test_token_spectrum_is_exact_at_the_logits(model: Any, rollouts: RolloutBatch, measured: probe.Probe) -> None:
    rows = []
    weights = measured.weightings["grpo"].weights
    for row in range(len(rollouts.mask)):
        prompt, tokens = rollouts.prompt_ids[row][rollouts.prompt_mask[row]], rollouts.tokens[row][rollouts.mask[row]]
        logits = model(input_ids=torch.cat((prompt, tokens))[None]).logits[0, len(prompt) - 1 : -1].detach()
        score = torch.nn.functional.one_hot(tokens, logits.shape[-1]) - logits.softmax(-1)
        rows.append(weights[row][rollouts.mask[row]][:, None] * score)
    values = torch.linalg.svdvals(torch.cat(rows)).numpy()
    got = measured.token_spectra["grpo"].values
    rounding = 16 * np.finfo(np.float32).eps * values[0]  # of values that are 0 in a product in float32
    np.testing.assert_allclose(got, values[: len(got)], rtol=1e-6, atol=rounding)


def test_smaller_groups_are_the_recipe_on_fewer_rollouts(
    model: Any, rollouts: RolloutBatch, measured: probe.Probe
) -> None:
    alone = probe.probe(model, weightings._first_rollouts(rollouts, 2), recipes.RLOO, tier="exact")
    for name, ranks in alone.ranks("rloo").items():
        assert measured.ranks("rloo, G=2")[name] == pytest.approx(ranks, rel=1e-4)
    assert {"grpo", "rloo", "grpo, G=2", "rloo, G=2", "grpo, G=4", "rloo, G=4"} <= measured.weightings.keys()
    assert set(weightings.CONTROLS) <= measured.weightings.keys()
    torch.testing.assert_close(measured.weightings["grpo, G=4"].weights, measured.weightings["grpo"].weights)


def test_controls_change_what_they_say(rollouts: RolloutBatch) -> None:
    recipe = recipes.RLOO
    own = weightings.of_recipe(recipe, rollouts).per_rollout
    assert own is not None
    made = {one.name: one for one in weightings.controls(recipe, rollouts)}
    shuffled, bare, nll = made["shuffled"].per_rollout, made["no_baseline"].per_rollout, made["nll"].per_rollout
    assert shuffled is not None
    assert bare is not None
    assert nll is not None
    for p in range(2):
        group = slice(4 * p, 4 * p + 4)
        torch.testing.assert_close(shuffled[group].sort().values, own[group].sort().values)
    torch.testing.assert_close(bare, -rollouts.rewards.flatten() / 8)
    torch.testing.assert_close(nll, torch.full((8,), -1 / 8, dtype=torch.float64))


def test_the_fast_tier_is_within_its_bounds_of_the_exact_one(
    rollouts: RolloutBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spectrum, "SMALL", 0)
    model = build("llama", torch.float32)
    fast = probe.probe(model, rollouts, recipes.GRPO, leading=2)
    exact = probe.probe(model, rollouts, recipes.GRPO, tier="exact")
    partial = 0
    for one, other in zip(fast.layers, exact.layers, strict=True):
        np.testing.assert_allclose(one.gram, other.gram, rtol=1e-4, atol=1e-4)
        if one.kind == "vector":
            continue
        partial += not one.spectra["grpo"].complete
        truth = other.spectra["grpo"].ranks()
        for name, (low, high) in one.spectra["grpo"].bounds().items():
            assert low * (1 - 1e-3) <= truth[name] <= high * (1 + 1e-3), (one.name, name)
    assert partial > 5


def test_weightings_built_in_turn_are_the_same(
    model: Any, rollouts: RolloutBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = probe.probe(model, rollouts, recipes.GRPO, controls=True, sweep=(2,))
    monkeypatch.setattr("grposcope.instruments.gradient.layers.HELD", 1)
    in_turn = probe.probe(model, rollouts, recipes.GRPO, controls=True, sweep=(2,))
    np.testing.assert_allclose(together.gram, in_turn.gram, rtol=1e-9)
    for name in together.weightings:
        for layer, ranks in together.ranks(name).items():
            assert in_turn.ranks(name)[layer] == pytest.approx(ranks, rel=1e-6)


def test_norms_of_a_fast_probe_are_exact(model: Any, rollouts: RolloutBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = probe.probe(model, rollouts, recipes.GRPO, tier="exact")
    monkeypatch.setattr(spectrum, "SMALL", 0)
    fast = probe.probe(model, rollouts, recipes.GRPO, leading=1)
    assert not fast.token_spectra["grpo"].complete
    assert fast.token_spectra["grpo"].frobenius == pytest.approx(exact.token_spectra["grpo"].frobenius, rel=1e-6)
    for one, other in zip(fast.layers, exact.layers, strict=True):
        for name, known in one.spectra.items():
            assert known.frobenius == pytest.approx(other.spectra[name].frobenius, rel=1e-6)


def test_summaries(measured: probe.Probe, rollouts: RolloutBatch) -> None:
    assert measured.error < 1e-9
    assert measured.complete
    assert measured.class_means().reduced.value == pytest.approx(1)
    assert measured.class_means().plain.value < 1  # the mean over tokens weighs rollouts unevenly
    assert measured.token_sparsity()["top_20"] > 0.2
    assert {"gini", "hoyer", "visible_sgd", "visible_adam"} <= measured.parameters.keys()
    pooled, each = measured.baseline()
    assert len(each) == 2
    assert pooled.covariance.n == 2
    norms = np.diag(measured.gram).reshape(2, 4)
    assert each[0].optimal.value == pytest.approx(float(measured.rewards[0] @ norms[0] / norms[0].sum()))
    assert all(layer.depth in (None, 0, 1) for layer in measured.layers)


def test_no_mixed_group_cannot_tell(model: Any, rollouts: RolloutBatch) -> None:
    flat = replace(rollouts, rewards=torch.tensor([[1.0] * 4, [0.0] * 4]).double())
    with pytest.raises(UserError, match=r"cannot tell: 2 groups of 4 .* 2 of them .*more prompts"):
        probe.probe(model, flat, recipes.GRPO)


def test_one_rollout_per_prompt_is_refused(model: Any, rollouts: RolloutBatch) -> None:
    with pytest.raises(UserError, match="at least two rollouts"):
        probe.probe(model, weightings._first_rollouts(rollouts, 1), recipes.GRPO)
    with pytest.raises(UserError, match="smaller group of 9"):
        probe.probe(model, batch(), recipes.GRPO, sweep=(9,))


def test_a_layer_that_is_not_finite_is_named(rollouts: RolloutBatch) -> None:
    model = build("llama")
    model.model.layers[1].mlp.up_proj.weight.data[0, 0] = torch.nan
    for check in (True, False):
        with pytest.raises(UserError, match=r"layer .* not finite|weights that are NaN"):
            probe.probe(model, rollouts, recipes.GRPO, check=check)


def test_memory_is_estimated_before_starting(
    model: Any, rollouts: RolloutBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "available_memory", lambda _: 1e4)
    with pytest.raises(UserError, match=r"would take about .* MB .*fewer prompts"):
        probe.probe(model, rollouts, recipes.GRPO)


def test_layers_that_wait_count_in_the_estimate(
    model: Any, rollouts: RolloutBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    attached, needed = backward.attach(model, rollouts), []
    for held in (2, 9):
        monkeypatch.setattr(cpu, "items_held", lambda _, held=held: held)
        needed.append(memory.needed(attached, rollouts).blocks)
    places = int(rollouts.prompt_mask.sum(-1).max()) + rollouts.tokens.shape[1]
    head = model.get_output_embeddings().weight
    inner = [p for p in attached.measured.values() if p.dim() > 1 and p is not head]
    sides = [sum(p.shape[-2:]) for p in inner]
    two, nine = (max(sum(sides[at : at + held]) for at in range(len(sides))) for held in (2, 9))
    more = memory.HEAP * 4 * len(rollouts.tokens) * places * (nine - two)
    assert needed[1] - needed[0] == pytest.approx(more)


def test_a_tied_head_needs_room_for_its_gradients(model: Any, rollouts: RolloutBatch) -> None:
    attached = backward.attach(model, rollouts)
    one, three = (memory.needed(attached, rollouts, weightings=n).embedding for n in (1, 3))
    assert three - one == pytest.approx(2 * 4 * model.get_output_embeddings().weight.numel())


def test_activations_are_counted_without_the_logits(model: Any, rollouts: RolloutBatch) -> None:
    """What is kept is at least the outputs of all linear layers; the logits are counted apart."""
    attached = backward.attach(model, rollouts)
    attached.stream(rollouts, lambda _: None)
    config = model.config
    heads = (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim
    linear = heads + 2 * config.hidden_size + 2 * config.intermediate_size
    count, width = rollouts.tokens.shape
    logits = 8 * count * (width + 1) * config.vocab_size / (rollouts.prompt_ids.numel() + rollouts.tokens.numel())
    kept, without = attached.bytes_per_token, 8 * config.num_hidden_layers * linear
    assert without <= kept
    assert attached._logits / (rollouts.prompt_ids.numel() + rollouts.tokens.numel()) == pytest.approx(logits)
    assert attached.block_bytes / 4 > config.intermediate_size


def test_memory_and_time_are_foretold(model: Any, rollouts: RolloutBatch) -> None:
    lines: list[str] = []
    probe.probe(model, rollouts, recipes.GRPO, foretold=lines.append)
    assert len(lines) == 1
    assert re.fullmatch(r"the probe will take about \d+ MB above the loaded model, and about \d+ s", lines[0])


def test_what_is_done_before_an_interruption_is_kept(model: Any, rollouts: RolloutBatch) -> None:
    def stop(message: str) -> None:
        if message.startswith("layer 5/"):
            raise KeyboardInterrupt

    part = probe.probe(model, rollouts, recipes.GRPO, progress=stop)
    assert not part.complete
    assert len(part.layers) == 5
    assert part.ranks("grpo")
    assert part.credit.mass.sum() > 0


def test_interrupted_at_once_is_interrupted(
    model: Any, rollouts: RolloutBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Score) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("grposcope.instruments.gradient.layers.LayerMeasurements.keep_scores", stop)
    with pytest.raises(KeyboardInterrupt):
        probe.probe(model, rollouts, recipes.GRPO)


def test_weightings_that_differ_by_a_factor_share_their_spectra(model: Any, rollouts: RolloutBatch) -> None:
    mask = torch.ones_like(rollouts.mask)
    even = replace(rollouts, mask=mask, tokens=rollouts.tokens.clamp(min=3)).take(torch.tensor([0]))
    wanted = {r.name: weightings.of_recipe(r, even) for r in (recipes.GRPO, recipes.RLOO, recipes.REINFORCE)}
    shared = weightings.proportional(wanted)
    assert shared["rloo"][0] == "grpo"
    assert shared["reinforce"] == ("reinforce", 1.0)
    both = probe.probe(model, even, recipes.GRPO, also=[recipes.RLOO], tier="exact")
    alone = probe.probe(model, even, recipes.RLOO, tier="exact")
    for one, other in zip(both.layers, alone.layers, strict=True):
        if one.kind != "vector":
            values = other.spectra["rloo"].values
            np.testing.assert_allclose(one.spectra["rloo"].values, values, rtol=1e-6, atol=1e-9)
            assert one.spectra["rloo"].frobenius == pytest.approx(other.spectra["rloo"].frobenius)
