"""Files that other programs rely on: strict JSON that is safe to print, JSON lines, and writes that are atomic."""

from __future__ import annotations

import errno
import gzip
import io
import json
import math
import os
import select
import shutil
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import Field, asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import IO, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from grposcope.core.errors import UserError
from grposcope.core.text import HIDDEN

T = TypeVar("T")

WRITTEN_NAN: float = struct.unpack("<d", (0x7FF8000000000029).to_bytes(8, "little"))[0]
"""The NaN that stands for one that was written, as other bits than `math.nan`, which stands for what is absent.

R tells NA from NaN in the same way. Copies, selections and joins of columns keep it; where a result is computed of
several values, whoever computes it says which of the two it is. `core.not_finite.is_written_nan` finds it.
"""

WRITTEN_NULL: float = struct.unpack("<d", (0x7FF800000000002A).to_bytes(8, "little"))[0]
"""The NaN that stands for a null of JSON: a key that is in the row without a number, be it absent or a lost NaN."""

NAMED: Mapping[str, float] = {"NaN": WRITTEN_NAN, "Infinity": math.inf, "-Infinity": -math.inf}
"""Strings that stand for the numbers JSON does not have: `dumps` writes them, `_finite_or_named` reads them back."""

_WORDS = {**NAMED, "nan": WRITTEN_NAN, "inf": math.inf, "-inf": -math.inf}

_DECODER = json.JSONDecoder(parse_constant=NAMED.__getitem__)

_PATIENCE, _LONGEST, _LARGEST_PIPE = 10.0, 60.0, 1 << 30
"""Seconds without a byte, seconds in all, and bytes, after which a pipe is given up."""

MEND = "correct or delete that line, or restore the file from a copy"
"""What to do about a line of a record that cannot be read."""


def dumps(content: Any, indent: int | None = None) -> str:
    """Strict JSON, fit for a terminal: records become objects, numbers that are not finite become strings.

    Characters that are invisible or act on a terminal (`core.text.HIDDEN`) are escaped; parsed, the JSON is the same.
    """
    try:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=indent)
    except (ValueError, TypeError):  # numbers that are not finite, records
        text = json.dumps(_plain(content), ensure_ascii=False, allow_nan=False, indent=indent)
    if text.isascii() and "\x7f" not in text:  # nearly always, and much faster to see
        return text
    return HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """A file to be written at `path` that is there complete when the block ends, or not at all when it raises.

    Processes that write the same file at the same time do not disturb each other; the last one to end wins. A device or
    a pipe, such as /dev/null or /dev/stdout, is written to and stays what it is. An OSError of the disk names the file.
    """
    if (path.exists() and not path.is_file() and not path.is_dir()) or path.parent == Path("/dev"):
        with _named(path), path.open("wb") as file:
            yield file
        return
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with _named(path), scratch.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Have an OSError of the block that names no file, such as that of a full disk, name this one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def append(file: int | Path, data: bytes) -> None:
    """Append `data` to a file whole; what was written of it is taken back where an OSError comes between."""
    if isinstance(file, Path):
        opened_file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            with _named(file):
                append(opened_file, data)
        finally:
            os.close(opened_file)
        return
    before = os.fstat(file).st_size
    try:
        while data:
            data = data[os.write(file, data) :]
    except OSError:
        os.ftruncate(file, before)
        raise


