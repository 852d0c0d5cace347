"""The true state at the start: pages that events show."""

from __future__ import annotations

import numpy as np

from pagealloc_model.diagnosis import true_state as rec
from pagealloc_model.diagnosis.recorded_moves import (
    true_start,
)
from pagealloc_model.recording.machine import Machine
from tests.diagnosis.test_placement import FIRST
from tests.small_recordings import (
    small_machine,
)


def test_two_pages_do_not_share_a_frame_at_the_start() -> None:
    """The second frame is free before the two are handed out as one."""
    machine = small_machine()
    moves = np.zeros(2, rec.STEP)
    moves["pfn"] = (FIRST + 1, FIRST)
    moves["order"] = (0, 1)
    moves["operation"] = (rec.REMOVE, rec.POP)
    moves["zone"] = _zone_of(machine, FIRST)
    first = np.zeros(machine.end_pfn, np.int8)
    first[FIRST : FIRST + 2] = (rec.POP, rec.REMOVE)
    image = true_start(machine, moves, first, None)
    assert image.free[FIRST + 1]
    assert not len(image.listed)


def _zone_of(machine: Machine, pfn: int) -> int:
    spans = [zone.start_pfn <= pfn < zone.end_pfn for zone in machine.zones]
    return spans.index(True)
