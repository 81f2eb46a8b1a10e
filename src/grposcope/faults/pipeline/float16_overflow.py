"""Training in float16, whose largest number is 65,504.

Asked as
    CUDA error: device-side assert triggered, at step 2; probability tensor contains inf or nan
What it is
    Weights or activations of float16. Models that were trained in bfloat16 have activations beyond its range: those of
    Gemma do.
How it shows
    In the settings. Hidden states become infinite in the forward pass, the next rollout has log-probabilities of NaN,
    and the run stops; or one character is repeated.
What it does to the gradient
    One infinite activation makes the loss NaN. Where none is, float16 is more exact than bfloat16, and sampler and
    trainer agree better.
What to do
    Train in bfloat16 where the GPU has it; else look for infinite hidden states before the run.
What decides
    The largest hidden state of one batch, over the layers, against 65,504.
Sources
    unsloth-zoo #600, Gemma: https://github.com/unslothai/unsloth-zoo/pull/600
    arXiv:2510.26788 (float16 for agreement of sampler and trainer): https://arxiv.org/abs/2510.26788
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

HALF = ("float16", "fp16", "half", "torch.float16")

KEYS: Mapping[str, tuple[str, ...]] = {
    "trl": ("fp16", "torch_dtype", "dtype"),
    "ms-swift": ("fp16", "torch_dtype"),
    "verl": ("actor_rollout_ref.actor.fsdp_config.dtype", "actor_rollout_ref.actor.fsdp_config.model_dtype"),
    "nemo-rl": ("policy.precision",),
    "areal": ("actor.dtype",),
    "roll": ("actor_train.model_args.dtype",),
    "openrlhf": ("ds.param_dtype",),
    "slime": ("fp16",),
    "skyrl": ("trainer.policy.fsdp_config.mixed_precision.param_dtype",),
}
"""Trainer -> the keys that say the precision of training."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A precision of float16."""
    key = next((key for key in KEYS[config.dialect.name] if config.on(key) or config.get(key) in HALF), None)
    if key is None:
        return
    yield fact(
        True,
        "float16 ends at 65,504: a model that was trained in bfloat16 may have activations beyond it, which become "
        "infinite",
        config.signs(key),
        grade="note",
        brief="training in float16",
        remedy="train in bfloat16 where the GPU has it, or see that the largest hidden state of one batch is finite",
    )


FAULT = Fault(
    name="float16 overflow",
    rank=3.6,
    remedy="train in bfloat16 where the GPU has it",
    settings=SettingsCheck("float16 overflow", _settings, tuple(KEYS), "training in float16", ("note",)),
)
