"""Per-rollout scores of every parameter, against a backward pass per rollout, in all the ways a model can be odd."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest
import torch
from geometry_models import (
    BART,
    FAMILIES,
    OWN_LAYERS,
    PAD,
    assert_same,
    batch,
    build,
    configured,
    logprobs,
    one_by_one,
    scores,
)
from torch import Tensor, nn
from transformers import BartForCausalLM

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import backward, gram
from grposcope.instruments.gradient.score import Score, Use


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_those_of_a_backward_per_rollout(family: str, weighted: bool) -> None:
    model, rollouts = build(family), batch()
    weights = torch.randn(rollouts.mask.shape, dtype=torch.float64) if weighted else None
    assert_same(scores(model, rollouts, weights, 0.7), one_by_one(model, rollouts, weights, 0.7))


def test_scores_are_those_of_torch_func() -> None:
    """`torch.func.grad` of each rollout, an independent way to the same numbers."""
    model, rollouts = build("llama"), batch()
    names = [n for n, _ in model.named_parameters()]

    def total(parameters: dict[str, Tensor], row: int) -> Tensor:
        def call(**inputs: Any) -> Any:
            return torch.func.functional_call(model, parameters, kwargs=inputs, tie_weights=True)

        return logprobs(call, rollouts, row).sum()

    own = {n: p.detach() for n, p in model.named_parameters()}
    wanted = [torch.func.grad(total)(own, row) for row in range(len(rollouts.mask))]
    assert set(names) == wanted[0].keys()
    assert_same(scores(model, rollouts), wanted)


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_nothing(family: str, reentrant: bool) -> None:
    model, rollouts = build(family), batch()
    plain = scores(model, rollouts)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    again = scores(model, rollouts)
    for name, stack in plain.items():
        torch.testing.assert_close(again[name], stack)
    assert not model.training


def test_padding_is_invisible() -> None:
    model, rollouts = build("llama"), batch()
    wide = replace(
        rollouts,
        prompt_ids=nn.functional.pad(rollouts.prompt_ids, (3, 0), value=5),
        prompt_mask=nn.functional.pad(rollouts.prompt_mask, (3, 0)),
        tokens=nn.functional.pad(rollouts.tokens, (0, 2), value=7),
        mask=nn.functional.pad(rollouts.mask, (0, 2)),
    )
    plain, padded = scores(model, rollouts), scores(model, wide)
    for name, stack in plain.items():
        torch.testing.assert_close(padded[name], stack)


def test_bfloat16_is_within_its_precision() -> None:
    rollouts = batch()
    exact = scores(build("llama"), rollouts)
    model = build("llama").to(torch.bfloat16)
    rough = scores(model, rollouts)
    assert all(stack.dtype == torch.float32 for stack in rough.values())
    off = sum(float((rough[n].double() - exact[n]).square().sum()) for n in exact)
    assert off < 0.1**2 * sum(float(exact[n].square().sum()) for n in exact)
    assert backward.attach(model, rollouts).error < 0.1


def test_adapters_of_low_rank_are_measured_alone() -> None:
    peft = pytest.importorskip("peft")
    rollouts = batch()
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    model = peft.get_peft_model(build("llama"), config).double()
    stacks = scores(model, rollouts)
    assert stacks
    assert all("lora" in name for name in stacks)
    assert_same(stacks, one_by_one(model, rollouts))


def test_frozen_weights_are_left_alone() -> None:
    model, rollouts = build("qwen2"), batch()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("q_proj.bias" in name or "layers.1.mlp" in name)
    assert_same(scores(model, rollouts), one_by_one(model, rollouts))


def test_token_view_is_exact() -> None:
    model, rollouts = build("llama"), batch()
    view = backward.attach(model).stream(rollouts, lambda _: None)
    for row in range(len(rollouts.mask)):
        kept = rollouts.mask[row]
        torch.testing.assert_close(view.logp[row][kept], logprobs(model, rollouts, row).detach())
        prompt, tokens = rollouts.prompt_ids[row][rollouts.prompt_mask[row]], rollouts.tokens[row][kept]
        chances = model(input_ids=torch.cat((prompt, tokens))[None]).logits[0, len(prompt) - 1 : -1].softmax(-1)
        one_hot = nn.functional.one_hot(tokens, chances.shape[-1])
        torch.testing.assert_close(view.norms[row][kept], (one_hot - chances).norm(dim=-1).detach())
    assert not view.norms[~rollouts.mask].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_both_contractions_give_the_gram_matrix(family: str) -> None:
    model, rollouts = build(family), batch()
    wanted = one_by_one(model, rollouts)
    seen = []

    def compare(score: Score) -> None:
        flat = torch.stack([g[score.name].flatten() for g in wanted])
        for contraction in (gram._explicit, gram.ghost, gram.gram):
            torch.testing.assert_close(contraction(score), flat @ flat.mT, rtol=1e-9, atol=1e-9)
        pieces = torch.cat([score.piece(piece) for piece in score.pieces(limit=4 * 6 * 8 * 2)], 1)
        torch.testing.assert_close(pieces, score.dense())
        seen.append(gram.ghost_is_cheaper(score))

    backward.attach(model).stream(rollouts, compare)
    assert len(seen) == len(wanted[0])


def test_the_cheaper_contraction_is_chosen() -> None:
    def score(length: int, rows: int) -> Score:
        return Score(
            "w",
            "linear",
            (rows, 4),
            (Use(torch.zeros(2, length, rows), torch.zeros(2, length, 4)),),
        )

    assert gram.ghost_is_cheaper(score(1, 1000))
    assert not gram.ghost_is_cheaper(score(500, 4))


def test_self_check_reports_its_error_and_leaves_the_model_as_it_was() -> None:
    model, rollouts = build("llama"), batch()
    forwards = {n: m.forward for n, m in model.named_modules() if "forward" not in m.__dict__}
    attached = backward.attach(model, rollouts)
    assert attached.error < 1e-12
    assert attached.worst[1] < 1e-10
    assert attached.left_out == ()
    assert all("forward" not in m.__dict__ for n, m in model.named_modules() if n in forwards)
    assert all(p.grad is None for p in model.parameters())


def test_a_weight_used_behind_the_layers_back_is_measured_apart() -> None:
    class Sly(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, self.weight.tanh())

    model, rollouts = build("llama"), batch()
    old = model.model.layers[0].mlp.down_proj
    sly = Sly(old.in_features, old.out_features, bias=False).double()
    model.model.layers[0].mlp.down_proj = sly
    assert_same(scores(model, rollouts), one_by_one(model, rollouts))  # without the self-check
    assert backward.attach(model, rollouts).apart == ("model.layers.0.mlp.down_proj.weight",)


def test_a_layers_own_forward_runs_and_its_uses_are_seen() -> None:
    class Own(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 3 * nn.functional.linear(x, self.weight, self.bias) + x @ self.weight.T + self.bias

    model, rollouts = build("llama"), batch()
    old = model.model.layers[0].mlp.down_proj
    model.model.layers[0].mlp.down_proj = Own(old.in_features, old.out_features).double()
    assert backward.attach(model, rollouts).left_out == ()
    assert_same(scores(model, rollouts), one_by_one(model, rollouts))


@pytest.mark.parametrize("family", OWN_LAYERS)
def test_layers_with_a_forward_of_their_own_are_exact(family: str) -> None:
    model, rollouts = configured(*OWN_LAYERS[family]), batch()
    attached = backward.attach(model, rollouts)
    assert attached.error < 1e-5
    assert attached.left_out == ()
    assert_same(scores(model, rollouts), one_by_one(model, rollouts), 1e-4)


def test_scaled_embeddings_with_one_row_of_positions_are_measured() -> None:
    """BART's positions do not depend on the padding: a rollout alone would have other ones, so padding is refused."""
    if "position_ids" not in inspect.signature(BartForCausalLM.forward).parameters:
        pytest.skip("this transformers gives BART its positions itself")
    model, rollouts = configured("bart", BART), batch()
    with pytest.raises(
        backward.Refusal, match=r"padding changes the log-probabilities of this model.*use prompts of one length"
    ):
        backward.attach(model, rollouts)
    attached = backward.attach(model, replace(rollouts, prompt_mask=torch.ones_like(rollouts.prompt_mask)))
    assert attached.error < 1e-5
    assert attached.left_out == ()


