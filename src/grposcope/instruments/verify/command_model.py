"""`grposcope verify` with checkpoints: tokens are scored, and the sampler's weights compared with the trainer's."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from grposcope.commands import probe_model
from grposcope.core.errors import UserError
from grposcope.core.files import read_whole
from grposcope.core.rollouts import Rollout
from grposcope.core.text import listed
from grposcope.instruments.verify import gradient_norm, model_folders, module_differences, scoring
from grposcope.lab import batch_memory, policies
from grposcope.lab.policies import Policy, adapters
from grposcope.lab.sampling import pass_cost
from grposcope.signs.rollouts import numerics
from grposcope.signs.rollouts.evidence import GradientEvidence, PipelineEvidence, ScoredTokens
from grposcope.signs.rollouts.module_match import ModuleMatch

BASE = "the base model without adapters"


@dataclass(frozen=True)
class _NamedCheckpoint:
    """A checkpoint to score: what it is called, what it is loaded by, and its step, None where it is not known."""

    name: str
    model: str
    step: int | None


def with_model(evidence: PipelineEvidence, arguments: argparse.Namespace) -> PipelineEvidence:
    """The evidence with the tokens scored under each checkpoint; unchanged where no model was given.

    Its rows stay as they were written: tokens that were made of a text are scored, and are nothing that was recorded.
    UserError for checkpoints of different models, and for what does not load or fit.
    """
    if not arguments.model:
        if arguments.sampler_weights:
            raise UserError("--sampler-weights needs --model with the trainer's checkpoint")
        return evidence
    _quiet(arguments)
    named = _with_base([named_folder for model in arguments.model for named_folder in _named(model, evidence.rows)])
    temperature = _temperature(arguments, evidence)
    numerics.of(arguments.sampler_precision)
    stated = replace(
        evidence.stated,
        temperature=temperature,
        precision=arguments.sampler_precision or evidence.stated.precision,
    )
    policy = _load(named[0].model, arguments)
    for folder in named[1:]:  # before the first is scored, which may take minutes
        _Shape.of(policy).check(_load(folder.model, arguments))
    rows, said = scoring.with_ids(evidence.rows, policy)
    notes, scored = (*evidence.notes, *said, *_absent(rows)), []
    gradients: list[GradientEvidence] = []
    with_adapters = any((Path(one.model) / adapters.CONFIG).is_file() for one in named)
    passes = len(named) * (1 + len(scoring.SCALES) * with_adapters)
    _foretell(policy, replace(evidence, rows=rows), passes)
    for number, folder in enumerate(named):
        policy = policy if number == 0 else _load(folder.model, arguments)
        tokens = scoring.score(policy, rows, temperature, folder.name, folder.step, _progress(folder.name))
        scales = scoring.at_scales(policy, rows, temperature)
        scored.append(replace(tokens, untrained=folder.name == BASE or folder.step == 0, at_scale=scales))
        gradients += _taken_again(policy, replace(evidence, stated=stated), folder.step, with_adapters, folder.model)
    arrived: tuple[ModuleMatch, ...] = ()
    if arguments.sampler_weights:
        first, *others = sorted(named, key=lambda one: one.name != BASE)
        trainer = module_differences.weights_of(_load((others or [first])[-1].model, arguments))
        before = module_differences.weights_of(_load(first.model, arguments)) if others else None
        sampler = _load(probe_model.find(arguments.sampler_weights).model, arguments)
        arrived = module_differences.compare(trainer, module_differences.weights_of(sampler), before)
    return replace(
        evidence, stated=stated, scored=_ordered(scored), notes=notes, arrived=arrived,
        gradients=tuple(sorted(gradients, key=lambda gradient: gradient.step)),
        used=(*evidence.used, _used(named, arguments)),
    )  # fmt: skip


def _used(named: Sequence[_NamedCheckpoint], arguments: argparse.Namespace) -> str:
    """Which checkpoints the tokens were scored under, a clause."""
    steps = [str(folder.step) for folder in named if folder.step is not None]
    if len(steps) < len(named):
        return f"{len(named)} checkpoint{'s' * (len(named) != 1)} ({', '.join(folder.name for folder in named)})"
    where = f" in {arguments.model[0]}" if len(arguments.model) == 1 else ""
    return f"the checkpoint{'s' * (len(steps) != 1)} of step{'s' * (len(steps) != 1)} {listed(steps)}{where}"


def _foretell(policy: Policy, evidence: PipelineEvidence, checkpoints: int) -> None:
    """Say what scoring under so many checkpoints will take, of a model that is not small; UserError without room.

    Where the log has norms of gradients, one is taken again for each checkpoint, with and without the KL term.
    """
    model, lengths = policy.model, [n for row in evidence.rows if (n := gradient_norm.length(row))]
    if not lengths:
        return
    needed = 3 * scoring.BUDGET
    if evidence.run is not None and "grad_norm" in evidence.run.table:
        entries = sum(p.numel() for p in model.parameters() if p.requires_grad)
        width = min(gradient_norm.TOKENS, sum(lengths))
        needed = max(needed, 3 * 4.0 * entries + pass_cost.autograd_bytes(model, width))
    remedy = "log fewer or shorter rollouts, or compare a smaller model; without --model the record alone is compared"
    batch_memory.refuse_if_full("verify", needed, policies.available_memory(model.device), remedy)
    if not policy.small:
        seconds = pass_cost.forward_seconds(model, 1, max(lengths)) * sum(lengths) / max(lengths) * checkpoints
        print(batch_memory.foretold("verify", needed, seconds), file=sys.stderr)


def _taken_again(
    policy: Policy, evidence: PipelineEvidence, step: int | None, with_adapters: bool, model: str
) -> list[GradientEvidence]:
    """The gradient of the step after a checkpoint; none of a base model whose adapters are trained."""
    base = with_adapters and all(p.requires_grad for p in policy.model.parameters())
    precision = _precision(evidence.stated.training, Path(model))
    norm = None if step is None or base else gradient_norm.measure(policy, evidence, step + 1, precision)
    return [] if norm is None else [norm]


def _precision(stated: str | None, model: Path) -> str:
    """The number format that a trainer computed in: that of its settings or of the weights it kept, the coarser one.

    bfloat16 where nothing says it.
    """
    try:
        config = json.loads(read_whole(model / "config.json"))
    except (OSError, ValueError, RecursionError):
        config = {}
    dtype = str(config.get("dtype", config.get("torch_dtype"))) if isinstance(config, dict) else ""
    coarse = [precision for precision in (stated, dtype) if precision in ("bfloat16", "float16")]
    return coarse[0] if coarse else stated or "bfloat16"


def _quiet(arguments: argparse.Namespace) -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)


def _load(model: str, arguments: argparse.Namespace) -> Policy:
    return policies.load(model, torch.float32, policies.device(arguments.device), arguments.remote_code)


def _named(model: str, rows: Sequence[Rollout]) -> list[_NamedCheckpoint]:
    """The checkpoints that a name stands for: all of a run, or the one."""
    folder = Path(model)
    models = model_folders.models(folder)
    if len(models) > 1 or (models and not model_folders.is_model(folder)):
        return _chosen([_NamedCheckpoint(f"step {step}", str(path), step) for step, path in models.items()], rows)
    source = probe_model.find(model)
    step = source.step
    if step is None and folder.is_dir():
        step = next(iter(models), model_folders.step_of(folder.resolve()))
    return [_NamedCheckpoint(model if step is None else f"step {step}", source.model, step)]


def _with_base(named: list[_NamedCheckpoint]) -> list[_NamedCheckpoint]:
    """The checkpoints, and the base model of a single one with adapters, which draws where they never arrived."""
    if len(named) != 1 or (Path(named[0].model) / "config.json").is_file():
        return named
    folder = Path(named[0].model)
    if not (folder / adapters.CONFIG).is_file():
        return named
    base = _NamedCheckpoint(BASE, adapters.base_of(folder), None if named[0].step is None else 0)
    return [*named, base]


def _chosen(every: list[_NamedCheckpoint], rows: Sequence[Rollout]) -> list[_NamedCheckpoint]:
    """At most MOST checkpoints: the first, and those that should have drawn rows, spread over training."""
    if len(every) <= model_folders.MOST:
        return every
    drew = {int(row.version) if row.version == row.version else row.step - 1 for row in rows}
    order = sorted(range(1, len(every)), key=lambda index: every[index].step not in drew)
    wanted = [index for index in order if every[index].step in drew] or order
    spread = [wanted[i * (len(wanted) - 1) // max(model_folders.MOST - 2, 1)] for i in range(model_folders.MOST - 1)]
    return [every[index] for index in sorted({0, *spread})]


def _ordered(scored: Sequence[ScoredTokens]) -> tuple[ScoredTokens, ...]:
    """In the order of training where all steps are known, else as given."""
    if any(model.step is None for model in scored):
        return tuple(scored)
    return tuple(sorted(scored, key=lambda model: model.step or 0))


def _temperature(arguments: argparse.Namespace, evidence: PipelineEvidence) -> float:
    """The temperature asked for, else the settings' or the first model's run's, else 1; UserError unless > 0."""
    given = arguments.temperature
    if given is None:
        given = evidence.stated.temperature
    if given is None:
        given = (
            probe_model.find(arguments.model[0]).settings.get("temperature")
            if Path(arguments.model[0]).is_dir()
            else None
        )
    temperature = 1.0 if given is None else float(given)
    if not 0 < temperature < float("inf"):
        raise UserError(f"--temperature {temperature:g} must be above 0: greedy rollouts have no distribution")
    return temperature


