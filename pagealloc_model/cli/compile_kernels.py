"""Compile every kernel once, with progress: `python -m pagealloc_model.cli.compile_kernels`.

What is compiled stays on disk until a kernel's source changes, so a second run takes seconds. What
other versions of the sources left more than KEPT_DAYS ago is removed.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagealloc_model.allocator.core.state import State

KEPT_DAYS = 30
KERNELS_OF_ONE_VERSION = "kernels-" + 16 * "[0-9a-f]"
"""Names of such directories, as `jit.cache_directory` makes them; nothing else is removed."""


def _event_loop() -> None:
    import numpy as np

    from pagealloc_model.allocator.core import layout as at
    from pagealloc_model.allocator.core.replay import advance

    state = _small_state()
    events, places = np.zeros(0, at.EVENT), np.zeros(0, np.int32)
    advance(state.pages, state.blocks, state.st, state.log, events, places, 0, 0, -1)


def _start_image() -> None:
    import numpy as np

    from pagealloc_model.allocator.core.initial import LISTED, place_buddies, place_listed

    state = _small_state()
    nothing = np.zeros(0, np.int32)
    place_buddies(state.pages, state.blocks, state.st, nothing, np.zeros(0, np.int8))
    place_listed(state.pages, state.blocks, state.st, np.zeros(0, LISTED))


def _objects() -> None:
    import numpy as np

    from pagealloc_model.allocator.core import layout as at
    from pagealloc_model.allocator.core import objects as resolved

    resolved.resolve_objects(
        np.zeros(0, resolved.ROW),
        0,
        0,
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
        np.zeros(0, at.EVENT),
        np.zeros(0, resolved.OBJECT),
        np.zeros(resolved.COUNTS, np.int64),
    )


def _judging() -> None:
    from pagealloc_model.recording.recording import open_recording
    from pagealloc_model.verdict.choices.placement import judge_placement

    judge_placement(open_recording("xfree"))


def _reader() -> None:
    from pagealloc_model.recording.recording import open_recording

    len(open_recording("xfree").trace)


def _small_state() -> State:
    from pagealloc_model.allocator.core.state import make_state
    from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
    from pagealloc_model.recording.machine import Machine, Zone

    zone = Zone(
        name="Normal", start_pfn=0, spanned=4096, present=4096, managed=4096, min=8, low=10, high=12
    )
    machine = Machine(zones=(zone,), nr_cpus=1)
    return make_state(machine, KernelRules.preset(preset_names()[-1]))


def _lock_queues() -> None:
    import numpy as np

    from pagealloc_model.allocator.core import layout as at
    from pagealloc_model.predicted.locks.lock_timing import LockModel, queued

    queued(np.zeros((1, at.LOG_COLUMNS), np.int64), _small_state().machine, LockModel())


def _elastic_loop() -> None:
    import numpy as np

    from pagealloc_model.allocator.core import chains
    from pagealloc_model.allocator.core import layout as at
    from pagealloc_model.allocator.pressure import lru_start
    from pagealloc_model.allocator.pressure.elastic import advance_elastic
    from pagealloc_model.allocator.pressure.pressure_state import with_pressure
    from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
    from pagealloc_model.policy.policy import Assumptions, Policy

    rules = KernelRules.preset(preset_names()[-1])
    state = with_pressure(_small_state(), rules, Policy(), Assumptions())
    arrays = (state.pages, state.blocks, state.st)
    nothing = np.zeros(0, np.int32)
    events = np.zeros(0, at.EVENT)
    advance_elastic(*arrays, state.log, state.folios, events, nothing, nothing, 0, 0, -1)
    lru_start.place_on_lists(*arrays, state.folios, nothing, np.zeros(0, np.int8))
    chains.link_chains(np.zeros(0, chains.REQUEST), nothing)


KERNELS: dict[str, Callable[[], None]] = {
    "event loop": _event_loop,
    "event loop under pressure": _elastic_loop,
    "reading perf.data": _reader,
    "matching frees to allocations": _objects,
    "start image": _start_image,
    "judging of choices": _judging,
    "queues at zone->lock": _lock_queues,
}


def compile_kernel(name: str) -> float:
    """Compile one group of kernels, or load it if it is on disk already; returns seconds."""
    begun = time.perf_counter()
    KERNELS[name]()
    return time.perf_counter() - begun


def remove_old_kernels(current: Path, now_s: float) -> list[Path]:
    """Remove what other versions of the kernels left beside the current one's directory.

    Args:
        current: directory of this version's kernels.
        now_s: time of day, s since the epoch; directories written KEPT_DAYS before it go.
    """
    old = [
        kept
        for kept in current.parent.glob(KERNELS_OF_ONE_VERSION)
        if kept != current and now_s - kept.stat().st_mtime > KEPT_DAYS * 86400
    ]
    for kept in old:
        shutil.rmtree(kept, ignore_errors=True)
    return old


def main() -> None:
    """Compile all groups, two at a time, saying which is done."""
    from pagealloc_model.base.jit import cache_directory

    begun = time.perf_counter()
    print("compiling kernels (about a minute the first time)", file=sys.stderr, flush=True)
    with ProcessPoolExecutor(max_workers=2) as pool:
        running = {pool.submit(compile_kernel, name): name for name in KERNELS}
        for done in as_completed(running):
            print(f"  {running[done]}: {done.result():.1f} s", file=sys.stderr, flush=True)
    remove_old_kernels(cache_directory(), time.time())
    print(f"kernels ready after {time.perf_counter() - begun:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
