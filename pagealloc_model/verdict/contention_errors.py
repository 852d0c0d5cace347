"""Contended acquisitions of zone->lock, predicted against recorded, for the error table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.measured.contention import OTHER, SITES, has_paravirtual_spinlocks
from pagealloc_model.measured.costs import recorded_costs
from pagealloc_model.measured.measured import Measured
from pagealloc_model.predicted.lock_times import LockModel, LockTimes, lock_times
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.verdict.state_errors import ErrorRow, error_row, relative

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

RANDOM_ARRIVAL = "arrivals at random"


def recorded_lock_model(recording: Recording) -> LockModel:
    """Costs as on the recorded machine, tracing included, and its kind of spinlock."""
    return LockModel(
        costs=recorded_costs(recording),
        closed_loop=False,
        unfair=has_paravirtual_spinlocks(recording.trace),
    )


def contention_rows(
    recording: Recording, predicted: Replay, measured: Measured
) -> Iterator[ErrorRow]:
    """`contended_acquisitions` in all and by CPU; measured NaN where it cannot be known.

    Waits of functions the model has no site for, such as readers in /proc, are left out. Of a fair
    lock only waits behind another waiter are recorded (T8), so only those are counted.
    """
    times = lock_times(predicted, recorded_lock_model(recording))
    waits = measured.contention.waits
    waits = waits[waits["site"] != SITES[OTHER]]
    frame = times.acquisitions
    contended = shows_contention(times)
    chance = contended_by_chance(times)
    scopes: list[tuple[str, pd.Series, pd.Series]] = [
        ("all", pd.Series(True, frame.index), pd.Series(True, waits.index))
    ]
    scopes += [
        (f"cpu={cpu}", frame["cpu"] == cpu, waits["cpu"] == cpu)
        for cpu in range(predicted.machine.nr_cpus)
    ]
    for scope, mine, theirs in scopes:
        real = float(theirs.sum()) if measured.contention.known else float("nan")
        model = float((contended & mine).sum())
        null = float(chance[mine.to_numpy(bool)].sum())
        yield error_row(
            "contended_acquisitions",
            scope,
            measured=real,
            predicted=model,
            error=relative(model, real),
            unit="acquisitions",
            null_model=RANDOM_ARRIVAL,
            null=null,
            null_error=relative(null, real),
        )


def shows_contention(times: LockTimes) -> pd.Series:
    """Which acquisitions would leave an event: all that wait, of a fair lock from the second on."""
    return times.acquisitions["ahead"] > (0 if times.model.unfair else 1)


def contended_by_chance(times: LockTimes) -> np.ndarray:
    """How likely each acquisition met another CPU's hold, had it come at a random time."""
    frame = times.acquisitions
    held = frame.groupby(["zone", "cpu"], observed=True)["hold_ns"].sum()
    by_zone = held.groupby("zone", observed=True).sum()
    keys = pd.MultiIndex.from_frame(frame[["zone", "cpu"]].astype({"zone": str}))
    held.index = held.index.set_levels(held.index.levels[0].astype(str), level=0)
    own = held.reindex(keys).to_numpy()
    total = by_zone.rename(index=str).reindex(frame["zone"].astype(str)).to_numpy()
    return (total - own) / max(times.span_ns, 1)
