"""Statements about a run or a probe: typed, computed once, and rendered by `report` as text, page and JSON."""
