"""verl without an accelerator: its plug-in points filled with the CPU, so that its real code can be tested.

Loaded by verl itself, `VERL_USE_EXTERNAL_MODULES=engines.verl.cpu`, with `VERL_PLATFORM=cpu`: a platform whose device
is the CPU and which talks through gloo, and verl's FSDP engine registered for it. For verl's trainer Ray is told of a
graphics card that is not there (`num_gpus=1`), as verl asks for one per worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

MEMORY = 2**34

DEVICE = SimpleNamespace(
    **{name: getattr(torch.cpu, name) for name in ("current_stream", "is_available", "stream", "synchronize")},
    Stream=torch.cpu.Stream,
    current_device=lambda: "cpu",
    device_count=lambda: 1,
    empty_cache=lambda: None,
    get_device_name=lambda *_: "CPU",
    get_rng_state=torch.get_rng_state,
    ipc_collect=lambda: None,
    max_memory_allocated=lambda *_: 0,
    max_memory_reserved=lambda *_: 0,
    mem_get_info=lambda *_: (MEMORY, MEMORY),
    memory_allocated=lambda *_: 0,
    memory_reserved=lambda *_: 0,
    reset_peak_memory_stats=lambda *_: None,
    set_device=lambda *_: None,
    set_rng_state=torch.set_rng_state,
)
"""What verl asks of `torch.cuda`; memory is not measured."""


@PlatformRegistry.register(platform="cpu")
class Cpu(PlatformBase):
    """The CPU as verl's accelerator."""

    device_name = vendor_name = "cpu"
    device_module = DEVICE

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


def _fill() -> None:
    """The FSDP engine for the CPU; and one backend for a device that verl names twice."""
    from functools import partial

    from verl.utils import distributed

    distributed.initialize_global_process_group_ray = partial(
        distributed.initialize_global_process_group_ray, backend="gloo"
    )
    from verl.workers.engine import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device="cpu")(FSDPEngineWithLMHead)


_fill()
