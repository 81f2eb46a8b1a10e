"""Credit from a teacher: a loop over its definition, and which gradient it is an estimate of, by enumeration."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from test_merging import Listed, logits_of, text_reward
from text_policies import by_row
from torch import Tensor

from grposcope.core.capabilities import ADVANTAGE
from grposcope.core.errors import UserError
from grposcope.lab.credit import chosen
from grposcope.lab.credit.distillation import _log_ratio
from grposcope.lab.objectives import recipes

LIVE = CASES[0].rollouts


@pytest.mark.parametrize("gamma", [0.0, 0.4, 1.0])
def test_against_the_loop(gamma: float) -> None:
    for case in CASES[:5]:
        mask, logp, other = case.rollouts.mask, case.logp, case.ref
        given = _log_ratio(logp, other, mask, gamma)
        for i in range(len(mask)):
            at = mask[i].nonzero()[:, 0].tolist()
            for n, t in enumerate(at):
                later = [gamma**k * float(other[i, u] - logp[i, u]) for k, u in enumerate(at[n:])]
                assert float(given[i, t]) == pytest.approx(sum(later), abs=1e-12)
        assert not given[~mask].any()


def test_which_gradient_it_estimates() -> None:
    """γ = 0: of the KL of every next token, states held; γ = 1: of the KL of whole texts; they are not the same."""
    listed = Listed(3, lambda text: text, text_reward)
    logits = logits_of(listed.contexts)
    teacher = torch.randn(logits.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    logp, other = listed.token_logp(logits), listed.token_logp(teacher)

    def expected(gamma: float) -> Tensor:
        def credit(rows: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
            return _log_ratio(logp[rows], other[rows], mask, gamma)

        return listed.expected(logits, by_row(listed, credit), 1)

    def sequences(z: Tensor) -> Tensor:
        mine = listed.token_logp(z)
        return (mine.sum(-1).exp() * (mine - other).sum(-1)).sum()

    def next_tokens(z: Tensor) -> Tensor:
        """Σ over the states of how often the policy, held still, comes there, times the KL of its next token."""
        before = (logp.cumsum(-1) - logp).exp()  # π of the text before each token
        divergence = (z.softmax(-1) * (z.log_softmax(-1) - teacher.log_softmax(-1))).sum(-1)
        reached = torch.zeros(listed.contexts, dtype=torch.float64)
        reached[listed.place[listed.mask]] = before[listed.mask]
        return (reached * divergence).sum()

    of_texts, of_tokens = (torch.func.grad(kl)(logits) for kl in (sequences, next_tokens))
    torch.testing.assert_close(expected(1.0), -of_texts, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(expected(0.0), -of_tokens, rtol=1e-10, atol=1e-12)
    assert float((of_texts - of_tokens).abs().max()) > 1e-2


def test_outcome_credit_is_added_where_asked() -> None:
    given = LIVE.annotated(other_logp=CASES[0].ref * LIVE.mask)
    plain, mixed = (chosen(f"feedback:outcome={c}").assign(recipes.GRPO, given) for c in (0, 0.5))
    torch.testing.assert_close(mixed - plain, 0.5 * recipes.GRPO.token_advantages(LIVE, torch.float64))
    assert ADVANTAGE in chosen("teacher:model=tiny,outcome=1").source.provides
    assert ADVANTAGE not in chosen("teacher:model=tiny").source.provides


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(UserError, match="teacher needs model"):
        chosen("teacher")
    with pytest.raises(UserError, match="log-probabilities of another distribution"):
        chosen("feedback").assign(recipes.GRPO, LIVE)
