"""Records: what became of one point."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pagealloc_model.base.errors import PageallocError
from pagealloc_model.base.version import __version__
from pagealloc_model.predicted.replay import Cancelled, Replay
from pagealloc_model.recording.recording import Recording
from pagealloc_model.studies.sweeps.metrics import Row, replay_metrics
from pagealloc_model.studies.sweeps.settings import Settings

PROVENANCE = (
    "effective_policy",
    "effective_rules",
    "decided_by",
    "assumptions",
    "lost_events",
    "version",
    "model",
)
"""What a row says of how it was made, apart from recording, axes and time."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A point's result, in plain values.

    Attributes:
        key: what the result depends on (`point_key`).
        metrics: values by name, empty for a point that failed.
        provenance: values for the names in `PROVENANCE`, empty for a point that failed.
        error: why it failed, in one line; "" if it did not.
        seconds: wall-clock time that it took.
        finished: when, UTC, ISO 8601.
    """

    key: str
    metrics: dict[str, float] = field(default_factory=dict)
    provenance: dict[str, str | int] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0
    finished: str = ""


Made = tuple[Row, dict[str, str | int]]
"""Metrics, and values for names in `PROVENANCE`."""


def made_record(key: str, make: Callable[[], Made]) -> Record:
    """Make a result; what goes wrong becomes the record's error.

    Args:
        key: the result's name.
        make: makes metrics and provenance.

    Raises:
        Cancelled: `make` was told to stop.
    """
    begun = time.perf_counter()
    metrics: Row = {}
    provenance: dict[str, str | int] = {}
    error = ""
    try:
        metrics, provenance = make()
    except Cancelled:
        raise
    except Exception as failure:
        error = one_line(failure)
    return Record(
        key=key,
        metrics=metrics,
        provenance=provenance,
        error=error,
        seconds=time.perf_counter() - begun,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def replayed_point(
    recording: Recording, settings: Settings, cancel: Callable[[], bool] | None = None
) -> Made:
    """Replay a recording and keep the numbers; raises what `replay` does."""
    replay = settings.replayed(recording, cancel)
    return replay_metrics(replay), _provenance(replay)


def one_line(failure: BaseException) -> str:
    """What went wrong; errors that are not the user's also name their type."""
    words = " ".join(str(failure).split())
    if isinstance(failure, PageallocError):
        return words
    return f"{type(failure).__name__}: {words}" if words else type(failure).__name__


def _provenance(replay: Replay) -> dict[str, str | int]:
    code = replay.kernel or (f"hooks {', '.join(replay.hooks)}" if replay.hooks else "model")
    told = dict(vars(replay.assumptions))
    elastic = vars(told.pop("elastic")) if replay.assumptions.reclaim == "elastic" else {}
    told |= {f"elastic.{name}": value for name, value in elastic.items()}
    assumed = " ".join(f"{name}={value}" for name, value in told.items() if name != "elastic")
    return {
        "effective_policy": str(replay.policy),
        "effective_rules": replay.rules.spelled(),
        "decided_by": code,
        "assumptions": assumed,
        "lost_events": replay.losses,
        "version": __version__,
        "model": str(replay.provenance["model"]),
    }
