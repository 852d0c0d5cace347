"""An elastic replay of a kernel's own code: its pages shared with the model's reclaim."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numba
import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import pressure_layout as pr
from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.from_source.asked_kernel import advance_asking
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.kernel_state import KernelState, array_pointer
from pagealloc_model.base.errors import UsageError


class PressedKernelState(KernelState):
    """What the compiled kernel holds, beside what the model's reclaim and compaction hold.

    `state.pages` says of every page whether it is free, of which order, or in use, and links the
    pages in use; links of free pages, and pages of per-CPU lists, are the kernel's alone until
    `close`.
    """

    def __init__(self, tree: CompiledTree, state: State, leads: np.ndarray) -> None:
        """Compile what is needed and take over the state.

        Args:
            tree: the kernel's.
            state: an elastic replay's; changed from now on.
            leads: int32 by object: the failure it came in place of.

        Raises:
            KernelSourceError: the tree lacks functions or does not compile.
            UsageError: no compiler, a machine that the shim has no configuration for, or numba
                switched off.
        """
        if numba.config.DISABLE_JIT:
            raise UsageError("an elastic replay by a kernel build needs numba's compiler")
        super().__init__(tree, replace(state, st=np.append(state.st, 0)))
        self._leads = leads
        state = self.state
        state.pages["where"][state.pages["where"] == at.ON_PCP] = at.NOWHERE
        state.st[-1] = ctypes.cast(self._library.shim_ask, ctypes.c_void_p).value
        self._library.shim_share(
            array_pointer(state.pages),
            array_pointer(state.log),
            array_pointer(self.lines),
            ctypes.c_long(len(state.log)),
        )

    def advance(
        self, events: np.ndarray, places: np.ndarray, low: int, high: int, until_ns: int
    ) -> int:
        """As `elastic.advance_elastic`, with the kernel's allocator."""
        arrays = self.state.arrays(places)
        return int(advance_asking()(arrays, events, self._leads, low, high, until_ns))

    def whole(self) -> State:
        """A copy of the state as it is: pages in use as the model has them, others the kernel's."""
        free = np.zeros_like(self.state.pages)
        self._library.shim_store(array_pointer(free), array_pointer(self.state.blocks))
        state = self.state.copy()
        is_in_use = np.isin(state.pages["where"], (at.ALLOCATED, pr.HELD))
        state.pages[~is_in_use] = free[~is_in_use]
        return state

    def close(self) -> None:
        """Write all pages into the state and give the kernel's memory back."""
        self.state.pages[:] = self.whole().pages
        super().close()
