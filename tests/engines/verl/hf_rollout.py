"""A rollout server for verl that samples with a plain Hugging Face model, one request after another, on the CPU.

verl 0.9.1 knows vLLM, SGLang and TensorRT-LLM only; this one is registered beside them as `hf`, so that verl's whole
trainer runs where none of them does.
"""

from __future__ import annotations

from typing import Any

import ray
import torch
from torch import Tensor
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

SERVER = "hf_server_{}"


class Server:
    """The policy that is sampled from. Its weights are those of the last `load`."""

    def __init__(self, path: str, limit: int) -> None:
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.limit, self.steps = limit, 0

    async def load(self, weights: dict[str, Tensor], steps: int | None) -> None:
        """Take over weights; tied ones may be missing or there twice."""
        missing, unexpected = self.model.load_state_dict(weights, strict=False)
        assert not unexpected
        assert set(missing) <= {"lm_head.weight"}
        self.model.tie_weights()
        self.steps = steps or 0

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **rest: Any
    ) -> TokenOutput:
        """Sample until an end-of-text token or the limit."""
        with torch.inference_mode():
            return self._sample(prompt_ids, sampling_params.get("temperature", 1.0))

    def _sample(self, prompt_ids: list[int], temperature: float) -> TokenOutput:
        ends = self.model.generation_config.eos_token_id
        ends = {ends} if isinstance(ends, int) else set(ends)
        drawn: list[int] = []
        logps: list[float] = []
        cache, new = None, torch.tensor([prompt_ids])
        while len(drawn) < self.limit:
            output = self.model(new, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            logits = output.logits[0, -1]
            logp = (logits / (temperature or 1.0)).log_softmax(-1)
            token = int(logp.argmax() if not temperature else torch.multinomial(logp.exp(), 1))
            drawn.append(token)
            logps.append(float(logp[token]))
            new = torch.tensor([[token]])
            if token in ends:
                break
        reason = "completed" if drawn[-1] in ends else "length"
        return TokenOutput(
            token_ids=drawn, log_probs=logps, stop_reason=reason, extra_fields={"global_steps": self.steps}
        )

    async def nothing(self, **_: Any) -> None: ...

    wake_up = sleep = abort_all_requests = resume_generation = nothing
    clear_kv_cache = release_kv_cache = resume_kv_cache = nothing


class Rollout(BaseRollout):
    """The trainer's side: hands weights to the server."""

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(self, weights: Any, wire_format: str = "named_tensors", **rest: Any) -> None:
        """Send every tensor; all ranks take part in gathering it, the first one sends."""
        held = {name: tensor.detach().float().cpu() for name, tensor in weights}
        if torch.distributed.get_rank() == 0:
            await ray.get_actor(SERVER.format(0)).load.remote(held, rest.get("global_steps"))


class Replica(RolloutReplica):
    """One server."""

    async def launch_servers(self) -> None:
        options = {"name": SERVER.format(self.replica_rank), "num_cpus": 0}
        server = ray.remote(Server).options(**options).remote(self.model_config.path, self.config.response_length)
        self._server_handle, self._server_address = server, f"hf:{self.replica_rank}"
        self.servers = [server]


_ROLLOUT_REGISTRY["hf", "async"] = "engines.verl.hf_rollout.Rollout"
RolloutReplicaRegistry.register("hf", lambda: Replica)
