"""Progress on stderr, for people only: never into a pipe or a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_FIRST_S = 2.0

Report = Callable[[float], None]
"""Called with the share done, 0 to 1."""


@contextmanager
def progress(what: str) -> Iterator[Report | None]:
    """A bar that appears if the work takes over two seconds; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    form = "{desc}: {percentage:3.0f}% {bar} {elapsed}"
    with tqdm(desc=what, total=1.0, bar_format=form, delay=QUIET_FIRST_S, leave=False) as bar:
        yield lambda share: bar.update(share - bar.n)
