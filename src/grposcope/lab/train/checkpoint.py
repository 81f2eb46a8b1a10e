"""Checkpoints: everything a run needs to go on as if it had never stopped, and whether a run can be gone on with.

    checkpoints/step-000040/
        model/                  weights (safetensors), config and tokenizer: any tool can load them
        optimizer.safetensors   state of the optimiser, per parameter, and PyTorch's random states
        critic.safetensors      weights and optimiser of the critic, where the credit has one
        stale_weights.safetensors   earlier weights that are still to draw rollouts, where the run has staleness
        state.json              format version, step, position in the data, sizes of the record, totals, random states,
                                and the size and SHA-256 of every other file

Everything the loop draws comes from generators made afresh from the seed and the place in the run,
so the random states are kept for the user's own reward code, which may draw from Python's, NumPy's
or PyTorch's. A checkpoint gets its name when it is whole and on the disk. No pickle is read or written.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.core.files import atomic, atomic_folder, opened, read_whole, write_json
from grposcope.lab import allocation
from grposcope.lab.policies import Policy
from grposcope.lab.policies.load import dtype_argument
from grposcope.lab.sampling.critic import FILE as CRITIC
from grposcope.lab.sampling.critic import Critic
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.optimizer import OPTIMIZERS
from grposcope.lab.train.result import Totals
from grposcope.lab.train.stale_weights import FILE as STALE
from grposcope.lab.train.stale_weights import StaleWeights
from grposcope.logs.native import schema
from grposcope.logs.native.schema import LINES, RunConfig

FORMAT = 3
"""Version of state.json.

