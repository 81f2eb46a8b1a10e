"""The command `grposcope`.

Progress goes to standard error. The last line of standard output is one JSON document, except for a person at a
terminal, who asks for it with --json.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Collection, Sequence

# Threads that spin while they wait slow each other down badly as soon as another program runs; those that sleep at once
# take a third longer when none does. So they spin for a moment.
if os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE") == "PASSIVE":
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from grposcope import __version__
from grposcope.commands import HELP, listing
from grposcope.errors import UserError
from grposcope.formatting import visible

EXTRAS = {
    "accelerate": "trl",
    "huggingface_hub": "lab",
    "jaxtyping": "lab",
    "pyarrow": "parquet",
    "safetensors": "lab",
    "torch": "lab",
    "transformers": "lab",
    "trl": "trl",
}
"""Package that a part of GRPOscope needs -> the extra of GRPOscope that installs it."""


def parser(wanted: Collection[str] = tuple(HELP)) -> argparse.ArgumentParser:
    """The command line: every command with its line of help, those `wanted` with their flags."""
    top = argparse.ArgumentParser(
        prog="grposcope",
        usage="grposcope [-h] [--version] COMMAND ...",
        description="Instrument panel and laboratory for group-relative policy optimization (GRPO).",
        epilog=listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"grposcope {__version__}")
    commands = top.add_subparsers(
        prog="grposcope", dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS
    )
    for name in HELP:
        if name not in wanted:
            commands.add_parser(name)
            continue
        module = importlib.import_module(f"grposcope.commands.{name}")
        command = commands.add_parser(
            name,
            description=module.DESCRIPTION,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_flags(command)
        command.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    0; 1 for what --fail-on names and for failed runs of a sweep; 2 for what the user can mend; 70 for a fault of
    GRPOscope; 130 for Ctrl-C.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        arguments = parser(words[:1]).parse_args(words)
        if getattr(arguments, "dry_run", False):
            from grposcope.commands import logs

            return logs.dry_run(arguments)
        return int(arguments.run(arguments))
    except UserError as error:
        said = visible(str(error), 10_000)  # names of files and keys may hold anything
        print(f"grposcope: error: {said}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        extra = EXTRAS[package]
        print(
            f"grposcope: error: this needs the package {package}, which the extra `{extra}` of GRPOscope installs: "
            f"pip install 'grposcope[{extra}]', or '.[{extra}]' in a checkout",
            file=sys.stderr,
        )
        return 2
    except BrokenPipeError:  # the reader of our output, such as head, has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("grposcope: interrupted", file=sys.stderr)
        return 130
    except Exception:
        traceback.print_exc()
        print(
            "grposcope: this is a fault of grposcope, not of the input; please report the lines above", file=sys.stderr
        )
        return 70


if __name__ == "__main__":
    sys.exit(main())
