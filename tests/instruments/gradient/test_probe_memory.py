"""The memory that a probe says it will take, against the bytes of all arrays that live while it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import backward, hooks, memory, probe
from grposcope.lab import batch_memory
from grposcope.lab.objectives import recipes
from grposcope.lab.rollout_batch import RolloutBatch


class LivingBytes(TorchDispatchMode):
    """Bytes of the arrays made inside the `with` block that lived at the same time, at the most."""

    def __init__(self) -> None:
        super().__init__()
        self.living: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        given = {a.untyped_storage()._cdata for a in tree_leaves((arguments, keywords)) if isinstance(a, Tensor)}
        out = function(*arguments, **(keywords or {}))
        for one in tree_leaves(out):
            if isinstance(one, Tensor) and (storage := one.untyped_storage())._cdata not in given:
                self.living[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.living = {place: kept for place, kept in self.living.items() if not kept[0].expired()}
        self.most = max(self.most, self.now)
        return out

    @property
    def now(self) -> int:
        """Bytes of those that live."""
        return sum(size for _, size in self.living.values())


@contextmanager
def one_thread() -> Iterator[None]:
    """No background threads, in which arrays would not be counted."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def drawn(rows: int, length: int, vocabulary: int) -> RolloutBatch:
    """Random rollouts with a prompt of 8 tokens, half of them solved."""
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(3, vocabulary, (rows, length), generator=random)
    return RolloutBatch(
        prompt_ids=ids[:1, :8].repeat(rows, 1), prompt_mask=torch.ones(rows, 8, dtype=torch.bool), tokens=ids[:, 8:],
        mask=torch.ones(rows, length - 8, dtype=torch.bool), logp=torch.zeros(rows, length - 8),
        entropy=torch.zeros(rows, length - 8), truncated=torch.zeros(rows, dtype=torch.bool),
        rewards=torch.tensor([[0.0, 1.0] * (rows // 2)], dtype=torch.float64),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {}),
        ("llama", {"tie_word_embeddings": False, "vocab_size": 9000, "num_hidden_layers": 2}),
        ("gpt_neox", {"tie_word_embeddings": False, "vocab_size": 1000}),
        ("qwen2", {"num_hidden_layers": 6}),
    ],
)
def test_arrays_take_what_was_told(kind: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations and logits after the forward pass, the head's gradient, and the most of all; the heap is left out."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 2000, "tie_word_embeddings": True, "bos_token_id": 1,
             "eos_token_id": 2, "pad_token_id": 0} | changes  # fmt: skip
    if kind == "gpt_neox":
        del sizes["num_key_value_heads"]
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes)).eval()
    monkeypatch.setattr(memory, "HEAP", 1.0)
    monkeypatch.setattr(hooks, "PIECE", 1)  # what is asked for of an arena is what is used
    monkeypatch.setattr(memory.cpu, "RETURNED", 0)  # so that nothing is kept in gaps
    rollouts, seen = drawn(8, 96, sizes["vocab_size"]), []
    with one_thread():
        attached = backward.attach(model, rollouts)
        told = memory.needed(attached, rollouts, check=False)
        with LivingBytes() as living:
            attached.stream(rollouts, lambda _: None, between=lambda *_: seen.append(living.now))
        with LivingBytes() as living:
            probe.probe(model, rollouts, recipes.GRPO, check=False)
    head = model.get_output_embeddings().weight
    untied = not sizes["tie_word_embeddings"]
    assert told.head - untied * (4 * head.numel() + memory.SKETCH * len(head)) == pytest.approx(seen[0], rel=0.02)
    if untied and head.numel() > 2e6:
        assert told.head == pytest.approx(living.most, rel=0.05)
    assert 0.95 * living.most < told.peak < 1.4 * living.most + memory.FIXED


@pytest.mark.slow
def test_a_process_takes_what_was_told() -> None:
    """Within a quarter on a machine that does other work, for a configuration that terms were found on."""
    script = Path(__file__).parents[3] / "benchmarks" / "probe_memory.py"
    done = subprocess.run([sys.executable, str(script), "wide"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])["wide"]
    assert found["predicted"] == pytest.approx(found["measured"], rel=0.25)


def test_a_probe_that_does_not_fit_is_refused_with_the_remedy() -> None:
    with pytest.raises(UserError, match=r"^the probe would take about 9\.5 GB and 10\.0 GB are free; use less$"):
        batch_memory.refuse_if_full("the probe", 9.5e9, 10e9, "use less")
    batch_memory.refuse_if_full("the probe", 8.9e9, 10e9, "use less")
    assert batch_memory.foretold("the probe", 2e6, 7200, " a step").endswith("about 2 MB above the loaded model, and "
                                                                             "about 2.0 hours a step")  # fmt: skip


def test_what_a_block_keeps_is_measured_on_a_whole_chunk() -> None:
    """A state-space model pads what it is given to a chunk, which of four tokens would be nearly all that it keeps."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 32, "n_groups": 1, "state_size": 16,
             "chunk_size": 64, "vocab_size": 500, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model("mamba2", **sizes)).eval()
    rollouts = drawn(4, 96, 500)
    attached = backward.attach(model, rollouts)
    kept = backward._saved_in_a_block(attached, rollouts)[0] / (4 * 96)
    assert 0.6 < attached.block_bytes / kept < 1.6
