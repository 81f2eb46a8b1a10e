"""Fixtures that all tests may use."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Data sets and run logs kept beside the repository, in ../shared/data; not part of it."""
    path = Path(__file__).parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip("needs the data sets beside the repository, in ../shared/data")
    return path


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Small arrays gain nothing from more, and tests that share a machine lose a lot."""
    torch.set_num_threads(1)
