"""Tables and intervals as people read them."""

from __future__ import annotations

import math

from grposcope.formatting import percent, span, table


def test_a_table_has_aligned_columns() -> None:
    rows = [("G", "loss", ""), ("2", "36.9%", "▇"), ("16", "1%", "")]
    assert table(rows, indent="  ") == "  G   loss\n  2   36.9%  ▇\n  16  1%"
    assert table(rows[1:], right=True) == "2   36.9%  ▇\n16     1%"


def test_an_interval_may_be_open_or_of_shares() -> None:
    assert span(2.8, math.inf) == "2.8 to ∞"
    assert span(0.01, 0.3, percent) == "1% to 30%"
