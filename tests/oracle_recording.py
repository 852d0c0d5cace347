"""A recording of a machine whose kernel is the oracle: events as tracepoints would show them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from pagealloc_model.recording.proc import pages as flags
from tests.oracle import RULES, Oracle, OraclePolicy
from tests.oracle.dump import values
from tests.oracle.literal import Pages
from tests.oracle.machine import Event
from tests.oracle.scenarios import KERNEL, Scenario, one_zone
from tests.oracle.steps import Step
from tests.small_recordings import EVENTS_BEGIN_NS, TimedEvents, write_recording, zone_lines

CPUS = 2
ZONE_BLOCKS = 48
UNMOVABLE, MOVABLE, RECLAIMABLE = 0, 1, 2
GFP = {
    UNMOVABLE: "GFP_KERNEL",
    MOVABLE: "GFP_KERNEL|__GFP_MOVABLE",
    RECLAIMABLE: "GFP_KERNEL|__GFP_RECLAIMABLE",
}
STEP_US = 2_000  # time between steps, so that a run lasts for seconds
SNAPSHOT_STEPS = 50  # steps after which zoneinfo is read


def scenario(seed: int, steps: int, orders: tuple[int, ...]) -> Scenario:
    """Requests that may reclaim, frees and ticks on a machine with one zone and two CPUs."""
    return Scenario(
        machine=one_zone(ZONE_BLOCKS, nr_cpus=CPUS),
        rules=RULES["6.18"],
        policy=OraclePolicy(),
        seed=seed,
        steps=steps,
        orders=orders,
        bits=(KERNEL,),
        block_types=(UNMOVABLE, MOVABLE, MOVABLE, RECLAIMABLE),
        tick_share=0.0,
        replayed=False,
    )


def record(directory: Path, seed: int, steps: int, orders: tuple[int, ...] = (0,)) -> Path:
    """A recording with the events of a scenario's run, page flags and snapshots of zoneinfo."""
    chosen = scenario(seed, steps, orders)
    oracle = chosen.started()
    text = TimedEvents()
    free = free_pages(oracle)
    zoneinfo = {EVENTS_BEGIN_NS - 1: zoneinfo_text(oracle)}
    seen = 0
    for number, (step, pages) in enumerate(chosen.run(oracle)):
        _write_step(text, step, pages, oracle.events[seen:])
        seen = len(oracle.events)
        if number % SNAPSHOT_STEPS == SNAPSHOT_STEPS - 1:
            zoneinfo[text.now_us * 1000 + 1] = zoneinfo_text(oracle)
        text.wait(STEP_US)
    write_recording(directory, text, snapshots=False, page_flags=False, release="6.18.0")
    words = np.where(free, flags.BUDDY, flags.PGTABLE).astype("<u8")
    (directory / "kpageflags.u64.gz").write_bytes(gzip.compress(words.tobytes(), 1))
    for time_ns, content in zoneinfo.items():
        snapshot = directory / "snapshots" / f"{time_ns:020d}"
        snapshot.mkdir(parents=True)
        (snapshot / "zoneinfo").write_text(content)
    return directory


def free_pages(oracle: Oracle) -> np.ndarray:
    """Whether a page is in the buddy, bool per page frame."""
    zone = oracle.zones[0]
    free = np.zeros(zone.spec.end_pfn, bool)
    for (order, _), pfns in zone.buddy.lists.items():
        for pfn in pfns:
            free[pfn : pfn + (1 << order)] = True
    return free


def zoneinfo_text(oracle: Oracle) -> str:
    """What zoneinfo shows of the oracle's one zone."""
    zone = oracle.zones[0]
    names = ("count", "high", "batch", "high_min", "high_max")
    lines = zone_lines(
        zone.spec.name,
        free=int(free_pages(oracle).sum()),
        pages=zone.spec.managed,
        page_sets=[values(pcp, *names) for pcp in zone.pcp],
    )
    return "\n".join([*lines, ""])


def _write_step(text: TimedEvents, step: Step, pages: Pages, moved: list[Event]) -> None:
    words = step.words
    if step.call == "alloc":
        request = words["request"]
        text.on(cpu=request.cpu)
        _write_moves(text, moved)
        pfn = pages[0][0] if pages else -1
        text.alloc(pfn, request.order, GFP[request.migratetype], request.migratetype)
        return
    if step.call == "free":
        text.on(cpu=step.cpu).free(words["pfn"], words["order"])
    elif step.call == "tick":
        text.on(cpu=step.cpu, pid=100 + step.cpu, comm=f"kworker/{step.cpu}:1")
    else:
        text.on(cpu=0, pid=200)
    _write_moves(text, moved)


def _write_moves(text: TimedEvents, moved: list[Event]) -> None:
    for name, *fields in moved:
        if name == "zone_locked":
            pfn, order, migratetype = fields
            text.locked(pfn, order=order, migratetype=migratetype)
        elif name == "drain":
            pfn, order, migratetype = fields
            text.drained(pfn, order=order, migratetype=migratetype)
        elif name == "extfrag":
            pfn, order, found, wanted, taken, owned = fields
            text.fallback(
                pfn, order=order, found=found, owned=int(owned), wanted=wanted, taken=taken
            )
