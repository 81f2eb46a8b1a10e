"""What is said of rollouts that a probe took from a trainer's files instead of drawing them."""

from __future__ import annotations

import math

from grposcope.formatting import number, visible
from grposcope.runs.rollout_source import RolloutSource

TITLES = {"trl": "TRL", "verl": "verl"}


def sentences(source: RolloutSource, model_step: int | None) -> list[str]:
    """Where the rollouts are from, how their tokens were found, and whether they are the policy's own."""
    said = [_where(source, model_step)]
    weights = ", ".join(f"{number(weight)} × {visible(name, 60)}" for name, weight in source.weights.items())
    if len(source.weights) > 1:
        said.append(f"The reward is {weights}.")
    said += [_tokens(source), _fit(source)]
    return said + [f"{visible(note, 300)[:1].upper()}{visible(note, 300)[1:]}." for note in source.notes]


def _where(source: RolloutSource, model_step: int | None) -> str:
    engine = TITLES.get(source.engine, visible(source.engine, 40))
    what = f"Rollouts: those that {engine} wrote at step {source.step}, {visible(source.path, 200)}"
    if model_step is None or source.step is None:
        return f"{what}."
    updates = model_step + 1 - source.step
    if updates == 0:
        return f"{what}, drawn from the weights after step {model_step} where every batch is used once."
    when = "later" if updates > 0 else "earlier"
    return f"{what}; the model is that after step {model_step}, {abs(updates)} update{'s' * (abs(updates) > 1)} {when}."


def _tokens(source: RolloutSource) -> str:
    forms = ", ".join(f"{count} as {form}" for form, count in source.forms.items())
    text = f"Tokens: encoded again from text (prompts: {forms})"
    changed = [
        f"{count} {what}" for count, what in
        ((source.changed_prompts, "prompts"), (source.changed_completions, "completions")) if count
    ]  # fmt: skip
    text += (
        f"; {' and '.join(changed)} do not come back when decoded"
        if changed
        else "; every text comes back when decoded"
    )
    if math.isfinite(source.length_logged):
        text += f"; {source.length:.2f} tokens per completion, and the trainer logged {source.length_logged:.2f}"
        if abs(source.length - source.length_logged) > 0.01 * source.length_logged:
            text = f"CAUTION: not the tokens that were trained on. {text}"
    return f"{text}; {source.truncated} completions fill the limit and are taken as truncated."


def _fit(source: RolloutSource) -> str:
    excess = source.excess
    if not math.isfinite(source.z):
        return f"Whether the rollouts are the model's own: cannot tell ({excess.flag or 'not finite'})."
    measured = f"log π(y) + H is {number(excess.value)} ± {number(excess.se)} nats per token, z = {source.z:.1f}"
    if not source.foreign:
        return f"The rollouts are the model's own as far as can be told: {measured}."
    if source.z < 0:
        return (
            f"CAUTION: the model would not have drawn these rollouts ({measured}): other weights, prompts, template or "
            "a higher temperature. What follows is of these texts under this model, not of a step of the training."
        )
    return (
        f"CAUTION: these rollouts are likelier than the model's own ({measured}): they were drawn at a lower "
        "temperature or with the tail cut off (top-k, top-p). Give the temperature of the run."
    )
