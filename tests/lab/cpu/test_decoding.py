"""Decoders against a plain forward of every row by itself, while rows leave at different times."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen2Config

from grposcope.lab import cpu
from grposcope.lab.cpu import c_library, llama, native
from grposcope.lab.cpu.llama import LlamaDecoder
from grposcope.lab.cpu.native import NativeDecoder
from grposcope.lab.sampling.sampler import _CachedDecoder, _engine_of, _say_precision, _say_slow

VOCABULARY = 40
SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 96,
    "intermediate_size": 84,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "max_position_embeddings": 64,
}
MODELS = {
    "llama, tied, groups of query heads": LlamaConfig(num_key_value_heads=2, tie_word_embeddings=True, **SIZE),
    "llama, untied, one key-value head": LlamaConfig(num_key_value_heads=1, tie_word_embeddings=False, **SIZE),
    "llama, head size of its own": LlamaConfig(num_key_value_heads=6, head_dim=32, **SIZE),
    "llama, stretched positions": LlamaConfig(
        num_key_value_heads=3,
        rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
        **SIZE,
    ),
    "qwen2, tied": Qwen2Config(num_key_value_heads=3, tie_word_embeddings=True, **SIZE),
    "qwen2, untied": Qwen2Config(num_key_value_heads=2, tie_word_embeddings=False, **SIZE),
}
# after which step which rows of 3 prompts × 4 completions go on: evenly, unevenly, a whole prompt gone, one row left
LEAVING = {
    "none": {},
    "evenly": {1: [0, 2, 4, 6, 8, 10], 3: [1, 3, 5]},
    "unevenly": {0: [0, 1, 2, 4, 8, 9, 10, 11], 2: [0, 3, 4, 6], 4: [3]},
    "a prompt": {1: [0, 1, 9, 11], 3: [1, 3], 5: [1]},
    "and branching": {0: [0, 4, 8, 9], 1: [0, 0, 0, 1, 1, 2, 2, 3, 3], 4: [0, 3, 5], 5: [0, 0, 1, 1, 1, 2]},
}


def random_model(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(MODELS[name]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4).add_(torch.randn_like(parameter) / 10)  # biases and norms too
    return model


def prompts(ragged: bool) -> tuple[Tensor, Tensor]:
    ids = torch.randint(0, VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids, dtype=torch.bool)
    if ragged:
        mask[0, :5], mask[2, :1] = False, False
    return ids.masked_fill(~mask, 0), mask


@pytest.mark.parametrize("leaving", LEAVING)
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_logits_are_those_of_a_plain_forward(name: str, ragged: bool, leaving: str) -> None:
    model = random_model(name)
    assert llama.fits(model)
    written: dict[str, list[list[int]]] = {}
    expected: list[Tensor] = []
    for make in (NativeDecoder, LlamaDecoder, _CachedDecoder):
        if make is NativeDecoder and native._library() is None:
            continue
        written[make.__name__], starts, seen = decoded(make, model, prompts(ragged), LEAVING[leaving])
        rows = written[make.__name__]
        places = zip(rows, starts, strict=True)
        expected = expected or [model(torch.tensor([row])).logits[0, start - 1 : -1] for row, start in places]
        for found, wanted in zip(seen, expected, strict=True):
            torch.testing.assert_close(found, wanted, atol=5e-4, rtol=5e-4, msg=lambda m, n=make.__name__: f"{n}: {m}")
    assert all(rows == written["_CachedDecoder"] for rows in written.values())
    if "NativeDecoder" not in written:
        pytest.skip("the other decoders agree; this one needs a C compiler")


def decoded(make: type, model: PreTrainedModel, given: tuple[Tensor, Tensor], leaving: dict[int, list[int]]) -> Any:
    """Rows that a decoder wrote of 3 prompts × 4 completions, where each completion starts, and the logits it gave."""
    ids, mask = given
    rows = [row[keep].tolist() for row, keep in zip(ids, mask, strict=True) for _ in range(4)]
    starts = [len(row) for row in rows]
    decode, live, draws = make(model, ids, mask, 4, 7), list(range(12)), torch.Generator().manual_seed(2)
    logits, seen = decode.logits, {row: [] for row in live}
    for step in range(7):
        chosen = torch.randint(0, VOCABULARY, (len(live),), generator=draws)
        for row, token, after in zip(live, chosen.tolist(), logits.clone(), strict=True):
            rows[row].append(token)
            seen[row].append(after)
        going = leaving.get(step)
        if going is not None:
            decode.keep(torch.tensor(going))
            before, live, chosen = live, [], chosen[going]
            for row in (before[i] for i in going):
                live.append(len(rows) if row in live else row)
                if live[-1] != row:  # a row that was repeated goes on as one of its own
                    rows.append(list(rows[row]))
                    starts.append(starts[row])
                    seen[live[-1]] = list(seen[row])
        logits = decode.step(chosen)
    return rows, starts, [torch.stack(seen[number]) for number in range(len(rows))]


@pytest.mark.parametrize("name", ["llama, tied, groups of query heads", "llama, head size of its own"])
@torch.inference_mode()
def test_long_completions_in_memory_of_another_decoder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys lie in another order every 16 tokens; memory that was used before holds anything."""
    if native._library() is None:
        pytest.skip("needs a C compiler")
    left = [torch.full((2**20,), 255, dtype=torch.uint8) for _ in range(20)]  # not a number, in any place
    monkeypatch.setattr(native, "_spare", list(left))
    model, (ids, mask) = random_model(name), prompts(True)
    decode, draws = NativeDecoder(model, ids, mask, 2, 40), torch.Generator().manual_seed(2)
    assert len(native._spare) < len(left)
    rows = [row[keep].tolist() for row, keep in zip(ids, mask, strict=True) for _ in range(2)]
    logits = decode.logits
    for step in range(37):
        if step in (15, 19, 33):  # the second row goes on from the first
            decode.keep(torch.tensor([0, 0, 2, 3, 4, 5]))
            rows[1], logits = list(rows[0]), logits[[0, 0, 2, 3, 4, 5]]
        for row, after in zip(rows, logits, strict=True):
            torch.testing.assert_close(after, model(torch.tensor([row])).logits[0, -1], atol=5e-4, rtol=5e-4)
        chosen = torch.randint(0, VOCABULARY, (6,), generator=draws)
        for row, token in zip(rows, chosen.tolist(), strict=True):
            row.append(token)
        logits = decode.step(chosen)


