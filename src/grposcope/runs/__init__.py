"""Records of training runs: what trainers write to disk, and `read`, which makes a Run of it."""

from grposcope.runs.detect import read
from grposcope.runs.native.writer import RunWriter
from grposcope.runs.run import Run

__all__ = ["Run", "RunWriter", "read"]
