"""TRL: a callback for any of its trainers, and a trainer that also probes its rollouts and gives finer credit.

    from grposcope.engines.trl import GRPOscopeCallback, GRPOscopeTrainer, guarded

`callback` is what TRL calls, and begins the folder that it writes. `trainer` overrides two of TRL's methods, which
`guard` checks; `scored_batch` makes rollouts of a batch of TRL, `settings` an objective of its arguments, and `probing`
measures them. `reward_guard` keeps a reward function that hangs, or fails on some rollouts, from ending the run:
`guarded`. Each is imported when it is asked for: the callback also serves versions of TRL that the trainer does not,
and `settings` whoever reads the arguments of TRL without training.
"""

import importlib
from typing import TYPE_CHECKING, Any

from grposcope.core.installing import install

if TYPE_CHECKING:
    from grposcope.engines.trl.callback import GRPOscopeCallback
    from grposcope.engines.trl.reward_guard import guarded
    from grposcope.engines.trl.trainer import GRPOscopeMixin, GRPOscopeTrainer

__all__ = ["GRPOscopeCallback", "GRPOscopeMixin", "GRPOscopeTrainer", "guarded"]

_PLACES = {
    "GRPOscopeCallback": "callback",
    "GRPOscopeMixin": "trainer",
    "GRPOscopeTrainer": "trainer",
    "guarded": "reward_guard",
}
"""Public name -> the module that has it."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_PLACES[name]}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "grposcope"):
            raise
        raise ImportError(
            f"{name} needs {missing}, which is not installed: {install('trl')} (without a GPU first: pip install torch "
            "--index-url https://download.pytorch.org/whl/cpu)",
            name=missing,
        ) from None
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