def test_what_a_state_space_model_uses_outside_of_its_layers_is_measured_apart() -> None:
    settings = {"vocab_size": 13, "hidden_size": 8, "num_hidden_layers": 2, "state_size": 4, "pad_token_id": PAD}
    model, rollouts = configured("mamba", settings), batch()
    attached = backward.attach(model, rollouts)
    assert attached.error < 1e-5
    assert attached.left_out == ()
    mixers = [f"backbone.layers.{i}.mixer" for i in range(2)]
    own = {f"{mixer}.{name}" for mixer in mixers for name in ("A_log", "D", "conv1d.weight", "conv1d.bias")}
    outside = {f"{mixer}.dt_proj.{name}" for mixer in mixers for name in ("weight", "bias")}
    assert own <= set(attached.apart) <= own | outside  # transformers 4 calls dt_proj as the layer that it is
    stacks: dict[str, Tensor] = {}
    attached.stream(rollouts, lambda score: stacks.update({score.name: score.dense()}))
    for row, gradients in enumerate(one_by_one(model, rollouts)):
        assert set(stacks) == set(gradients)
        for name, stack in stacks.items():
            torch.testing.assert_close(stack[row], gradients[name].view_as(stack[row]), rtol=1e-3, atol=1e-3)


def test_a_vector_that_cannot_be_copied_for_every_rollout_is_measured_apart() -> None:
    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(8, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("blc,c->blc", x, self.scale)

    model, rollouts = build("llama"), batch()
    model.model.norm = Mixing()
    attached = backward.attach(model, rollouts)
    assert attached.apart == ("model.norm.scale",)
    assert attached.error < 1e-12
    model, rollouts = build("llama"), batch()
    model.model.norm = Mixing()
    found: list[Score] = []
    backward.attach(model).stream(rollouts, found.append)  # without the self-check
    (score,) = (score for score in found if score.name == "model.norm.scale")
    for row, gradients in enumerate(one_by_one(model, rollouts)):
        torch.testing.assert_close(score.dense()[row, 0], gradients["model.norm.scale"])


def test_an_interrupted_pass_restores_the_model() -> None:
    model, rollouts = build("llama"), batch()

    def stop(_: Score) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backward.attach(model).stream(rollouts, stop)
    assert all("forward" not in m.__dict__ for m in model.modules())
    assert_same(scores(model, rollouts), one_by_one(model, rollouts))


def test_layers_that_are_not_finite_are_named() -> None:
    model, rollouts = build("llama"), batch()
    model.model.layers[1].mlp.up_proj.weight.data[0, 0] = torch.nan
    with pytest.raises(UserError, match=r"layer .* not finite"):
        backward.attach(model).stream(rollouts, Score.check_finite)


def test_a_model_without_trainable_parameters_is_refused() -> None:
    with pytest.raises(UserError, match="no trainable parameter"):
        backward.attach(build("llama").requires_grad_(False))


def test_what_the_text_does_not_use_takes_no_passes() -> None:
    model = build("llama")
    model.extra = nn.Conv1d(2, 3, 1).double()
    attached = backward.attach(model, batch())
    assert attached.idle == {"extra.weight", "extra.bias"}
    assert attached.apart == attached.left_out == ()


@pytest.mark.parametrize("reentrant", [False, True])
def test_self_check_works_with_checkpointing(reentrant: bool) -> None:
    model, rollouts = build("llama"), batch()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    assert backward.attach(model, rollouts).error < 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_self_check_knows_every_family(family: str) -> None:
    attached = backward.attach(build(family), batch())
    assert attached.error < 1e-12
    assert attached.worst[1] < 1e-10


def test_self_check_finds_a_weight_used_once_more_outside_of_its_layer() -> None:
    class Twice(nn.Module):
        def __init__(self, inner: nn.Linear):
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + nn.functional.linear(x, self.inner.weight)

    model, rollouts = build("llama"), batch()
    model.model.layers[0].mlp.down_proj = Twice(model.model.layers[0].mlp.down_proj)
    with pytest.raises(
        backward.Refusal, match=r"uses .*down_proj.*in a way that cannot be measured; freeze that layer"
    ):
        backward.attach(model).stream(rollouts, lambda _: None)
    attached = backward.attach(model, rollouts)
    assert attached.apart == ("model.layers.0.mlp.down_proj.inner.weight",)
    assert_same(scores(model, rollouts), one_by_one(model, rollouts))  # known from now on


def test_gradients_that_were_there_stay() -> None:
    model, rollouts = build("llama"), batch()
    weight = model.model.layers[0].mlp.up_proj.weight
    weight.grad = torch.ones_like(weight)
    backward.attach(model, rollouts)
    assert bool((weight.grad == 1).all())
    assert model.model.layers[1].mlp.up_proj.weight.grad is None


@pytest.mark.parametrize("rollouts", [4, 40])
def test_products_in_float32_pieces_are_near_those_in_float64(rollouts: int) -> None:
    """Errors stay below 1e-6 of the norms; one float32 product of 5,000 entries may be off by 5,000 · 6e-8 = 3e-4."""
    block = torch.randn(rollouts, 7, 733, generator=torch.Generator().manual_seed(0))
    flat = block.double().flatten(1)
    exact = flat @ flat.mT
    scale = exact.diagonal().sqrt()
    assert float(((gram.of_block(block) - exact).abs() / (scale[:, None] * scale)).max()) < 1e-6
