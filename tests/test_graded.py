"""The report on graded logs counts by source what it says it counts."""

from __future__ import annotations

from graded import Judged, of_each_source

ROWS = [
    Judged("a", "one", ("failing",), "failing", ""),
    Judged("b", "one", ("healthy", "warning"), "warning", ""),
    Judged("c", "one", ("healthy",), "cannot tell", ""),
    Judged("d", "two", ("failing",), "healthy", ""),
]


def test_a_matrix_of_each_source_and_what_is_right_without_it() -> None:
    head, _, *lines = of_each_source(ROWS).split("\n")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    names = [cell.strip() for cell in head.strip("|").split("|")]
    assert [row[:2] for row in cells] == [["one", "failing"], ["", "healthy"], ["two", "failing"]]
    healthy = dict(zip(names, cells[1], strict=True))
    assert (healthy["warning"], healthy["cannot tell"], healthy["failing"]) == ("1", "1", "0")
    assert cells[0][-2:] == ["2 of 3 (67%; 21% to 94%)", "0 of 1 (0%; 0% to 79%)"]
    assert cells[2][-2:] == ["0 of 1 (0%; 0% to 79%)", "2 of 3 (67%; 21% to 94%)"]
