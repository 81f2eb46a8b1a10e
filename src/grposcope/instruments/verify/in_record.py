"""What the claims came to while a run trained (`verify_every`), as its page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grposcope.core.answer import Answer, Table, Word
from grposcope.core.run import Run
from grposcope.core.text import visible
from grposcope.instruments.verify import INSTRUMENT


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """The claims of one run that were tested while it trained; nothing for others."""
    if len(runs) != 1 or runs[0].folder is None:
        return []
    from grposcope.instruments.verify import row_file  # loaded where there is something to read

    if not (runs[0].folder / row_file.FOLDER).exists():
        return []
    looks = row_file.read_claims(runs[0].folder)
    return [section(looks)] if looks else []


def section(looks: Sequence[Mapping[str, Any]]) -> Answer:
    """looks: the rows of claims.jsonl, in order. A claim is broken from the first look at which it was."""
    from grposcope.instruments.verify.claims import CLAIMS

    titles = {claim.name: claim.title for claim in CLAIMS}
    broken: dict[str, tuple[int, Mapping[str, Any]]] = {}
    held: dict[str, int] = {}
    for look in looks:
        for name, one in look["claims"].items():
            if one["status"] == "broken":
                broken.setdefault(name, (int(look["step"]), one))
            held[name] = held.get(name, 0) + (one["status"] == "holds")
    rows = []
    for name, count in held.items():
        if name in broken:
            step, one = broken[name]
            rows.append((titles.get(name, name), "broken", visible(f"{one['fault']}, at step {step}", 200)))
        elif count:
            rows.append((titles.get(name, name), "holds", f"in {count:,} of {len(looks):,} checks"))
    text = [
        visible(f"Step {step}: {one['evidence'].rstrip('.')}. {one['remedy']}", 600) for step, one in broken.values()
    ]
    tested = len(rows)
    sentence = (
        f"{len(broken)} of the {tested} claims that could be tested during training "
        f"{'is' if len(broken) == 1 else 'are'} broken."
        if broken
        else f"Nothing is broken: {tested} claims could be tested while the run trained."
        if tested
        else "None of the claims could be tested during training."
    )
    word: Word = "failing" if broken else "healthy" if tested else "cannot tell"
    tables = [Table("Claims", ("claim", "status", "what was seen"), rows)] if rows else []
    return Answer("verify", INSTRUMENT.question, word, sentence, text=text, tables=tables,
                  document={"looks": [dict(look) for look in looks]})  # fmt: skip
