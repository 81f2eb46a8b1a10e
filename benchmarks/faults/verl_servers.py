"""Rollout servers of verl with a fault, which verl loads beside its own: `VERL_USE_EXTERNAL_MODULES=…,verl_servers`.

The environment variable `SERVER_FAULT` names the server.
"""

from __future__ import annotations

import os
from typing import Any

import ray
import torch
from torch import Tensor
from verl.workers.rollout.replica import RolloutReplicaRegistry

from engines.verl.hf_rollout import SERVER, Replica, Server


class Sound(Server):
    """The stand-in sampler as it is, but of this module, which a process that is sent the class imports first."""


class Frozen(Server):
    """The first weights are kept."""

    async def load(self, weights: dict[str, Tensor], steps: int | None) -> None:
        """Say that they were taken."""
        self.steps = steps or 0


class Half(Server):
    """Every other tensor is lost on the way."""

    async def load(self, weights: dict[str, Tensor], steps: int | None) -> None:
        """Take the others; later ones replace those at the same name alone."""
        self.model.load_state_dict(dict(list(weights.items())[::2]), strict=False)
        self.model.tie_weights()
        self.steps = steps or 0


class Hot(Server):
    """Draws at twice the temperature that is asked for."""

    def _sample(self, prompt_ids: list[int], temperature: float) -> Any:
        return super()._sample(prompt_ids, 2 * temperature)


class OneSeed(Server):
    """Every request is drawn with the same random numbers."""

    def _sample(self, prompt_ids: list[int], temperature: float) -> Any:
        torch.manual_seed(0)
        return super()._sample(prompt_ids, temperature)


SERVERS: dict[str, type[Server]] = {"": Sound, "frozen": Frozen, "half": Half, "hot": Hot, "one seed": OneSeed}
"""Name -> server; without one, the sound one."""


class Faulty(Replica):
    """One server, that of `SERVER_FAULT`."""

    async def launch_servers(self) -> None:
        """Start it."""
        kind = SERVERS[os.environ.get("SERVER_FAULT", "")]
        options = {"name": SERVER.format(self.replica_rank), "num_cpus": 0}
        server = ray.remote(kind).options(**options).remote(self.model_config.path, self.config.response_length)
        self._server_handle, self._server_address = server, f"hf:{self.replica_rank}"
        self.servers = [server]


RolloutReplicaRegistry.register("hf", lambda: Faulty)
