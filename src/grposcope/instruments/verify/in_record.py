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
    return [_section(looks)] if looks else []


def _section(looks: Sequence[Mapping[str, Any]]) -> Answer:
    """looks: the rows of claims.jsonl, in order. A claim is broken from the first look at which it was."""
    from grposcope.faults import catalogue
    from grposcope.instruments.verify import live

    titles = {proof.name: proof.claim for proof in catalogue.proofs()}
    broken = live.broken(looks)
    holding = {name: sum(look["claims"].get(name, {}).get("status") == "holds" for look in looks)
            for name in dict.fromkeys(name for look in looks for name in look["claims"])}  # fmt: skip
    in_part = {name: sum(bool(look["claims"].get(name, {}).get("in_part")) for look in looks) for name in holding}
    rows = []
    for name, count in holding.items():
        title = titles.get(name, name)
        if name in broken:
            rows.append((title, "broken", visible(f"{broken[name].finding.fault}, at step {broken[name].since}", 200)))
        elif count:
            rows.append((title, "holds", f"in {count:,} of {len(looks):,} checks"))
        elif in_part[name]:
            rows.append((title, "cannot tell", f"tested in part, in {in_part[name]:,} of {len(looks):,} checks"))
    text = [
        visible(f"Step {look.since}: {look.finding.because.rstrip('.')}. {look.finding.remedy}", 600)
        for look in broken.values()
    ]
    holds = sum(status == "holds" for _, status, _ in rows)
    word: Word = "failing" if broken else "healthy" if holds else "cannot tell"
    tables = [Table("Claims", ("claim", "status", "what was seen"), rows)] if rows else []
    return Answer("verify", INSTRUMENT.question, word, _sentence(len(broken), holds, len(rows)), text=text,
                  tables=tables, document={"looks": [dict(look) for look in looks]})  # fmt: skip


def _sentence(broken: int, holds: int, tested: int) -> str:
    """How many claims are broken, and how many of those that could be tested hold."""
    if broken:
        return (
            f"{broken} of the {tested} claims that could be tested during training {'is' if broken == 1 else 'are'} "
            "broken."
        )
    in_part = f"{tested - holds} {'was' if tested - holds == 1 else 'were'} tested in part"
    if holds:
        return (
            f"Nothing that could be tested while the run trained is broken: {holds} "
            f"{'claim holds' if holds == 1 else 'claims hold'}{f', {in_part}' if tested > holds else ''}."
        )
    if tested:
        return f"No claim could be tested in full during training; {in_part}, and nothing is broken in them."
    return "None of the claims could be tested during training."
