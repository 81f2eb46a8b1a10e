"""Activations recomputed in the backward pass: the same numbers, with the outputs of linear layers kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from geometry_models import assert_same, batch, build, one_by_one, scores
from torch import Tensor, nn

from grposcope.instruments.gradient import backward, checkpointing, hooks
from grposcope.instruments.gradient.backward import _checkpointed


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gpt2"])
def test_blocks_are_found_and_give_the_same_scores(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(family)
    assert len(checkpointing.blocks(model)) == 2
    again = scores(model, batch())
    monkeypatch.setattr(checkpointing, "blocks", lambda _: [])
    for name, stack in scores(model, batch()).items():
        torch.testing.assert_close(again[name], stack)


def test_outputs_of_linear_layers_are_not_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, counts, real = build("llama"), [0], hooks._product

    def counted(*arguments: Any) -> Tensor:
        counts[0] += 1
        return real(*arguments)

    monkeypatch.setattr(hooks, "_product", counted)
    scores(model, batch())
    assert counts[0] == sum(isinstance(module, nn.Linear) for module in model.modules())


@pytest.mark.parametrize("family", ["llama", "qwen2"])  # without and with biases
def test_a_layer_used_twice_in_a_block_is_recomputed(family: str) -> None:
    model, rollouts = build(family), batch()
    attention = model.model.layers[0].self_attn
    attention.o_proj = attention.q_proj
    assert_same(scores(model, rollouts), one_by_one(model, rollouts))


def test_an_output_that_was_overwritten_is_recomputed() -> None:
    class Doubled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(2)

    model, rollouts = build("llama"), batch()
    for layer in model.model.layers:
        layer.mlp.act_fn = Doubled()  # writes over what gate_proj gave
    assert_same(scores(model, rollouts), one_by_one(model, rollouts))


def test_less_is_kept_and_none_of_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rollouts = build("llama"), batch()
    attached = backward.attach(model, rollouts)
    attached.stream(rollouts, lambda _: None)
    with_blocks = attached.bytes_per_token
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert checkpointing.blocks(model) == []  # the model does it by itself
    model.gradient_checkpointing_disable()
    monkeypatch.setattr(checkpointing, "blocks", lambda _: [])
    attached.stream(rollouts, lambda _: None)
    assert 0 < with_blocks < 0.75 * attached.bytes_per_token
    assert all("forward" not in module.__dict__ for module in model.modules())


def test_a_forward_that_was_replaced_already_is_put_back() -> None:
    layer = nn.Linear(2, 2)
    layer.forward = own = lambda x: 2 * x  # type: ignore[method-assign]
    with checkpointing.replaced_forward(layer, lambda x: 3 * x):
        assert layer(torch.tensor(1.0)) == 3
    assert layer.forward is own


def test_arrays_of_an_arena_do_not_overlap_and_keep_their_own_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "PIECE", 256)
    arena, given = hooks._Arena(), [torch.randn(3, 5), torch.randn(7).double(), torch.randn(99), torch.randn(1)]
    kept = [arena.empty(array, tuple(array.shape)).copy_(array) for array in given]
    for copy, array in zip(kept, given, strict=True):
        assert torch.equal(copy, array)
        assert copy.dtype == array.dtype
    assert kept[0].untyped_storage().data_ptr() == kept[1].untyped_storage().data_ptr()
    before = [copy._version for copy in kept]
    kept[0].mul_(2)
    assert [copy._version - old for copy, old in zip(kept, before, strict=True)] == [1, 0, 0, 0]
    assert torch.equal(kept[1], given[1])


@pytest.mark.parametrize("frozen", ["embed_tokens", "layers.0"])
def test_blocks_whose_input_has_no_gradient_are_measured(frozen: str) -> None:
    model, rollouts = build("qwen2"), batch()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(frozen not in name and "embed_tokens" not in name)
    assert_same(scores(model, rollouts), one_by_one(model, rollouts))


def test_a_gradient_that_comes_in_by_name_is_not_lost() -> None:
    """A block with a gradient in a keyword argument is checkpointed without reentrance, which supports it."""

    def forward(x: Tensor, *, y: Tensor) -> Tensor:
        return x * y

    x, y = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    _checkpointed(forward)(x, y=y).backward()
    assert (x.grad, y.grad) == (torch.tensor(3.0), torch.tensor(2.0))
