"""How to install what an optional part needs: GRPOscope is on no package index, so from where it came from itself."""

from __future__ import annotations

from pathlib import Path


def install(extra: str) -> str:
    """The command that installs an extra of GRPOscope: for the checkout that runs, else for a checkout or a wheel."""
    checkout = Path(__file__).parents[3]
    if (checkout / "pyproject.toml").is_file():
        return f"pip install '{checkout}[{extra}]'"
    return f"pip install '.[{extra}]' in your checkout of GRPOscope (of a wheel: pip install 'WHEEL[{extra}]')"
