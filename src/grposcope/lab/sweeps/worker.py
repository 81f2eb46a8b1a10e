"""One run of a sweep in a process of its own: `python -m grposcope.lab.sweeps.worker SETTINGS.json`.

The process ends when the one that started it does: standard input is a pipe from there, and its end is a SIGTERM to
itself, so that the run leaves with a checkpoint where a batch ends, and is killed a little later if it does not. Exit
status: 0, or 143 for a run that was asked to end, 2 for what the user can mend, 70 for anything else.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

GRACE = 20.0
"""Seconds that a run has to leave with a checkpoint."""

MENDABLE = 2
"""Exit status of a run whose settings, task or model cannot work: trying again would not help."""


def _run(settings: dict[str, Any]) -> int:
    """Train, or go on with the record that is there; the exit status."""
    from transformers.utils import logging

    from grposcope.core.errors import UserError
    from grposcope.lab.train.config import TrainConfig
    from grposcope.lab.train.loop import resume, train

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    config = TrainConfig(**settings)
    folder = Path(str(config.out))
    try:
        result = resume(folder) if (folder / "config.json").exists() else train(config)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return MENDABLE
    except Exception:
        traceback.print_exc()
        return 70
    return 143 if result.terminated else 130 if result.interrupted else 0


def _end_with_parent(grace: float = GRACE) -> None:
    """Watch standard input in a thread; when it ends, ask this process to end, and end it after `grace` seconds."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
        os._exit(143)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    _end_with_parent()
    sys.exit(_run(json.loads(Path(sys.argv[1]).read_text())))