@contextmanager
def atomic_folder(path: Path, shared: bool = False) -> Iterator[Path]:
    """A folder to be filled, which is there complete as `path` when the block ends, or not at all when it raises.

    Everything in it is on the disk before it gets its name; a folder that was there before is replaced. With `shared`
    several processes may make the same folder at once: each fills one of its own, and the first to end wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=path.parent)) if shared else path.with_name(path.name + ".part")
    try:
        if not shared:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
        yield scratch
        for file in scratch.rglob("*"):
            _sync(file)
        if shared:
            try:
                scratch.rename(path)
            except OSError:
                if not path.is_dir():
                    raise
        else:
            shutil.rmtree(path, ignore_errors=True)
            scratch.rename(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder; UserError where another process does. The system lets go of it when a process dies.

    what: goes on there, for the message, such as "sweep".
    """
    import fcntl  # POSIX only, as everything that runs a model here

    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another {what} is running in {folder}; wait for it, or choose another folder") from None
        yield
    finally:
        os.close(lock)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented strict JSON, atomically."""
    with atomic(path) as file:
        file.write((dumps(content, indent=2) + "\n").encode())


def json_value(content: bytes | str) -> Any:
    """The value that a JSON text holds, as `json.loads` has it, but WRITTEN_NAN for NaN; ValueError if it is none,
    RecursionError if it is nested too deeply."""
    text = content if isinstance(content, str) else content.decode(json.detect_encoding(content), "surrogatepass")
    return _DECODER.decode(text)


def json_object(line: bytes | str, where: str, remedy: str = MEND) -> dict[str, Any]:
    """The JSON object that a line holds; a byte-order mark before it is dropped.

    NaN, Infinity and -Infinity are accepted as literals, as Python writes them. UserError, which begins with `where`
    (such as "log.jsonl, line 8") and ends with `remedy`, where the line is not UTF-8, not JSON, or no object.
    """
    try:
        text = line if isinstance(line, str) else line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from None
    try:
        row = json_value(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not valid JSON ({error}); {remedy}") from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON {type(row).__name__}, not an object; {remedy}")
    return row


def versioned_json(path: Path, newest: int, writer: str, remedy: str) -> dict[str, Any]:
    """The object in a file that says its `format`; UserError for what `writer` has not written, or a newer one has."""
    try:
        content = json.loads(read_whole(path))
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON ({error}); {remedy}") from None
    version = content.get("format") if isinstance(content, dict) else None
    if not isinstance(version, int):
        raise UserError(f"{path} was not written by {writer}; give another folder")
    if version > newest:
        raise UserError(
            f"{path} has format {version}, and this grposcope reads formats up to {newest}; upgrade grposcope"
        )
    return content


def json_lines(path: Path, remedy: str = MEND, growing: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, object) of every line that is not blank, read as it is asked for; gzip is recognised.

    growing: leave out a last line without its newline that is no JSON object yet, as in a file that is being written.
    UserError, naming file and line, for a line that is no JSON object and for a file that cannot be read.
    """
    number = 0
    try:
        with _plain_or_gzip(path) as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    row = json_object(line, f"{path}, line {number}", remedy)
                except UserError:
                    if growing and not line.endswith(b"\n"):
                        return
                    raise
                yield number, row
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; give the path of a JSONL file") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give the path of a JSONL file in it") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"{path}: the gzip data is cut off after line {number} ({error}); copy the file again"
        ) from None
    except OSError as error:
        raise unreadable(path, error) from None


def nothing_there(path: Path, wanted: str) -> UserError:
    """That there is no such file or folder, and what to give, as a noun; of "-", that this command reads no stream."""
    if str(path) == "-":
        return UserError("this command does not read standard input, as diagnose does; save it to a file and give that")
    return UserError(f"there is no {path}; give {wanted}")


def unreadable(path: Path, error: OSError) -> UserError:
    """What to say of a file, or of one in the folder `path`, that the system does not let us read."""
    file = error.filename or path
    if isinstance(error, PermissionError):
        return UserError(f"cannot read {file}: {error.strerror}; change its permissions")
    if isinstance(error, FileNotFoundError):
        return UserError(f"{file} disappeared while it was read; run the command again")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
        return UserError(f"cannot write {file}: {error.strerror}; make room, or choose another folder")
    if error.errno in (errno.EINVAL, errno.ETIMEDOUT):  # of `read_whole` and `opened`
        return UserError(f"cannot read {file}: {error.strerror}; write what it brings to a file, and give that file")
    return UserError(f"cannot read {file}: {error.strerror or error}; replace the file with a copy")


def opened(path: Path) -> io.BufferedReader:
    """A file to be read; OSError for a pipe, a device or a socket as well, which may have no end or never begin."""
    status = path.stat()
    of_system = not status.st_size and path.resolve().is_relative_to("/proc")  # such as /proc/self/pagemap
    if of_system or not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(errno.EINVAL, "it is a pipe, a device or a socket", str(path))
    return path.open("rb")


