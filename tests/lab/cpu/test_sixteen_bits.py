"""Products of 16-bit matrices in float32: what they give beside float32 and beside a processor's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from grposcope.lab import cpu
from grposcope.lab.cpu import sixteen_bits
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.sampler import Sampling, sample


def matrices(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=draw).bfloat16() for shape in shapes]


@pytest.mark.parametrize("function", [
    lambda x, w, b: F.linear(x, w, b), lambda x, w, b: F.linear(x, w), lambda x, w, b: torch.bmm(x[None], w.T[None]),
    lambda x, w, b: torch.baddbmm(b.expand(1, 5, 6), x[None], w.T[None]),
    lambda x, w, b: F.scaled_dot_product_attention(*(y[None, None] for y in (x, w, w))),
], ids=["linear with a bias", "linear", "batch", "batch and sum", "attention"])  # fmt: skip
def test_a_product_and_its_gradients_are_those_of_float32_rounded_once(function: Callable[..., Any]) -> None:
    given = [x.requires_grad_() for x in matrices((5, 8), (6, 8), (6,))]
    wide = [x.detach().float().requires_grad_() for x in given]
    with sixteen_bits.Widened():
        out = function(*given)
        out.backward(torch.ones_like(out))
    expected = function(*wide)
    expected.backward(torch.ones_like(expected))
    assert out.dtype == torch.bfloat16
    assert torch.equal(out.reshape(expected.shape), expected.bfloat16())
    for found, exact in zip(given, wide, strict=True):
        if exact.grad is None:
            assert found.grad is None
        else:
            torch.testing.assert_close(found.grad.float(), exact.grad, rtol=2**-8, atol=2**-7)


def test_other_formats_and_other_functions_are_left_alone() -> None:
    x, w = matrices((3, 4), (4, 5))
    with sixteen_bits.Widened():
        assert (x @ w).dtype == (x + x).dtype == torch.bfloat16
        assert torch.equal(x.float() @ w.float(), x.float() @ w.float())
        assert torch.equal(x + x, 2 * x)


def test_only_a_16_bit_model_on_a_processor_that_cannot_multiply_it_is_widened(
    make_policy: Callable[[str], Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_policy("gpt_neox").model
    for cannot, dtype, widens in (
        (True, torch.bfloat16, True), (False, torch.bfloat16, False), (True, torch.float32, False),
    ):  # fmt: skip
        monkeypatch.setattr(sixteen_bits, "slow", lambda given, cannot=cannot: cannot and given == torch.bfloat16)
        assert isinstance(cpu.products(model.to(dtype)), sixteen_bits.Widened) == widens
    monkeypatch.setattr(sixteen_bits, "slow", lambda given: given == torch.bfloat16)
    monkeypatch.setenv("GRPOSCOPE_CPU_ENGINE", "off")
    assert not isinstance(cpu.products(model.bfloat16()), sixteen_bits.Widened)


@pytest.mark.parametrize(("group", "widens"), [(10, True), (2, False)], ids=["many rows", "few rows"])
def test_drawing_widens_products_of_many_rows(
    make_policy: Callable[[str], Policy], monkeypatch: pytest.MonkeyPatch, group: int, widens: bool
) -> None:
    """Of a few rows the conversion of the weights would take longer than the products."""
    policy = make_policy("gpt_neox")
    policy.model.bfloat16()
    converted: list[Any] = []
    own = sixteen_bits._float
    monkeypatch.setattr(sixteen_bits, "slow", lambda given: given == torch.bfloat16)
    monkeypatch.setattr(sixteen_bits, "_float", lambda x: converted.append(x) or own(x))
    ids = torch.ones(1, 3, dtype=torch.long)
    stream = torch.Generator().manual_seed(0)
    sample(policy.model, (ids, ids.bool()), group, Sampling(4), policy.eos, policy.pad, stream)
    assert any(isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16 and x.ndim == 2 for x in converted) == widens


def test_a_matrix_that_stands_for_many_is_copied_once() -> None:
    """A head's weights are the same for every row of a batch; a copy for each took 1 GB of a probe of adapters."""
    x, w = matrices((3, 4, 8), (8, 5))
    spread = w.expand(3, 8, 5)
    wide = sixteen_bits._float(spread)
    assert wide.untyped_storage().nbytes() == 4 * w.numel()
    assert torch.equal(wide, spread.float())
    with sixteen_bits.Widened():
        assert torch.equal(torch.bmm(x, spread), torch.bmm(x.float(), w.float().expand(3, 8, 5)).bfloat16())
