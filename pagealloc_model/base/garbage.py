"""Python's search for garbage, put off while what is made stays: imports, compiling."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 200_000
"""Objects made since the last search, less those freed, after which a command searches again."""


@contextmanager
def not_collecting() -> Iterator[None]:
    """Search for no garbage meanwhile."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def collect_seldom() -> None:
    """Search for garbage seldom from now on: for a process of our own, a command's."""
    gc.set_threshold(SELDOM, *gc.get_threshold()[1:])
