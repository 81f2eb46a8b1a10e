"""Settings that the trainer refuses together, or without a third one, once the models are loaded.

What it is
    TRL refuses `auto_find_batch_size`, and `generation_batch_size` beside `steps_per_generation`. verl refuses two
    sizes of a micro-batch at once, and none where `use_dynamic_bsz` is off.
How it shows
    The run stops at its start, often after minutes of loading.
What it does to the gradient
    Nothing: there is none.
What to do
    Leave one of the two out, or set the one that is missing.
What decides
    Starting the run.
Sources
    TRL 1.16, GRPOConfig: https://huggingface.co/docs/trl/grpo_trainer
    verl 0.9.1, validate_config: https://github.com/verl-project/verl"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.faults.checks.batches import CHECK

FAULT = Fault(
    name="refused settings",
    rank=1.1,
    remedy="leave one of them out",
    settings=CHECK,
)
