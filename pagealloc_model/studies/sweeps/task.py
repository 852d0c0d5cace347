"""Tasks: the points of a sweep that are yet to be made."""

from __future__ import annotations

from dataclasses import dataclass

from pagealloc_model.studies.sweeps.recordings import SweptRecording
from pagealloc_model.studies.sweeps.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Task:
    """A recording to be replayed under settings.

    Attributes:
        key: names the result (`point_key`).
        recording: what is replayed.
        settings: under what.
    """

    key: str
    recording: SweptRecording
    settings: Settings
