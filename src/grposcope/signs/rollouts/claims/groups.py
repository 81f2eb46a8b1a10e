"""Groups are groups: one prompt, the stated size, no singletons, none split between steps, no copies.

Sizes and prompts are exact. A sibling that repeats an earlier one is chance where the completion is likely: given what
was drawn before, the next repeats it with the probability q = Σ μ(y) of the distinct earlier ones, whatever else
happened. So Π (q'/q where it repeats, (1 − q')/(1 − q) where not) with q' = q + s(1 − q) has mean 1 for independent
draws, and so has its mean over shares s of copies; its inverse bounds the p-value (Ville 1939). Without
log-probabilities, copies at one distance in the group are told by permuting siblings, whose order means nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.special import bdtrc

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Floats, Ints
from grposcope.signs.rollouts import coverage
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import by_chance, exact

SHARES = (0.02, 0.1, 0.3, 0.6, 0.95)
"""Shares of copies among the rollouts that the test looks for."""

PERMUTATIONS = 1999

_ONE_PROMPT = (
    "Print the prompts of such a batch: a sampler or a filter of prompts that has one left draws it again and again, "
    "and its reward says nothing of the others."
)
"""What to do about batches that one prompt fills."""

SIBLINGS = 0.9
"""Share of the rollouts that have their prompt in common with others of their step, from which on groups of one are
siblings that were not told to be such."""

FIRST_STEPS = 3
"""Steps from the first whose groups all have one size, so that later ones are held to it."""


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Prompts, sizes, groups over several steps, and copies."""
    if not evidence.groups:
        yield cannot_tell("The rollouts do not name their groups; write a group id or the prompt with each rollout.")
        return
    yield _prompts(evidence)
    alone = list(_alone(evidence))
    yield from alone or _sizes(evidence)
    yield from _ranks(evidence)
    yield from _copies(evidence)


def _prompts(evidence: PipelineEvidence) -> Finding:
    """One prompt in every group, of those in which two rollouts or more have one; that of a later turn counts not."""
    if evidence.engine == "grposcope" and all(row.prompt_ids is None for row in evidence.rows):
        return cannot_tell("The record keeps the prompt of each group, not of each rollout, so every group has one; "
                           "train with verify_every, which keeps the tokens of every prompt.")  # fmt: skip
    mixed, known = [], 0
    whole = any(row.pieces > 1 for row in evidence.rows)
    first_turn = 0 if whole else min((row.turn for row in evidence.rows if row.turn is not None), default=0)
    for key, places in evidence.groups.items():
        group = [row for place in places if (row := evidence.rows[place]).named]
        group = [row for row in group if _prompt(row) is not None and (row.turn is None or row.turn == first_turn)]
        known += len(group) > 1
        if len(group) > 1 and not frozenset.intersection(*map(_prompts_of_histories, group)):
            mixed.append((key, len({_prompt(row) for row in group})))
    if not known:
        return cannot_tell(_no_prompts(evidence))
    first = min(mixed, default=None)
    return exact(
        fault="mixed prompts",
        broken=bool(mixed),
        evidence="" if first is None else (
            f"{len(mixed):,} of {known:,} groups have several prompts; the first, {first[0][1]} at step {first[0][0]}, "
            f"has {first[1]}"
        ),
        held=f"One prompt stands in each of {coverage.share(known, len(evidence.groups), 'no two prompts', 'group')}.",
        effect="Rollouts are compared with those of other prompts, so easy prompts win over hard ones.",
        remedy="Order rollouts by prompt before splitting them into groups.",
        onset=None if first is None else first[0][0],
    )  # fmt: skip


def _no_prompts(evidence: PipelineEvidence) -> str:
    """Why no group can be seen to have one prompt."""
    if not any(row.named for row in evidence.rows):
        return (
            "The rollouts do not name their groups, which were formed by prompt here, so each has one; write the "
            "group id that the advantages were computed with."
        )
    return "No group has two rollouts with a prompt; write the prompt with each rollout."


def _prompts_of_histories(row: Rollout) -> frozenset[str | None]:
    """The prompts that the histories of a rollout begin with, of which one is what it was asked."""
    return frozenset(_prompt(own) for own in (row, *row.continuations) if not own.shared)


def _prompt(row: Rollout) -> str | None:
    if row.prompt_ids is not None and len(row.prompt_ids):
        return row.prompt_ids.tobytes().hex()
    return None if row.prompt is None else str(row.prompt)


