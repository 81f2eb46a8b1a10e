"""The sampler against Hugging Face's own forward, and against the probabilities it should draw from."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from grposcope.core.errors import UserError
from grposcope.lab import cpu
from grposcope.lab.cpu import llama, native
from grposcope.lab.policies import Policy
from grposcope.lab.sampling import sampler
from grposcope.lab.sampling.sampler import Completions, Sampling, sample


def prompts(policy: Policy, ragged: bool) -> tuple[Tensor, Tensor]:
    ids = torch.randint(3, 60, (3, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids, dtype=torch.bool)
    if ragged:
        mask[0, :4], mask[2, :1] = False, False
    return ids.masked_fill(~mask, policy.pad), mask


def draw(
    policy: Policy, sampling: Sampling, ragged: bool = True, seed: int = 0, eos: Tensor | None = None
) -> Completions:
    ids, mask = prompts(policy, ragged)
    end = policy.eos if eos is None else eos
    return sample(policy.model, (ids, mask), 4, sampling, end, policy.pad, torch.Generator().manual_seed(seed))


def naive_logits(policy: Policy, prompt: list[int], completion: list[int]) -> Tensor:
    """Logits of every completion token by one plain forward without padding or cache, (t, V)."""
    ids = torch.tensor([[*prompt, *completion]])
    with torch.no_grad():
        return policy.model(ids).logits[0, len(prompt) - 1 : -1]


def rows(policy: Policy, ragged: bool) -> list[list[int]]:
    ids, mask = prompts(policy, ragged)
    return [row[keep].tolist() for row, keep in zip(ids, mask, strict=True)]


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_and_entropies_are_those_of_a_plain_forward(policy: Policy, ragged: bool, temperature: float) -> None:
    out = draw(policy, Sampling(12, temperature), ragged)
    for b in range(len(out.tokens)):
        tokens = out.tokens[b][out.mask[b]].tolist()
        expected = (naive_logits(policy, rows(policy, ragged)[b // 4], tokens) / temperature).log_softmax(-1)
        picked = expected.gather(-1, torch.tensor(tokens)[:, None])[:, 0]
        torch.testing.assert_close(out.logp[b][out.mask[b]], picked, atol=2e-5, rtol=1e-4)
        entropy = -(expected.exp() * expected).sum(-1)
        torch.testing.assert_close(out.entropy[b][out.mask[b]], entropy, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_lean_and_cached_decoders_agree(
    family: str, ragged: bool, make_policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy(family)
    assert llama.fits(policy.model)
    lean = draw(policy, Sampling(10), ragged)
    monkeypatch.setenv("GRPOSCOPE_CPU_ENGINE", "off")
    cached = draw(policy, Sampling(10), ragged)
    assert torch.equal(lean.tokens, cached.tokens)
    torch.testing.assert_close(lean.logp, cached.logp, atol=2e-5, rtol=1e-4)


def test_other_families_run_through_the_cached_decoder(make_policy) -> None:
    policy = make_policy("gpt_neox")
    assert not llama.fits(policy.model)
    out = draw(policy, Sampling(6))
    tokens = out.tokens[0][out.mask[0]].tolist()
    expected = naive_logits(policy, rows(policy, True)[0], tokens).log_softmax(-1)
    torch.testing.assert_close(
        out.logp[0][out.mask[0]], expected.gather(-1, torch.tensor(tokens)[:, None])[:, 0], atol=2e-5, rtol=1e-4
    )


class NoDecoder:
    """In place of the decoder in C, so that draws are those in torch."""


@pytest.mark.parametrize("part", [None, 1, 7, 4096])
def test_frequencies_match_probabilities(policy: Policy, part: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """χ² of 20,000 first tokens against the model's distribution, cells of at least 5 expected."""
    from scipy.stats import chisquare

    if part is None:
        policy = compiled_policy(policy, 700)
    else:
        monkeypatch.setattr(sampler, "PART", part)
        monkeypatch.setattr(cpu, "DrawsAhead", NoDecoder)
    ids, mask = prompts(policy, False)
    n = 20_000
    out = sample(policy.model, (ids[:1], mask[:1]), n, Sampling(1), policy.eos, 0, torch.Generator().manual_seed(3))
    probabilities = naive_logits(policy, ids[0].tolist(), [0]).softmax(-1)[0].double().numpy()
    counts = torch.bincount(out.tokens[:, 0], minlength=len(probabilities)).numpy()
    assert chisquare(counts, n * probabilities / probabilities.sum()).pvalue > 1e-3


