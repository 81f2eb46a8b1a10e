"""Finds the settings in a file, by what stands in it: Python, notebook, YAML, TOML, JSON, shell script, or a record.

Nothing in the file is run, imported or unpickled.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grposcope.core import yaml_files
from grposcope.core.errors import UserError
from grposcope.core.files import read_whole, unreadable
from grposcope.core.settings import Dialect, Settings
from grposcope.core.text import listed
from grposcope.instruments.lint import python_source, shell_script
from grposcope.instruments.lint.dialects import (
    AREAL,
    DIALECTS,
    MLX_LM_LORA,
    MS_SWIFT,
    OPEN_INSTRUCT,
    OPENRLHF,
    OPENRLHF_BEFORE,
    RLOO,
    SLIME,
    TRL,
    recognise,
)

_OF_GROUPS = re.compile(r"grpo|rloo|\btrl\b|gspo|dapo", re.IGNORECASE)
"""Words of a script that trains by groups; others with a learning rate are of another kind of training."""

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
"""Endings of files that loading would run code from."""

ENTRIES = 20_000
"""Settings beyond which a file is none of settings, or repeats itself by aliases."""

IN_A_FOLDER = (
    ".hydra/config.yaml", "files/config.yaml", "config.json", "trainer_state.json", "config.yaml", "config.yml",
    "config.toml", "args.json",
)  # fmt: skip
"""Files of a folder that hold settings, the most telling first."""

_NAMES = listed(list(dict.fromkeys(dialect.title for dialect in DIALECTS)))


class SeveralSetsError(UserError):
    """A file has several sets of settings, `count` of them, and none was chosen."""

    def __init__(self, text: str, count: int):
        super().__init__(text)
        self.count = count


def read(path: Path, number: int | None = None) -> Settings:
    """The settings in a file; `number` picks one of several in it, from 1. UserError where there are none."""
    if path.is_dir():
        path = _in_folder(path)
    elif str(path) == "-" and not path.exists():
        path = Path("/dev/stdin")
    if path.suffix in _PICKLES:
        raise UserError(
            f"{path} is a pickle, and loading one runs code, so it is not opened; give the YAML file or script that "
            f"made "
            "it, the config.yaml of W&B, or the record of GRPOscope's callback (config.json), which holds all arguments"
        )
    try:
        text = read_whole(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"there is no {path}; give the file with the settings of a run") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start + 1} is not UTF-8; give a text file with settings") from None
    except OSError as error:
        raise unreadable(path, error) from None
    reader = _READERS.get(path.suffix, _shell if text.startswith("#!") else _any)
    return reader(path, text, number)


def _in_folder(folder: Path) -> Path:
    file = next((folder / name for name in IN_A_FOLDER if (folder / name).is_file()), None)
    if file is None:
        raise UserError(f"{folder} has none of {', '.join(IN_A_FOLDER)}; give the file with the settings itself")
    return file


def _python(path: Path, text: str, number: int | None) -> Settings:
    """A Python file or notebook; a script whose settings come from its command line may show that in its docstring."""
    calls = python_source.read(path, text)
    if not calls:
        source = text if path.suffix == ".py" else python_source.notebook_source(path, text)
        if (quoted := _quoted_command(source)) is not None:
            return _shell(path, quoted, number)
        raise UserError(f"{path} has no call of GRPOConfig and no dict of settings; give the file that has one")
    if len(calls) > 1 and number is None:
        places = listed([f"line {settings.line}" for settings in calls[:6]])
        raise SeveralSetsError(
            f"{path} has {len(calls)} sets of settings, in {places}; give one of them, such as {path}#1", len(calls)
        )
    if (number or 1) > len(calls):
        raise UserError(f"{path} has {len(calls)} sets of settings, so there is no #{number}")
    one = calls[(number or 1) - 1]
    dialect = RLOO if "RLOO" in one.call else TRL if one.call else recognise(one.given.keys() | one.opaque) or TRL
    given = one.given if one.call else _flat(one.given)
    return Settings(path, one.form, dialect, given, one.lines, frozenset(one.opaque), one.partial,
                         one.reward_functions, one.adapters, tuple(one.notes), script=one.script)  # fmt: skip


def _quoted_command(source: str) -> str | None:
    """The command line in the docstring of a script that takes its settings from there; None if there is none."""
    blocks = re.findall(r'"""(.*?)"""', source, re.S)
    block = next((b for b in blocks if re.search(r"^\s*(accelerate launch|torchrun|python|trl)\b", b, re.M)), None)
    if block is None:
        return None
    commands = re.split(r"\n(?=\s*(?:accelerate launch|torchrun|python3?|trl) )", "\n" + block)
    chosen = next((command for command in commands if "--" in command), "")
    return chosen.partition("\n\n")[0]


def _shell(path: Path, text: str, number: int | None) -> Settings:
    if (other := re.search(r"\bverl\.trainer\.main_(generation|eval)\w*", text)) and "main_ppo" not in text:
        raise UserError(f"{path} starts {other[0]}, which trains nothing; give the script of a training run")
    script = shell_script.read(path, text)
    opaque = frozenset(script.opaque)
    if script.overrides.keys() | {key for key in opaque if "." in key}:
        settings = {**script.overrides, **{key: value for key, value in script.flags.items() if "." in key}}
        dialect = recognise(settings.keys() | opaque)
        if dialect is not None:
            if any("megatron" in str(script.flags.get(flag, "")) for flag in ("config_name", "config_path")):
                settings = {"actor_rollout_ref.actor.strategy": "megatron"} | settings
            notes = [f"line {line}: the value of the variable is unknown, so no default is assumed"
                     for line in script.unread[:1]]  # fmt: skip
            if dialect is AREAL:
                notes.append("the file that AReaL is started with is not read, so no default is assumed")
            if dialect is OPENRLHF:
                settings |= script.flags  # those without dots are of another version
            form = "the flags of a command line" if dialect is OPENRLHF else "the overrides in a command line"
            return Settings(path, form, dialect, settings, script.lines, opaque,
                                 bool(script.unread) or dialect is AREAL, notes=tuple(notes))  # fmt: skip
    dialect = recognise(script.flags.keys() | opaque)
    if dialect in (SLIME, MS_SWIFT, OPENRLHF, OPENRLHF_BEFORE, OPEN_INSTRUCT):
        return _of_flags(path, text, script, dialect)
    if dialect is TRL or ("learning_rate" in script.flags and _OF_GROUPS.search(text)):
        adapters = bool(script.flags.get("use_peft")) if "use_peft" in script.flags else None
        dialect = RLOO if re.search(r"\brloo(?:_\w+)?(?:\.py)?\b", text, re.I) else TRL
        return Settings(path, "the flags of a command line", dialect, script.flags, script.lines, opaque,
                             adapters=adapters)  # fmt: skip
    raise _unknown(path)


def _of_flags(path: Path, text: str, script: shell_script.ShellSettings, dialect: Dialect) -> Settings:
    """The flags of a trainer that takes no overrides; UserError where they are of training without groups."""
    settings = dict(script.flags)
    if dialect is SLIME and "train_async.py" in text:
        settings["train_async"] = True
    if dialect is MS_SWIFT and settings.get("rlhf_type", "grpo") != "grpo":
        raise UserError(f"{path} trains by {settings['rlhf_type']} and not by GRPO; give the script of a GRPO run")
    functions = settings.get("reward_funcs")
    count = len(functions) if isinstance(functions, list) else 1 if isinstance(functions, str) else None
    unread = bool(script.unread or script.unread_flags)
    return Settings(path, "the flags of a command line", dialect, settings, script.lines, frozenset(script.opaque),
                         unread, count)  # fmt: skip


def _yaml(path: Path, text: str, number: int | None) -> Settings:
    document = yaml_files.parse(text, path)
    content = document.content
    if isinstance(content, list) and content and all(isinstance(line, str) for line in content):
        return _shell(path, "\n".join(_quoted(line) for line in content), number)  # .hydra/overrides.yaml
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is not a mapping of settings; give a file with NAME: VALUE")
    return _of_mapping(path, content, document.lines, "a YAML file")


def _toml(path: Path, text: str, number: int | None) -> Settings:
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not valid TOML ({error}); correct the file") from None
    return _of_mapping(path, content, {}, "a TOML file")


def _quoted(override: str) -> str:
    key, equals, content = override.partition("=")
    return f"{key}{equals}'{content}'" if equals and "'" not in content else override


def _json(path: Path, text: str, number: int | None) -> Settings:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON ({error}); correct the file") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is not an object of settings; give a file with {{NAME: VALUE}}")
    if "log_history" in content:
        return _trainer_state(path, content)
    logged = content.get("logged")
    resolved = content.get("resolved")
    if isinstance(resolved, dict) and isinstance(resolved.get("logged"), dict):
        logged = resolved["logged"]
    if "format" in content and isinstance(logged, dict):
        config = _of_mapping(path, logged, {}, "the trainer's arguments in the record of a run")
        return replace(config, resolved=True)
    if "format" in content and isinstance(content.get("settings"), dict):
        return _of_mapping(path, content["settings"], {}, "the settings in the record of a run")
    return _of_mapping(path, content, {}, "a JSON file")


def of_record(path: Path, logged: object) -> Settings | None:
    """The settings that a trainer logged, without defaults, as a log may have a part of them; None where they are of
    no trainer that is known."""
    if not isinstance(logged, Mapping) or not logged:
        return None
    try:
        settings = _of_mapping(path, {str(key).replace("/", "."): value for key, value in logged.items()}, {},
                               "what the trainer logged of its settings")  # fmt: skip
    except UserError:
        return None
    return replace(settings, partial=True, resolved=True)


def _trainer_state(path: Path, content: Mapping[str, Any]) -> Settings:
    """The few settings of a trainer_state.json; the group size is not among them."""
    names = {
        "train_batch_size": "per_device_train_batch_size",
        "logging_steps": "logging_steps",
        "max_steps": "max_steps",
    }
    settings = {ours: content[theirs] for theirs, ours in names.items() if content.get(theirs) is not None}
    note = (
        "trainer_state.json holds only the batch size of a process; the other arguments are in training_args.bin, a "
        "pickle that is not opened: give the YAML file or script, or the config.yaml of W&B"
    )
    return Settings(path, "the state of a trainer", TRL, settings, partial=True, notes=(note,))


def _of_mapping(path: Path, content: Mapping[str, Any], lines: Mapping[str, int], form: str) -> Settings:
    """Settings of a nested mapping: as it is, or each wrapped as {value: …}, as W&B writes config.yaml."""
    wrapped = [value for value in content.values() if isinstance(value, Mapping) and "value" in value]
    saved = bool(wrapped) and len(wrapped) >= len(content) - 2  # W&B adds its version
    if saved:
        content = {
            key: value["value"] for key, value in content.items() if isinstance(value, Mapping) and "value" in value
        }
        lines, form = {}, "the configuration that W&B saved"
    content, missing = _inherited(path, content)
    settings = _flat(content)
    dialect = recognise(settings.keys())
    if dialect is None:
        raise _unknown(path)
    if dialect is MLX_LM_LORA and settings["train_mode"] != "grpo":
        raise UserError(f"{path} trains by {settings['train_mode']} and not by GRPO; give the file of a GRPO run")
    opaque = {key for key, value in settings.items() if isinstance(value, str) and "${" in value}
    settings = {key: _resolved(value, settings) for key, value in settings.items()}
    opaque = {key for key in opaque if isinstance(settings[key], str) and "${" in settings[key]}
    functions, adapters = settings.get("reward_funcs"), settings.get("use_peft")
    count = len(functions) if isinstance(functions, list) else None
    return Settings(path, form, dialect, {k: v for k, v in settings.items() if k not in opaque}, lines,
                         frozenset(opaque), bool(missing), count, adapters if isinstance(adapters, bool) else None,
                         missing, resolved=saved)  # fmt: skip


def _inherited(path: Path, content: Mapping[str, Any], depth: int = 0) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """A YAML file on top of the one that its `defaults` name, as NeMo-RL writes them, and a note where that is
    missing.
    """
    base = content.get("defaults")
    if isinstance(base, list):
        return content, ("the command line that starts it with Hydra may add settings, so no default is assumed",)
    if not isinstance(base, str) or path.suffix not in (".yaml", ".yml"):
        return content, ()
    base_path = path.parent / base
    own = {key: value for key, value in content.items() if key != "defaults"}
    if not base_path.is_file() or depth > 10:
        return own, (f"its base file {base} is missing, so no default is assumed",)
    below = yaml_files.read(base_path).content
    if not isinstance(below, Mapping):
        return own, (f"its base file {base} holds no settings",)
    whole, missing = _inherited(base_path, below, depth + 1)
    return _merged(whole, own), missing


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings, `above` over `below`."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merged(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged


def _resolved(value: Any, settings: Mapping[str, Any]) -> Any:
    """The value that ${another.key} stands for, where that is a setting of the same file; else the value as it is."""
    for _ in range(5):
        match = re.fullmatch(r"\$\{([\w.]+)\}", value) if isinstance(value, str) else None
        if match is None or match[1] not in settings:
            return value
        value = settings[match[1]]
    return value


def _flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings as one, keys joined by "."; UserError beyond ENTRIES, as aliases can repeat without end."""
    flat: dict[str, Any] = {}

    def entries(mapping: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
        for key, value in mapping.items():
            if isinstance(value, Mapping) and value and depth < 20:
                yield from entries(value, f"{prefix}{key}.", depth + 1)
            else:
                yield f"{prefix}{key}", value

    for key, value in entries(content, "", 0):
        flat[key] = value
        if len(flat) > ENTRIES:
            raise UserError(f"more than {ENTRIES:,} settings; give a file of settings without aliases")
    return flat


def _any(path: Path, text: str, number: int | None) -> Settings:
    """A file whose ending says nothing: the first form that has settings in it."""
    for reader in (_json, _toml, _shell, _yaml, _python):
        try:
            return reader(path, text, number)
        except UserError:
            continue
    raise _unknown(path)


def _unknown(path: Path) -> UserError:
    return UserError(f"{path} holds no settings of a known trainer ({_NAMES}); give its config file or launch script")


_READERS: Mapping[str, Callable[[Path, str, int | None], Settings]] = {
    ".py": _python,
    ".ipynb": _python,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": _json,
    ".toml": _toml,
    ".sh": _shell,
    ".bash": _shell,
    ".slurm": _shell,
    ".sbatch": _shell,
}
