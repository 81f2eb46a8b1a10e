"""Where the checkout is, for tests that read its pages, fixtures and the data beside it."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
