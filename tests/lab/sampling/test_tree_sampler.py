"""Trees against a plain forward of every leaf, and against the tokens that their branchings promise."""

from __future__ import annotations

from math import prod

import pytest
import torch
from test_sampler import naive_logits, prompts, rows

from grposcope.core.errors import UserError
from grposcope.lab.cpu import native
from grposcope.lab.credit.trees import generated, origins
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.sampler import Completions, Sampling, Tree, sample_trees

DECODERS = {
    "compiled": ("llama", {}),
    "in torch": ("llama", {"native": False}),
    "cached": ("llama", {"llama": False}),
    "another family": ("gpt_neox", {}),
}


def grow(
    policy: Policy, tree: Tree, group: int, most: int = 12, eos: torch.Tensor | None = None, seed: int = 0
) -> tuple[Completions, torch.Tensor]:
    ids, mask = prompts(policy, True)
    end = policy.eos if eos is None else eos
    stream = torch.Generator().manual_seed(seed)
    return sample_trees(policy.model, (ids, mask), group, tree, Sampling(most), end, policy.pad, stream)


@pytest.mark.parametrize("decoder", DECODERS)
def test_logprobs_and_entropies_are_those_of_a_plain_forward(
    decoder: str, make_policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, without = DECODERS[decoder]
    if "native" in without:
        monkeypatch.setattr(native, "fits", lambda model: False)
    if "llama" in without:
        monkeypatch.setenv("GRPOSCOPE_CPU_ENGINE", "off")
    policy = make_policy(family)
    out, levels = grow(policy, Tree((2, 2, 3), 2), 24, eos=torch.arange(0, 60, 9))
    assert int(levels.max()) == 2
    for b in range(len(out.tokens)):
        tokens = out.tokens[b][out.mask[b]].tolist()
        expected = naive_logits(policy, rows(policy, True)[b // 24], tokens).log_softmax(-1)
        picked = expected.gather(-1, torch.tensor(tokens)[:, None])[:, 0]
        torch.testing.assert_close(out.logp[b][out.mask[b]], picked, atol=2e-5, rtol=1e-4)
        entropy = -(expected.exp() * expected).sum(-1)
        torch.testing.assert_close(out.entropy[b][out.mask[b]], entropy, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_leaves_share_what_they_branched_from_and_draw_the_rest(policy: Policy, seed: int) -> None:
    widths, group = (2, 2, 2), 16
    out, levels = grow(policy, Tree(widths, 3), group, eos=torch.arange(0, 60, 9), seed=seed)
    parent, shared = origins(levels, out.mask, group, widths)
    lengths = out.mask.sum(-1)
    assert (shared < lengths).any()
    assert (shared == lengths).any()  # a branch that ended early stands for several leaves
    for b, (of, many) in enumerate(zip(parent.tolist(), shared.tolist(), strict=True)):
        if of >= 0:
            assert torch.equal(out.tokens[b, :many], out.tokens[b - b % group + of, :many])
    spans = torch.tensor([prod(widths[d + 1 :]) for d in range(3)])
    leaf = torch.arange(len(levels))[:, None]
    nodes = torch.stack((leaf // spans[levels], torch.arange(levels.shape[1]).expand_as(levels)), -1)[out.mask]
    assert generated(levels, out.mask, group, widths) == len(torch.unique(nodes, dim=0))
    written = {tuple(row[keep].tolist()) for row, keep in zip(out.tokens, out.mask, strict=True)}
    assert len(written) > 20  # of 48: branches are drawn apart


def test_they_branch_every_so_many_tokens_and_generate_what_that_promises(policy: Policy) -> None:
    never = torch.tensor([-1])
    out, levels = grow(policy, Tree((2, 3), 4), 12, most=10, eos=never)
    assert (levels == (torch.arange(10) >= 4)).all()
    assert generated(levels, out.mask, 12, (2, 3)) == 3 * (4 * 4 + 12 * 6)
    assert out.truncated.all()


def test_they_branch_after_marked_tokens(policy: Policy) -> None:
    marks = torch.zeros(policy.model.config.vocab_size, dtype=torch.bool)
    marks[::4] = True
    out, levels = grow(policy, Tree((2, 2, 2), 2, marks), 8)
    for tokens, level, mask in zip(out.tokens, levels, out.mask, strict=True):
        passed, expected = 0, []
        for token in tokens[mask].tolist():
            expected.append(min(passed // 2, 2))
            passed += int(marks[token])
        assert level[mask].tolist() == expected


def test_one_level_is_a_group_of_independent_rollouts(policy: Policy) -> None:
    from grposcope.lab.sampling.sampler import sample

    ids, mask = prompts(policy, True)
    stream = torch.Generator().manual_seed(4)
    plain = sample(policy.model, (ids, mask), 6, Sampling(9), policy.eos, policy.pad, stream)
    out, levels = grow(policy, Tree((3,), 1), 6, most=9, seed=4)
    assert torch.equal(out.tokens, plain.tokens)
    assert torch.equal(out.truncated, plain.truncated)
    assert not levels.any()


def test_a_tree_wider_than_the_group_is_refused(policy: Policy) -> None:
    with pytest.raises(UserError, match="16 leaves, and the group of 8"):
        grow(policy, Tree((4, 4), 2), 8)
