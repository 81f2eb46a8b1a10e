"""The command `grposcope`.

Progress goes to standard error. Standard output is text for people, or with --json one JSON document.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import importlib
import json
import os
import sys
import traceback
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

# Threads that spin while they wait slow each other down badly as soon as another program runs; those that sleep at once
# take a third longer when none does. So they spin for a moment.
if os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE") == "PASSIVE":
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
# MKL keeps the buffers of its products for later ones, up to half a gigabyte; a step takes no longer without.
os.environ.setdefault("MKL_DISABLE_FAST_MM", "1")

from grposcope import __version__, instruments
from grposcope.commands import config_file, generic, known, listing
from grposcope.commands.flags import FlagParser
from grposcope.commands.output import silence
from grposcope.core.deferred_imports import deferred
from grposcope.core.errors import UserError, lost_device
from grposcope.core.files import unreadable
from grposcope.core.installing import install
from grposcope.core.instrument import Command, Instrument
from grposcope.core.text import visible

EXTRAS = {
    "accelerate": "trl",
    "huggingface_hub": "lab",
    "jaxtyping": "lab",
    "pyarrow": "parquet",
    "safetensors": "lab",
    "torch": "lab",
    "transformers": "lab",
    "trl": "trl",
    "vl_convert": "figures",
}
"""Package that a part of GRPOscope needs -> the extra of GRPOscope that installs it."""

_REFUSED = (
    errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO,
    errno.ENXIO, errno.ESTALE, errno.EFBIG, errno.ENOTDIR,
)  # fmt: skip
"""What the system says of a file, wherever that happens, that is for the user to mend and no fault of GRPOscope."""

UNREAD = 141
"""Exit status where the reader of standard output has left, as shells give it for other programs."""

SLOW = ("torch", "transformers", "jaxtyping", "huggingface_hub", "safetensors", "scipy", "tqdm")
"""Packages that flags are declared and checked without: they take seconds to import, or are not installed."""


def parser(wanted: Collection[str] | None = None) -> FlagParser:
    """The command line: every command with its line of help, those `wanted`, else all, with their flags.

    Of all, those whose instrument lacks another that it needs stay without flags.
    """
    top = FlagParser(
        prog="grposcope",
        usage="grposcope [-h] [--version] COMMAND ...",
        description="Say whether a GRPO run is learning, and if not, since when, why, and what to change.\n\n"
        + listing(),
        epilog="grposcope COMMAND --help shows the flags of a command and examples.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"grposcope {__version__}")
    commands = top.add_subparsers(
        prog="grposcope", dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS
    )
    for name, (declared, instrument) in known().items():
        if wanted is not None and name not in wanted:
            commands.add_parser(name)
        else:
            try:
                _declare(commands, declared, instrument)
            except ModuleNotFoundError as error:
                if wanted is not None or not instruments.needed_by(error):
                    raise
    return top


def _declare(commands: Any, declared: Command, instrument: Instrument | None) -> None:
    """Add a command with its flags; one without a module of its own has those of its instrument's settings."""
    module = importlib.import_module(declared.module) if declared.module else None
    command = commands.add_parser(
        declared.name,
        description=module.DESCRIPTION if module else instrument.question if instrument else "",
        epilog=module.EXAMPLES if module else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if module is not None:
        generic.declare(command, module.Flags)
        command.common = getattr(module, "COMMON", ())
        check = getattr(module, "check_flags", None)
        command.set_defaults(run=module.run, instrument=instrument, check_flags=check, parser=command)
    elif instrument is not None:
        generic.add_flags(command, instrument)
        command.set_defaults(
            run=lambda arguments: generic.run(arguments, instrument),
            instrument=instrument, check_flags=None, parser=command,
        )  # fmt: skip
    command.add_file_flag()


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """The flags, checked as far as their command can without the packages that take seconds to import."""
    with deferred(*SLOW):
        top = parser(words[:1])
        arguments, unknown = top.parse_known_args(_with_file(words, top))
        if unknown:
            arguments.parser.refuse(unknown)
        if arguments.check_flags is not None:
            arguments.check_flags(arguments)
    return arguments


def _with_file(words: Sequence[str], top: FlagParser) -> Sequence[str]:
    """The words, with those of the file that --config names."""
    commands = next(action.choices for action in top._actions if isinstance(action, argparse._SubParsersAction))
    command = commands.get(words[0]) if words else None
    return words if command is None else config_file.expanded(words, command)


def _complete() -> int:
    """Answer the shell, which asks through argcomplete how the line goes on; nothing where that is not installed."""
    try:
        import argcomplete
    except ModuleNotFoundError:
        return 1
    words = os.environ.get("COMP_LINE", "").split()[1:2]
    with deferred(*SLOW):
        argcomplete.autocomplete(parser([word for word in words if word in known()]))
    return 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    0; 1 for what --fail-on names and for failed runs of a sweep; 2 for what the user can mend; 70 for a fault of
    GRPOscope; 130 for Ctrl-C; UNREAD where all was done but not all was read.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if "_ARGCOMPLETE" in os.environ:
        return _complete()
    try:
        _check_working_folder()
        arguments = _parsed(words)
        if getattr(arguments, "dry_run", False):
            from grposcope.commands import log_flags as logs

            return logs.dry_run(arguments)
        if arguments.instrument is not None and (lacking := instruments.lacking(arguments.instrument)):
            raise UserError(lacking)
        status = int(arguments.run(arguments))
        return status or (UNREAD if getattr(arguments, "unread", False) else 0)
    except UserError as error:
        return _refuse(visible(str(error), 10_000), words)  # names of files and keys may hold anything
    except ModuleNotFoundError as error:
        if reason := instruments.needed_by(error):
            return _refuse(reason, words)
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        extra = EXTRAS[package]
        return _refuse(f"this command needs the package {package}, which is not installed; run {install(extra)}", words)
    except BrokenPipeError:  # the reader of our output, such as head, has left
        silence()
        return UNREAD
    except KeyboardInterrupt:
        print("grposcope: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if (refused := _of_the_machine(error)) is not None:
            return _refuse(visible(refused, 10_000), words)
        traceback.print_exc()
        print(
            "grposcope: this is a fault of grposcope, not of the input; please report the lines above", file=sys.stderr
        )
        return 70


def _check_working_folder() -> None:
    """UserError where the working folder is gone, in which MKL ends the process as soon as torch is imported."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the working folder no longer exists; go to one that does") from None


def _of_the_machine(error: Exception) -> str | None:
    """What is to be mended on the machine, where the system refused a file or lost a device; None for another error."""
    if isinstance(error, OSError) and error.errno in _REFUSED and error.filename:
        return str(unreadable(Path(error.filename), error))
    return lost_device(error)


def _refuse(reason: str, words: Sequence[str]) -> int:
    """Say why nothing was done, with --json as a document too, so that who reads it need not read another stream."""
    print(f"grposcope: error: {reason}", file=sys.stderr)
    if "--json" in words:
        print(json.dumps({"error": reason}))
    return 2


def program() -> int:
    """The command line as a process, which an interrupt ends at once: taking torch apart can last for seconds.

    NumPy's matrices are small here: its threads would wait for work longer than they work, in half of all the time of
    a processor that reading a log takes.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    status = main()
    if status in (130, 143):
        atexit._run_exitfuncs()  # what ends other processes, closes logs and restores the terminal
        with suppress(OSError):  # whoever read the output may have left
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence()
        return status or UNREAD
    return status


if __name__ == "__main__":
    sys.exit(program())
