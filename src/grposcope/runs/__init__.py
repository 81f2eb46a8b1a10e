"""Records of training runs: what the trainer writes, and `read` to have it as tables."""

from grposcope.runs.native.writer import RunWriter
from grposcope.runs.run import Run, read

__all__ = ["Run", "RunWriter", "read"]
