"""C sources in the folder `c`, compiled for this machine by its own compiler on first use, and kept in the cache."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from grposcope.lab.policies import smollm2

FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC")

SOURCES = Path(__file__).parent / "c"

logger = logging.getLogger("grposcope")


def library(main: str, name: str, work: str) -> ctypes.CDLL | None:
    """The file `main` of SOURCES as a shared library; None where it cannot be made, after saying what that slows.

    name: what files in the cache begin with. work: what runs in torch without it.
    """
    compiler = os.environ.get("CC") or next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if compiler is None:
        logger.warning("no C compiler is installed, so %s runs in torch, which is slower; install gcc or clang", work)
        return None
    try:
        return ctypes.CDLL(str(_compiled(main, name, compiler)))
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        logger.warning("%s runs in torch, which is slower: %s cannot compile it: %s", work, compiler, *reason)
        return None


def _compiled(main: str, name: str, compiler: str) -> Path:
    """The shared library for this source, compiler and processor; safe when two processes make it at once."""
    text = [file.read_text() for file in sorted(SOURCES.iterdir())]
    about = (*text, compiler, *FLAGS, platform.machine(), _processor())
    target = smollm2.cache() / f"{name}-{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}.so"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / target.name
            command = [compiler, *FLAGS, "-o", str(made), str(SOURCES / main), "-lm"]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
            made.replace(target)
    return target


def _processor() -> str:
    """What tells this machine's instructions from another's that may share the cache."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
