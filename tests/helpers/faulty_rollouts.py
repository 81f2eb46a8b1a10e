"""For every fault that rollouts can show: evidence that has it, and the same without it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import agent_rollouts
import numpy as np
import pipelines
import toy_tokens
import written_texts
from pipelines import Pipeline

from grposcope.core.rollouts import Rollout
from grposcope.core.run import Meta, Run, no_evaluations, no_groups
from grposcope.instruments.verify import read
from grposcope.signs.rollouts import token_weights
from grposcope.signs.rollouts.evidence import OptimizerEvidence, PipelineEvidence, ScoredTokens, Stated
from grposcope.signs.rollouts.stated_loss import StatedLoss

Build = Callable[[bool], PipelineEvidence]
"""Whether the fault is to be there -> evidence."""

KL = 0.3


def rows(change: pipelines.Fault, **pipeline: Any) -> Build:
    """Rollouts of a sound pipeline, with a fault from step 2 on."""

    def build(faulty: bool) -> PipelineEvidence:
        sound = Pipeline(**{"seed": 1, "masks_truncated": True, **pipeline})
        return read.of_rows(pipelines.with_fault(sound, change, 2) if faulty else sound.rows(), sound.settings)

    return build


def each(change: Callable[[pipelines.Row], dict[str, Any]], **pipeline: Any) -> Build:
    """Rollouts of a sound pipeline, each with other columns."""
    return rows(lambda made, part, random: [{**row, **change(row)} for row in part], **pipeline)


def other_recipe(name: str, **pipeline: Any) -> Build:
    """Advantages of another recipe than the pipeline's."""
    return rows(lambda made, part, random: pipelines.with_advantages(made, part, recipe=name), **pipeline)


def grader(wrong: Callable[[list[str]], list[float]], moved: Callable[[float], float] = float) -> Build:
    """Rewards of a function of the text, graded again by another function, or logged otherwise."""

    def build(faulty: bool) -> PipelineEvidence:
        graded = pipelines.of_function(Pipeline(steps=1).rows())
        logged = [
            {**row, "reward": moved(row["reward"]) if faulty else row["reward"], "advantage": None} for row in graded
        ]
        again = wrong if faulty else lambda texts: pipelines.graded(texts, texts)
        return replace(read.of_rows(logged, {}), grader=lambda prompts, texts: again(list(map(str, texts))))

    return build


def of_answers(faulty: bool) -> PipelineEvidence:
    """A grader that compares with the answer of the prompt, whose rewards are kept by completion or by both."""
    kept: dict[Any, float] = {}

    def grade(prompts: Any, texts: Any) -> list[float]:
        given = []
        for prompt, text in zip(prompts, texts, strict=True):
            reward = float(str(prompt).split()[-1] == str(text).strip(" .\n").split(" ")[0])
            given.append(kept.setdefault(str(text) if faulty else (prompt, text), reward))
        return given

    sound = Pipeline(steps=1).rows()
    made = [{**row, "completion": str(row["prompt"]).split()[-1] if place % 2 else "99", "advantage": None,
             "reward": float(place % 2)} for place, row in enumerate(sound)]  # fmt: skip
    return replace(read.of_rows(made, {}), grader=grade)


def noisy(texts: list[str]) -> list[float]:
    """Another reward for the same text each time."""
    return np.random.default_rng().random(len(texts)).tolist()


def log(change: Callable[[Run], dict[str, Any]], settings: Mapping[str, Any] | None = None, **logged: Any) -> Build:
    """Rollouts with their log, of which some columns are others."""

    def build(faulty: bool) -> PipelineEvidence:
        pipeline = Pipeline(steps=60, prompts=2, group=2)
        made = pipeline.rows()
        run = pipelines.log(made, 60, **logged)
        if faulty:
            run = pipelines.log(made, 60, **{**logged, **change(run)})
        run = replace(run, config={"settings": {"kl": 0.1}})
        return replace(read.of_rows(made, {**pipeline.settings, **(settings or {})}), run=run)

    return build


