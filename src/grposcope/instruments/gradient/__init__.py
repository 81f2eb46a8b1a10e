"""Composition of a gradient, from one backward pass.

probe          the whole instrument: `probe.probe(model, rollouts, recipe)`
record         a probe as it is written to a folder

Science, pure functions of arrays:
score          the per-rollout gradients of one parameter, kept as factors; gram: their inner products
spectrum       singular values and every rank by name; trajectory: of the gradients of successive steps
logits         log π and the score e_y − π of every token
weightings     which gradient: recipes, group sizes, controls
class_means    successes against failures; baseline: the best constant to subtract
layers         what is measured of each parameter: inner products, spectra, how few of its entries count

Machinery, behind `backward.attach(model).stream(rollouts, visit)`:
backward       one pass that gives every parameter's scores, checked against autograd
hooks          how layers report their factors; checkpointing: activations recomputed to save memory
"""

import importlib
from typing import Any

from grposcope.core.instrument import Command, Instrument

__all__ = ["INSTRUMENT", "probe", "spectrum"]

INSTRUMENT = Instrument(
    "gradient",
    "What is the gradient made of?",
    answers="grposcope.instruments.gradient.answer",
    commands=(
        Command(
            "probe",
            "plan the next one",
            "measure what a gradient is made of: rank, credit, sparsity",
            "grposcope.instruments.gradient.command",
        ),
    ),
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