@torch.inference_mode()
def test_two_decoders_at_once_share_no_memory() -> None:
    if native._library() is None:
        pytest.skip("needs a C compiler")
    model, (ids, mask) = random_model("llama, head size of its own"), prompts(True)
    del (gone := {"decoder": NativeDecoder(model, ids, mask, 2, 4)})["decoder"]
    one, other = (NativeDecoder(model, ids, mask, 2, 4) for _ in range(2))
    ranges = sorted((room.data_ptr(), room.data_ptr() + len(room)) for d in (one, other) for room in d.rooms)
    assert not gone
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


def coarse(x: Tensor, precision: str) -> Tensor:
    """The rows of a matrix as a product in that precision reads them."""
    if precision == "bfloat16":
        return x.bfloat16().float()
    groups = torch.nn.functional.pad(x, (0, -x.shape[-1] % 64)).unflatten(-1, (-1, 64))
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    return ((groups / scale).round() * scale).flatten(-2)[..., : x.shape[-1]]


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("name", ["llama, tied, groups of query heads", "llama, head size of its own", "qwen2, tied"])
@torch.inference_mode()
def test_rounded_products_are_those_of_rounded_weights_and_inputs(
    name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the decoder in torch with both sides of every product rounded: far nearer than that is to float32."""
    if native._library() is None or native.available(precision) != precision:
        pytest.skip("needs a C compiler and a processor with the instructions")
    model, (ids, mask) = random_model(name), prompts(True)
    mm, addmm = torch.mm, torch.addmm

    def rounded_mm(a: Tensor, b: Tensor) -> Tensor:
        return mm(coarse(a, precision), coarse(b.T, precision).T)

    def logits(decode: cpu.Decoder) -> Tensor:
        draws = torch.Generator().manual_seed(2)
        tokens = torch.randint(0, VOCABULARY, (3, 18), generator=draws)
        return torch.stack([decode.logits.clone(), *(decode.step(step).clone() for step in tokens)])

    found = logits(NativeDecoder(model, ids, mask, 6, 4, precision))
    exact = logits(LlamaDecoder(model, ids, mask, 6, 4))
    monkeypatch.setattr(llama.torch, "mm", rounded_mm)
    monkeypatch.setattr(llama.torch, "addmm", lambda c, a, b: addmm(c, coarse(a, precision), coarse(b.T, precision).T))
    expected = logits(LlamaDecoder(model, ids, mask, 6, 4))
    assert (found - expected).square().mean().sqrt() < 0.15 * (exact - expected).square().mean().sqrt()


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_processor_without_the_instructions_samples_in_float32_and_says_so_once(
    precision: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Plain:
        def precisions(self) -> int:
            return 1

    monkeypatch.setattr(native, "_library", Plain)
    native.available.cache_clear()
    assert [native.available(precision) for _ in range(2)] == ["float32", "float32"]
    assert [r.getMessage().count("sampling in float32") for r in caplog.records] == [1]
    native.available.cache_clear()


def test_decoders_in_torch_say_once_that_they_do_not_round(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "fits", lambda model: False)
    _say_precision.cache_clear()
    model, (ids, mask) = random_model("qwen2, tied"), prompts(True)
    with torch.inference_mode():
        kinds = {type(_engine_of(model, ids, mask, 2, 3, "int8")) for _ in range(2)}
    assert kinds == {LlamaDecoder}
    assert [r.getMessage().count("sampling in float32, not in int8") for r in caplog.records] == [1]


@pytest.fixture
def forgotten() -> Iterator[None]:
    """The compiled step is looked for anew, and afterwards again."""
    native._library.cache_clear()
    yield
    native._library.cache_clear()


@pytest.mark.parametrize("compiler", ["absent", "failing"])
def test_without_a_compiler_decoding_runs_in_torch_and_says_so_once(
    compiler: str,
    forgotten: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("GRPOSCOPE_CACHE", str(tmp_path))
    if compiler == "absent":
        monkeypatch.setattr(c_library.shutil, "which", lambda name: None)
    else:
        (tmp_path / "failing").write_text("#!/bin/sh\necho no such flag >&2\nexit 1\n")
        (tmp_path / "failing").chmod(0o755)
        monkeypatch.setenv("CC", str(tmp_path / "failing"))
    model, (ids, mask) = random_model("llama, tied, groups of query heads"), prompts(True)
    with torch.inference_mode():
        kinds = {type(_engine_of(model, ids, mask, 2, 3)) for _ in range(2)}
    assert kinds == {LlamaDecoder}
    assert [r.getMessage().count("runs in torch") for r in caplog.records] == [1]
    assert not list(tmp_path.glob("decode-step*"))


def test_a_model_without_a_fast_decoder_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    _say_slow.cache_clear()
    model, (ids, mask) = random_model("qwen2, tied").to(torch.bfloat16), prompts(True)
    with torch.inference_mode():
        kinds = {type(_engine_of(model, ids, mask, 2, 3)) for _ in range(2)}
    assert kinds == {_CachedDecoder}
    (said,) = [record for record in caplog.records if "the slower way" in record.getMessage()]
    assert said.levelname == "WARNING"
    assert said.getMessage().startswith("Qwen2ForCausalLM in bfloat16 is sampled through its own forward")


def test_a_step_does_not_depend_on_the_other_rows_or_on_threads() -> None:
    if native._library() is None:
        pytest.skip("needs a C compiler")
    model, (ids, mask) = random_model("qwen2, tied"), prompts(True)
    tokens = torch.arange(3 * 11)
    with torch.inference_mode():
        many = NativeDecoder(model, ids, mask, 11, 2)
        few = NativeDecoder(model, ids, mask, 11, 2)
        few.threads = 3
        few.scratch = torch.empty(few.library.scratch_floats(ctypes.byref(few.struct), 33, 7, 3))
        few.struct.scratch = few.scratch.data_ptr()
        kept = torch.tensor([4, 20, 21])
        few.keep(kept)
        assert torch.equal(many.step(tokens)[kept], few.step(tokens[kept]))