def _absent(rows: Sequence[Rollout]) -> list[str]:
    """A note on recorded log-probabilities that are no numbers."""
    absent = sum(int((row.sampler != row.sampler).sum()) for row in rows if row.sampler is not None)
    return [f"{absent:,} log-probabilities of the sampler are NaN or missing and were left out"] if absent else []


@dataclass(frozen=True)
class _Shape:
    """What checkpoints of one run have in common."""

    name: str
    architecture: str
    vocabulary: int
    tokens: Any

    @staticmethod
    def of(policy: Policy) -> _Shape:
        config = policy.model.config
        size = int(getattr(config, "vocab_size", 0) or len(policy.tokenizer))
        return _Shape(policy.name, str(config.model_type), size, policy.tokenizer.get_vocab())

    def check(self, policy: Policy) -> None:
        """UserError where a policy has another architecture or tokenizer."""
        other = _Shape.of(policy)
        if other.architecture != self.architecture:
            what = f"is a {other.architecture} model and {self.name} a {self.architecture}"
        elif other.vocabulary != self.vocabulary or other.tokens != self.tokens:
            what = f"has a different vocabulary from {self.name}"
        else:
            return
        raise UserError(f"{policy.name} {what}; give checkpoints of one training")


def _progress(name: str) -> Any:
    def tell(done: int, of: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{name}: {done:,} of {of:,} rollouts", end="\n" if done == of else "", file=sys.stderr)

    return tell
