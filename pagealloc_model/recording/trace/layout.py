"""Where a raw record's fields lie: the table that compiled walks read, from format data."""

from __future__ import annotations

from functools import cache

import numpy as np

from pagealloc_model.recording.trace.columns import EVENT_NAMES, Event
from pagealloc_model.recording.trace.formats import TracepointFormat
from pagealloc_model.recording.trace.perf_file import RECORD_HEADER_SIZE, EventAttr, SampleType

ABSENT = -1
LARGEST_RECORD = 0xFFFF

# Columns of the layout table, one row per attribute of a perf.data, or tracepoint of a ring buffer.
# CONTEXT is the offset of common_flags in the raw data. From PFN on follow five groups of
# FIELD_WIDTH: offset in the raw data, mask and sign bit of pfn, order, gfp, migratetype and
# percpu_refill. A field's value is `((word & mask) ^ sign) - sign`; an absent one has mask 0.
TID, TIME, CPU, VARIABLE, READ_FIXED, READ_ENTRY, CALLCHAIN, RAW = range(8)
EVENT, NOTED, RAW_SIZE, CONTEXT, PFN = range(8, 13)
FIELD_WIDTH = 3
ORDER, GFP, MIGRATETYPE, REFILL, LAYOUT_WIDTH = range(PFN + FIELD_WIDTH, PFN + 6 * FIELD_WIDTH, 3)

# Columns of a note: what the record is, where it was, and where its copy and its parts are.
NOTE_ATTR, NOTE_TYPE, NOTE_SOURCE, NOTE_POSITION, NOTE_SIZE, NOTE_BEFORE = range(6)
NOTE_RAW, NOTE_RAW_SIZE, NOTE_TIME, NOTE_CPU, NOTE_PID, NOTE_CHAIN, NOTE_CHAIN_SIZE = range(6, 13)
NOTE_WIDTH = 13

# Slots of a walk's state: where it stands, how much it has filled, and why it stopped.
POSITION, ROWS, NOTES, COPIED, STATUS, PAGE, LOSSES, STATE_SLOTS = range(8)
SMALLEST_EVENT = 8
"""Bytes of the smallest event on a page of a ring buffer."""
# Columns of a loss in a ring buffer: times of the events around it, how many (-1: not said).
LOSS_CPU, LOSS_START, LOSS_END, LOSS_COUNT, LOSS_WIDTH = range(5)

# Values of the state's STATUS; those with a text mean a damaged record at POSITION.
RUNNING, FULL, BAD_SIZE, BAD_ID, BAD_SAMPLE, BAD_RAW, BAD_VALUE = range(7)
BAD_PAGE, BAD_EVENT, BAD_EVENT_RAW, BAD_EVENT_VALUE = range(7, 11)
STATUS_TEXTS = {
    BAD_SIZE: "a record has an impossible size",
    BAD_ID: "a sample has an id that the file does not declare",
    BAD_SAMPLE: "a sample is shorter than its sample_type says",
    BAD_RAW: "a sample's raw data do not fit its format",
    BAD_VALUE: "a sample holds a value outside its field's range",
    BAD_PAGE: "a page of the ring buffer says that more of it is used than there is",
    BAD_EVENT: "an event does not fit its page",
    BAD_EVENT_RAW: "an event's raw data do not fit its format",
    BAD_EVENT_VALUE: "an event holds a value outside its field's range",
}

MAIN_FIELDS: dict[Event, tuple[str | None, ...]] = {
    Event.ALLOC: ("pfn", "order", "gfp_flags", "migratetype", None),
    Event.FREE: ("pfn", "order", None, None, None),
    Event.FREE_BATCHED: ("pfn", None, None, None, None),
    Event.ZONE_LOCKED: ("pfn", "order", None, "migratetype", "percpu_refill"),
    Event.PCPU_DRAIN: ("pfn", "order", None, "migratetype", None),
    Event.EXTFRAG: ("pfn", "alloc_order", None, "alloc_migratetype", None),
}
"""The fields that fill pfn, order, gfp, migratetype and percpu_refill of each main event."""
OPTIONAL_FIELDS = frozenset({"percpu_refill"})
"""Fields that older kernels lack (T4)."""

