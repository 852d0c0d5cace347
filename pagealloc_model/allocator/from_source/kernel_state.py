"""A state of the model carried on by the kernel's own functions."""

from __future__ import annotations

import ctypes

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.extraction import Configuration
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.machine import Machine

ZONE_NAMES = ("DMA", "DMA32", "Normal", "HighMem", "Movable", "Device")
"""Zone types as the shim numbers them."""


def configuration_for(state: State) -> Configuration:
    """The configuration of a kernel for a state's machine and policy.

    Raises:
        UsageError: a machine that the shim has no configuration for.
    """
    machine, st = state.machine, state.st
    _check(machine)
    return Configuration(
        zone_types=machine.zone_types,
        pageblock_order=machine.pageblock_order,
        max_order=machine.max_order,
        thp=machine.thp,
        cma="CMA" in machine.migratetypes,
        isolation="Isolate" in machine.migratetypes,
        costly_order=int(st[at.POLICY_COSTLY_ORDER]) if st[at.POLICY_COSTLY_ORDER] != 3 else None,
        batch_scale_max=int(st[at.POLICY_PCP_BATCH_SCALE_MAX]),
        cpus=-(-machine.nr_cpus // 64) * 64,
    )


def _check(machine: Machine) -> None:
    strange = set(machine.zone_types) - set(ZONE_NAMES)
    if strange:
        raise UsageError(f"the kernel shim knows no zone type {', '.join(sorted(strange))}")


class KernelState:
    """What the compiled kernel holds; begins as a state, which it changes from then on.

    Scalars, counters and the log are written straight into that state's arrays; free lists, per-CPU
    lists, watermarks and block types live in the kernel's structures until `store`.

    Attributes:
        state: the state it began as; its `pages` are as `store` left them.
        configuration: what the kernel was compiled with.
        lines: int32, for each log row the line of mm/page_alloc.c that it comes from.
    """

    def __init__(self, tree: CompiledTree, state: State) -> None:
        """Compile what is needed and take over the state.

        Raises:
            KernelSourceError: the tree lacks functions or does not compile.
            UsageError: no compiler, or a machine that the shim has no configuration for.
        """
        self.state = state
        self.configuration = configuration_for(state)
        self.lines = np.zeros(len(state.log), np.int32)
        self._tree = tree
        self._library = tree.load(self.configuration)
        self._library.shim_broken_assertion.restype = ctypes.c_char_p
        self._library.shim_advance.restype = ctypes.c_long
        names = np.array([ZONE_NAMES.index(each) for each in state.machine.zone_types], np.int64)
        failed = self._library.shim_load(
            array_pointer(state.st),
            array_pointer(state.pages),
            array_pointer(state.blocks),
            ctypes.c_long(len(state.pages)),
            array_pointer(names),
        )
        if failed:
            raise MemoryError("not enough memory for the kernel's page structures")

    def advance(
        self, events: np.ndarray, places: np.ndarray, low: int, high: int, until_ns: int
    ) -> int:
        """As the model's `advance`: events[low:high], then ticks; the event to go on with."""
        return int(
            self._library.shim_advance(
                array_pointer(events),
                array_pointer(places),
                array_pointer(self.state.log),
                array_pointer(self.lines),
                ctypes.c_long(len(self.state.log)),
                ctypes.c_long(low),
                ctypes.c_long(high),
                ctypes.c_int64(until_ns),
            )
        )

    def store(self, *, pages: bool) -> State:
        """The state as it is now: counters and list lengths, and all free pages if asked for.

        Pages in use are not written: the model knows no more of them than where its objects are.
        """
        self._library.shim_store(
            array_pointer(self.state.pages) if pages else None, array_pointer(self.state.blocks)
        )
        return self.state

    def size_zones(self, policy: Policy) -> None:
        """Watermarks, reserves and limits of `state` as the tree's set-up makes them.

        Args:
            policy: `min_free_kbytes`, `watermark_scale_factor` and a `lowmem_reserve_ratio` for
                each zone type, all given, and `percpu_pagelist_high_fraction`, None for 0.
        """
        assert policy.min_free_kbytes is not None
        assert policy.watermark_scale_factor is not None
        assert policy.lowmem_reserve_ratio is not None
        ratios = np.array(policy.lowmem_reserve_ratio.split(), np.int64)
        self._library.shim_size_zones(
            ctypes.c_long(policy.min_free_kbytes),
            ctypes.c_long(policy.watermark_scale_factor),
            ctypes.c_long(policy.percpu_pagelist_high_fraction or 0),
            array_pointer(ratios),
        )

    def settle(self) -> None:
        """Counters, list lengths and block types of `state` as they are now."""
        self.store(pages=False)

    @property
    def broken_assertion(self) -> tuple[str, int] | None:
        """Condition and line of the first of the kernel's own assertions that failed."""
        line = ctypes.c_int()
        text = self._library.shim_broken_assertion(ctypes.byref(line))
        return None if text is None else (text.decode(), line.value)

    def close(self) -> None:
        """Give the kernel's memory back; nothing may be asked of it afterwards."""
        self._library.shim_unload()
        self._tree.give_back(self.configuration, self._library)


def array_pointer(array: np.ndarray) -> ctypes.c_void_p:
    """Where a contiguous array's data are."""
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)
