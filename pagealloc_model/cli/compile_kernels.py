"""Compile every kernel once, with progress: `python -m pagealloc_model.cli.compile_kernels`.

With --first, those alone that the first notebook calls. What is compiled stays on disk until
something changes that it reaches, so a second run takes seconds, and one after an edit compiles
only what the edit touches. What nobody loaded for KEPT_DAYS is removed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects
from pagealloc_model.allocator import state as states
from pagealloc_model.allocator.events import advance, advance_elastic
from pagealloc_model.allocator.lru import place_on_lists
from pagealloc_model.allocator.zone_verdicts import VERDICT_WORDS, zone_verdicts
from pagealloc_model.base.garbage import not_collecting
from pagealloc_model.base.jit import cache_base, compilations
from pagealloc_model.cli.arguments import opened
from pagealloc_model.diagnosis.placement import judge_placement
from pagealloc_model.measured.measured import measure
from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.demand.demand import resolve_demand
from pagealloc_model.predicted.demand.elastic import slab_frees
from pagealloc_model.predicted.demand.rows import move_tasks
from pagealloc_model.predicted.lock_times import LockModel, queued
from pagealloc_model.predicted.start.evidence import swap_closer
from pagealloc_model.recording.machine import Machine, Zone
from pagealloc_model.recording.recorded_machine import recorded_machine
from pagealloc_model.recording.trace import layout, walk
from pagealloc_model.recording.trace.side_tables import Collected

KEPT_DAYS = 30
_FINGERPRINT = 16 * "[0-9a-f]"
REMOVABLE = (
    f"kernels-{_FINGERPRINT}",
    f"kernels/*.*-{_FINGERPRINT}-{_FINGERPRINT}.kernel",
)
"""Names of what `jit` makes below `jit.cache_base`; nothing else is removed."""


RULES = KernelRules.preset(preset_names()[-1])
NOTHING, NO_ORDERS = np.zeros(0, np.int32), np.zeros(0, np.int8)


def _small_state() -> states.State:
    pages = dict.fromkeys(("spanned", "present", "managed"), 4096)
    zone = Zone(name="Normal", start_pfn=0, **pages, min=8, low=10, high=12)
    return states.make_state(Machine(zones=(zone,), nr_cpus=1), RULES)


def _event_loop() -> None:
    advance(_small_state().arrays(NOTHING), np.zeros(0, at.EVENT), 0, 0, -1)


def _elastic_loop() -> None:
    state = states.with_pressure(_small_state(), RULES, Policy(), Assumptions())
    advance_elastic(state.arrays(NOTHING), np.zeros(0, at.EVENT), NOTHING, 0, 0, -1)
    place_on_lists(state.arrays(), NOTHING, NO_ORDERS)
    requests = np.zeros(0, objects.REQUEST)
    objects.link_replacements(requests, *objects.OpenFailures().of(requests), NOTHING)


def _page_reader() -> None:
    data, rows = np.zeros(0, np.uint8), np.zeros(0, np.int64)
    data.flags.writeable = False
    places, one = np.zeros(1 << 16, np.int32), np.zeros(1, np.int64)
    formats = np.zeros((0, layout.LAYOUT_WIDTH), np.int64)
    losses = np.zeros((0, layout.LOSS_WIDTH), np.int64)
    pages = (data, rows, rows.copy(), (0, 0, 0, 0, 0), places, formats, one, losses)
    state = np.zeros(layout.STATE_SLOTS, np.int64)
    Collected(0, None).walk(walk.walk_pages, pages, (1, 1, 1), state)


def _objects() -> None:
    recording = opened("xfree")
    resolve_demand(recording.trace, recorded_machine(recording))
    slab_frees(recording.trace)
    keys = np.zeros(0, np.int64)
    move_tasks(keys, NOTHING, keys.copy(), NOTHING.copy())


def _start_image() -> None:
    arrays = _small_state().arrays()
    states.place_allocations(arrays, np.zeros(0, np.intp), np.zeros(1, bool), NOTHING, NO_ORDERS)
    states.place_buddies(arrays, NOTHING, NO_ORDERS)
    states.place_listed(arrays, np.zeros(0, states.LISTED))
    states.place_read_buddies(arrays, np.zeros(0, states.LISTED))
    blocks, pages = np.zeros(0, np.int64), np.zeros((0, 1), np.int64)
    swap_closer(NO_ORDERS, blocks, blocks.copy(), pages, pages.copy())


def _lock_queues() -> None:
    queued(np.zeros(1, at.LOG), _small_state().machine, LockModel())


def _verdicts() -> None:
    state = states.with_pressure(_small_state(), RULES, Policy(), Assumptions())
    rows = np.zeros((1, VERDICT_WORDS), np.int64)
    zone_verdicts(state.arrays(), 0, 0, at.UNMOVABLE, 0, 0, rows)


KERNELS: dict[str, Callable[[], object]] = {
    "event loop": _event_loop,
    "event loop under pressure": _elastic_loop,
    "reading perf.data": lambda: len(opened("xfree").trace),
    "reading ring-buffer pages": _page_reader,
    "matching frees to allocations": _objects,
    "evidence for rules": lambda: measure(opened("xfree")),
    "queues at zone->lock": _lock_queues,
    "start image": _start_image,
    "verdicts on a request": _verdicts,
    "judging of choices": lambda: judge_placement(opened("xfree")),
}
EVENT_LOOPS = ("event loop", "event loop under pressure")
FIRST = (
    *("event loop", "reading perf.data", "matching frees to allocations", "evidence for rules"),
    *("queues at zone->lock", "start image"),
)
"""Groups that notebook 00 calls, and a line of `validate`."""


def compile_kernel(name: str) -> str:
    """Compile one group of kernels, or load what is on disk already; returns how it went.

    Nothing is collected meanwhile: that takes a sixth of the time, and saves 110 MB.
    """
    begun, before = time.perf_counter(), compilations()
    with not_collecting():
        KERNELS[name]()
    seconds, names = time.perf_counter() - begun, sorted(compilations() - before)
    return (
        f"{', '.join(names)} compiled ({seconds:.1f} s)"
        if names
        else f"from cache ({seconds:.1f} s)"
    )


def compile_groups(names: Iterable[str]) -> None:
    """Compile groups of kernels in two processes, saying on standard error which is done.

    The event loops, which have most functions in common, are one process's, one after the other.
    """
    with ProcessPoolExecutor(1) as of_loops, ProcessPoolExecutor(1) as of_others:
        running = {
            (of_loops if name in EVENT_LOOPS else of_others).submit(compile_kernel, name): name
            for name in names
        }
        for done in as_completed(running):
            print(f"  {running[done]}: {done.result()}", file=sys.stderr, flush=True)


def remove_old_kernels(base: Path, now_s: float) -> list[Path]:
    """Remove what nobody loaded for KEPT_DAYS: `jit` sets the time of what is used."""
    old = [
        path
        for pattern in REMOVABLE
        for path in sorted(base.glob(pattern))
        if now_s - path.stat().st_mtime > KEPT_DAYS * 86400
    ]
    for path in old:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return old


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile all groups, or the first; then remove what is old."""
    parser = argparse.ArgumentParser(description="compile kernels, or load them from disk")
    parser.add_argument("--first", action="store_true", help="those of the first notebook alone")
    names = FIRST if parser.parse_args(arguments).first else KERNELS
    begun = time.perf_counter()
    print(
        "compiling kernels (a minute the first time, more on a busy machine)",
        file=sys.stderr,
        flush=True,
    )
    compile_groups(names)
    remove_old_kernels(cache_base(), time.time())
    print(f"kernels ready after {time.perf_counter() - begun:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