@pytest.mark.parametrize("part", [2, 3, 64])
@pytest.mark.parametrize("columns_first", [False, True])
def test_a_draw_inverts_the_cumulative_distribution(
    part: int, columns_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evenly spread draws fall on each token as often as its probability says, on a logit of -∞ never."""
    monkeypatch.setattr(sampler, "PART", part)
    n = 4000
    row = torch.tensor([-math.inf, 1.5, -math.inf, -math.inf, 0.2, -80.0, 2.0, 90.0, 88.5, -math.inf, 91.0])
    logits = row.repeat(n, 1)
    chosen, logp, entropy = sampler._draw(
        logits.T.contiguous().T if columns_first else logits, Sampling(1), torch.arange(n)[:, None] / n
    )
    expected = row.double().softmax(-1)
    shares = torch.bincount(chosen, minlength=len(row)) / n
    torch.testing.assert_close(shares.double(), expected, atol=3 / n, rtol=0)
    torch.testing.assert_close(logp, expected.log()[chosen].float())
    torch.testing.assert_close(entropy[0].double(), torch.special.entr(expected).sum(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("part", [2, 3, 64])
def test_sums_of_parts_do_not_depend_on_the_order(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In turn, as on a CPU, and all at once, as on a GPU; the last part may be shorter, and a part all -∞."""
    monkeypatch.setattr(sampler, "PART", part)
    logits = 30 * torch.randn(5, 11, generator=torch.Generator().manual_seed(0))
    logits[1, :7] = -math.inf
    logits[2] = -math.inf
    in_turn, together = sampler._sums_in_turn(logits), sampler._sums_together(logits)
    torch.testing.assert_close(in_turn[:, :2], together[:, :2])
    torch.testing.assert_close(in_turn[:, 3:], together[:, 3:])
    assert torch.equal(in_turn[0, 2], together[0, 2])


def compiled_policy(policy: Policy, vocabulary: int, precision: str = "float32") -> Policy:
    """The policy with a random model that the decoder in C takes, whose logits are steep."""
    if native._library() is None or native.available(precision) != precision:
        pytest.skip("needs a C compiler and a processor with the instructions")
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, num_key_value_heads=2, **sizes)).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(8)
        model.lm_head.weight[5::7] *= 9
    assert native.fits(model)
    return replace(policy, model=model)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
