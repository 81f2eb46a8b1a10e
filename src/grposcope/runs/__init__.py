"""Records of training runs: what the trainer writes."""

from grposcope.runs.store import RunWriter

__all__ = ["RunWriter"]
