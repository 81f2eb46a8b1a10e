"""TRL: a callback for any of its trainers, and a trainer that also probes its rollouts and gives finer credit.

    from grposcope.engines.trl import GRPOscopeCallback, GRPOscopeTrainer, guarded

`callback` is what TRL calls and `record` the folder that it writes. `trainer` overrides two of TRL's methods, which
`guard` checks; `scored` makes rollouts of a batch of TRL, `settings` an objective of its arguments, and `probing`
measures them. The trainer is imported when it is asked for, since the callback also serves versions of TRL that it
does not. `reward_guard` keeps a reward function that hangs, or fails on some rollouts, from ending the run: `guarded`.
"""

from typing import TYPE_CHECKING, Any

from grposcope.engines.trl.callback import GRPOscopeCallback
from grposcope.engines.trl.reward_guard import guarded

if TYPE_CHECKING:
    from grposcope.engines.trl.trainer import GRPOscopeMixin, GRPOscopeTrainer

__all__ = ["GRPOscopeCallback", "GRPOscopeMixin", "GRPOscopeTrainer", "guarded"]


def __getattr__(name: str) -> Any:
    if name in ("GRPOscopeMixin", "GRPOscopeTrainer"):
        from grposcope.engines.trl import trainer

        return getattr(trainer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
