"""What is said of a run or of a probe: typed, computed once, and rendered by `report` as text, page and JSON."""
