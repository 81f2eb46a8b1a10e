"""TRL: a callback that records a run of its trainers, diagnoses it as it goes, and may stop it.

    from grposcope.engines.trl import GRPOscopeCallback

`callback` is what TRL calls, `record` the folder that it writes.
"""

from grposcope.engines.trl.callback import GRPOscopeCallback

__all__ = ["GRPOscopeCallback"]