def _size_at_first(sizes: Mapping[tuple[int, str], int]) -> int:
    """The size of all groups of the first FIRST_STEPS steps or more, which no later group exceeds; 0 where there is
    none."""
    steps = sorted({step for step, _ in sizes})[:FIRST_STEPS]
    at_first = {size for (step, _), size in sizes.items() if step in steps}
    largest = max(sizes.values(), default=0)
    return largest if len(steps) == FIRST_STEPS and at_first == {largest} else 0


def _sizes(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Every group has the stated size, or without one the size of most, or that of the first steps."""
    sizes = {key: len(places) for key, places in evidence.groups.items()}
    size = evidence.stated.group
    if size == 0:
        yield _sizes_of_steps(sizes)
        return
    stated, like = size is not None, "the others"
    if size is None:
        usual, times = Counter(sizes.values()).most_common(1)[0]
        if usual < 2 or times < 0.5 * len(sizes):
            usual, like = _size_at_first(sizes), "those of the first steps"
        if usual < 2:
            yield cannot_tell("The settings do not state the group size; give them, or the log of the run.")
            return
        size = usual
    wrong = {key: count for key, count in sizes.items() if count != size}
    first = min(wrong, default=None)
    alone = sum(row.group is None for row in evidence.rows)
    fault, brief, words = _kind_of_sizes(evidence, sizes, size, wrong, "" if stated else like)
    remedy = "Find where rollouts are lost or split between the sampler and the trainer."
    filled = sum(_fills_its_batch(sizes, key, size) for key in wrong) if fault == "wrong group size" else 0
    if filled:
        brief, remedy = "one prompt fills the batch", _ONE_PROMPT
        words += f", and {filled:,} of these fill whole batches, with the rollouts of one prompt"
    yield exact(
        fault=fault,
        brief=brief,
        broken=bool(wrong),
        evidence="" if first is None else (
            f"{len(wrong):,} of {len(sizes):,} groups {words}; the first, {_shown(first[1])} at step {first[0]}, has "
            f"{wrong[first]}"
        ),
        held=f"All {len(sizes):,} groups have {size} rollouts{'' if stated else ' (the settings state no size)'}."
        + (f" {alone:,} rollouts have no group." if alone else ""),
        effect="A group of one rollout has no baseline, and a smaller group has a noisier one.",
        remedy=remedy,
        onset=None if first is None else first[0],
    )  # fmt: skip
    if not stated:
        yield cannot_tell("The settings do not state the group size, so groups were compared with each other only; "
                          "state it (num_generations).")  # fmt: skip


def _kind_of_sizes(
    evidence: PipelineEvidence, sizes: Mapping[tuple[int, str], int], size: int, wrong: Mapping[tuple[int, str], int],
    like: str,
) -> tuple[str, str, str]:  # fmt: skip
    """Fault, brief and words of groups of the wrong size. like: the groups that say which size is right; empty where
    the settings do."""
    at_steps: dict[str, list[tuple[int, str]]] = {}
    for key in wrong:
        at_steps.setdefault(key[1], []).append(key)
    if any(len(keys) > 1 and sum(sizes[key] for key in keys) % size == 0
           and evidence.rows[evidence.groups[keys[0]][0]].named for keys in at_steps.values()):  # fmt: skip
        return (
            "split groups",
            "groups split between steps",
            f"are parts of groups of {size} that are split between steps",
        )
    if wrong and all(count == 1 for count in wrong.values()):
        return "wrong group size", "singletons", "are single rollouts"
    return "wrong group size", "group size", f"do not have {size} rollouts{like and ' like '}{like}"


def _fills_its_batch(sizes: Mapping[tuple[int, str], int], key: tuple[int, str], usual: int) -> bool:
    """Whether a group is the only one of its step, and has the rollouts of two usual ones or more."""
    return sizes[key] >= 2 * usual and sum(step == key[0] for step, _ in sizes) == 1


def _alone(evidence: PipelineEvidence) -> Iterator[Finding]:
    """That every rollout is a group of its own although several have a prompt in a step, as by an id of the rollout."""
    sizes = {key: len(places) for key, places in evidence.groups.items()}
    rows = [evidence.rows[places[0]] for places in evidence.groups.values()]
    prompts = Counter((row.step, _prompt(row)) for row in rows if row.named)
    several = {key: count for key, count in prompts.items() if key[1] is not None and count > 1}
    if set(sizes.values()) != {1} or sum(several.values()) < SIBLINGS * len(sizes) or not _without_baseline(rows):
        return
    usual = Counter(several.values()).most_common(1)[0][0]
    yield exact(
        fault="split groups",
        brief="every rollout is a group of its own",
        broken=True,
        evidence=f"All {len(sizes):,} groups have one rollout, although "
        f"{'all' if sum(several.values()) == len(sizes) else f'{sum(several.values()):,}'} of these have their prompt "
        f"in common with others of their step, mostly {usual} with one",
        held="",
        effect="A rollout alone in its group has no baseline: its advantage is its reward, or 0.",
        remedy="Group by the id of the task or prompt that all its rollouts share, not by one of the rollout.",
        onset=min(key[0] for key in sizes),
    )


def _without_baseline(rows: Sequence[Rollout]) -> bool:
    """Whether the advantages that there are, are the rewards or 0, as of groups of one: a baseline of the batch needs
    no groups."""
    made = [
        (row.reward, float(row.advantages[0])) for row in rows if row.advantages is not None and len(row.advantages)
    ]
    return all(
        min(abs(advantage - reward), abs(advantage)) <= 1e-4 * max(1.0, abs(reward)) for reward, advantage in made
    )


def _sizes_of_steps(sizes: Mapping[tuple[int, str], int]) -> Finding:
    """Every group has the size of most in its step, where the size moves from step to step; a group alone in its step
    has none to be compared with."""
    of_step: dict[int, list[int]] = {}
    for (step, _), count in sizes.items():
        of_step.setdefault(step, []).append(count)
    usual = {step: Counter(counts).most_common(1)[0][0] for step, counts in of_step.items() if len(counts) > 1}
    compared = {key: count for key, count in sizes.items() if key[0] in usual}
    if not compared:
        return cannot_tell("The size of groups may move, and no step has two of them; write whole batches.")
    wrong = {key: count for key, count in compared.items() if count != usual[key[0]]}
    first = min(wrong, default=None)
    told = ", ".join(map(str, sorted(set(usual.values()))))
    seen = coverage.share(len(compared), len(sizes), "no other in their step", "group")
    return exact(
        fault="wrong group size",
        brief="group size",
        broken=bool(wrong),
        evidence="" if first is None else (
            f"{len(wrong):,} of {len(compared):,} groups are of another size than the others of their step; the first, "
            f"{_shown(first[1])} at step {first[0]}, has {wrong[first]} instead of {usual[first[0]]}"
        ),
        held=f"One size in each step: {told} ({seen}; the settings let it move).",
        effect="A group of one rollout has no baseline, and a smaller group has a noisier one.",
        remedy="Find where rollouts are lost or split between the sampler and the trainer.",
        onset=None if first is None else first[0],
    )  # fmt: skip


def _shown(group: str) -> str:
    text = " ".join(group.split("\x1f")[0].split())
    return text if len(text) <= 40 else f"{text[:39]}…"


LEAST_BLOCK = 2
"""Groups of a process below which equal prompts in turn may be chance."""


def _ranks(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Groups of a batch are no repetition of the same prompts in the same order, as of processes that draw alike.

    Data with fewer prompts than a batch come again in turn; they are told by all steps having the same prompts. Of a
    choice of the groups of a batch, the order says nothing.
    """
    if evidence.whole is False:
        return
    batches: dict[int, list[tuple[str, tuple[str, ...]]]] = {}
    for (step, _), places in evidence.groups.items():
        prompt = _prompt(evidence.rows[places[0]])
        if prompt is None or not evidence.rows[places[0]].named:
            return
        texts = tuple(str(_completion(evidence.rows[place])) for place in places)
        batches.setdefault(step, []).append((prompt, texts))
    whole = {step: groups for step, groups in batches.items() if len(groups) >= 2 * LEAST_BLOCK}
    if not whole:
        return
    blocks = {step: _block([prompt for prompt, _ in groups]) for step, groups in whole.items()}
    again = [step for step, size in blocks.items() if size]
    distinct = len({prompt for groups in batches.values() for prompt, _ in groups})
    largest = max(map(len, whole.values()))
    if again and distinct < largest:  # else the rest of this is about data with as many prompts as a batch
        yield cannot_tell(f"All steps draw the same {distinct} prompts, fewer than a batch has groups, so whether "
                          "processes draw alike does not show in them; write steps with other prompts.")  # fmt: skip
        return
    step = min(again, default=0)
    size = blocks[step] if again else LEAST_BLOCK
    p = float(bdtrc(len(again) - 1, len(whole), 1 / math.perm(distinct, size))) if again else 1.0
    copied = bool(again) and all(_repeats([texts for _, texts in whole[at]], blocks[at]) for at in again)
    draws = ", and their completions too" if copied else ""
    processes = f"{len(whole[step]) // size} processes draw alike" if again else ""
    yield by_chance(
        fault="ranks draw the same",
        p=p,
        brief="the same prompts and completions on every rank" if copied else "the same prompts on every rank",
        broken=bool(again),
        evidence=f"In {len(again):,} of {len(whole):,} steps the prompts of the first {size} groups come again in the "
        f"same order{draws}: {processes} (p = {p:.2g})",
        held=f"In {len(whole):,} steps {'hardly any' if again else 'no'} sequence of prompts is repeated in the batch.",
        effect=f"A batch has the prompts of {size} groups, not of {len(whole[step])}." if again else "",
        onset=step if again else None,
    )  # fmt: skip


def _block(values: Sequence[object]) -> int:
    """The length of the sequence that these are repetitions of, at least LEAST_BLOCK and several times; 0 for none."""
    sizes = [size for size in range(LEAST_BLOCK, len(values) // 2 + 1) if len(values) % size == 0]
    return next((size for size in sizes if len(set(values[:size])) > 1 and _repeats(values, size)), 0)


def _repeats(values: Sequence[object], size: int) -> bool:
    return all(values[place] == values[place % size] for place in range(len(values)))


def _copies(evidence: PipelineEvidence) -> Iterator[Finding]:
    """Siblings that are copies of each other."""
    keys = [_completion(row) for row in evidence.rows]
    several = [list(places) for places in evidence.groups.values() if len(places) > 1]
    groups = [places for places in several if all(keys[place] is not None for place in places)]
    if not groups:
        yield cannot_tell("No group of several rollouts has all its completions, so copies among siblings were not "
                          "looked for; write the completion with each rollout.")  # fmt: skip
        return
    of = coverage.share(len(groups), len(several), "rollouts without a completion", "group")
    drawn = [evidence.rows[place].sampler for places in groups for place in places if keys[place]]
    said = evidence.stated
    plain = said.temperature == 1 and said.top_k is None and said.top_p in (None, 1.0)
    if plain and all(one is not None and len(one) and np.isfinite(one).all() for one in drawn):
        logp = {place: _total(evidence.rows[place]) for places in groups for place in places}
        yield _by_probability([[str(keys[place]) for place in places] for places in groups],
                              [[logp[place] for place in places] for places in groups], of)  # fmt: skip
        return
    texts = [[str(keys[place]) for place in places] for places in groups]
    yield _all_alike(evidence, texts) or _by_order(texts, of)


LEAST_ALIKE, ALIKE, DIFFER = 8, 0.95, 2.0
"""Groups, and their share, in which all siblings are one text, from which that is told; entropy of a completion, in
nats, from which draws of their own would not be so."""


def _all_alike(evidence: PipelineEvidence, texts: Sequence[Sequence[str]]) -> Finding | None:
    """That siblings are one text in nearly all groups; None where they are not, or the policy may be so certain."""
    alike = sum(len(set(group)) == 1 and group[0] != "" for group in texts)
    if len(texts) < LEAST_ALIKE or alike < ALIKE * len(texts):
        return None
    seen = f"In {alike:,} of {len(texts):,} groups all siblings are the same text"
    table = {} if evidence.run is None else evidence.run.table
    if "entropy" not in table or "length" not in table:
        return cannot_tell(
            f"{seen}: every request has one seed, the temperature is 0, or the policy is certain; log the entropy and "
            "the length, or write the sampler's log-probabilities."
        )
    entropy, length = (float(np.nanmedian(table[name])) for name in ("entropy", "length"))
    if not entropy * length > DIFFER:
        return None
    return exact(
        fault="copied rollouts",
        brief="siblings are one text",
        broken=True,
        evidence=f"{seen}, while the logged entropy is {entropy:.2g} nats per token, {entropy * length:.2g} for "
        f"{length:.3g} tokens: draws of their own would differ",
        held="",
        effect="Rewards are equal within a group, so that there is no gradient whatever they are.",
        remedy="Give every request a seed of its own, or none, and see that the sampler's temperature is not 0.",
    )


def _total(row: Rollout) -> float:
    """log μ of the tokens that the model wrote; 0 for an empty completion, whose end was not recorded."""
    if row.sampler is None:
        return 0.0
    written = row.written if row.written is not None else np.ones(len(row.sampler), bool)
    return float(min(row.sampler[written].sum(), 0.0))


def _completion(row: Rollout) -> str | None:
    """What tells a completion from others, "" for an empty one and None for one that was not written down."""
    if row.completion_ids is not None:
        return row.completion_ids.tobytes().hex()
    return None if row.completion is None else str(row.completion)


def _by_probability(texts: Sequence[Sequence[str]], logp: Sequence[Sequence[float]], of: str = "") -> Finding:
    """Repeats against their probabilities; an empty completion, whose probability is unknown, repeats none."""
    logs = np.zeros(len(SHARES))
    shares = np.array(SHARES)
    repeated, expected, count = 0, 0.0, 0
    for names, values in zip(texts, logp, strict=True):
        before: dict[str, float] = {}
        for place, (name, value) in enumerate(zip(names, values, strict=True)):
            q = min(sum(math.exp(one) for one in before.values()), 1 - 1e-9)
            if place:
                again = bool(name) and name in before
                repeated, expected, count = repeated + again, expected + q, count + 1
                more = q + shares * (1 - q)
                logs += np.log(more / max(q, 1e-300)) if again else np.log((1 - more) / (1 - q))
            if name:
                before.setdefault(name, value)
    p = float(min(1.0, 1 / max(np.exp(np.clip(logs, -700, 700)).mean(), 1e-300)))
    return _told(p, f"{repeated:,} of {count:,} rollouts repeat an earlier one of their group; their "
                    f"probabilities predict {expected:.3g} (p = {p:.2g})",
                 f"{repeated:,} rollouts{f' of {of}' if of else ''} repeat a sibling; {expected:.3g} are "
                 "expected.")  # fmt: skip


def _by_order(texts: Sequence[Sequence[str]], of: str = "") -> Finding:
    """Copies at one distance, such as half a group where two processes have one seed, against permuted siblings."""
    random = np.random.default_rng(0)
    codes = [np.unique(np.array(names), return_inverse=True)[1] for names in texts]
    if all(code.max() + 1 == len(code) for code in codes):
        return _told(1.0, "", f"No rollout repeats a sibling{f', in {of}' if of else ''}.")
    codes = [code for code in codes if len(code) > 2 and code.max() > 0 and code.max() + 1 < len(code)]
    if not codes:
        return cannot_tell("Equal siblings were found, but their order cannot show whether they are copies, since all "
                           "of their group are equal; write the sampler's log-probabilities.")  # fmt: skip
    seen = float(_at_one_distance([code[None] for code in codes])[0])
    draws = _at_one_distance([random.permuted(np.tile(code, (PERMUTATIONS, 1)), axis=1) for code in codes])
    p = (1 + int((draws >= seen).sum())) / (1 + PERMUTATIONS)
    return _told(p, f"{seen:.0f} rollouts repeat the one that stands a fixed number of places before them in "
                 f"their group; a random order would give {np.mean(draws):.3g} (p = {p:.2g})",
                 f"Equal siblings{f' in {of}' if of else ''} do not stand at fixed distances, as copies "
                 "would.")  # fmt: skip


def _at_one_distance(codes: Sequence[Ints]) -> Floats:
    """Most pairs of equal siblings at one distance (M,), of M orders of each group (M, G), copied as a whole."""
    counts = np.zeros((len(codes[0]), max(code.shape[1] for code in codes)))
    for code in codes:
        for apart in range(1, code.shape[1]):
            same = (code[:, apart:] == code[:, :-apart]).all(1)
            counts[:, apart] += same * (code.shape[1] - apart)
    most: Floats = counts.max(1)
    return most


def _told(p: float, evidence: str, held: str) -> Finding:
    return by_chance(
        fault="copied rollouts",
        broken=p < 0.05,
        evidence=evidence,
        held=held,
        effect="Copies count as independent rollouts: groups are smaller than they seem and the gradient is noisier.",
        remedy="Give every sampling process its own seed.",
        p=p,
    )


PROOF = Proof("groups", "Groups have one prompt and the stated size",
              "rollouts with group and the stated size; for copies the sampler's log-probabilities",
              _tests)  # fmt: skip
