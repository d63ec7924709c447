"""Each item is made once, with its quick settings, for all tests."""

from functools import cache
from typing import Any

import pytest

from cutwater.reproduce.catalogue import choose
from cutwater.reproduce.item import Context


@pytest.fixture(scope="session")
def quick_values() -> Any:
    """A function from an item's name to its values."""

    @cache
    def values(name: str) -> Any:
        (item,) = choose([name])
        return item.run(item.quick or item.normal, Context())

    return values
