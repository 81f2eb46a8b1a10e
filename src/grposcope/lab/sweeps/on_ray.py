"""Runs of a sweep as tasks of a Ray cluster: each is the same process as on one machine, on the node that Ray chooses.

The folder of the sweep has to be one that all nodes see under the same path, and GRPOscope installed on each.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError

KILLED = -9
"""Status of a run whose worker or node died."""

PATIENCE = 5.0
"""Seconds to wait for an answer from a cluster."""


def _one(settings: str, log: str, threads: int, paths: list[str]) -> int:
    """Run the worker process on this node; its exit status. It ends with this task, whose pipe it reads."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment["PYTHONPATH"] = os.pathsep.join([*paths, environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    with Path(log).open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "grposcope.lab.sweeps.worker", settings],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            env=environment,
        )
        try:
            return process.wait()
        except BaseException:  # the task was cancelled
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            raise


class RayTasks:
    """A Ray task per run; as many at a time as the cluster has room for.

    address: of a cluster, "auto" for the one that this machine belongs to, empty to start one here.
    """

    def __init__(self, address: str, jobs: int | None, runs: int, gpus: int = 0):
        try:
            import ray
        except ModuleNotFoundError:
            raise UserError("ray is not installed: pip install ray, or run without Ray") from None
        self._ray = ray
        _reachable(address)
        try:
            ray.init(address=address or "local", log_to_driver=False, configure_logging=False, **_here(address))
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"no Ray cluster at {address or 'this machine'}: {reason}") from None
        room = ray.cluster_resources()
        self.gpus = gpus if room.get("GPU", 0) >= 1 else 0
        each = room.get("GPU" if self.gpus else "CPU", 1)
        self.slots = max(1, min(jobs or int(each), runs))
        self.threads = max(1, int(room.get("CPU", 1)) // self.slots)
        self._running: dict[Any, int] = {}

    def start(self, number: int, settings: Path, log: Path) -> None:
        """Start run `number`, whose settings are in a file; what it prints is added to `log`."""
        task = self._ray.remote(_one).options(num_cpus=self.threads, num_gpus=int(bool(self.gpus)), max_retries=0)
        source = str(Path(__file__).parents[2])
        self._running[task.remote(str(settings.resolve()), str(log.resolve()), self.threads, [source])] = number

    def ended(self) -> list[tuple[int, int]]:
        """Wait a little; (run, exit status) of those that have ended, KILLED where the worker died."""
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=1.0)
        over = []
        for reference in done:
            try:
                status = int(self._ray.get(reference))
            except self._ray.exceptions.RayError:
                status = KILLED
            over.append((self._running.pop(reference), status))
        return over

    def stop(self, grace: float = 30.0) -> None:
        """Cancel all runs, each of which leaves with a checkpoint where a batch ends, and leave the cluster."""
        for reference in self._running:
            self._ray.cancel(reference)
        if self._running:
            self._ray.wait(list(self._running), num_returns=len(self._running), timeout=grace)
        self._running.clear()
        self._ray.shutdown()


def _reachable(address: str) -> None:
    """UserError where nobody listens at HOST:PORT, which Ray itself would only say after minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address:  # "", auto, ray://…
        return
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except (OSError, ValueError) as error:
        raise UserError(f'no Ray cluster at {address}: {error}; start one with "ray start"') from None


def _here(address: str) -> dict[str, Any]:
    """What a cluster of this machine alone is started with: no dashboard, a short folder, as sockets need one."""
    if address:
        return {}
    return {"include_dashboard": False, "_temp_dir": tempfile.mkdtemp(prefix="ray-")}
