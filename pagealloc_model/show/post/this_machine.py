"""What this machine has for recording, and what its page allocator does right now."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.layout import paragraph

if TYPE_CHECKING:
    from pagealloc_model.recording.record.doctor import Check
    from pagealloc_model.recording.trace.columns import Trace

DOCTOR_WIDTH = 79
"""Columns of a terminal."""


def doctor_text(checks: Sequence[Check] | None = None) -> str:
    """A few words for each check, and whether a recording is possible.

    Args:
        checks: as `doctor.examine` gives them; None: those of this machine, here and now.
    """
    if checks is None:
        from pagealloc_model.recording.record.doctor import examine
        from pagealloc_model.recording.record.host import Host

        checks = examine(Host(), Path.cwd())
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        mark = "NO" if check.blocks else "--" if check.cost else "ok"
        parts = [check.found, check.cost, check.todo]
        words = "; ".join(part for part in parts if part)
        label = f"{mark}  {check.name:<{width}}  "
        # a path stays in one piece, to be copied
        lines += textwrap.wrap(
            words,
            DOCTOR_WIDTH,
            initial_indent=label,
            subsequent_indent=" " * len(label),
            break_long_words=False,
            break_on_hyphens=False,
        )
    possible = not any(check.blocks for check in checks)
    return "\n".join(
        [*lines, "", f"recording is {'possible' if possible else 'not possible'} here"]
    )


def live_text(seconds: float) -> str:
    """Rates of this machine's page-allocator events, or why they cannot be had.

    Args:
        seconds: how long to sample.
    """
    from pagealloc_model.recording.record.perf_python import live

    try:
        trace = live(seconds)
    except UsageError as error:
        return paragraph(str(error), label="not sampled: ")
    return _rates_text(trace, seconds)


def _rates_text(trace: Trace, seconds: float) -> str:
    from pagealloc_model.recording.trace.columns import EVENT_NAMES

    width = max(len(name) for name in EVENT_NAMES)
    return "\n".join(
        [
            f"this machine ({trace.release}, {count_of(trace.nr_cpus, 'CPU')}) for {seconds:g} s",
            *[
                f"  {name:<{width}}  {count:>9,}  {count / seconds:>9,.0f}/s"
                for name, count in ((name, trace.count(kind)) for name, kind in EVENT_NAMES.items())
            ],
            f"  {'lost':<{width}}  {trace.losses.total:>9,}",
        ]
    )
