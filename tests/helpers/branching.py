"""Every tree that a small policy can grow, with its probability: branches, stops and early ends are all listed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

END, A, B = 0, 1, 2
Text = tuple[int, ...]


@dataclass(frozen=True)
class Leaf:
    """A completion and the level of each of its tokens."""

    text: Text
    levels: tuple[int, ...]


@dataclass(frozen=True)
class Grown:
    """The leaves of a branch or of a whole tree, and its tokens, each once, as (context, token)."""

    leaves: tuple[Leaf, ...]
    drawn: tuple[tuple[Text, int], ...]


@dataclass(frozen=True)
class Policy:
    """A distribution over `alphabet` for every text shorter than `longest`; END ends a text."""

    alphabet: tuple[int, ...]
    longest: int
    reward: Callable[[Text], float]

    @property
    def contexts(self) -> list[Text]:
        others = [token for token in self.alphabet if token != END]
        return [text for n in range(self.longest) for text in itertools.product(others, repeat=n)]

    def token_logp(self, logits: Tensor) -> dict[tuple[Text, int], Tensor]:
        """log π of every token in every context, from logits (contexts, alphabet)."""
        known = logits.log_softmax(-1)
        return {
            (text, token): known[i, j]
            for i, text in enumerate(self.contexts)
            for j, token in enumerate(self.alphabet)
        }  # fmt: skip

    def ended(self, text: Text) -> bool:
        return len(text) == self.longest or text[-1:] == (END,)

    def texts(self, start: Text = ()) -> Iterator[Text]:
        """All completions that begin so."""
        if self.ended(start):
            yield start
            return
        for token in self.alphabet:
            yield from self.texts((*start, token))

    def gradient(self, logits: Tensor) -> Tensor:
        """Of the expected reward, by automatic differentiation."""
        leaf = logits.clone().requires_grad_()
        logp = self.token_logp(leaf)
        value = sum(
            torch.stack([logp[text[:t], text[t]] for t in range(len(text))]).sum().exp() * self.reward(text)
            for text in self.texts()
        )
        return torch.autograd.grad(value, leaf)[0]  # type: ignore[arg-type]

    def scores(self, logits: Tensor) -> dict[tuple[Text, int], Tensor]:
        """∇log π of every token in every context, (contexts, alphabet) each."""
        numbers = self.token_logp(logits)
        stacked = torch.func.jacrev(lambda x: torch.stack(list(self.token_logp(x).values())))(logits)
        return dict(zip(numbers, stacked, strict=True))


def branches(
    policy: Policy, widths: tuple[int, ...], forks: Callable[[Text], bool], text: Text = (), levels: Text = ()
) -> list[Grown]:
    """All ways in which a branch goes on that has just begun, up to its leaves."""
    level, grown = (levels[-1] if levels else 0), []
    level = _level(text, levels, forks, len(widths))
    for token in policy.alphabet:
        now, known = (*text, token), (*levels, level)
        drawn = (text, token)
        if policy.ended(now):
            grown.append(Grown((Leaf(now, known),) * prod(widths[level + 1 :]), (drawn,)))
            continue
        below = branches(policy, widths, forks, now, known)
        times = widths[level + 1] if forks(now) and level + 1 < len(widths) else 1
        for some in itertools.product(below, repeat=times):
            leaves = tuple(leaf for one in some for leaf in one.leaves)
            grown.append(Grown(leaves, (drawn, *(pair for one in some for pair in one.drawn))))
    return grown


def _level(text: Text, levels: Text, forks: Callable[[Text], bool], most: int) -> int:
    """Level of the next token: one more than that of the last where the text has just branched."""
    if not text:
        return 0
    return levels[-1] + (1 if forks(text) and levels[-1] + 1 < most else 0)


def trees(policy: Policy, widths: tuple[int, ...], forks: Callable[[Text], bool]) -> list[Grown]:
    """All trees from the prompt."""
    return [
        Grown(tuple(leaf for one in some for leaf in one.leaves), tuple(pair for one in some for pair in one.drawn))
        for some in itertools.product(branches(policy, widths, forks), repeat=widths[0])
    ]
