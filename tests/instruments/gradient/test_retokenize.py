"""Token ids found again from text: against ids that are known, for every form in which trainers write prompts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout, Rollouts
from grposcope.instruments.gradient.retokenize import retokenize
from grposcope.lab import policies
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.rollouts import Batch, collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic

LIMIT = 12
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if think is defined %}{{ think }}{% endif %}{% endif %}"
)


def logged(prompts: Any, completions: Any, rewards: Any = None) -> Rollouts:
    size = len(completions) // len(prompts)
    given = np.arange(float(len(completions))).reshape(-1, size) if rewards is None else rewards
    rows = tuple(
        Rollout(step=1, group=str(i // size), prompt=prompts[i // size], completion=text, reward=float(given.flat[i]))
        for i, text in enumerate(completions)
    )
    return Rollouts(rows, "trl", Path("file"), {"r": 1.0})


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policies.load("tiny")


@pytest.fixture(scope="module")
def batch(policy: Policy) -> Batch:
    """Rollouts some of which are truncated."""
    task = Arithmetic()
    return collect(policy, task, task.problems("train"), recipes.GRPO, Sampling(LIMIT), (6, 4), 0, 0)


def test_what_was_sampled_comes_back_from_its_text(policy: Policy, batch: Batch) -> None:
    known = batch.rollouts
    assert 0 < int(known.truncated.sum()) < len(known.truncated)
    made = retokenize(
        policy, logged([p.prompt for p in batch.problems], batch.texts, known.rewards.numpy()), LIMIT, 1.0
    )
    for name in ("prompt_ids", "prompt_mask", "tokens", "mask", "truncated", "rewards"):
        assert torch.equal(getattr(made.rollouts, name), getattr(known, name)), name
    torch.testing.assert_close(made.rollouts.logp, known.logp, atol=3e-5, rtol=1e-4)
    torch.testing.assert_close(made.rollouts.entropy, known.entropy, atol=3e-5, rtol=1e-4)
    assert (made.forms, made.changed_prompts, made.changed_completions) == ({"text": 6}, 0, 0)
    assert made.length == pytest.approx(float(known.lengths.double().mean()))
    assert abs(made.z) < 4


def test_truncated_completions_are_left_out_of_the_loss_where_the_run_did_so(policy: Policy, batch: Batch) -> None:
    prompts = [p.prompt for p in batch.problems]
    plain = retokenize(policy, logged(prompts, batch.texts), LIMIT, 1.0)
    made = retokenize(policy, logged(prompts, batch.texts), LIMIT, 1.0, mask_truncated=True)
    cut = made.rollouts.truncated
    assert not made.rollouts.mask[cut].any()
    assert not made.rollouts.logp[cut].any()
    assert torch.equal(made.rollouts.mask[~cut], plain.rollouts.mask[~cut])
    assert made.z == plain.z  # of all that was drawn


@pytest.fixture(scope="module")
def chatty() -> Policy:
    """A random model on bytes with the chat template of Qwen and SmolLM."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|end|>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {token: i for i, token in enumerate([*special, *alphabet, "ab"])}
    core = Tokenizer(models.BPE(vocabulary, [("a", "b")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(special)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|end|>",
                                        additional_special_tokens=["<|im_start|>"])  # fmt: skip
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(LlamaConfig(vocab_size=len(vocabulary), hidden_size=16, intermediate_size=16,
                                              num_hidden_layers=1, num_attention_heads=2,
                                              max_position_embeddings=120))  # fmt: skip
    return Policy("chatty", model.eval(), tokenizer, torch.tensor([2]), 0)


def prompt_ids(policy: Policy, prompt: Any, **template: Any) -> tuple[list[int], dict[str, int], int]:
    made = retokenize(policy, logged([prompt], ["x", "y"]), LIMIT, 1.0, template)
    return made.rollouts.prompt_ids[0].tolist(), dict(made.forms), made.changed_prompts


CONVERSATIONS = [
    [{"role": "user", "content": "2+2?"}],
    [{"role": "system", "content": "be\nbrief"}, {"role": "user", "content": "user\nline two\n"}],
    [{"role": "user", "content": "system\nno\nuser\nyes"}],
]


FORMS = ["conversation", "rendered text", "conversation without special tokens"]
CASES = [(one, form) for one in CONVERSATIONS for form in FORMS][:-1]  # the last reads as one message and as two


@pytest.mark.parametrize(("conversation", "form"), CASES)
def test_a_conversation_is_rendered_however_it_was_written(chatty: Policy, conversation: Any, form: str) -> None:
    tokenizer = chatty.tokenizer
    text = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    known = tokenizer(text, add_special_tokens=False).input_ids
    bare = tokenizer.decode(known, skip_special_tokens=True)
    assert "<|" not in bare
    given = {"conversation": conversation, "rendered text": text, "conversation without special tokens": bare}[form]
    assert prompt_ids(chatty, given) == (known, {form: 1}, 0)


def test_arguments_of_the_template_count(chatty: Policy) -> None:
    ids, _, _ = prompt_ids(chatty, CONVERSATIONS[0], think="hm")
    assert chatty.tokenizer.decode(ids).endswith("<|im_start|>assistant\nhm")


def test_a_text_that_is_no_conversation_is_encoded_as_it_is(chatty: Policy) -> None:
    ids, forms, changed = prompt_ids(chatty, "user: 2+2?")
    assert chatty.tokenizer.decode(ids) == "user: 2+2?"
    assert (forms, changed) == ({"text": 1}, 0)


def test_texts_that_do_not_come_back_are_counted(policy: Policy) -> None:
    """The tokenizer of `tiny` knows digits and signs; anything else is unknown to it."""
    made = retokenize(policy, logged(["1+2=", "3+€="], ["1", "2", "ß", "4"]), LIMIT, 1.0)
    assert (made.changed_prompts, made.changed_completions) == (1, 1)


def test_other_tokens_of_the_same_text_cannot_be_seen_but_in_the_length(chatty: Policy) -> None:
    """a, b, end spell what ab, end spells: the text comes back, and the completion has a token less."""
    made = retokenize(chatty, logged([CONVERSATIONS[0]], ["ab", "ba"]), LIMIT, 1.0)
    assert made.changed_completions == 0
    assert made.rollouts.lengths.tolist() == [2, 3]
    assert made.length == 2.5


def test_empty_completions_have_their_end_token(chatty: Policy) -> None:
    made = retokenize(chatty, logged([CONVERSATIONS[0]], ["", "a"]), LIMIT, 1.0)
    assert made.rollouts.tokens[0][made.rollouts.mask[0]].tolist() == [2]


def test_messages_with_more_than_text_are_refused(chatty: Policy) -> None:
    said = {"role": "assistant", "content": "4", "tool_calls": None}
    fine = retokenize(chatty, logged([CONVERSATIONS[0]], [[said], [said]]), LIMIT, 1.0)
    assert fine.texts == ("4", "4")
    for bad, what in (
        ([{**said, "tool_calls": [{"name": "f"}]}], "has tool_calls"),
        ([said, said], "consists of 2 messages"),
        ([{**said, "reasoning_content": "hm"}], "has reasoning_content"),
    ):
        with pytest.raises(UserError, match=f"file: a completion {what}, so its tokens cannot be recovered"):
            retokenize(chatty, logged([CONVERSATIONS[0]], [[said], bad]), LIMIT, 1.0)


def test_what_does_not_fit_the_model_is_refused(chatty: Policy, policy: Policy) -> None:
    with pytest.raises(UserError, match=r"up to 131 tokens, but the context of model chatty is 120"):
        retokenize(chatty, logged(["x" * 120], ["y" * 11, "y"]), 11, 1.0)
    with pytest.raises(
        UserError, match="the prompts are conversations, and the tokenizer of tiny has no chat template"
    ):
        retokenize(policy, logged([CONVERSATIONS[0]], ["1", "2"]), LIMIT, 1.0)
    with pytest.raises(UserError, match="the prompt '' has no tokens"):
        retokenize(policy, logged([""], ["1", "2"]), LIMIT, 1.0)


def test_the_fit_says_that_another_model_wrote_the_texts(policy: Policy, batch: Batch) -> None:
    prompts = [p.prompt for p in batch.problems]
    made = retokenize(policy, logged(prompts[1:] + prompts[:1], batch.texts), LIMIT, 1.0)
    assert made.z < -30
    assert made.excess.value < -0.5
    assert not math.isnan(made.excess.se)
