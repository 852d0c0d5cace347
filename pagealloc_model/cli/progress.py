"""Progress on stderr, for people only: never into a pipe or a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_FIRST_S = 2.0

Report = Callable[[int, int], None]
"""Called as `report(done, total)`, in events."""


@contextmanager
def progress(what: str) -> Iterator[Report | None]:
    """A bar that appears if the work takes over two seconds; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=what, unit=" events", unit_scale=True, delay=QUIET_FIRST_S, leave=False) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report
