"""Everything that only a GPU can tell, in one command: is it right there, how fast, and how much memory.

    make gpu                                         or, in an environment of your own:
    python benchmarks/gpu/run.py                     12 minutes at most; again goes on where it stopped
    python benchmarks/gpu/run.py --minutes 40 --only 7B
    python benchmarks/gpu/run.py --small             the same code on a CPU with small models, about a minute

Checks come first: the probe against autograd, a resumed run against one that never stopped, the sampler's
log-probabilities against the update's, each in float32 and bfloat16. Then sampling (beside Hugging Face's generate and,
where it is installed, vLLM), update, probe, `credit`, `offpolicy` and whole steps beside TRL's in turn, on `tiny`,
SmolLM2-135M and random Llamas of 0.5, 1.5, 3 and 7 B in bfloat16. No network is used. A part that lacks a package,
weights or memory says so, and the rest goes on; a part takes at most `--part-minutes`. Parts run in a process of their
own, which is begun anew after an error, so that a GPU that is lost costs one part. Results are written after every
part, as JSON and as a table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.update({"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"})

import torch

HERE = Path(__file__).resolve().parent


def main(given: Sequence[str] | None = None) -> int:
    """Run the parts that have no result yet; 1 where a check failed or a part broke."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small models and sizes, on the CPU if there is no GPU")
    parser.add_argument("--minutes", type=float, default=12.0, help="for all parts together")
    parser.add_argument("--part-minutes", type=float, default=4.0, help="for one part")
    parser.add_argument("--only", default="", help="parts whose name holds this text, such as 7B or probe")
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    parser.add_argument("--out", type=Path, help="folder (default: benchmarks/gpu, with --small build/gpu)")
    arguments = parser.parse_args(given)
    if not torch.cuda.is_available() and not arguments.small:
        print("this PyTorch sees no GPU, so nothing was measured; --small runs the same code on the CPU")
        return 1
    out = arguments.out or (Path("build/gpu") if arguments.small else HERE)
    out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    results = kept(out / "results.json", machine(device, arguments.small))
    sys.path.insert(0, str(HERE))
    import parts

    wanted = [name for name in parts.names(arguments.small) if arguments.only in name]
    left = [name for name in wanted if arguments.again or not done(results["parts"].get(name))]
    until = time.monotonic() + 60 * arguments.minutes
    worker = Worker(device, arguments.small)
    try:
        while left and time.monotonic() < until:
            name = left.pop(0)
            seconds = min(60 * arguments.part_minutes, max(until - time.monotonic(), 1.0))
            results["parts"][name] = found = worker.run(name, seconds)
            (out / "results.json.part").write_text(json.dumps(results, indent=1))
            (out / "results.json.part").replace(out / "results.json")
            (out / "results.md").write_text(page(results))
            print(f"{name:36} {said(found)}", flush=True)
    finally:
        worker.end()
    if left:
        print(f"{len(left)} parts remain after {arguments.minutes:g} minutes; the same command goes on with {left[0]}")
    bad = [name for name in wanted if results["parts"].get(name, {}).get("state") in ("wrong", "error")]
    print(f"results in {out / 'results.md'}" + (f"; not right: {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0


def done(found: dict[str, Any] | None) -> bool:
    """Whether a part need not run again: it has figures, or lacked memory; what lacked a package is tried again."""
    return found is not None and found["state"] == "measured"


def machine(device: str, small: bool) -> dict[str, Any]:
    """What the figures hold for."""
    from importlib.metadata import version

    names = [name for name in ("torch", "transformers", "trl", "vllm") if find_spec(name)]
    gpu = {}
    if device == "cuda":
        about = torch.cuda.get_device_properties(0)
        gpu = {"gpu": about.name, "gpu_gb": round(about.total_memory / 1e9, 1), "cuda": torch.version.cuda}
    cores = os.cpu_count()
    return {"device": device, **gpu, "small": small, "cores": cores, "python": platform.python_version(),
            **{name: version(name) for name in names}}  # fmt: skip


def kept(path: Path, here: dict[str, Any]) -> dict[str, Any]:
    """Results to go on with; none where they are of another machine or other versions."""
    try:
        before = json.loads(path.read_text())
    except (OSError, ValueError):
        return {"machine": here, "parts": {}}
    if before.get("machine") != here:
        path.replace(path.with_suffix(".before.json"))
        print(f"{path} was of another machine or other versions: kept as {path.with_suffix('.before.json').name}")
        return {"machine": here, "parts": {}}
    return dict(before)


class Worker:
    """A process that runs parts, begun when it is first needed, and anew after an error."""

    def __init__(self, device: str, small: bool):
        self.device, self.small = device, small
        self.process: Any = None
        self.pipe: Any = None

    def run(self, name: str, seconds: float) -> dict[str, Any]:
        """What came of a part: its `state`, figures or the reason, and the seconds it took in all."""
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=work, args=(theirs, self.device, self.small), daemon=False)
            self.process.start()
            theirs.close()
        began = time.monotonic()
        found: dict[str, Any] = {"state": "error", "why": "its process ended: out of memory, or the GPU was lost"}
        try:
            self.pipe.send(name)
            if self.pipe.poll(seconds):
                found = self.pipe.recv()
            else:
                found = {"state": "too slow", "why": f"not done in {seconds:.0f} s"}
        except (EOFError, OSError):
            pass
        if found["state"] in ("error", "too slow"):
            self.end()
        return {**found, "wall_seconds": round(time.monotonic() - began, 2)}

    def end(self) -> None:
        """End the process, whatever it does."""
        if self.process is not None:
            self.pipe.close()  # a process that waits for a part ends by itself
            self.process.join(5)
            self.process.kill()
            self.process.join()
            self.process = None


def work(pipe: Connection, device: str, small: bool) -> None:
    """Run the parts that are named on the pipe, and send what came of each."""
    import gc
    import warnings

    warnings.filterwarnings("ignore")
    sys.path.insert(0, str(HERE))
    import parts
    from transformers.utils import logging

    from grposcope.core.errors import UserError

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # what trainers print
    place = parts.Place(device, **(parts.SMALL if small else {}))
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        try:
            found: dict[str, Any] = {"state": "measured", "figures": parts.run(name, place)}
        except parts.Absent as error:
            found = {"state": "absent", "why": str(error)}
        except parts.Wrong as error:
            found = {"state": "wrong", "why": str(error)}
        except torch.OutOfMemoryError as error:
            found = {"state": "no room", "why": str(error).partition("\n")[0][:200]}
        except UserError as error:
            found = {"state": "refused", "why": str(error)}
        except Exception as error:
            found = {"state": "error", "why": f"{type(error).__name__}: {error}"[:300]}
        gc.collect()
        if device == "cuda" and found["state"] != "error":
            torch.cuda.empty_cache()
        pipe.send(found)


def said(found: dict[str, Any]) -> str:
    """What came of a part, in one line."""
    if found["state"] != "measured":
        return f"{found['state']}: {found['why']}"
    return ", ".join(f"{name} {_short(value)}" for name, value in found["figures"].items())


def _short(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def page(results: dict[str, Any]) -> str:
    """The results as a page."""
    about = ", ".join(f"{name} {value}" for name, value in results["machine"].items())
    lines = ["# What a GPU says", "", "Written by `make gpu` (`benchmarks/gpu/run.py`), which says what each part is.",
             "", f"Machine: {about}.", "", "| part | came out | wall, s |", "|---|---|---|"]  # fmt: skip
    lines += [f"| {name} | {said(found)} | {found['wall_seconds']:g} |" for name, found in results["parts"].items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