def read_whole(path: Path) -> bytes:
    """All bytes of a file, or of a pipe, which is read to its end.

    OSError for what cannot be read: a device, a socket, a pipe that brings nothing or no end, more than memory holds.
    """
    if not path.is_fifo():
        with opened(path) as file:
            try:
                return file.read()
            except MemoryError:
                raise OSError(errno.ENOMEM, "it is larger than the memory", str(path)) from None
    written, end = bytearray(), time.monotonic() + _LONGEST
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else opening waits for a writer, who may have left
    try:
        while select.select([pipe], [], [], _PATIENCE)[0] and len(written) <= _LARGEST_PIPE and time.monotonic() < end:
            if not (more := os.read(pipe, 1 << 16)):
                return bytes(written)
            written += more
    finally:
        os.close(pipe)
    reason = "this pipe does not end" if written else "nothing was written to this pipe"
    raise OSError(errno.ETIMEDOUT, reason, str(path))


def _plain_or_gzip(path: Path) -> IO[bytes]:
    with opened(path) as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]


def json_number(value: Any) -> float | None:
    """A JSON value as a number: NaN for null, also the strings NaN, Infinity, inf, …; None for any other value.

    NaN for the string is WRITTEN_NAN. A number larger than any float is infinite; true is 1.
    """
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if value is None:
        return math.nan
    return _WORDS.get(value) if isinstance(value, str) else None


def is_whole(value: Any) -> bool:
    """Whether a JSON value is a whole number that a float holds exactly, as counts and steps have to be."""
    return type(value) is int and abs(value) < 2**53


def typed(kind: type[T], content: Mapping[str, Any]) -> T:
    """JSON object as the dataclass `kind`; a field that is absent or of another type has its default.

    Fields are bool, int, str, Literal, float (read by `json_number`), Any, dataclasses, tuple[V, ...], mappings, or one
    of these or None. Entries of a mapping that are of another type are left out. Raises TypeError where a field without
    default is absent or of another type.
    """
    values: dict[str, Any] = {}
    for name, (key, hint) in _json_fields(kind).items():  # type: ignore[arg-type]
        if key in content:
            with suppress(TypeError, ValueError):
                values[name] = _as_type(hint, content[key])
    return kind(**values)


def json_key(field: Field[Any]) -> str:
    """Name in JSON of a dataclass field: `metadata["key"]` where it differs from the name of the field."""
    return str(field.metadata.get("key", field.name))


@cache
def _json_fields(kind: Any) -> Mapping[str, tuple[str, Any]]:
    """Key in JSON and type of each field of a dataclass, by name."""
    hints = get_type_hints(kind)
    return {field.name: (json_key(field), hints[field.name]) for field in fields(kind)}


def _as_type(kind: Any, value: Any) -> Any:
    """A JSON value as a value of the type `kind`; TypeError or ValueError where it is of another type."""
    if isinstance(kind, UnionType):
        return None if value is None else _as_type(get_args(kind)[0], value)
    if kind is Any or (kind in (bool, int, str) and type(value) is kind):
        return value
    if get_origin(kind) is Literal and value in get_args(kind):
        return value
    if kind is float and (number := json_number(value)) is not None:
        return number
    if is_dataclass(kind) and isinstance(value, Mapping):
        return typed(kind, value)  # type: ignore[arg-type]
    generic = next(iter(getattr(kind, "__orig_bases__", ())), kind)  # of class Measures(dict[str, float]), the dict
    if get_origin(generic) is tuple and isinstance(value, list):
        return tuple(_as_type(get_args(generic)[0], element) for element in value)
    if get_origin(generic) in (dict, Mapping) and isinstance(value, Mapping):
        key_type, entry_type = get_args(generic)
        entries: dict[Any, Any] = {}
        for key, element in value.items():
            with suppress(TypeError, ValueError):
                entries[key_type(key)] = _as_type(entry_type, element)
        return entries if generic is kind else kind(entries)
    raise TypeError(f"{type(value).__name__} is no {kind}")


def _finite_or_named(content: Any) -> Any:
    """A JSON value with the strings of NAMED, wherever in it, replaced by the numbers that they stand for."""
    if isinstance(content, dict):
        return {name: _finite_or_named(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_finite_or_named(value) for value in content]
    return NAMED.get(content, content) if isinstance(content, str) else content


def _plain(content: Any) -> Any:
    if is_dataclass(content) and not isinstance(content, type):
        return _plain(asdict(content))
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return "NaN" if math.isnan(content) else "Infinity" if content > 0 else "-Infinity"
    return content