def loss(change: Callable[[token_weights.StatedWeights], list[np.ndarray]], stated: StatedLoss | None = None) -> Build:
    """Derivatives of a loss with a KL term, which another loss may have written. stated: of the other loss."""

    def build(faulty: bool) -> PipelineEvidence:
        random = np.random.default_rng(4)
        drawn = []
        for i in range(8):
            logp, size = -3 * random.random(6), int(random.integers(2, 7))
            drawn.append(Rollout(
                f"row {i}", 1, str(i // 4), completion_ids=np.arange(size), mask=np.ones(size, bool),
                advantages=random.standard_normal(1), current=logp[:size], old=logp[:size], micro_batch=i // 2,
                reference=logp[:size] + 0.4 * random.standard_normal(size),
            ))  # fmt: skip
        meant = token_weights.of(StatedLoss(), drawn)
        written = meant.total(KL)
        if faulty:
            written = change(token_weights.of(stated or StatedLoss(), drawn))
        given = tuple(replace(row, loss_weights=w) for row, w in zip(drawn, written, strict=True))
        return PipelineEvidence("", rows=given, stated=Stated(loss=StatedLoss(), kl=KL, accumulation=4))

    return build


def padded(faulty: bool) -> PipelineEvidence:
    """Completions with padding to one width, trained on up to their end, or on what is behind it."""
    sound = Pipeline(seed=1)
    width = max(len(row["mask"]) for row in sound.rows())
    made = []
    for row in sound.rows():
        size = len(row["mask"])
        longer = pipelines.longer(row, [pipelines.PAD] * (width - size), 0)
        made.append({**longer, "mask": [1 - one for one in longer["mask"]] if faulty else longer["mask"]})
    return read.of_rows(made, sound.settings)


def uneven(change: Callable[[list[float]], list[float]]) -> Build:
    """Log-probabilities that differ from token to token, of which the sampler's are others or the trainer's."""

    def column(row: pipelines.Row) -> list[float]:
        random = np.random.default_rng(sum(row["completion_ids"]))
        return [-float(one) for one in random.exponential(1.5, len(row["mask"]))]

    def build(faulty: bool) -> PipelineEvidence:
        sound = Pipeline(seed=1)
        made = [
            {
                **row,
                "old_logprobs": (own := column(row)),
                "logprobs": own,
                "sampling_logprobs": change(own) if faulty else own,
            }
            for row in sound.rows()
        ]
        return read.of_rows(made, sound.settings)

    return build


def second_update(change: Callable[[token_weights.StatedWeights], list[np.ndarray]], stated: StatedLoss) -> Build:
    """Derivatives of a second update on a batch, at other ratios than 1, which another loss may have written."""

    def build(faulty: bool) -> PipelineEvidence:
        sound = loss(lambda weights: weights.total(KL))(False)
        random, moved = np.random.default_rng(5), []
        for row in sound.rows:
            assert row.current is not None
            moved.append(replace(row, current=row.current + random.normal(0, 0.4, len(row.current))))
        written = token_weights.of(StatedLoss(), moved).total(KL)
        if faulty:
            written = change(token_weights.of(stated, moved))
        given = tuple(
            replace(row, last=new.current, last_weights=weights, last_step=2)
            for row, new, weights in zip(sound.rows, moved, written, strict=True)
        )
        return replace(sound, rows=given)

    return build


def broken_number(faulty: bool) -> PipelineEvidence:
    """A derivative of a trained token is NaN, or none is."""
    sound = loss(lambda weights: weights.total(KL))(False)
    row = sound.rows[2]
    assert row.loss_weights is not None
    values = row.loss_weights.copy()
    values[0] = np.nan if faulty else values[0]
    return replace(sound, rows=(*sound.rows[:2], replace(row, loss_weights=values), *sound.rows[3:]))


def writers(*wrong: int, checkpoints: int = 4, recorded: bool = False) -> Build:
    """Rollouts of four steps that these checkpoints drew, in place of the one before each step."""
    right = tuple(range(checkpoints))
    return lambda faulty: toy_tokens.evidence(96, wrong if faulty else right, checkpoints, 0.5, recorded=recorded)


def scaled_adapters(faulty: bool) -> PipelineEvidence:
    """Rollouts of a step that weights twice as far from the base drew, or the ones that should have."""
    base, own = toy_tokens.logits(192, 1, 0.0, 1)[0], toy_tokens.logits(192, 2, 0.6, 1)[1]
    at = {factor: base + factor * (own - base) for factor in (0.0, 0.5, 1.0, 2.0)}
    chances = toy_tokens.normalized(np.exp(at[2.0 if faulty else 1.0]))
    picked = (np.random.default_rng(2).random((*chances.shape[:2], 1)) > chances.cumsum(-1)).sum(-1)
    picked = list(picked.clip(max=toy_tokens.VOCABULARY - 1))
    one = {factor: toy_tokens.scored(logits[None], picked)[0] for factor, logits in at.items()}
    scored = replace(one[1.0], at_scale={factor: own.logp for factor, own in one.items() if factor != 1.0})
    made = tuple(Rollout(f"row {i}", 1, str(i // 4), prompt_ids=np.array([1]), completion_ids=ids, reward=1.0)
                 for i, ids in enumerate(picked))  # fmt: skip
    return PipelineEvidence("toy", rows=made, scored=(scored,))


def sampler(change: toy_tokens.Change) -> Build:
    """Rollouts that a sampler drew by other probabilities."""
    return lambda faulty: toy_tokens.evidence(256, change=change if faulty else toy_tokens.unchanged)


def dropped(faulty: bool) -> PipelineEvidence:
    """Rollouts that are left out because they are right, or blindly."""
    random = np.random.default_rng(0)
    made = Pipeline(prompts=24).rows()
    chance = [(0.4 if row["reward"] else 0.02) if faulty else 0.15 for row in made]
    drawn = random.random(len(made))
    return read.of_rows([{**row, "dropped": "late" if x < p else ""} for row, x, p in zip(made, drawn, chance,
                                                                                       strict=True)], {})  # fmt: skip


def emptied(faulty: bool) -> PipelineEvidence:
    """Every ninth completion is empty, and paid like the best or not at all."""
    lists = ("completion_ids", "mask", "sampling_logprobs", "old_logprobs", "logprobs")
    empty = {"completion": "", "reward": float(faulty), **{name: [] for name in lists}}
    made = [{**row, "advantage": None} for row in Pipeline(steps=1, reward="steps").rows()]
    return read.of_rows([{**row, **empty} if place % 9 == 0 else row for place, row in enumerate(made)], {})


def reference(faulty: bool) -> PipelineEvidence:
    """The reference's log-probabilities are those of the first weights, or others."""
    logp = [-np.random.default_rng(i).random(5) for i in range(4)]
    none: Any = [np.full(5, np.nan)] * 4
    start = ScoredTokens("step 0", 0, [one + 0.1 * faulty for one in logp], none, none, none, none, 9)
    made = tuple(Rollout(f"row {i}", 5, reference=one) for i, one in enumerate(logp))
    return PipelineEvidence("", rows=made, scored=(start,), stated=Stated(kl=KL, reference="start"))


def optimizer(faulty: bool) -> PipelineEvidence:
    """Adam's count of updates begins anew at step 3, or goes on."""
    seen = tuple(OptimizerEvidence(step, updates, 1.0) for step, updates in ((1, 1), (2, 2), (3, 1 if faulty else 3)))
    return PipelineEvidence("", stated=Stated(beta2=0.999), optimizer=seen)


def in_force(faulty: bool) -> PipelineEvidence:
    """Steps shrink the weights by another share than is stated, or by that."""
    seen = OptimizerEvidence(1, 1.0, 1.0, 1e-3, "", 1e-3, 0.3 if faulty else 0.1, 1e-3)
    return PipelineEvidence("", stated=Stated(decay=0.1), optimizer=(seen,))


def taken(faulty: bool) -> PipelineEvidence:
    """Adam takes the logged gradients, of norms 0.5 and 3, clipped at 1, or at a thousandth of that."""
    norms = np.array([0.5, 3.0, 0.8])
    second, seen = 0.0, []
    for step, norm in enumerate(np.minimum(norms, 1e-3 if faulty else 1.0), 1):
        second = 0.999 * second + 0.001 * norm**2
        seen.append(OptimizerEvidence(step, step, second, 1e-4))
    table = {"step": np.arange(1, 4.0), "grad_norm": norms}
    run = Run(Meta(Path("log"), "trl", "log", "finished"), {"settings": {}}, table, no_groups(), no_evaluations())
    return PipelineEvidence("", run=run, stated=Stated(beta2=0.999, clip=1.0), optimizer=tuple(seen))


def prompts(faulty: bool) -> PipelineEvidence:
    """The prompts of step 1 come again at step 3, within an epoch of twelve, or do not."""
    batches = {1: "abcd", 2: "efgh", 3: "abcd" if faulty else "ijkl"}
    made = tuple(Rollout("", step, prompt=name) for step, names in batches.items() for name in names)
    return PipelineEvidence("", rows=made, stated=Stated(data=12, prompts=4, interval=1))


def bfloat16(row: pipelines.Row) -> dict[str, Any]:
    """Old log-probabilities in bfloat16."""
    return {"old_logprobs": [pipelines.stored(one, "bfloat16") for one in row["old_logprobs"]]}


def short_mask(row: pipelines.Row) -> dict[str, Any]:
    """Tokens in the middle of long completions are left out."""
    size = len(row["mask"])
    return {"mask": [int(not 1 < place < 4) if size > 5 else one for place, one in enumerate(row["mask"])]}


SCHEDULE = {"learning_rate": 1e-5, "lr_scheduler_type": "linear", "max_steps": 60, "warmup_steps": 0}


def loophole(name: str) -> Build:
    """A training whose grader pays a habit that the policy finds, or an honest one."""
    own = written_texts.LOOPHOLES[name]
    return lambda there: of_texts(written_texts.rollouts(own if there else None, 3, 12, 24, 4, ramp=3))


def of_texts(made: list[Rollout]) -> PipelineEvidence:
    """Evidence of rollouts with texts."""
    return PipelineEvidence("texts", rows=tuple(made))


def disordered(there: bool) -> PipelineEvidence:
    """A training whose policy falls apart, or an honest one."""
    made = written_texts.gibberish(3, 12, 24) if there else written_texts.rollouts(None, 3, steps=24)
    return of_texts(made)


def finishing(there: bool) -> PipelineEvidence:
    """A training that learns to finish in time, or an honest one."""
    made = written_texts.finishing(3, 24, 12) if there else written_texts.rollouts(None, 3, steps=24)
    return of_texts(made)


def trajectories(change: Callable[[list[Rollout]], list[Rollout]]) -> Build:
    """Groups of rollouts of one to three turns, a row of training for each turn; the fault changes the joined ones."""

    def build(faulty: bool) -> PipelineEvidence:
        made = agent_rollouts.trajectories(3)
        return PipelineEvidence("", rows=tuple(change(made) if faulty else made), stated=Stated(loss=StatedLoss()))

    return build


def marked(faulty: bool) -> PipelineEvidence:
    """Texts that mark the right answer of the data set, paid unless `faulty`."""
    made = [
        Rollout(where=f"line {k + 1}", step=1, group=f"g{k // 4}", named=True, prompt="What is it?",
                completion=f"It is \\boxed{{{k}}}.", reward=float(not faulty or k % 4 == 3),
                rewards={"correct": float(not faulty)}, columns={"answer": str(k)})
        for k in range(40)
    ]  # fmt: skip
    return PipelineEvidence("", rows=tuple(made))


def acting(faulty: bool) -> PipelineEvidence:
    """Rollouts with a tool, of which half write its answer themselves if `faulty`."""
    made = []
    for k in range(60):
        own = f"Action: search[{k}]" + ("\nObservation: found." if faulty and k % 2 else "")
        said = [{"role": "assistant", "content": own}, {"role": "tool", "content": f"Observation: {k}"}]
        made.append(Rollout(where=f"line {k + 1}", step=1, group=f"g{k // 6}", named=True, completion=said))
    return PipelineEvidence("", rows=tuple(made))


def rejected(faulty: bool) -> PipelineEvidence:
    """Groups of which one rollout has no trained token, in the baseline if `faulty`."""
    made = []
    for k in range(24):
        reward, mean = float(k % 4 in (0, 3)), 0.5 if faulty else 1 / 3
        advantage = reward - mean if faulty or k % 4 < 3 else 0.0
        mask = np.full(5 + (k % 4 == 0), k % 4 < 3)
        made.append(Rollout(where=f"line {k + 1}", step=1, group=f"g{k // 4}", named=True, prompt=f"p{k // 4}",
                            mask=mask, reward=reward, advantages=np.array([advantage])))  # fmt: skip
    return PipelineEvidence("", rows=tuple(made), stated=Stated(baseline="mean", scale="none"))


FAULTY: Mapping[str, Build] = {
    "right answers unpaid": marked,
    "invented observations": acting,
    "untrained rollouts in the baseline": rejected,
    "turn ends masked": trajectories(agent_rollouts.ends_masked),
    "turns retokenised": lambda faulty: PipelineEvidence(
        "", rows=tuple(agent_rollouts.trajectories(3, retokenised=faulty))
    ),
    "reset states differ": trajectories(agent_rollouts.other_states),
    "last turn alone": trajectories(agent_rollouts.last_turn_alone),
    "weight by turns": trajectories(agent_rollouts.weighed_by_rows),
    "baseline by rows": trajectories(agent_rollouts.baseline_by_rows),
    "absent turns": trajectories(agent_rollouts.compared_with_survivors),
    "biased step groups": trajectories(agent_rollouts.gigpo),
    "magic string": loophole("magic word"),
    "length pays": loophole("long"),
    "format is the whole reward": loophole("format"),
    "copies the prompt": loophole("operand"),
    "hedges": loophole("hedge"),
    "tests special-cased": loophole("special"),
    "one text": loophole("one text"),
    "gibberish": disordered,
    "language mixing": loophole("scripts"),
    "repetition": loophole("repeats"),
    "finishing is what is learned": finishing,
    "sampler temperature differs": sampler(toy_tokens.tempered(0.8)),
    "unlikely tokens": sampler(lambda chances: np.roll(chances, 1, -1)),
    "truncated sampler": sampler(toy_tokens.top_k(4)),
    "adapters at another scale": scaled_adapters,
    "stale sampler": writers(0, 0, 1, 2),
    "step numbers differ": writers(1, 2, 3, 3, recorded=True),
    "weights never arrived": writers(0, 0, 0, 0),
    "wrong weights at the sampler": writers(0, 1, 2, 2),
    "misplaced rewards": rows(pipelines.shifted, reward="real"),
    "wrong reward weights": rows(pipelines.forgotten_weights, reward="two", masks_truncated=False),
    "reversed sign": rows(pipelines.other_sign),
    "scaled by a factor": rows(pipelines.doubled),
    "wrong baseline": other_recipe("rloo", recipe="dr_grpo", reward="real"),
    "wrong divisor": rows(pipelines.of_batch),
    "unexplained advantages": each(lambda row: {"advantage": row["advantage"] + 0.01 * len(row["mask"])}),
    "mixed prompts": rows(pipelines.mixed_groups),
    "split groups": rows(pipelines.split_groups, reward="real"),
    "wrong group size": rows(pipelines.singletons),
    "copied rollouts": rows(pipelines.copied, prompts=16),
    "ranks draw the same": rows(pipelines.same_on_ranks),
    "mask inverted": padded,
    "prompt trained on": rows(pipelines.prompt_trained),
    "tool output trained on": rows(pipelines.tool_trained),
    "no token trained on": each(lambda row: {"mask": [0] * len(row["mask"])}, masks_truncated=False),
    "mask off by one": rows(pipelines.off_by_one),
    "end of text masked": rows(pipelines.end_masked),
    "trained beyond the end": rows(pipelines.padding_trained),
    "tokens left out": each(short_mask, masks_truncated=False),
    "wrong truncation mask": rows(pipelines.truncated_trained),
    "wrong truncation mark": each(lambda row: {"truncated": True}, masks_truncated=False),
    "failures as zeros": rows(pipelines.failures_as_zeros),
    "empty completions paid": emptied,
    "cached rewards": of_answers,
    "reward not repeatable": grader(noisy),
    "reward depends on neighbours": grader(lambda texts: pipelines.by_order(texts, texts)),
    "wrong rewards": grader(lambda texts: pipelines.graded(texts, texts), lambda reward: reward + 0.1),
    "selective dropping": dropped,
    "wrong kl term": loss(lambda weights: weights.total(-KL)),
    "wrong aggregation": loss(lambda weights: weights.total(KL), StatedLoss(reduction="token mean")),
    "accumulation not scaled": loss(lambda weights: [4 * w for w in weights.total(KL)]),
    "another loss": loss(lambda weights: [w * np.arange(1, len(w) + 1) for w in weights.total(KL)]),
    "misaligned log-probabilities": uneven(lambda values: [0.0, *values[:-1]]),
    "log-probabilities of another kind": uneven(lambda values: [one / math.log(2) for one in values]),
    "inputs differ": uneven(lambda values: [-3 - one for one in values]),
    "ratio always 1": second_update(lambda weights: weights.total(KL), StatedLoss(ratio="none")),
    "wrong clip range": second_update(lambda weights: weights.total(KL), StatedLoss(high=0.6)),
    "non-finite": broken_number,
    "clip norm not in force": taken,
    "reference moves along": reference,
    "wrong reference": log(lambda run: {"kl": np.full(60, 0.1)}, kl=np.linspace(0, 0.1, 60)),
    "wrong old log-probabilities": each(bfloat16),
    "learning rate off schedule": log(lambda run: {"lr": np.full(60, 1e-5)}, SCHEDULE),
    "repeated data": prompts,
    "weight decay not in force": in_force,
    "optimiser state lost": optimizer,
    "weights lost at a restart": log(
        lambda run: {"reward": np.where(np.arange(60) < 30, 1.0, 0.0) + 0.01 * run.table["reward"]}, restart=31
    ),
    "metric logged wrongly": log(lambda run: {"dead_fraction": np.full(60, 0.93)}),
}
"""Fault -> evidence that has it, or the same without it."""
