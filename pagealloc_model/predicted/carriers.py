"""Who carries a state through events: the model's kernels, or a kernel's own compiled code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from pagealloc_model.allocator.core.replay import advance
from pagealloc_model.allocator.core.state import State

if TYPE_CHECKING:
    from pagealloc_model.allocator.hooks import Hooks


class Carrier(Protocol):
    """Something that takes events and keeps a state.

    Attributes:
        state: scalars and log are always up to date, the rest after `settle`.
    """

    state: State

    def advance(
        self, events: np.ndarray, places: np.ndarray, low: int, high: int, until_ns: int
    ) -> int:
        """As `allocator.replay.advance`."""

    def settle(self) -> None:
        """Bring counters, list lengths and block types of the state up to date."""

    def close(self) -> None:
        """Give back what is not the state's."""


class ElasticCarrier:
    """The model's kernels with its own reclaim and compaction, or such kernels with hooks."""

    def __init__(self, state: State, leads: np.ndarray, hooks: Hooks | None = None) -> None:
        """Take a state over.

        Args:
            state: an elastic replay's; changed from now on.
            leads: int32 by object: the failure it came in place of.
            hooks: functions in place of decisions.
        """
        from pagealloc_model.allocator.hooks import advance_elastic_with
        from pagealloc_model.allocator.pressure.elastic import advance_elastic

        self.state = state
        self._leads = leads
        self._advance = advance_elastic if hooks is None else advance_elastic_with(hooks)

    def advance(
        self, events: np.ndarray, places: np.ndarray, low: int, high: int, until_ns: int
    ) -> int:
        """As `allocator.replay.advance`, with kswapd and kcompactd at work."""
        state = self.state
        return int(self._advance(state.arrays(places), events, self._leads, low, high, until_ns))

    def settle(self) -> None:
        """Nothing to do: the arrays are the state."""

    def close(self) -> None:
        """Nothing to do."""


class ModelCarrier:
    """The model's kernels, or kernels with hooks."""

    def __init__(self, state: State, hooks: Hooks | None = None) -> None:
        """Take a state over.

        Args:
            state: changed from now on.
            hooks: functions in place of decisions.
        """
        self.state = state
        self._advance = advance
        if hooks is not None:
            from pagealloc_model.allocator.hooks import advance_with

            self._advance = advance_with(hooks)

    def advance(
        self, events: np.ndarray, places: np.ndarray, low: int, high: int, until_ns: int
    ) -> int:
        """As `allocator.replay.advance`."""
        state = self.state
        return self._advance(state.arrays(places), events, low, high, until_ns)

    def settle(self) -> None:
        """Nothing to do: the arrays are the state."""

    def close(self) -> None:
        """Nothing to do."""
