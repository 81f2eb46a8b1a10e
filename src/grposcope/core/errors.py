"""The one exception that reaches a user as a single line."""

from __future__ import annotations

from grposcope.core.text import plain


class UserError(Exception):
    """Something the user can mend: what is wrong, where, and the remedy, in one line.

    The command line prints it without a traceback and exits with status 2.
    """

    def __str__(self) -> str:
        return plain(super().__str__())
