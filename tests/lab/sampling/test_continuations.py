"""Continuations against greedy decoding and exact values by a plain forward; what is shared and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from closeness import within_ulps

from grposcope.core.errors import UserError
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy, encode
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.continuations import ContinuationPlan, Continuations, continue_from
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.generation import _shaped
from grposcope.lab.sampling.rollouts import _to_rollouts
from grposcope.lab.sampling.sampler import Sampling, sample
from grposcope.lab.tasks.base import Problem, Task

PROBLEMS = tuple(Problem(text, text) for text in ("12+3=", "7="))


class Spelling(Task):
    """A reward that every character and its place counts in."""

    name = "spelling"

    def reward(self, problem: Problem, completion: str) -> float:
        return sum(ord(c) * (i + 1) for i, c in enumerate(completion)) % 7 / 7


def drawn(policy: Policy, most: int = 8, group: int = 3) -> RolloutBatch:
    ids, mask = encode(policy, [p.prompt for p in PROBLEMS])
    stream = torch.Generator().manual_seed(0)
    completions = sample(policy.model, (ids, mask), group, Sampling(most), policy.eos, policy.pad, stream)
    return _to_rollouts(ids, mask, completions, torch.zeros(len(PROBLEMS), group, dtype=torch.float64), group)


def every_place(rollouts: RolloutBatch) -> list[list[int]]:
    return [list(range(int(length))) for length in rollouts.lengths]


def from_places(
    policy: Policy, rollouts: RolloutBatch, places: Sequence[Sequence[int]], k: int, sampling: Sampling, **given: object
) -> Continuations:
    stream = torch.Generator().manual_seed(5)
    plan = ContinuationPlan(places, k, **given)
    return continue_from(policy, Spelling(), PROBLEMS, rollouts, plan, DrawSettings(sampling), stream)


@torch.inference_mode()
def greedy(policy: Policy, ids: list[int], most: int) -> list[int]:
    """What a plain forward finds likeliest, token by token, up to the end token or `most` tokens."""
    written: list[int] = []
    while len(written) < most and (not written or written[-1] not in policy.eos.tolist()):
        written.append(int(policy.model(torch.tensor([[*ids, *written]])).logits[0, -1].argmax()))
    return written


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_continuations_go_on_where_the_rollout_stood(family: str, make_policy) -> None:
    policy = make_policy(family)
    rollouts = drawn(policy)
    places = every_place(rollouts)
    found = from_places(policy, rollouts, places, 2, Sampling(8, temperature=0.0), at_once=6)
    assert found.row.tolist() == [row for row, some in enumerate(places) for _ in some]
    assert found.place.tolist() == [place for some in places for place in some]
    for row, place, u in zip(found.row.tolist(), found.place.tolist(), found.which.tolist(), strict=True):
        prompt = rollouts.prompt_ids[row][rollouts.prompt_mask[row]].tolist()
        before = rollouts.tokens[row, :place].tolist()
        after = greedy(policy, [*prompt, *before], 8 - place)
        assert found.texts[u] == (policy.tokenizer.decode(after, skip_special_tokens=True),) * 2
        whole = policy.tokenizer.decode([*before, *after], skip_special_tokens=True)
        assert found.rewards[u].tolist() == [Spelling().reward(PROBLEMS[0], whole)] * 2
        assert found.lengths[u].tolist() == [len(after)] * 2


def test_their_mean_is_the_value_of_the_text_so_far(policy: Policy) -> None:
    """With one token left the value is a sum over the vocabulary; |z| < 4 at each of the boundaries."""
    rollouts, k = drawn(policy, most=4), 2000
    places = [[3] if int(length) == 4 else [] for length in rollouts.lengths]
    assert sum(map(len, places)) >= 3
    found = from_places(policy, rollouts, places, k, Sampling(4, temperature=0.8))
    for row, mean, rewards in zip(found.row.tolist(), found.values(), found.per_boundary, strict=True):
        ids = [*rollouts.prompt_ids[row][rollouts.prompt_mask[row]].tolist(), *rollouts.tokens[row, :3].tolist()]
        with torch.no_grad():
            probabilities = (policy.model(torch.tensor([ids])).logits[0, -1] / 0.8).softmax(-1).double()
        texts = policy.tokenizer.batch_decode(
            [[*rollouts.tokens[row, :3].tolist(), v] for v in range(len(probabilities))], skip_special_tokens=True
        )
        value = sum(float(p) * Spelling().reward(PROBLEMS[0], t) for p, t in zip(probabilities, texts, strict=True))
        assert abs(float(mean) - value) < 4 * float(rewards.std()) / k**0.5


def test_equal_texts_share_their_continuations_and_tokens_count_once(policy: Policy) -> None:
    rollouts = drawn(policy)
    starts = [[0]] * len(rollouts.mask)
    together = from_places(policy, rollouts, starts, 4, Sampling(8))
    assert together.which.tolist() == [0, 0, 0, 1, 1, 1]
    assert together.rewards.shape == (2, 4)
    alone = from_places(policy, rollouts, starts, 4, Sampling(8), share=False)
    assert alone.which.tolist() == list(range(6))
    assert alone.tokens == int(alone.lengths.sum()) > together.tokens
    assert within_ulps(together.values()[:3], together.rewards[0].mean().expand(3), 2)
    first, second = together.halves()
    torch.testing.assert_close((first + second) / 2, together.values())


def test_lengths_end_where_the_completion_may(policy: Policy) -> None:
    rollouts = drawn(policy)
    found = from_places(policy, rollouts, every_place(rollouts), 8, Sampling(8))
    reached = found.lengths[found.which] + found.place[:, None]
    assert int(reached.max()) == 8
    assert int(found.lengths.min()) >= 1


def test_values_lie_on_the_token_before_the_boundary(policy: Policy) -> None:
    rollouts = drawn(policy)
    found = from_places(policy, rollouts, [[0, 1], [], [2], [], [], []], 2, Sampling(8))
    table = found.on_tokens(rollouts.mask)
    assert (~table.isnan()).nonzero().tolist() == [[0, 0], [2, 1]]
    assert table[0, 0] == found.values()[1]
    assert table[2, 1] == found.values()[2]


def test_the_penalty_for_length_counts_the_text_before(policy: Policy) -> None:
    objective = replace(recipes.ALL["grpo"], overlong=0.5)
    found = from_places(policy, drawn(policy), [[1, 3], [], [], [], [], []], 3, Sampling(8))
    penalised = _shaped(found, objective, 8)
    expected = [
        [reward + min(0.0, max(-1.0, (4 - (place + length)) / 4)) for reward, length in zip(r, n, strict=True)]
        for r, n, place in zip(found.rewards.tolist(), found.lengths.tolist(), (1, 3), strict=True)
    ]
    torch.testing.assert_close(penalised.rewards, torch.tensor(expected, dtype=torch.float64))
    assert _shaped(found, recipes.ALL["grpo"], 8) is found


def test_no_boundaries_cost_nothing(policy: Policy) -> None:
    rollouts = drawn(policy)
    found = from_places(policy, rollouts, [[]] * 6, 4, Sampling(8))
    assert found.tokens == 0
    assert bool(found.on_tokens(rollouts.mask).isnan().all())


@pytest.mark.parametrize(
    ("places", "k", "most", "said"),
    [
        ([[1], [], [], [], [], []], 0, 8, "0 continuations per boundary"),
        ([[], [99], [], [], [], []], 2, 8, "rollout 1 has .* from token 99 is not inside it"),
        ([[3], [], [], [], [], []], 2, 3, "3 tokens after a prompt of 5 leave no room"),
        ([[1], [], [], [], [], []], 2, 60, "a prompt of 5 tokens and a completion of 60 are more than the 64"),
    ],
)
def test_what_cannot_be_continued_is_said(
    policy: Policy, places: list[list[int]], k: int, most: int, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        from_places(policy, drawn(policy), places, k, Sampling(most))
