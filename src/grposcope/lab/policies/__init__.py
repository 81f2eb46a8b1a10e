"""The models that are trained and measured: `load` takes `tiny`, `smollm2`, a folder or a hub name."""

from grposcope.lab.policies.load import (
    TRAINED_ON,
    Policy,
    available_memory,
    check,
    device,
    encode,
    load,
    recompute_activations,
    recomputes_activations,
)

__all__ = [
    "TRAINED_ON",
    "Policy",
    "available_memory",
    "check",
    "device",
    "encode",
    "load",
    "recompute_activations",
    "recomputes_activations",
]
