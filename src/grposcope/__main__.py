"""`python -m grposcope`, which `torchrun -m grposcope` needs."""

import sys

from grposcope.cli import program

if __name__ == "__main__":
    sys.exit(program())
