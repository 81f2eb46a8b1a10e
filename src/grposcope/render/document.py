"""An answer as a JSON document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from grposcope.core.answer import Answer


def of_answer(answer: Answer) -> dict[str, Any]:
    """What an answer says in words, its numbers with their errors by name, and what its instrument adds for
    programs."""
    said = {
        "question": answer.question,
        "word": answer.word,
        "sentence": answer.sentence,
        "because": answer.because,
        "do": answer.do,
        "missing": list(answer.missing),
        "numbers": {number.name: asdict(number.value) for number in answer.numbers},
    }
    return {name: value for name, value in said.items() if value} | dict(answer.document)
