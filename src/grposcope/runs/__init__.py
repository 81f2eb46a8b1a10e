"""Records of training runs: what the trainer writes, and `read` to have it as tables."""

from grposcope.runs.store import RunWriter
from grposcope.runs.table import Run, read

__all__ = ["Run", "RunWriter", "read"]
