"""What is said of sources of credit: the sentence for each way it can come out, and the table beside it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from alike import alike

from grposcope.core.run import Meta, Run, no_evaluations, no_groups
from grposcope.instruments.credit import answer as section
from grposcope.instruments.credit import record as credits
from grposcope.instruments.credit.answer import (
    HEADER,
    _details,
    _frontier_chart,
    _missing,
    _rows,
    _savings_chart,
    offers,
    verdict,
)
from grposcope.instruments.credit.error import BASE, EXACT, Ranged
from grposcope.instruments.credit.record import CreditRecord, SourceRecord


def source(name: str, saving: float, log_error: float = 0.05, tokens: float = 1.0, kind: str = "i") -> SourceRecord:
    """A source whose interval is ± 2 standard errors on the scale of the logarithm."""
    reach = math.exp(2 * log_error)
    known = Ranged(saving, saving / reach, saving * reach)
    error = Ranged(1 / saving / tokens, 1 / saving / tokens / reach, reach / saving / tokens)
    return SourceRecord(
        name, kind, purchasable=name != EXACT, unbiased=True, tokens=Ranged(tokens, tokens, tokens), mse=error,
        saving=known, scale=Ranged(1, 1, 1), bias=Ranged(0, 0, 0.1), wrong=Ranged(0.1, 0.05, 0.2),
        within=Ranged(0.5, 0.4, 0.6), common=Ranged(0, 0, 0), log_error=log_error,
    )  # fmt: skip


def record(*sources: SourceRecord) -> CreditRecord:
    base = source(BASE, 1.0, 0.0)
    return CreditRecord(model="tiny", task="t", prompts=40, group=8, reference=64, sources=(base, *sources),
                        floor=Ranged(0.3, 0.2, 0.4), recurrence={"text": 0.8, "step": 0.9})  # fmt: skip


def test_the_whole_sentence() -> None:
    one = record(
        source(EXACT, 2.3), source("prefix", 1.1, 0.2), source("tree:widths=2x2", 1.6, tokens=0.8, kind="iii"),
        source("otb", 1.9), source("continuations:k=4", 1 / 3, tokens=4.0, kind="ii"),
    )  # fmt: skip
    assert verdict(one) == (
        "Finer credit can help: with exact credit the gradient would need 2.3 × fewer rollouts for the same error "
        "(2.08 to 2.54)."
    )
    assert offers(one) == [
        "The cheapest source that pays is tree:widths=2x2, which takes 1.6 × fewer tokens for the same error "
        "(1.45 to 1.77).",
        "Credit from K = 4 continuations per step takes 3 × more tokens, because the continuations cost more than they "
        "save.",
    ]


@pytest.mark.parametrize(
    ("exact", "said"),
    [
        (source(EXACT, 1.2, 0.2), "Cannot tell whether finer credit would help: with exact credit the gradient would "
                                  "need 1.2 × fewer rollouts for the same error (0.804 to 1.79); about 380 prompts"),
        (source(EXACT, 1.0, 0.02), "Finer credit cannot help much: even with exact credit the gradient would need at "
                                   "most 1.04 × fewer rollouts for the same error (1 ×, 0.961 to 1.04)."),
        (replace(source(EXACT, 1.0), saving=Ranged(flag="too few")),
         "Cannot tell whether finer credit would help: too few."),
    ],
)  # fmt: skip
def test_what_is_said_of_exact_credit(exact: SourceRecord, said: str) -> None:
    assert verdict(record(exact)).startswith(said)


def test_without_continuations_and_without_anything_that_pays() -> None:
    one = replace(record(source("prefix", 0.8)), skipped={EXACT: "no continuations were drawn"})
    assert verdict(one) == "Cannot tell whether finer credit would help: no continuations were drawn."
    assert offers(one) == [
        "No measured source is shown to pay; the best of them is prefix, which takes 1.25 × more tokens for the same "
        "error (1.13 to 1.38)."
    ]


def test_a_large_saving_of_one_in_many_does_not_pay() -> None:
    """Two standard errors are enough for one source and not for thirty."""
    lucky = source("lucky", 1.25, 0.1)
    assert "pays is lucky" in offers(record(lucky))[0]
    assert "shown to pay" in offers(record(lucky, *(source(f"s{i}", 0.9) for i in range(30))))[0]


def test_other_sentences_and_the_table() -> None:
    flat = replace(source("flat", 1.0), within=Ranged(0, 0, 0))
    unknown = replace(source("unknown", 1.0), mse=Ranged(flag="no scale"), saving=Ranged(flag="no scale"))
    one = replace(record(flat, unknown), skipped={"steps": "no labels"})
    said = _details(one)
    assert "30% (20% to 40%) of the error of outcome credit comes from differences between prompts" in said[0]
    assert "At 80% of the step ends" in said[1]
    assert said[2:] == ["Constant within every rollout, and so identical to outcome credit: flat."]
    assert _missing(one) == ["Cannot tell for unknown: no scale.", "Skipped steps: no labels."]
    table = _rows(one)
    assert [row[0] for row in table] == [BASE, "flat", "unknown"]
    assert all(len(row) == len(HEADER) for row in table)
    assert table[2][3:5] == ("cannot tell", "cannot tell")
    assert table[0][3] == "1"


def test_the_section_draws_what_is_known() -> None:
    one = record(source(EXACT, 2.3), source("continuations:k=4", 0.3, tokens=4.0, kind="ii"))
    frontier, savings = _frontier_chart(one), _savings_chart(one)
    assert frontier is not None
    assert savings is not None
    drawn = frontier.data["sources"]
    assert list(drawn["source"]) == [BASE, EXACT, "continuations:k=4"]
    assert list(drawn["tokens"]) == [1, 1, 4]
    assert list(savings.data["savings"]["source"]) == [EXACT, BASE, "continuations:k=4"]
    assert _frontier_chart(record()) is None
    meta = Meta(Path("x"), "grposcope credit", "x", "finished")
    run = Run(meta, {}, {"step": np.empty(0)}, no_groups(), no_evaluations())
    run.memory[f"{credits.__name__}.of_run"] = (one,)
    shown = section._section([run])
    assert shown is not None
    assert shown.sentence == verdict(one)
    assert shown.paragraphs == section.of_record(one).paragraphs, "what the command prints"
    again = section.of_record(one)
    assert alike((shown.numbers, shown.tables), (again.numbers, again.tables))
    assert [(tile.name, tile.shown) for tile in shown.numbers] == [("exact credit saves", "2.3 ×")]
    assert [figure.name for figure in shown.figures] == ["credit_savings", "credit_frontier"]
    assert section._section([]) is None
    other = replace(run, meta=replace(meta, name="y"))
    other.memory.update(run.memory)
    both = section._section([run, other])
    assert both is not None
    told = "2.3 (2.08 to 2.54)"
    assert (
        both.sentence
        == f"With exact credit the gradient would need this many times fewer rollouts: {told} in x and {told} in y."
    )
    assert [text.partition(":")[0] for text in both.text] == ["x", "y"]
