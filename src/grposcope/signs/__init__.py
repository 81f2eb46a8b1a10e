"""What is seen of a run, of settings and of rollouts: levels, onsets, exact zeros, limits, relations of metrics.

A sign says what is there and knows no fault; `faults/` says what it means.
"""
