"""Checkpoints: everything a run needs to go on as if it had never stopped.

    checkpoints/step-000040/
        model/                  weights (safetensors), config and tokenizer: any tool can load them
        optimizer.safetensors   state of the optimiser, per parameter
        state.json              step, position in the data, sizes of the record, tally, random states

Everything the loop draws comes from generators made afresh from the seed and the place in the run,
so the random states are kept for the user's own reward code, which may draw from Python's, NumPy's
or PyTorch's. A checkpoint is written beside its final name and renamed when it is whole and on the
disk. No pickle is read or written.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from grposcope.errors import UserError
from grposcope.files import write_json
from grposcope.policies import Policy

STATE = "state.json"


@dataclass(frozen=True)
class State:
    """What state.json holds.

    step: optimiser steps done. position: where the next batch starts in the data. sizes: bytes of
    each file of the record. tally: what the run has added up so far.
    """

    step: int
    position: int
    sizes: Mapping[str, int]
    tally: Mapping[str, Any]


def save(run: Path, state: State, policy: Policy, optimizer: torch.optim.Optimizer) -> Path:
    """Write the checkpoint of `state.step` under `run`; returns its folder. UserError where the disk refuses."""
    target = _folder(run, state.step)
    scratch = target.with_name(target.name + ".part")
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        policy.model.save_pretrained(scratch / "model")
        policy.tokenizer.save_pretrained(scratch / "model")
        tensors, numbers = _flat(optimizer.state_dict()["state"])
        save_file({**tensors, **_torch_states()}, scratch / "optimizer.safetensors")
        files = {str(f.relative_to(scratch)): f.stat().st_size for f in sorted(scratch.rglob("*")) if f.is_file()}
        content = {**asdict(state), "optimizer": numbers, "random": _plain_states(), "files": files}
        write_json(scratch / STATE, content)
        for file in scratch.rglob("*"):
            _sync(file)
        shutil.rmtree(target, ignore_errors=True)
        scratch.rename(target)
        _sync(target.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise UserError(
            f"cannot write the checkpoint {target}: {getattr(error, 'strerror', None) or error}; "
            f"the record and older checkpoints are whole: make room, then continue with --resume {run}"
        ) from None
    return target


def save_model(run: Path, policy: Policy) -> None:
    """Write the final model, `run`/model, so that it appears whole."""
    target, scratch = run / "model", run / "model.part"
    policy.model.save_pretrained(scratch)
    policy.tokenizer.save_pretrained(scratch)
    shutil.rmtree(target, ignore_errors=True)
    scratch.rename(target)


def latest(run: Path) -> Path | None:
    """The newest checkpoint of a run, None if it has none yet."""
    found = _all(run)
    return found[-1] if found else None


def restore(folder: Path, policy: Policy, optimizer: torch.optim.Optimizer) -> State:
    """Put model, optimiser and random states back as they were; returns where the run was.

    Raises UserError for a checkpoint that is not whole.
    """
    remedy = "delete this folder to resume from the checkpoint before it"
    try:
        content = json.loads((folder / STATE).read_text())
        for name, size in content["files"].items():
            found = (folder / name).stat().st_size
            if found != size:
                raise UserError(f"{folder / name} has {found:,} bytes instead of {size:,}: it was cut; {remedy}")
        model = type(policy.model).from_pretrained(folder / "model", dtype=policy.model.dtype, use_safetensors=True)
        tensors = load_file(folder / "optimizer.safetensors")
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise UserError(f"checkpoint {folder} is damaged ({type(error).__name__}: {error}); {remedy}") from None
    policy.model.load_state_dict(model.state_dict())
    plain = {k: v for k, v in tensors.items() if not k.startswith("random.")}
    optimizer.load_state_dict(
        {"state": _nested(plain, content["optimizer"]), "param_groups": optimizer.state_dict()["param_groups"]}
    )
    _put_back(content["random"], tensors)
    return State(content["step"], content["position"], content["sizes"], content["tally"])


def prune(run: Path, keep: int, best: int | None) -> None:
    """Delete all but the newest `keep` checkpoints and the one of step `best`; `keep` 0 keeps all."""
    for folder in _all(run)[:-keep] if keep else []:
        if best is None or folder != _folder(run, best):
            shutil.rmtree(folder, ignore_errors=True)


def check_space(run: Path, policy: Policy, optimizer: str, keep: int) -> None:
    """UserError if the checkpoints that will be there at once, and the final model, do not fit on the disk."""
    weights = sum(p.numel() * p.element_size() for p in policy.model.parameters())
    states = {"sgd": 1}.get(optimizer, 2)
    needed = weights * ((1 + states) * (max(keep, 1) + 2) + 1)  # one more while it is written, and the best
    place = next(p for p in (run, *run.absolute().parents) if p.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise UserError(
            f"checkpoints of {policy.name} need up to {needed / 1e9:.1f} GB under {run}, where {free / 1e9:.1f} GB are "
            "free; choose another --out, a smaller --keep-checkpoints, or --checkpoint-every 0"
        )


def _folder(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:06d}"


def _all(run: Path) -> list[Path]:
    """The whole checkpoints of a run, oldest first."""
    found = (run / "checkpoints").glob("step-*[0-9]")
    return sorted(found, key=lambda folder: int(folder.name.removeprefix("step-")))


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


def _sync(path: Path) -> None:
    with _opened(path) as number:
        os.fsync(number)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    number = os.open(path, os.O_RDONLY)
    try:
        yield number
    finally:
        os.close(number)
