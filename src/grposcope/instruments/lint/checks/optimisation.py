"""Learning rates, and weights too coarse for them."""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.instruments.lint.checks.derived import ACTOR
from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, Untold

FULL, ADAPTERS = 2e-5, 3e-5
"""Largest learning rates of Adam among the published settings of benchmarks/lint.md, for all weights and for
adapters.
"""

FAR = 10
"""Times these from which a learning rate is more than unusual."""

COARSE = 2.0**-8
"""Half the distance between neighbouring numbers of bfloat16, as a share of the number."""

KEYS = {"trl": "learning_rate", "verl": ACTOR + "optim.lr", "nemo-rl": "policy.optimizer.kwargs.lr"}
"""The key of the learning rate."""


def learning_rate(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """A learning rate of 0, or far beyond what others train with."""
    key = KEYS[config.dialect.name]
    rate = config.number(key)
    if rate is None:
        yield Untold(f"{key} is not known")
        return
    limit, of = (FULL, "all weights") if has_adapters(config) is False else (ADAPTERS, "adapters")
    if rate <= 0:
        yield Fault("failing", "nothing is learned", f"the learning rate is {rate:g}", f"set {key}", (key,))
    elif rate > limit:
        yield Fault(
            "warning" if rate > FAR * limit else "note",
            "a learning rate higher than published ones",
            f"{rate:g} is {rate / limit:.3g} times the largest rate in the published settings for {of} "
            f"({limit:g}); a step of Adam moves every weight by about the learning rate",
            "start with 1e-6 for full training, 1e-5 for adapters",
            (key,),
        )


def coarse_weights(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """Weights kept in bfloat16, to which steps of the learning rate are mostly rounded away."""
    found = _half_precision(config)
    rate = config.number(KEYS[config.dialect.name])
    if found is None or rate is None or has_adapters(config):
        return
    size = rate / COARSE
    if size < 5e-3:  # steps of Adam are about lr; the weights of a language model are mostly about 0.02
        yield Fault("note", "most steps are rounded away", f"weights are kept in bfloat16: a step of {rate:g} changes "
                      f"only weights smaller than {size:.2g}", "keep float32 weights, and compute in "
                      "bfloat16", found)  # fmt: skip


def has_adapters(config: TrainerConfig) -> bool | None:
    """Whether adapters are trained; None if it is not known."""
    if config.dialect.name == "verl":
        rank = config.number("actor_rollout_ref.model.lora_rank") or config.number("actor_rollout_ref.model.lora.rank")
        return bool(rank)
    if config.dialect.name == "nemo-rl":
        return any(config.on(key) for key in config.given if key.endswith(("lora_cfg.enabled", "peft.enabled")))
    if config.get("use_peft") is True or config.says("lora_r"):
        return True
    return config.adapters


def _half_precision(config: TrainerConfig) -> tuple[str, ...] | None:
    """The keys that say that weights are kept in bfloat16; None where nothing does."""
    if config.dialect.name == "verl":
        key = ACTOR + "fsdp_config.model_dtype"
        return (key,) if config.get(key) in ("bf16", "bfloat16") else None
    for key in ("model_init_kwargs.dtype", "model_init_kwargs.torch_dtype", "dtype", "torch_dtype"):
        if config.given.get(key) in ("bfloat16", "torch.bfloat16"):
            return (key,)
    inner = config.given.get("model_init_kwargs")
    if isinstance(inner, dict) and {inner.get("dtype"), inner.get("torch_dtype")} & {"bfloat16"}:
        return ("model_init_kwargs",)
    return None
