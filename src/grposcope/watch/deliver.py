"""`python -m grposcope.watch.deliver KIND:PLACE`: writes the alerts on standard input, JSON, into a run.

The exit status is 0 once they are written, REFUSED where they never can be, and 1 where it may work later; the reason
is the last line on standard error.
"""

from __future__ import annotations

import json
import sys

from grposcope.watch.alerts import Alert
from grposcope.watch.destinations import Destination, deliver
from grposcope.watch.receivers.program import RefusedError

REFUSED = 3
"""Exit status where to try again would not help."""


def _main(argv: list[str]) -> int:
    """Deliver what stands on standard input; the exit status."""
    kind, _, where = argv[1].partition(":")
    alerts = [Alert(**document) for document in json.load(sys.stdin)]
    try:
        deliver(Destination(kind, where), alerts)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        print(f"\n{reason[:500]}", file=sys.stderr)
        return REFUSED if isinstance(error, RefusedError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv))
