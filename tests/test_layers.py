"""Imports point down only; CONTRIBUTING.md draws the map."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from imports import SOURCE, files_of, folder_of, imports, needed_to_import, source
from places import TESTS

from grposcope.instruments import FOLDERS, all_instruments

LEVEL = {
    "core": 0,
    "maths": 1, "render": 1,
    "logs": 2, "lab": 2, "lab.objectives": 3, "lab.tasks": 3, "lab.policies": 3, "lab.allocation": 3,
    "lab.credit": 4, "lab.cpu": 4,
    "lab.sampling": 5,
    "signs": 5,
    "instruments": 6,
    "faults": 7,
    "judging": 8,
    "runs_page": 9,
    "watch": 10,
    "lab.train": 11,
    "lab.sweeps": 12, "engines": 12,
    "commands": 13,
    "cli": 14, "aliases": 0,
    "__main__": 15,
}  # fmt: skip
"""Room -> its level; a room imports those below it. The commands of instruments, of the loop and of `watch` belong to
the room of commands."""

JUDGING = ("diagnosis", "lint", "verify", "autopilot", "runs")
"""What asks the catalogue of faults: a room of its own above the other instruments."""

TORCHLESS = ("core", "maths", "render", "logs", "watch", "commands", "instruments", "judging", "runs_page", "signs",
             "faults", "lab.allocation")  # fmt: skip
"""Rooms that do without torch, but for the modules in MEASURING."""

MEASURING = (
    "instruments/claims/foundations.py",
    "instruments/gradient/", "instruments/credit/", "instruments/evaluation/", "instruments/offpolicy/estimates.py",
    "instruments/offpolicy/from_model.py", "instruments/offpolicy/command_model.py", "instruments/offpolicy/probing.py",
    "instruments/rewards/probing.py",
    "instruments/verify/scoring.py",
    "instruments/verify/module_differences.py", "instruments/verify/command_model.py",
    "instruments/verify/gradient_norm.py",
    "commands/probe_model.py",
    "watch/live.py", "watch/loggers.py", "watch/receivers/tensorboard.py", "lab/train/command.py",
    "lab/sweeps/command.py",
)  # fmt: skip
"""What measures models, and so needs torch; the light modules among them are those that `test_without_torch` runs."""

FILES = sorted(f for f in SOURCE.rglob("*.py") if f != SOURCE / "__init__.py")


def room_of(parts: tuple[str, ...]) -> str:
    """The room of a module from the parts of its name below the package."""
    if parts[-1].startswith("command") and parts[0] in ("instruments", "lab", "watch"):
        return "commands"
    if parts[0] == "instruments" and len(parts) > 1 and parts[1] in JUDGING:
        return "judging"
    return ".".join(parts[:2]) if parts[0] == "lab" and ".".join(parts[:2]) in LEVEL else parts[0]


def room(file: Path) -> str:
    return room_of(file.relative_to(SOURCE).with_suffix("").parts)


def imported(file: Path) -> frozenset[str]:
    """Absolute names of everything the file imports, wherever in it the import stands."""
    return source(file).imported


def test_every_room_has_a_level() -> None:
    assert {room(f) for f in FILES} <= LEVEL.keys()


def test_imports_point_down() -> None:
    files = modules()
    upward = []
    for file in FILES:
        own = room(file)
        for name in imported(file):
            owner = owner_of(name, files)
            other = room_of(tuple(owner.split(".")[1:])) if owner.count(".") else own
            if other != own and LEVEL[other] >= LEVEL[own]:
                upward.append(f"{file.relative_to(SOURCE)} must not import {name}")
    assert not upward


def test_rooms_without_torch() -> None:
    light = [file for file in FILES
             if room(file) in TORCHLESS and not file.relative_to(SOURCE).as_posix().startswith(MEASURING)]  # fmt: skip
    heavy = [f"{file.relative_to(SOURCE)} imports {name}" for file in light for name in imported(file)
             if name.split(".")[0] in ("torch", "transformers")]  # fmt: skip
    assert not heavy


WITH_THE_LABORATORY = {
    "instruments/dynamics/command_stability.py", "instruments/group_size/dead_groups_answer.py",
    "instruments/texts/grading_child.py", "instruments/verify/graders.py",
}  # fmt: skip
"""What only reads, and yet imports the laboratory: reward functions are loaded there, and allocators are there."""


def test_what_only_reads_imports_nothing_of_the_laboratory() -> None:
    """So that logs can be read and judged by a distribution of their own; a file is only taken from the list."""
    importing = set()
    for file in FILES:
        place = file.relative_to(SOURCE).as_posix()
        reads = room(file) in TORCHLESS and not place.startswith((*MEASURING, "lab/"))
        if reads and any(used.name.startswith("grposcope.lab") for used in imports(file)):
            importing.add(place)
    assert importing == WITH_THE_LABORATORY


@cache
def modules() -> dict[str, Path]:
    """File of every module by its dotted name."""
    named = {}
    for file in FILES:
        parts = ("grposcope", *file.relative_to(SOURCE).with_suffix("").parts)
        named[".".join(parts).removesuffix(".__init__")] = file
    return named


def owner_of(name: str, files: Mapping[str, Path]) -> str:
    """The module of ours that an imported name belongs to; empty where it is none of ours."""
    while name and name not in files:
        name = name.rpartition(".")[0]
    return name


def dependencies() -> dict[str, set[str]]:
    """Modules of ours that each module imports, wherever in it the import stands."""
    files = modules()
    return {module: {owner_of(name, files) for name in imported(file)} - {"", module} for module, file in files.items()}


def test_no_two_modules_import_each_other() -> None:
    """Modules can be put in an order in which each imports earlier ones only."""
    waiting = dependencies()
    while ready := {module for module, needed in waiting.items() if not needed & waiting.keys()}:
        waiting = {module: needed for module, needed in waiting.items() if module not in ready}
    assert not waiting, "these import each other, or what does: " + ", ".join(sorted(waiting))


KNOWN: set[tuple[str, str]] = set()
"""File of an instrument and another folder that it imports although it must not."""


def test_an_instrument_imports_only_what_it_declares() -> None:
    """What it cannot answer without stands in its `uses`; all else is imported in a function, under `if has(…)`."""
    found = set()
    for instrument in all_instruments():
        own = (FOLDERS[instrument.name], *instrument.uses)
        found |= {(file, folder) for file, folder in unasked(files_of(instrument)) if folder not in own}
    assert sorted(found - KNOWN) == [], "declare these in INSTRUMENT.uses, or import them under `if has(…)`"
    assert sorted(KNOWN - found) == [], "these are mended; take them out of KNOWN"


def unasked(files: Iterable[Path]) -> set[tuple[str, str]]:
    """File and a folder of instruments that it imports without having asked whether it is there."""
    return {
        (file.relative_to(SOURCE).as_posix(), folder)
        for file in files
        for imported in imports(file)
        if (folder := folder_of(imported.name)) and not (imported.inside and folder in imported.guards)
    }


def test_an_instrument_imports_what_it_declares() -> None:
    """A use that is declared and not made would take an answer away for nothing."""
    for instrument in all_instruments():
        imported = {folder_of(imported.name) for file in files_of(instrument) for imported in imports(file)}
        assert set(instrument.uses) <= imported, f"{instrument.name}: {sorted(set(instrument.uses) - imported)}"


def test_what_is_asked_for_is_a_folder() -> None:
    """By the name of an instrument, or an earlier one, a folder would be taken for one that is not there."""
    asked = {(instrument.name, folder) for instrument in all_instruments() for folder in instrument.uses}
    for files, calls in ((FILES, "has|needed"), (TESTS.rglob("test_*.py"), r"mark\.needs")):
        for file in files:
            text = file.read_text()
            if "from grposcope.instruments import" in text or "needs" in calls:
                for names in re.findall(rf'\b(?:{calls})\(\[?((?:"\w+"[, ]*)+)', text):
                    asked |= {(file.name, folder) for folder in re.findall(r"\w+", names)}
    assert len(asked) > 40
    assert not {(where, folder) for where, folder in asked if folder not in FOLDERS.values()}


def test_no_circle_among_the_uses_of_instruments() -> None:
    waiting: dict[str, set[str]] = {folder: set() for folder in FOLDERS.values()}
    for instrument in all_instruments():
        waiting[FOLDERS[instrument.name]].update(instrument.uses)
    while ready := {folder for folder, uses in waiting.items() if not uses & waiting.keys()}:
        waiting = {folder: uses for folder, uses in waiting.items() if folder not in ready}
    assert not waiting, "these use each other, or what does"


SERVING = {
    "engines/distributed.py": {"gradient"},
    "engines/trl/checkpoint_probe.py": {"diagnosis", "gradient"}, "engines/trl/": {"diagnosis"},
    "lab/train/run_curvature.py": {"gradient"},
    "watch/alarm_file.py": {"diagnosis"}, "watch/alarms.py": {"diagnosis"}, "watch/follow.py": {"diagnosis"},
    "watch/live.py": {"diagnosis"}, "watch/wording.py": {"diagnosis"}, "watch/changes.py": {"diagnosis"},
    "watch/openmetrics.py": {"diagnosis"},
}  # fmt: skip
"""File or folder -> the folders of instruments that it serves; everybody else imports it in functions only."""


def test_what_is_no_instrument_is_imported_without_any() -> None:
    """So that the command line, the loop and the readers work whichever folder of instruments is not there."""
    wrong = {}
    for file in FILES:
        place = file.relative_to(SOURCE).as_posix()
        if not folder_of(".".join(("grposcope", *file.relative_to(SOURCE).parts))):
            served = next((names for start, names in SERVING.items() if place.startswith(start)), set())
            if beyond := needed_to_import(file) - served:
                wrong[place] = sorted(beyond)
    assert not wrong


ENGINE = "grposcope.lab.cpu"
"""The CPU engine: other modules import its interface alone."""


def test_only_the_interface_of_the_cpu_engine_is_imported() -> None:
    """`from grposcope import cpu`, or a name that the interface exports; never a module of the folder."""
    inside = [module for module in modules() if module.startswith(f"{ENGINE}.")]
    assert inside
    reaching = [
        f"{file.relative_to(SOURCE)}: {name}"
        for file in FILES
        if room(file) != "lab.cpu"
        for name in imported(file)
        if any(name == module or name.startswith(f"{module}.") for module in inside)
    ]
    assert not reaching


def test_nobody_outside_names_a_private_part_of_the_cpu_engine() -> None:
    exported = set(re.findall(r'^    "(\w+)",$', (SOURCE / "lab" / "cpu" / "__init__.py").read_text(), re.MULTILINE))
    assert "decoder" in exported
    used = {
        attribute
        for file in FILES
        if room(file) != "lab.cpu"
        for name, attribute in source(file).attributes
        if name == "cpu"
    }
    assert used <= exported, "not in __all__ of grposcope.lab.cpu"


def test_a_class_name_means_one_thing() -> None:
    """But `Flags`, which every command has, as it has its `run`."""
    classes = Counter(name for file in FILES for name in source(file).classes)
    assert not [name for name, count in classes.items() if count > 1 and not name.startswith("_") and name != "Flags"]


FLAGS_BELONG = ("commands", "cli")
OTHER_PROGRAMS = (
    "logs/trainers",
    "engines/trl/__init__.py",
    "lab/train/pretrain.py",
    "lab/policies/smollm2.py",
    "core/environment.py",
)
"""Flags of other trainers, of pip and git, and of a program of its own."""


def test_only_commands_name_flags() -> None:
    """What lies below `commands` names quantities in its messages; the same message also reaches users of Python. The
    page of a fault, which `explain` prints may say which command decides."""
    naming = []
    for file in FILES:
        place = file.relative_to(SOURCE).as_posix()
        if room(file) in FLAGS_BELONG or place.startswith(OTHER_PROGRAMS):
            continue
        told = source(file)
        for text in told.strings if place.startswith("faults/") else (*told.strings, told.page):
            naming += [f"{place}: {flag}" for flag in re.findall(r"(?<![\w(-])--[a-z][a-z-]+", text)]
    assert not naming
