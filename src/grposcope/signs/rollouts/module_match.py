"""Which of a model's weights reached the sampler, by kind of module: the result, without the weights."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("embedding", "head", "attention", "mlp", "norm", "other")
"""Kinds of modules, in the order in which they are told."""


@dataclass(frozen=True)
class ModuleMatch:
    """The weights of one kind of module in the sampler against those of the trainer.

    kind: of KINDS. tensors: how many there are. equal: to the trainer's, bit by bit or within the rounding of the
    sampler's number format. earlier: of the others, those that equal the weights before training. absent: tensors that
    one side lacks. moved: tensors that training moved, NaN-free count; where nothing moved, equality says nothing.
    largest: the largest difference of a weight. first: name of the first tensor that differs, empty for none.
    """

    kind: str
    tensors: int
    equal: int
    earlier: int
    absent: int
    moved: int
    largest: float
    first: str = ""
