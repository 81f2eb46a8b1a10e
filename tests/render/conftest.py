"""The browser that tests of pages share, one for each file."""

from collections.abc import Iterator

import pytest
from browsing import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = Browser()
    yield found
    found.driver.quit()
