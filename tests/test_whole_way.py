"""The whole way in one test: rollouts → credit → per-token weights → Gram matrix → plan → facts → page.

Read it as documentation: each step names the module that does it, the shape of what comes out, and the identity
that must hold.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from alike import alike

from grposcope import runs_page
from grposcope.instruments.gradient import findings as geometry
from grposcope.instruments.gradient import probe_record as probe_folder
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.gradient import recording as record
from grposcope.instruments.gradient.probe import probe
from grposcope.instruments.group_size import planning
from grposcope.lab import credit, policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.sampling.logprobs import token_logprobs
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.logs import read
from grposcope.maths import moments
from grposcope.render import page

P, G = 16, 8


@pytest.mark.slow
def test_from_rollouts_to_the_page(tmp_path: Path) -> None:
    # 1. A policy answers P prompts G times each, and the task's verifier grades every answer.
    policy, task = policies.load("tiny"), tasks.load("arithmetic")
    recipe, sampling = recipes.RLOO, Sampling(max_tokens=task.max_tokens)
    batch = collect(policy, task, task.problems("train"), recipe, sampling, (P, G), seed=0, position=0)
    rollouts = batch.rollouts
    assert rollouts.rewards.shape == (P, G)
    assert rollouts.tokens.shape == rollouts.mask.shape  # (B, T), B = P · G

    # 2. Credit: the advantage that each token carries, (B, T). Outcome credit spreads each rollout's over its tokens.
    advantage = recipe.advantage(rollouts.rewards)  # (P, G), leave-one-out: sums to 0 in every group
    per_token = credit.per_token("outcome", recipe, rollouts)
    torch.testing.assert_close(per_token, (advantage.reshape(-1, 1) * rollouts.mask).float())

    # 3. The objective turns credit into per-token weights w = ∂L/∂log π, (B, T). On policy every ratio is 1.
    logp = token_logprobs(policy.model, rollouts, torch.arange(P * G))[0]  # (B, T)
    weights = recipe.weights(logp.detach(), logp.detach(), rollouts)
    assert weights.shape == rollouts.tokens.shape

    # 4. One backward pass gives the Gram matrix of the scores s_i = ∇ log π(y_i): K_ij = ⟨s_i, s_j⟩, (B, B) …
    probed = probe(policy.model, rollouts, recipe)
    gram = probed.gram
    assert gram.shape == (P * G, P * G)
    # … so that the squared length of the policy gradient Σ_i u_i s_i is u'Ku. Autograd finds the same gradient.
    policy.model.zero_grad()
    recipe.loss(logp, logp.detach(), rollouts).backward()
    autograd = sum(float(p.grad.double().square().sum()) for p in policy.model.parameters() if p.grad is not None)
    u = (weights.sum(-1) / rollouts.lengths).double().numpy()  # RLOO weighs all tokens of a rollout alike
    np.testing.assert_allclose(u @ gram @ u, autograd, rtol=1e-4)

    # 5. The Gram matrix and the rewards hold all moments of the gradient; these say what a further rollout is worth.
    measured = moments.from_gram(gram, rollouts.rewards.numpy())
    plan = planning.optimal_group(measured)
    assert measured.delta.value > 0
    assert not plan.decided  # 16 prompts are too few: 8 groups have two successes and two failures
    assert plan.more_prompts > 0

    # 6. A probe is kept as a typed record, and what is said of it is a fact: a number and its sentence, made once.
    kept = record.record(probed, model="tiny", task="arithmetic", seed=0)
    texts = [
        [policy.tokenizer.decode([i]) for i in ids[m]] for ids, m in zip(rollouts.tokens, rollouts.mask, strict=True)
    ]
    probe_folder.write(tmp_path, kept, record.gram(probed), record.rollouts(probed, batch.problems, batch.texts, texts))
    opened = read(tmp_path)
    facts = geometry.facts(probes.of_run(opened)[-1])
    assert alike(facts, geometry.facts(kept))

    # 7. The page shows the same sentences.
    html = page.html(runs_page.document([opened]))
    for fact in facts:
        assert page._escaped(fact.sentence)[1:-1] in html
