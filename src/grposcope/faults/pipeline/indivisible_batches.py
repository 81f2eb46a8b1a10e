"""Batches that do not divide into groups, mini-batches, micro-batches, passes and processes.

What it is
    A batch of rollouts has to hold whole groups. TRL makes it of the rollouts of a pass × passes × processes; verl cuts
    prompts × n into mini-batches, these over the data-parallel ranks, and each share into micro-batches; NeMo-RL cuts
    the rollouts of a step into training batches.
How it shows
    TRL and verl check some of it at the start and fail; the rest fails at the first update. Where verl's batch leaves a
    rest, it becomes a smaller step or is dropped, by version.
What it does to the gradient
    A group that is split between batches has a baseline of the rollouts that happen to be in one of them; a rest that
    is dropped is paid for and teaches nothing.
What to do
    Choose sizes that are multiples of each other; the finding names the number.
What decides
    Starting the run, on as many processes as it will have.
Sources
    TRL 1.16, GRPOConfig: https://huggingface.co/docs/trl/grpo_trainer
    verl 0.9.1, validate_config: https://github.com/verl-project/verl
    NeMo-RL, guides/grpo: https://docs.nvidia.com/nemo/rl/latest/guides/grpo.html"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.faults.checks.batches import CHECK

FAULT = Fault(
    name="indivisible batches",
    rank=1.2,
    remedy="choose sizes that are multiples of each other",
    settings=CHECK,
)