_FIXED_PARTS = ("IDENTIFIER", "IP", "TID", "TIME", "ADDR", "ID", "STREAM_ID", "CPU", "PERIOD")
_TRAILER_PARTS = ("TID", "TIME", "ID", "STREAM_ID", "CPU", "IDENTIFIER")
_READ_TIME_ENABLED, _READ_TIME_RUNNING, _READ_ID, _READ_GROUP, _READ_LOST = 1, 2, 4, 8, 16


@cache
def part_offsets(sample_type: int, *, trailer: bool = False) -> dict[str, int]:
    """Offset of each present fixed part of a sample, from its start; "end" is where they stop.

    Or of a sample_id_all trailer, from the trailer's.
    """
    start, parts = (0, _TRAILER_PARTS) if trailer else (RECORD_HEADER_SIZE, _FIXED_PARTS)
    present = [name.lower() for name in parts if sample_type & SampleType[name]]
    return {name: start + 8 * place for place, name in enumerate((*present, "end"))}


def layout_row(tracepoint: TracepointFormat | None, attr: EventAttr | None = None) -> np.ndarray:
    """The row of the layout table (int64, `LAYOUT_WIDTH` long) for a tracepoint.

    Of a perf.data's attribute, whose samples need be of no tracepoint; without one, of the kernel's
    own ring buffer, where TID is the offset of common_pid, and the columns of a sample's other
    parts stay 0.
    """
    row = np.zeros(LAYOUT_WIDTH, np.int64)
    row[EVENT] = row[CONTEXT] = ABSENT
    if attr is not None:
        offsets = part_offsets(attr.sample_type)
        row[[TID, TIME, CPU]] = [offsets.get(part, ABSENT) for part in ("tid", "time", "cpu")]
        row[VARIABLE] = offsets["end"]
        if attr.sample_type & SampleType.READ:
            # The fixed bytes of a READ part, and those per counter of a group (0 without groups).
            form = attr.read_format
            times = 8 * bool(form & _READ_TIME_ENABLED) + 8 * bool(form & _READ_TIME_RUNNING)
            value = 8 + 8 * bool(form & _READ_ID) + 8 * bool(form & _READ_LOST)
            fixed, entry = (8 + times, value) if form & _READ_GROUP else (value + times, 0)
            row[[READ_FIXED, READ_ENTRY]] = fixed, entry
        row[CALLCHAIN] = bool(attr.sample_type & SampleType.CALLCHAIN)
        row[RAW] = bool(attr.sample_type & SampleType.RAW)
        if not row[RAW]:
            return row
    elif tracepoint is not None:
        pid = tracepoint.field("common_pid")
        if pid is None or pid.size != 4:
            raise ValueError(f"{tracepoint.event_name} has no common_pid of 4 bytes")
        row[[TID, RAW]] = pid.offset, True
    if tracepoint is None:
        return row
    event = EVENT_NAMES.get(tracepoint.event_name)
    context = tracepoint.field("common_flags")
    row[EVENT] = ABSENT if event is None else event
    row[NOTED] = event is None or event is Event.EXTFRAG
    row[RAW_SIZE] = max((field.end for field in tracepoint.fields), default=0)
    if sum(field.size for field in tracepoint.fields) > row[RAW_SIZE]:
        raise ValueError(f"{tracepoint.event_name} has fields that overlap")
    row[CONTEXT] = ABSENT if context is None else context.offset
    for index, name in enumerate(MAIN_FIELDS[event] if event is not None else ()):
        field = tracepoint.field(name) if name else None
        if field is None and name and name not in OPTIONAL_FIELDS:
            raise ValueError(f"{tracepoint.event_name} has no field {name}")
        if field is None:
            continue
        if not field.is_integer:
            raise ValueError(f"{tracepoint.event_name} field {field.name} is not an integer")
        # All ones in an unsigned long is the pfn of a failed allocation (T2): read it as -1.
        signed = (field.signed or name == "pfn") and field.size < 8
        mask = -1 if field.size == 8 else (1 << 8 * field.size) - 1
        start = PFN + FIELD_WIDTH * index
        sign = 1 << 8 * field.size - 1 if signed else 0
        row[start : start + FIELD_WIDTH] = field.offset, mask, sign
    return row
