"""Prompts that lack the beginning which all others have are told; what a limit cut, and other templates, are not."""

from __future__ import annotations

import numpy as np

from grposcope.core.finding import Finding
from grposcope.core.rollouts import Rollout
from grposcope.signs.rollouts.claims import tokens
from grposcope.signs.rollouts.evidence import PipelineEvidence

BEGIN = 9000


def prompts(count: int = 40) -> list[np.ndarray]:
    """Prompts of several lengths, each of which begins with BEGIN."""
    random = np.random.default_rng(0)
    return [np.array([BEGIN, *random.integers(10, 900, 6 + place % 5)]) for place in range(count)]


def lack(ids: list[np.ndarray]) -> list[Finding]:
    rows = tuple(
        Rollout(where=f"line {place}", step=1, prompt_ids=own, completion_ids=np.array([1, 2]), mask=np.ones(2, bool))
        for place, own in enumerate(ids, 1)
    )
    found = tokens.PROOF.check(PipelineEvidence("", rows=rows))
    return [own for own in found if own.brief == "prompts lack their beginning"]


def test_a_prompt_without_the_beginning_is_named() -> None:
    ids = prompts()
    ids[7] = ids[7][1:]
    (finding,) = lack(ids)
    assert (finding.fault, finding.status) == ("inputs differ", "present")
    assert "1 of 40 prompts do not begin with the id 9000" in finding.because
    assert finding.because.endswith("the first is line 8")


def test_other_prompts_are_sound() -> None:
    assert not lack(prompts())
    cut = prompts()
    longest = max(map(len, cut))
    cut[7] = np.arange(20, 20 + longest)  # cut at its beginning by the limit of prompts
    assert not lack(cut)
    words = prompts()
    words[3] = np.array([*words[3], BEGIN])  # an ordinary word, as it comes again
    words[7] = words[7][1:]
    assert not lack(words)
    several = prompts()
    assert not lack([own[1:] if place % 4 == 0 else own for place, own in enumerate(several)])
