"""Progress of long work, for people only: in a terminal or a notebook, never in a pipe or a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_FIRST_S = 2.0

Report = Callable[[float], None]
"""Called with the share done, 0 to 1."""

_FORM = "{desc}: {percentage:3.0f}% {bar} {elapsed}, {remaining} left"


@contextmanager
def progress(
    what: str, total: float = 0, unit: str = "", given: Report | None = None
) -> Iterator[Report | None]:
    """A bar with time left that appears if the work takes over two seconds.

    Args:
        what: the work, in words.
        total: how many units it is, for a rate; 0 shows none.
        unit: what is counted, such as "events" or "B".
        given: reports go there instead, and there is no bar.

    Yields:
        A function to report the share done to; None where nobody would see the bar.
    """
    if given is not None or not (in_notebook() or sys.stderr.isatty()):
        yield given
        return
    from tqdm.auto import tqdm

    form = f"{_FORM}, {{rate_fmt}}" if total else _FORM
    scale, unit = total or 1.0, f" {unit}" if unit else ""
    style = {"bar_format": form, "delay": QUIET_FIRST_S, "leave": False}
    with tqdm(desc=what, total=scale, unit=unit, unit_scale=True, **style) as bar:
        yield lambda share: bar.update(share * scale - bar.n)
        bar.update(scale - bar.n)  # a notebook leaves a bar that ends early, in red


def unreported(share: float) -> None:
    """A report that goes nowhere: of work beside the one that a caller follows."""


def part_of(report: Report | None, begin: float, end: float) -> Report | None:
    """Reports on a part of the work, from share `begin` to `end` of the whole."""
    if report is None:
        return None
    return lambda share: report(begin + share * (end - begin))


def in_notebook() -> bool:
    """True where this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")
