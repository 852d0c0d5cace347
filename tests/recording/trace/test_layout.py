"""Words of recordings: texts for every kind of damage."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace import layout
from tests.recording.trace.test_trace_dat import one_cpu, read
from tests.trace_dat_writer import (
    PAGE,
    START,
    allocation,
    event,
    page,
)


def test_status_texts_name_every_kind_of_damage(tmp_path: Path) -> None:
    used = bytearray(page(START, event(0, allocation(1))))
    used[8:16] = struct.pack("<Q", PAGE)
    wrong = bytearray(page(START, event(0, allocation(1, order=99))))
    for content, text in (
        (bytes(used), layout.BAD_PAGE),
        (page(START, struct.pack("<I", 28) + bytes(8)), layout.BAD_EVENT),
        (page(START, event(0, allocation(1)[:12])), layout.BAD_EVENT_RAW),
        (bytes(wrong), layout.BAD_EVENT_VALUE),
    ):
        with pytest.raises(RecordingError, match=layout.STATUS_TEXTS[text]):
            read(tmp_path, one_cpu(content))
