"""Compiled: what a main event's raw data say, wherever they were recorded.

perf.data and the kernel's ring buffers hold the same raw data of a tracepoint; where each field
lies in them is in a row of the layout table (`sample_layout.Column`).

This module imports numba; import it inside functions only.
"""

from __future__ import annotations

from pagealloc_model.base.jit import inner
from pagealloc_model.recording.trace import sample_layout
from pagealloc_model.recording.trace.sample_layout import Column
from pagealloc_model.recording.trace.unaligned_words import word_at

LARGEST_CPU = 32767
LARGEST_ORDER = 63
LARGEST_MIGRATETYPE = 63

IN_INTERRUPT = 0x08 | 0x10
"""Bits of common_flags: in a hard interrupt, in a soft one (include/linux/trace_events.h)."""

LOW_HALF = 0xFFFFFFFF
_CONTEXT = int(Column.CONTEXT)
_PFN = int(Column.PFN)
_ORDER = _PFN + sample_layout.FIELD_WIDTH
_GFP = _ORDER + sample_layout.FIELD_WIDTH
_MIGRATETYPE = _GFP + sample_layout.FIELD_WIDTH
_REFILL = _MIGRATETYPE + sample_layout.FIELD_WIDTH


@inner
def _field(data, raw, layouts, row, first):  # noqa: ANN001, ANN202
    """One field of a main event's raw data; see Column for the arithmetic."""
    sign = layouts[row, first + 2]
    value = word_at(data, raw + layouts[row, first]) & layouts[row, first + 1]
    return (value ^ sign) - sign


@inner
def main_fields(data, raw, layouts, row):  # noqa: ANN001, ANN201
    """pfn, order, gfp, migratetype and percpu_refill of a main event.

    Absent fields are skipped: only FREE_BATCHED lacks an order, a type stands only in events with
    an order, and gfp and percpu_refill only in events with a type.
    """
    frame = _field(data, raw, layouts, row, _PFN)
    order, flags, migratetype, refill = 0, 0, -1, -1
    if layouts[row, _ORDER + 1]:
        order = _field(data, raw, layouts, row, _ORDER)
        if layouts[row, _MIGRATETYPE + 1]:
            migratetype = _field(data, raw, layouts, row, _MIGRATETYPE)
            if layouts[row, _GFP + 1]:
                flags = _field(data, raw, layouts, row, _GFP)
            elif layouts[row, _REFILL + 1]:
                refill = _field(data, raw, layouts, row, _REFILL)
    return frame, order, flags, migratetype, refill


@inner
def context_of(data, raw, layouts, row):  # noqa: ANN001, ANN201
    """1 in an interrupt, 0 in a task, -1 where the format has no common_flags."""
    offset = layouts[row, _CONTEXT]
    if offset < 0:
        return -1
    return 1 if data[raw + offset] & IN_INTERRUPT else 0


@inner
def in_range(frame, order, flags, migratetype, refill):  # noqa: ANN001, ANN201
    """Whether the fields of a main event hold values that the event can have."""
    return (
        frame >= -1
        and 0 <= order <= LARGEST_ORDER
        and 0 <= flags <= LOW_HALF
        and -1 <= migratetype <= LARGEST_MIGRATETYPE
        and -1 <= refill <= 1
    )
