"""Fail a job of continuous integration when a training run went wrong.

    python examples/diagnose_in_ci.py LOG            # of TRL, verl, OpenRLHF, W&B, …; exit status 1 when it is failing

The command `grposcope diagnose LOG --fail-on failing` does the same; this one also writes annotations of GitHub
Actions, and shows how to ask further questions in Python.
"""

from __future__ import annotations

import argparse
import sys

from grposcope import diagnose
from grposcope.core.errors import UserError
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read
from grposcope.watch.alarms import wanted
from grposcope.watch.wording import exceeds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("log", help="file or folder of a run")
    parser.add_argument("--fail-on", nargs="+", default=["failing"], help="grades or faults")
    arguments = parser.parse_args()
    try:
        run, limit = read(arguments.log), wanted(arguments.fail_on)
    except UserError as error:
        print(f"::error::{error}")
        return 2
    findings = diagnose(run)
    judged = verdict(run, findings)
    failed = exceeds(judged, findings, limit)
    print(f"::{'error' if failed else 'notice'} title={judged.word}::{judged}")
    for finding in findings:
        if finding.present:
            print(f"{finding.grade}: {finding.fault}, because {finding.because}; do: {finding.remedy}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
