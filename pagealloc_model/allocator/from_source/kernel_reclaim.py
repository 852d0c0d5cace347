"""A state of the model whose reclaim the kernel's own functions carry on."""

from __future__ import annotations

import ctypes

import numpy as np

from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.kernel_state import KernelState, array_pointer


class KernelReclaim(KernelState):
    """What the compiled kernel holds, with LRU lists and a kswapd for each node.

    Each kswapd is a context of its own that runs the tree's `kswapd()` until it sleeps.
    """

    def __init__(self, tree: CompiledTree, state: State) -> None:
        """Compile what is needed and take over an elastic state.

        Args:
            tree: compiled as the part `RECLAIM`.
            state: an elastic one whose kswapds sleep.

        Raises:
            KernelSourceError: the tree lacks functions or does not compile.
            UsageError: no compiler, or a machine that the shim has no configuration for.
            MemoryError: not enough memory for the kernel's structures.
        """
        super().__init__(tree, state)
        if self._library.shim_load_reclaim(array_pointer(state.pages), array_pointer(state.folios)):
            raise MemoryError("not enough memory for the kernel's page structures")

    def take(self, operations: np.ndarray, answers: np.ndarray, low: int, high: int) -> None:
        """As the model's `take_reclaim_operations`."""
        self._library.shim_reclaim(
            array_pointer(operations),
            array_pointer(answers),
            array_pointer(self.state.log),
            array_pointer(self.lines),
            ctypes.c_long(len(self.state.log)),
            ctypes.c_long(low),
            ctypes.c_long(high),
        )

    def store(self, *, pages: bool) -> State:
        """The state as it is now; if pages are asked for, LRU lists and counters too."""
        state = super().store(pages=pages)
        if pages:
            self._library.shim_store_reclaim(array_pointer(state.pages))
        return state

    def close(self) -> None:
        """Give the kernel's memory back; nothing may be asked of it afterwards."""
        self._library.shim_unload_reclaim()
        super().close()
