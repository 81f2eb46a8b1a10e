"""What `verify_every` costs in a TRL run, as a share of its processor time.

    python benchmarks/verify_every.py [--model tiny] [--prompts 8] [--group 8] [--tokens 24] [--steps 8] [--every 50]

Trains with TRL for a few steps, with the evidence of every second batch written and judged, and adds up the processor
time of that (`begin`: rows and scoring of the first 64 rollouts; `judged`: writing and claims) and of whole steps,
median without the first. `share` is (begin + judged) / (every · step). The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def timed(owner: Any, name: str, spent: list[float]) -> None:
    """Replace a function by one that adds its processor seconds to the list."""
    inner: Callable[..., Any] = getattr(owner, name)

    def outer(*given: Any, **more: Any) -> Any:
        began = time.process_time()
        try:
            return inner(*given, **more)
        finally:
            spent.append(time.process_time() - began)

    setattr(owner, name, outer)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("prompts", 8), ("group", 8), ("tokens", 24), ("steps", 8), ("every", 50)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--model", default="tiny")
    given = parser.parse_args()
    from transformers import TrainerCallback

    from grposcope.engines.trl import run, trainer, verifying
    from grposcope.lab.train.config import TrainConfig

    begin: list[float] = []
    judged: list[float] = []
    begins: list[float] = []
    timed(verifying, "begin", begin)
    timed(trainer, "_verify", judged)
    inner = run._trainer

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            begins.append(time.process_time())

    def made(*args: Any, **more: Any) -> Any:
        one = inner(*args, **more)
        one.add_callback(Clock())
        return one

    run._trainer = made
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        run.train(
            TrainConfig(
                model=given.model, task="arithmetic", out=f"{folder}/run", steps=given.steps, prompts=given.prompts,
                group=given.group, max_tokens=given.tokens, eval_problems=0, checkpoint_every=0, verify_every=2,
            )
        )  # fmt: skip
    steps = [b - a for a, b in itertools.pairwise(begins)]
    plain = statistics.median(steps[1::2])  # those without evidence
    extra = statistics.median([a + b for a, b in zip(begin, judged, strict=True)][1:])
    result = {
        **vars(given), "step": plain, "begin": statistics.median(begin[1:]), "judged": statistics.median(judged[1:]),
        "share": extra / (given.every * plain),
    }  # fmt: skip
    print(f"a step {plain:.3f} s, evidence {extra:.3f} s: {result['share']:.2%} at every {given.every} steps")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
