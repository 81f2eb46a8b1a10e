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

NEWEST = {"trl": "1.16.0"}
"""Package -> the newest version that was tested; later patches of the same minor version count as that one."""


def check(feature: str) -> str:
    """What there is to know about the installed versions, a sentence, empty if they are tested ones.

    UserError where `feature` is known not to work or was not tested: too old for it, or, for the trainer, too new.
    The callback goes on with a newer TRL, since no failure of it can end a training.
    """
    for package, lowest in LOWEST[feature].items():
        version = _installed(package)
        if version is not None and version < Version(lowest):
            raise UserError(
                f"{package} {version} was found, and the {feature} needs {lowest} or newer; {_remedy(feature)}"
            )
    trl = _installed("trl")
    if trl is None or trl.release[:2] <= Version(NEWEST["trl"]).release[:2]:
        return ""
    span = f"{_short(LOWEST[feature]['trl'])} to {_short(NEWEST['trl'])}"
    if feature == "callback":
        return f"TRL {trl} was found, and the callback was tested with {span}: some metrics may be missing."
    raise UserError(f"trl {trl} was found, and the {feature} was tested with {span}; {_remedy(feature)}")


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
