"""GPUs that do not divide into replicas of the model or of the rollout engine.

What it is
    verl's actor needs tensor × pipeline × context parallel GPUs (Megatron) or the sequence-parallel ones (FSDP) for one
    replica, and its rollout engine the tensor-parallel ones. The GPUs have to be a multiple of each.
How it shows
    The run stops when its process groups are made.
What it does to the gradient
    Nothing: there is none.
What to do
    Choose parallel sizes whose product divides the GPUs.
What decides
    Starting the run, on as many GPUs as it will have.
Sources
    verl 0.9.1, validate_config: https://github.com/verl-project/verl"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.faults.checks.batches import CHECK

FAULT = Fault(
    name="indivisible gpus",
    rank=1.3,
    remedy="choose sizes whose product divides the GPUs",
    settings=CHECK,
)
