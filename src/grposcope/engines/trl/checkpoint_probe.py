"""A probe of the model as it stands in the trainer's process, on the completions that TRL wrote last.

What `grposcope probe` does with a checkpoint and the folder of completions, without loading the model again. Models
whose parameters are spread over processes (FSDP, DeepSpeed ZeRO-3) are refused: one process alone does not have them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from grposcope.core.errors import UserError
from grposcope.engines.trl import settings as trl_settings
from grposcope.instruments.gradient import probe
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.gradient import recording as record
from grposcope.instruments.gradient.retokenize import origin, retokenize
from grposcope.lab.policies import Policy
from grposcope.lab.tasks.base import Problem
from grposcope.logs import logged_rollouts
from grposcope.logs.trainers import trl_completions

PROMPTS = 8
"""Prompts of the step that are probed."""


def written(folder: Path, args: Any, step: int, model: Any, tokenizer: Any, functions: tuple[str, ...]) -> Path:
    """Probe `model`, the weights after `step`, and write the probe into the record in `folder`; returns its place.

    args: the trainer's. functions: names of the reward functions. The model's mode is put back, and no random number is
    drawn. UserError where there are no completions, or the model cannot be probed.
    """
    if any(hasattr(weights, "ds_id") or hasattr(weights, "device_mesh") for weights in model.parameters()):
        raise UserError("the parameters are spread over processes; probe a saved checkpoint with grposcope probe")
    output = Path(args.output_dir)
    files = {trl_completions.step_of(path): path for path in trl_completions.files(output)}
    if not files:
        raise UserError("there are no completions to probe; set log_completions=True")
    chosen = logged_rollouts.choose(sorted(files), None, step, output / "completions")
    rows = trl_completions.logged(files[chosen], functions)
    logged = logged_rollouts.grouped(rows, args.num_generations, args.reward_weights, PROMPTS)
    objective, _ = trl_settings.fresh(args)
    policy = _policy(args, model, tokenizer)
    trained = policy.model.training
    policy.model.eval()
    try:
        made = retokenize(policy, logged, args.max_completion_length, args.temperature,
                          getattr(args, "chat_template_kwargs", None) or {},
                          bool(args.mask_truncated_completions))  # fmt: skip
        measured = probe.probe(policy.model, made.rollouts, objective.at_length(args.max_completion_length),
                               temperature=args.temperature)  # fmt: skip
    finally:
        policy.model.train(trained)
    folder_of_step = folder / probes.FOLDER / f"step-{step:06d}"
    task = f"rollouts of trl, step {chosen}"
    about = record.record(measured, policy.name, task, 0, step, origin(logged, made))
    problems = [Problem(f"prompt {i}", prompt) for i, prompt in enumerate(made.prompts)]
    texts = [
        [str(tokenizer.decode([i])) for i in ids[inside].tolist()]
        for ids, inside in zip(made.rollouts.tokens, made.rollouts.mask, strict=True)
    ]
    probes.write(folder_of_step, about, record.gram(measured), record.rollouts(measured, problems, made.texts, texts))
    return folder_of_step


def _policy(args: Any, model: Any, tokenizer: Any) -> Policy:
    """The trainer's model, adapters in place, with its tokenizer."""
    core = model.get_base_model() if hasattr(model, "get_base_model") else model
    end = tokenizer.eos_token_id
    if not isinstance(end, int):
        raise UserError("the tokenizer names no end token")
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end
    name = str(getattr(core.config, "_name_or_path", "") or type(core).__name__)
    return Policy(name, core, tokenizer, torch.tensor([end], device=core.device), pad)
