"""The one exception that reaches a user as a single line."""

from __future__ import annotations

from grposcope.core.text import plain


class UserError(Exception):
    """Something the user can mend: what is wrong, where, and the remedy, in one line.

    The command line prints it without a traceback and exits with status 2.
    """

    def __str__(self) -> str:
        return plain(super().__str__())


def lost_device(error: BaseException) -> str | None:
    """One line for memory that ran out, on a GPU or for an array of the CPU, and for a GPU that failed; else None.

    PyTorch's errors are known by their names and words, since this module does not import it. The kernel ends a process
    that touches more memory than there is without any error.
    """
    words = str(error).strip().partition("\n")[0]
    kind = type(error).__name__
    full = isinstance(error, MemoryError) or kind == "OutOfMemoryError" or "can't allocate memory" in words
    if full:
        return (
            f"memory ran out ({words[:160] or kind}); use fewer prompts, smaller groups, shorter completions, a "
            "smaller micro-batch or activation checkpointing; everything written so far is kept"
        )
    if isinstance(error, RuntimeError) and ("CUDA error" in words or kind == "AcceleratorError"):
        return (
            f"the GPU failed ({words[:160]}); everything written so far is kept; check nvidia-smi, then start "
            "again, or resume a run from its last checkpoint"
        )
    return None
