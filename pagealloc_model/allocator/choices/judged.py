"""One value for what judging works on beside the machine's arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Judged(NamedTuple):
    """What judging knows and counts; judging functions call it `j`.

    Attributes:
        steps: `recorded_steps.STEP` records in time order; a push's migratetype is written.
        track: `true_state.TRACK` records, one per page frame.
        tally: int64, shape (choices, slots, OUTCOMES); added to.
        misses: int64, shape (choices, MISSES_KEPT + 1, MISS_COLUMNS); added to.
    """

    steps: np.ndarray
    track: np.ndarray
    tally: np.ndarray
    misses: np.ndarray