Older ones can still be read: 1 had no such number and called the totals `tally`; 1 and 2 have no hashes of the files.
"""

STATE = "state.json"

REMEDY = "delete this folder to resume from the checkpoint before it"


@dataclass(frozen=True)
class State:
    """The place of a run.

    step: optimiser steps done. position: where the next batch starts in the data. sizes: bytes of
    each file of the record that grows by lines. totals: what the run has added up so far. allocation: what the forecast
    of success rates has learned, None where there is none. constraints: the multipliers, likewise. autopilot: what it
    has seen and decided, likewise.
    """

    step: int = 0
    position: int = 0
    sizes: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(LINES, 0))
    totals: Totals = field(default_factory=Totals)
    allocation: Mapping[str, Any] | None = None
    constraints: Mapping[str, Any] | None = None
    autopilot: Mapping[str, Any] | None = None


def save(
    run: Path,
    state: State,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    critic: Critic | None = None,
    stale: StaleWeights | None = None,
) -> Path:
    """Write the checkpoint of `state.step` under `run`; returns its folder. UserError where the disk refuses."""
    target = folder_of(run, state.step)
    try:
        with atomic_folder(target) as folder:
            policy.model.save_pretrained(folder / "model")
            policy.tokenizer.save_pretrained(folder / "model")
            tensors, numbers = _flat(optimizer.state_dict()["state"])
            save_file({**tensors, **_torch_states()}, folder / "optimizer.safetensors")
            if critic is not None:
                save_file(critic.state(), folder / CRITIC)
            if stale is not None:
                save_file(stale.state(), folder / STALE)
            files = {str(f.relative_to(folder)): _print_of(f) for f in sorted(folder.rglob("*")) if f.is_file()}
            content = {
                "format": FORMAT,
                **asdict(state),
                "optimizer": numbers,
                "random": _plain_states(),
                "files": files,
            }
            write_json(folder / STATE, content)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"cannot write the checkpoint {target}: {getattr(error, 'strerror', None) or error}; the record "
            "and older checkpoints are intact: make room, then resume the run"
        ) from None
    return target


def save_model(run: Path, policy: Policy, critic: Critic | None = None) -> None:
    """Write the final model, `run`/model, so that it appears whole; the critic before it. UserError from the disk."""
    try:
        if critic is not None:
            with atomic(run / CRITIC) as file:
                file.write(to_bytes(critic.state()))
        with atomic_folder(run / "model") as folder:
            policy.model.save_pretrained(folder)
            policy.tokenizer.save_pretrained(folder)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"cannot write the model {run / 'model'}: {getattr(error, 'strerror', None) or error}; the record "
            "and the checkpoints are intact: make room, then resume the run"
        ) from None


def latest(run: Path) -> Path | None:
    """The newest checkpoint of a run, None if it has none yet."""
    return max(_all(run), key=_step, default=None)


def steps(run: Path) -> list[int]:
    """The steps that a run has checkpoints of, in order."""
    return [_step(folder) for folder in _all(run)]


def folder_of(run: Path, step: int) -> Path:
    """The folder of the checkpoint of `step`, which may not be there."""
    return run / "checkpoints" / f"step-{step:06d}"


def read_state(folder: Path) -> State:
    """The place of the run at the checkpoint in `folder`; UserError for a checkpoint that is not whole."""
    return _read(folder)[0]


def restore(
    folder: Path,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    critic: Critic | None = None,
    stale: StaleWeights | None = None,
) -> State:
    """Put model, optimiser, critic, earlier weights and random states back as they were; returns where the run was.

    Raises UserError for a checkpoint that is not whole.
    """
    state, content = _read(folder)
    try:
        for name, known in content["files"].items():
            _check_file(folder / name, *((known, None) if isinstance(known, int) else known))
        dtype: dict[str, Any] = {dtype_argument(): policy.model.dtype}
        model = type(policy.model).from_pretrained(folder / "model", use_safetensors=True, **dtype)
        tensors = load_file(folder / "optimizer.safetensors")
        numbers, random_states = content["optimizer"], content["random"]
        of_critic = None if critic is None else load_file(folder / CRITIC)
        of_stale = None if stale is None else load_file(folder / STALE)
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise _damaged(folder, error) from None
    policy.model.load_state_dict(model.state_dict())
    of_optimizer = {k: v for k, v in tensors.items() if not k.startswith("random.")}
    optimizer.load_state_dict(
        {"state": _nested(of_optimizer, numbers), "param_groups": optimizer.state_dict()["param_groups"]}
    )
    if critic is not None and of_critic is not None:
        critic.restore(of_critic)
    if stale is not None and of_stale is not None:
        stale.restore(of_stale)
    _put_back(random_states, tensors)
    return state


def _read(folder: Path) -> tuple[State, dict[str, Any]]:
    """The place of the run, and the whole content of state.json."""
    try:
        content = dict(json.loads(read_whole(folder / STATE)))
        version = content.get("format", 1)
        if version > FORMAT:
            raise UserError(
                f"{folder} has format {version}, and this grposcope reads formats up to {FORMAT}; upgrade grposcope"
            )
        totals = Totals.parse(content["tally" if version == 1 else "totals"])
        place = State(content["step"], content["position"], content["sizes"], totals, content.get("allocation"),
                      content.get("constraints"), content.get("autopilot"))  # fmt: skip
        return place, content
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise _damaged(folder, error) from None


def _print_of(file: Path) -> tuple[int, str]:
    """Size in bytes and SHA-256 of a file."""
    with opened(file) as content:
        return file.stat().st_size, hashlib.file_digest(content, "sha256").hexdigest()


def _check_file(file: Path, size: int, digest: str | None) -> None:
    """UserError for a file that is not as it was written; without a digest, its size alone is compared."""
    there = file.stat().st_size
    if there != size:
        raise UserError(f"{file} has {there:,} bytes instead of {size:,}: it was cut off; {REMEDY}")
    if digest is not None and _print_of(file)[1] != digest:
        raise UserError(f"{file} has changed since it was written; {REMEDY}")


def _damaged(folder: Path, error: Exception) -> UserError:
    return UserError(f"checkpoint {folder} is damaged ({type(error).__name__}: {error}); {REMEDY}")


def prune(run: Path, keep: int, also: Collection[int] = ()) -> None:
    """Delete all but the newest `keep` checkpoints and those of the steps `also`; `keep` 0 keeps all."""
    for folder in _all(run)[:-keep] if keep else []:
        if _step(folder) not in also:
            shutil.rmtree(folder, ignore_errors=True)


def check_space(
    run: Path,
    policy: Policy,
    optimizer: str,
    keep: int,
    critic: Critic | None = None,
    stale: StaleWeights | None = None,
) -> None:
    """UserError if the checkpoints that a run has at once, and its final model, do not fit on the disk."""
    weights = sum(p.numel() * p.element_size() for p in policy.model.parameters())
    kept = max(keep, 1) + 2  # one more while it is written, and the best
    of_critic = 3 * critic.bytes * (kept + 1) if critic is not None else 0  # AdamW keeps two numbers per weight
    of_stale = stale.bytes * kept if stale is not None else 0
    needed = weights * ((1 + OPTIMIZERS[optimizer][1]) * kept + 1) + of_critic + of_stale
    place = next(p for p in (run, *run.absolute().parents) if p.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise UserError(
            f"checkpoints of {policy.name} need up to {needed / 1e9:.1f} GB under {run}, where {free / 1e9:.1f} GB are "
            "free; choose another folder, a smaller keep_checkpoints, or checkpoint_every 0 for none"
        )


def resumable(run: Path, given: Mapping[str, Any]) -> RunConfig:
    """config.json of a run that can be gone on with; its settings fit `TrainConfig`.

    given: settings asked for now. More steps than the run's own extend it, where its schedule does not depend on their
    number. Raises UserError where there is no run, the run is finished, its record is of another version, or another
    setting in `given` differs from the run's.
    """
    config = schema.read_config(run)
    known = {f.name for f in fields(TrainConfig)}
    unknown = sorted(config.settings.keys() - known)
    if config.engine != "grposcope":
        raise UserError(f"{run} is the record of a run of {config.engine}; resume it with that trainer")
    if config.format < schema.FORMAT:
        raise UserError(
            f"{run} has record format {config.format}, which can be read but not resumed: this grposcope "
            f"writes format {schema.FORMAT}"
        )
    if unknown:
        raise UserError(f"{run} has settings unknown to this version ({', '.join(unknown)}); upgrade grposcope")
    check_allocator(run, config.settings)
    config = _extended(run, config, given.get("steps", 0))
    different = [
        f"{name} {value} (the run: {config.settings.get(name)})"
        for name, value in given.items()
        if value != config.settings.get(name) and name != "out"
    ]
    if different:
        raise UserError(
            f"a resumed run keeps its settings, and these differ: {', '.join(different)}; leave them out, or start "
            "a new run with the model of a checkpoint"
        )
    summary = schema.read_summary(run)
    if summary is not None and not summary.interrupted and (summary.steps or 0) >= config.settings.get("steps", 0):
        raise UserError(
            f"{run} is finished ({summary.steps} steps), so there is nothing to resume; to train its model further, "
            f"start a new run from {run}/model"
        )
    return config


def check_allocator(run: Path, settings: Mapping[str, Any]) -> None:
    """UserError for a run whose way of allocating rollouts this version does not have any more."""
    try:
        allocation.chosen(settings.get("allocate", "uniform"))
    except UserError as error:
        raise UserError(
            f"{run} cannot be resumed by this version ({error}): start a new run from the model of its last "
            "checkpoint, or resume it with the version that began it"
        ) from None


def _extended(run: Path, config: RunConfig, steps: int) -> RunConfig:
    """The config of a run that goes on to `steps`, if that is further than before; UserError if it cannot."""
    before, schedule = config.settings.get("steps", 0), config.settings.get("schedule")
    if steps <= before:
        return config
    if schedule != "constant":
        raise UserError(
            f"{run} cannot be extended from {before} to {steps} steps: with its schedule ({schedule}) the "
            f"learning rate reaches 0 at step {before}; start a new run from its model, {run}/model, or use "
            "schedule constant from the start"
        )
    return replace(config, settings={**config.settings, "steps": steps})


def environment_changes(before: RunConfig, now: RunConfig) -> list[str]:
    """A line for each difference of the environments that can change the last bits of a number."""
    old, new = before.environment, now.environment
    names = ("torch", "transformers", "device", "threads", "platform")
    return [f"{name} was {old.get(name)} and is {new.get(name)}" for name in names if old.get(name) != new.get(name)]


def _all(run: Path) -> list[Path]:
    """The whole checkpoints of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step-*[0-9]"), key=_step)


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _flat(states: Mapping[int, Mapping[str, Any]]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The optimiser's state by "parameter.name": tensors, and what is no tensor."""
    pairs = {f"{index}.{name}": value for index, state in states.items() for name, value in state.items()}
    tensors = {key: value.contiguous() for key, value in pairs.items() if isinstance(value, Tensor)}
    return tensors, {key: value for key, value in pairs.items() if key not in tensors}


def _nested(tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    states: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **numbers}.items():
        index, name = key.split(".", 1)
        states.setdefault(int(index), {})[name] = value
    return states


def random_kept() -> Callable[[], None]:
    """A function that puts the random states back as they are now."""
    return partial(_put_back, _plain_states(), _torch_states())


def _torch_states() -> dict[str, Tensor]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"random.cpu": torch.get_rng_state(), **{f"random.cuda{i}": state for i, state in enumerate(cuda)}}


def _plain_states() -> dict[str, Any]:
    kind, keys, *rest = np.random.get_state(legacy=True)
    return {"python": random.getstate(), "numpy": [kind, np.asarray(keys).tolist(), *rest]}


def _put_back(plain: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    version, words, gauss = plain["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = plain["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(tensors["random.cpu"])
    cuda = [name for name in tensors if name.startswith("random.cuda")]
    if torch.cuda.device_count() == len(cuda):
        torch.cuda.set_rng_state_all([tensors[f"random.cuda{i}"] for i in range(len(cuda))])
