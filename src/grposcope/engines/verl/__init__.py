"""verl: our advantages and credit under names of their own in verl's registry of advantage estimators.

Where this package is installed beside verl nothing needs to be imported: `import verl` finds it by the entry point
`verl.plugins`, in Ray workers too. `VERL_USE_EXTERNAL_MODULES=grposcope.engines.verl` does the same and shows errors.

    python -m verl.trainer.main_ppo algorithm.adv_estimator=grposcope_steps …
"""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.installing import install
from grposcope.engines.verl import versions
from grposcope.engines.verl.estimators import all_estimators

logger = logging.getLogger("grposcope")


def _register() -> tuple[str, ...]:
    """Add every estimator to verl's registry; their names. UserError where verl is absent or not supported."""
    if importlib.util.find_spec("verl") is None:
        raise UserError(f"verl is not installed; {install('verl')}")
    versions.check()
    from verl.trainer.ppo.core_algos import register_adv_est

    estimators = all_estimators()
    for name, estimator in estimators.items():
        register_adv_est(name)(estimator)
    return tuple(estimators)


def __getattr__(name: str) -> Any:
    """`StepRewardLoop`, the agent loop that puts rewards of steps on tokens; it needs verl to be imported."""
    if name == "StepRewardLoop":
        from grposcope.engines.verl._agent import StepRewardLoop

        return StepRewardLoop
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if importlib.util.find_spec("verl") is not None:
    try:
        _register()
    except UserError as error:
        logger.warning("grposcope: %s", error)  # verl hides what a plugin of its raises
        raise
