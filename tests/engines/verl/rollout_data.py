"""What verl 0.9.1 writes into `trainer.rollout_data_dir`, by its own functions: makes tests/fixtures/verl_rollouts.

    .venv-verl/bin/python tests/engines/verl/rollout_data.py

`v1` is the trainer that `main_ppo` runs by default, `v0` the one of `trainer.use_v1=False`. Two steps of two prompts
with four rollouts each, in the tokens of the model `tiny`. Special tokens are not written, so that nothing says
whether a completion ended or was cut.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from places import TESTS
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer

from grposcope.lab.policies.load import TINY

FIXTURE = TESTS / "fixtures" / "verl_rollouts"
STEPS = (
    {"8+5-4=": ("9=9", "13-4=9", "13-4=9", "12-4=8"), "30-7+2=": ("23+2=25", "23+2=25", "22+2=24", "23+2=2")},
    {"61+9-3=": ("70-3=67", "69-3=66", "70-3=67", "70-3=67"), "5+5-1=": ("10-1=9", "10-1=9", "10-1=9", "10-1=9")},
)
"""Of each step, prompts and their completions."""


def rows(step: int) -> list[dict[str, Any]]:
    """The rollouts of a step, in the order in which they were finished: not that of the prompts."""
    listed = []
    for k, (prompt, completions) in enumerate(STEPS[step - 1].items()):
        truth = str(total(prompt))
        for i, completion in enumerate(completions):
            score = float(completion.rsplit("=", 1)[-1] == truth)
            uid = f"00000000-0000-4000-8000-{step:06d}{k:06d}"
            listed.append({"uid": uid, "n": i, "prompt": prompt, "completion": completion, "gt": truth, "score": score})
    return sorted(listed, key=lambda row: (len(row["completion"]), row["n"]))


def total(prompt: str) -> int:
    """The value of a sum such as 8+5-4=."""
    return sum(int(part) for part in prompt.rstrip("=").replace("-", "+-").split("+"))


def write_v1(folder: Path, step: int) -> None:
    """The file of a step as `PPOTrainer` writes it; only the queue that holds the tensors is replaced."""
    from tensordict import TensorDict
    from verl.trainer.ppo.v1 import trainer_base

    tokenizer, listed = AutoTokenizer.from_pretrained(TINY), rows(step)

    class Trainer(trainer_base.PPOTrainer):
        def __init__(self) -> None:
            self.tokenizer, self.global_steps = tokenizer, step

    Trainer.__abstractmethods__ = frozenset()
    queued = TensorDict(
        {
            "uid": trainer_base.tu.NonTensorStack(*[row["uid"] for row in listed]),
            "prompts": nested([ids(tokenizer, row["prompt"]) for row in listed]),
            "responses": nested([[*ids(tokenizer, row["completion"]), tokenizer.eos_token_id] for row in listed]),
            "rm_scores": nested([on_last(tokenizer, row) for row in listed], torch.float32),
            "reward_model": trainer_base.tu.NonTensorStack(*[{"ground_truth": row["gt"]} for row in listed]),
        },
        batch_size=len(listed),
    )
    keys = [f"{row['uid']}_{row['n']}_0" for row in listed]
    trainer = Trainer()
    trainer._init_dump_executor()
    with mock.patch.object(trainer_base.tq, "kv_batch_get", return_value=queued):
        trainer._log_rollout_data(mock.Mock(keys=keys, partition_id="train"), {}, str(folder))
    trainer._shutdown_dump_executor()


def write_v0(folder: Path, step: int) -> None:
    """The file of a step as `RayPPOTrainer` writes it."""
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    tokenizer, listed = AutoTokenizer.from_pretrained(TINY), rows(step)
    trainer = RayPPOTrainer.__new__(RayPPOTrainer)
    trainer.tokenizer, trainer.global_steps = tokenizer, step
    prompts = [torch.tensor(ids(tokenizer, row["prompt"])) for row in listed]
    responses = [torch.tensor([*ids(tokenizer, row["completion"]), tokenizer.eos_token_id]) for row in listed]
    tensors = {
        "prompts": pad_sequence(prompts, True, tokenizer.pad_token_id, padding_side="left"),
        "responses": pad_sequence(responses, True, tokenizer.pad_token_id),
        "token_level_scores": pad_sequence([torch.tensor(on_last(tokenizer, row)) for row in listed], True),
    }
    truths = np.array([{"ground_truth": row["gt"]} for row in listed], dtype=object)
    extra = {"acc": np.array([row["score"] for row in listed])}  # what a reward function of one number leaves
    trainer._init_dump_executor()
    batch = DataProto.from_dict(tensors=tensors, non_tensors={"reward_model": truths})
    trainer._log_rollout_data(batch, extra, {}, str(folder))
    trainer._shutdown_dump_executor()


def ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text).input_ids)


def on_last(tokenizer: Any, row: dict[str, Any]) -> list[float]:
    """The score on the token that ends the completion."""
    return [*[0.0] * len(ids(tokenizer, row["completion"])), row["score"]]


def nested(values: Sequence[Sequence[float]], dtype: torch.dtype = torch.long) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(v, dtype=dtype) for v in values], layout=torch.jagged)


def write(folder: Path) -> None:
    """Both forms, two steps each."""
    for step in range(1, len(STEPS) + 1):
        write_v1(folder / "v1", step)
        write_v0(folder / "v0", step)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FIXTURE)
