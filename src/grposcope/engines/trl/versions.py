"""The versions of TRL and transformers that each part was tested with; docs/howto/trl.md has the table.

`make test-trl-oldest` runs the lowest ones and `make test` the newest; CI runs both.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from packaging.version import InvalidVersion, Version

from grposcope.core.errors import UserError

LOWEST = {
    "callback": {"trl": "0.21.0", "transformers": "4.55.0"},
    "trainer": {"trl": "1.16.0", "transformers": "5.23.0"},
}
"""Part -> package -> the lowest version it is tested with. The callback uses public events of transformers alone, the
trainer methods of TRL that are not, so that its versions are narrower."""

NEWEST = {"trl": "1.16.0", "transformers": "5.23.0"}
"""Package -> the newest version that was tested; later patches of the same minor version count as that one."""


def check(feature: str) -> str:
    """What there is to know about the installed versions, a sentence, empty if they are tested ones.

    UserError where `feature` is known not to work or was not tested: too old for it, or, for the trainer, too new.
    The callback goes on with newer packages, since no failure of it can end a training.
    """
    for package, lowest in LOWEST[feature].items():
        version = _installed(package)
        if version is not None and version < Version(lowest):
            raise UserError(
                f"{package} {version} was found, and the {feature} needs {lowest} or newer; {_remedy(feature)}"
            )
    told = {
        package: f"{package} {found} was found, and the {feature} was tested with {_span(feature, package)}"
        for package, newest in NEWEST.items()
        if (found := _installed(package)) is not None and found.release[:2] > Version(newest).release[:2]
    }
    if feature == "callback":
        return f"{'; '.join(told.values())}: some metrics may be missing." if told else ""
    if "trl" in told:
        raise UserError(f"{told['trl']}; {_remedy(feature)}")
    return ""


def _span(feature: str, package: str) -> str:
    """The versions that a part was tested with."""
    return f"{_short(LOWEST[feature][package])} to {_short(NEWEST[package])}"


def _remedy(feature: str) -> str:
    """How to get versions that work."""
    low, high = _short(LOWEST[feature]["trl"]), _short(NEWEST["trl"])
    wanted = f"trl=={high}.*" if low == high else f"trl>={low},<={high}.99"
    return f"pip install '{wanted}' 'transformers>={LOWEST[feature]['transformers']}'"


def _short(text: str) -> str:
    """Major and minor version."""
    return ".".join(map(str, Version(text).release[:2]))


def _installed(package: str) -> Version | None:
    try:
        return Version(version(package))
    except (PackageNotFoundError, InvalidVersion):
        return None