@pytest.mark.parametrize(("vocabulary", "group"), [(61, 1), (256, 6), (700, 11)])
def test_draws_in_c_are_those_in_torch(
    policy: Policy, vocabulary: int, group: int, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same tokens by the same random numbers while rows leave, and as many numbers used."""
    other, ends = compiled_policy(policy, vocabulary), torch.arange(0, vocabulary, 9)
    monkeypatch.setattr(sampler, "TOGETHER", 5)
    monkeypatch.setattr(sampler, "PART", 100)
    ids, mask = prompts(policy, True)
    streams = [torch.Generator().manual_seed(4) for _ in range(2)]
    given = (other.model, (ids, mask), group, Sampling(14, temperature), ends, policy.pad)
    in_c = sample(*given, streams[0])
    monkeypatch.setattr(cpu, "DrawsAhead", NoDecoder)
    in_torch = sample(*given, streams[1])
    assert torch.equal(in_c.tokens, in_torch.tokens)
    torch.testing.assert_close(in_c.logp, in_torch.logp, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(in_c.entropy, in_torch.entropy, atol=1e-5, rtol=1e-5)
    assert torch.equal(torch.rand(3, generator=streams[0]), torch.rand(3, generator=streams[1]))


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_rounded_weights_draw_by_the_probabilities_that_they_tell(policy: Policy, precision: str) -> None:
    """χ² of 20,000 first tokens against the log-probabilities given with them, which are not the policy's."""
    from scipy.stats import chisquare

    policy = compiled_policy(policy, 61, precision)
    ids, mask = prompts(policy, False)
    n, sampling = 20_000, Sampling(1, precision=precision)
    out = sample(policy.model, (ids[:1], mask[:1]), n, sampling, policy.eos, 0, torch.Generator().manual_seed(3))
    told = {int(token): float(logp) for token, logp in zip(out.tokens[:, 0], out.logp[:, 0], strict=True)}
    counts = torch.bincount(out.tokens[:, 0]).numpy()
    tokens = sorted(told)
    shares = torch.tensor([told[token] for token in tokens]).double().exp().numpy()
    assert shares.sum() > 0.99
    assert chisquare(counts[tokens], n * shares / shares.sum()).pvalue > 1e-3
    exact = naive_logits(policy, ids[0].tolist(), [0]).log_softmax(-1)[0]
    away = torch.tensor([told[token] - float(exact[token]) for token in tokens]).abs().max()
    assert 1e-4 < away < 1


def test_top_k_and_top_p_keep_the_likeliest(policy: Policy) -> None:
    ids, mask = prompts(policy, False)
    order = naive_logits(policy, ids[0].tolist(), [0])[0].argsort(descending=True)
    probabilities = naive_logits(policy, ids[0].tolist(), [0])[0].softmax(-1)[order]

    def seen(sampling: Sampling) -> set[int]:
        stream = torch.Generator().manual_seed(0)
        return set(
            sample(policy.model, (ids[:1], mask[:1]), 4000, sampling, policy.eos, 0, stream).tokens[:, 0].tolist()
        )

    assert seen(Sampling(1, top_k=3)) == set(order[:3].tolist())
    nucleus = int((probabilities.cumsum(0) < 0.2).sum()) + 1
    assert seen(Sampling(1, top_p=0.2)) == set(order[:nucleus].tolist())
    assert seen(Sampling(1, top_p=1e-6)) == {int(order[0])}


def test_temperature_zero_is_greedy(policy: Policy) -> None:
    out = draw(policy, Sampling(5, temperature=0.0))
    for b in range(len(out.tokens)):
        tokens = out.tokens[b][out.mask[b]].tolist()
        assert tokens == naive_logits(policy, rows(policy, True)[b // 4], tokens).argmax(-1).tolist()


def test_end_token_closes_a_row_and_is_part_of_it(policy: Policy) -> None:
    every_third = torch.arange(0, policy.model.config.vocab_size, 3)
    out = draw(policy, Sampling(40), eos=every_third)
    for tokens, mask, truncated in zip(out.tokens, out.mask, out.truncated, strict=True):
        kept = tokens[mask]
        assert mask.tolist() == sorted(mask.tolist(), reverse=True)
        assert not torch.isin(kept[:-1], every_third).any()
        assert bool(truncated) != bool(torch.isin(kept[-1], every_third))
        assert (tokens[~mask] == policy.pad).all()
    assert out.logp[~out.mask].abs().sum() == 0
    assert int(out.mask.sum(-1).max()) == out.tokens.shape[1]


def test_rows_that_never_end_are_truncated(policy: Policy) -> None:
    out = draw(policy, Sampling(7), eos=torch.tensor([-1]))
    assert out.truncated.all()
    assert out.mask.all()
    assert out.tokens.shape == (12, 7)


def test_same_seed_same_completions(policy: Policy) -> None:
    one, two, other = (
        draw(policy, Sampling(9), seed=5),
        draw(policy, Sampling(9), seed=5),
        draw(policy, Sampling(9), seed=6),
    )
    assert torch.equal(one.tokens, two.tokens)
    assert torch.equal(one.logp, two.logp)
    assert one.tokens.shape != other.tokens.shape or not torch.equal(one.tokens, other.tokens)


def test_weights_that_overflowed_are_said_to_have(policy: Policy) -> None:
    broken = replace(policy, model=copy.deepcopy(policy.model))
    with torch.no_grad():
        for parameter in broken.model.parameters():
            parameter.fill_(math.nan)
    with pytest.raises(UserError, match="logits are not finite"):
        draw(broken, Sampling(4, 1.0))
