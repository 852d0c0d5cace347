"""Compile every kernel once, with progress: `python -m pagealloc_model.cli.compile_kernels`.

What is compiled stays on disk until something changes that it reaches, so a second run takes
seconds, and one after an edit compiles only what the edit touches. What nobody loaded for KEPT_DAYS
is removed.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.base.garbage import not_collecting
from pagealloc_model.cli.arguments import opened

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import State

KEPT_DAYS = 30
_FINGERPRINT = 16 * "[0-9a-f]"
REMOVABLE = (
    f"kernels-{_FINGERPRINT}",
    f"kernels/*.*-{_FINGERPRINT}-{_FINGERPRINT}.kernel",
)
"""Names of what `jit` makes below `jit.cache_base`; nothing else is removed."""


def _event_loop() -> None:
    import numpy as np

    from pagealloc_model.allocator import layout as at
    from pagealloc_model.allocator.events import advance

    state = _small_state()
    events, places = np.zeros(0, at.EVENT), np.zeros(0, np.int32)
    advance(state.arrays(places), events, 0, 0, -1)


def _start_image() -> None:
    import numpy as np

    from pagealloc_model.allocator import state as states
    from pagealloc_model.predicted.start.evidence import swap_closer

    arrays = _small_state().arrays()
    nothing, orders = np.zeros(0, np.int32), np.zeros(0, np.int8)
    states.place_allocations(arrays, np.zeros(0, np.intp), np.zeros(1, bool), nothing, orders)
    states.place_buddies(arrays, nothing, orders)
    states.place_listed(arrays, np.zeros(0, states.LISTED))
    blocks, pages = np.zeros(0, np.int64), np.zeros((0, 1), np.int64)
    swap_closer(np.zeros(0, np.int8), blocks, blocks.copy(), pages, pages.copy())


def _objects() -> None:
    import numpy as np

    from pagealloc_model.predicted.demand.demand import resolve_demand
    from pagealloc_model.predicted.demand.elastic import slab_frees
    from pagealloc_model.predicted.demand.rows import move_tasks
    from pagealloc_model.recording.recorded_machine import recorded_machine

    recording = opened("xfree")
    resolve_demand(recording.trace, recorded_machine(recording))
    slab_frees(recording.trace)
    keys, codes = np.zeros(0, np.int64), np.zeros(0, np.int32)
    move_tasks(keys, codes, keys.copy(), codes.copy())


def _judging() -> None:
    from pagealloc_model.verdict.choices.placement import judge_placement

    judge_placement(opened("xfree"))


def _reader() -> None:

    len(opened("xfree").trace)


def _page_reader() -> None:
    import numpy as np

    from pagealloc_model.recording.trace import layout as at
    from pagealloc_model.recording.trace import walk
    from pagealloc_model.recording.trace.side_tables import Collected

    data, rows = np.zeros(0, np.uint8), np.zeros(0, np.int64)
    data.flags.writeable = False
    layout, losses = (np.zeros((0, width), np.int64) for width in (at.LAYOUT_WIDTH, at.LOSS_WIDTH))
    places, state = np.zeros(1 << 16, np.int32), np.zeros(at.STATE_SLOTS, np.int64)
    room = Collected(0, None).room(1, 1, 1)
    one = np.zeros(1, np.int64)
    walk.walk_pages(
        data, rows, rows.copy(), (0, 0, 0, 0, 0), places, layout, one, losses, *room, state
    )


def _evidence() -> None:
    from pagealloc_model.measured.measured import measure

    measure(opened("xfree"))


def _small_state() -> State:
    from pagealloc_model.allocator.state import make_state
    from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
    from pagealloc_model.recording.machine import Machine, Zone

    zone = Zone(
        name="Normal", start_pfn=0, spanned=4096, present=4096, managed=4096, min=8, low=10, high=12
    )
    machine = Machine(zones=(zone,), nr_cpus=1)
    return make_state(machine, KernelRules.preset(preset_names()[-1]))


def _lock_queues() -> None:
    import numpy as np

    from pagealloc_model.allocator import layout as at
    from pagealloc_model.predicted.lock_times import LockModel, queued

    queued(np.zeros((1, at.LOG_COLUMNS), np.int64), _small_state().machine, LockModel())


def _elastic_loop() -> None:
    import numpy as np

    from pagealloc_model.allocator import layout as at
    from pagealloc_model.allocator import objects
    from pagealloc_model.allocator.events import advance_elastic
    from pagealloc_model.allocator.lru import place_on_lists
    from pagealloc_model.allocator.state import with_pressure
    from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
    from pagealloc_model.policy.policy import Assumptions, Policy

    rules = KernelRules.preset(preset_names()[-1])
    state = with_pressure(_small_state(), rules, Policy(), Assumptions())
    nothing = np.zeros(0, np.int32)
    advance_elastic(state.arrays(nothing), np.zeros(0, at.EVENT), nothing, 0, 0, -1)
    place_on_lists(state.arrays(), nothing, np.zeros(0, np.int8))
    requests = np.zeros(0, objects.REQUEST)
    objects.link_replacements(requests, *objects.OpenFailures().of(requests), nothing)


KERNELS: dict[str, Callable[[], None]] = {
    "event loop": _event_loop,
    "event loop under pressure": _elastic_loop,
    "reading perf.data": _reader,
    "reading ring-buffer pages": _page_reader,
    "matching frees to allocations": _objects,
    "evidence for rules": _evidence,
    "queues at zone->lock": _lock_queues,
    "start image": _start_image,
    "judging of choices": _judging,
}
EVENT_LOOPS = ("event loop", "event loop under pressure")


def compile_kernel(name: str) -> str:
    """Compile one group of kernels, or load what is on disk already; returns how it went.

    Nothing is collected meanwhile: that takes a sixth of the time, and saves 110 MB.
    """
    from pagealloc_model.base.jit import compilations

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


def main() -> None:
    """Compile all groups; then remove what is old."""
    from pagealloc_model.base.jit import cache_base

    begun = time.perf_counter()
    print("compiling kernels (a minute the first time)", file=sys.stderr, flush=True)
    compile_groups(KERNELS)
    remove_old_kernels(cache_base(), time.time())
    print(f"kernels ready after {time.perf_counter() - begun:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
