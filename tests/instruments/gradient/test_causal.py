"""Models whose scores are no gradients of a policy are refused in one line, and causal ones of odd kinds are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from geometry_models import PAD, VOCABULARY, build
from geometry_models import batch as geometry_batch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertLMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

from grposcope.instruments.gradient import backward


def far_from_flat(model: Any) -> Any:
    """The model with distributions that depend on what it reads."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def bart() -> Any:
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    more = {"decoder_attention_heads": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12, "max_position_embeddings": 32}
    marks = {"pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": 0, "decoder_start_token_id": 0}
    return BartForConditionalGeneration(BartConfig(vocab_size=VOCABULARY, **sizes, **more, **marks))


def t5() -> Any:
    config = T5Config(vocab_size=VOCABULARY, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_heads=2, pad_token_id=PAD,
                      decoder_start_token_id=0)  # fmt: skip
    return T5ForConditionalGeneration(config)


def bert(decoder: bool = False) -> Any:
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=12, max_position_embeddings=32, pad_token_id=PAD,
                        is_decoder=decoder)  # fmt: skip
    return BertLMHeadModel(config)


class Broken(torch.nn.Module):
    """A model whose forward pass fails in its own way, on two lines."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.config = None

    def forward(self, **_: Any) -> None:
        raise KeyError("no such\nkey")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (bart, "bart is an encoder-decoder model"),
        (t5, "t5 is an encoder-decoder model"),
        (bert, "a later token changes log π of earlier ones by .*, so this model is not causal"),
        (Broken, "the forward pass of this model fails as a probe makes it"),
    ],
)
@pytest.mark.parametrize("prompts", [1, 2])
def test_what_is_no_causal_language_model_is_refused_in_one_line(make: Any, said: str, prompts: int) -> None:
    model = far_from_flat(make())
    with pytest.raises(backward.Refusal, match=said) as refused:
        backward.attach(model, geometry_batch(prompts=prompts, group=4))
    assert "\n" not in str(refused.value)


def test_a_bert_that_is_a_decoder_is_measured() -> None:
    assert backward.attach(far_from_flat(bert(decoder=True)), geometry_batch(prompts=1, group=4)).error < 1e-3


def test_one_token_completions_are_checked_too() -> None:
    rollouts = geometry_batch(prompts=1, group=4)
    short = replace(rollouts, mask=rollouts.mask & (torch.arange(rollouts.mask.shape[1]) < 1))
    with pytest.raises(backward.Refusal, match="not causal"):
        backward.attach(far_from_flat(bert()), short)


def test_virtual_tokens_are_refused() -> None:
    peft = pytest.importorskip("peft")
    settings = peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    model = peft.get_peft_model(build("llama").float(), settings)
    with pytest.raises(backward.Refusal, match="the adapters are virtual tokens"):
        backward.attach(model, geometry_batch())
