"""Carriers of a state through events: the model's kernels, or an engine's code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pagealloc_model.allocator.events import advance

if TYPE_CHECKING:
    from typing import Self

    import numpy as np

    from pagealloc_model.allocator.hooks import Hooks
    from pagealloc_model.allocator.state import State
    from pagealloc_model.policy.kernel_rules import KernelRules
    from pagealloc_model.policy.policy import Policy


class Carrier(Protocol):
    """Something that takes events and keeps a state.

    Attributes:
        state: scalars and log are always up to date, the rest after `settle`.
    """

    state: State

    def advance(
        self, events: np.ndarray, places: np.ndarray, low: int, high: int, until_ns: int
    ) -> int:
        """As `allocator.events.advance`."""

    def settle(self) -> None:
        """Bring counters, list lengths and block types of the state up to date."""

    def close(self) -> None:
        """Give back what is not the state's."""


class Engine(ABC):
    """Code that takes the model's place in `replay`; who writes one derives it from this.

    Attributes:
        policy: settings of that code.
    """

    policy: Policy

    @property
    @abstractmethod
    def name(self) -> str:
        """How results name it."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Digest of what decides a replay by it, for caches of results."""

    @property
    @abstractmethod
    def rules(self) -> KernelRules | None:
        """Rules for what is made before its code runs; None for those of the recorded kernel."""

    @abstractmethod
    def under(self, policy: Policy) -> Self:
        """The same code with settings changed; PolicyError of one that the code itself decides."""

    @abstractmethod
    def carrier(self, state: State, leads: np.ndarray | None = None) -> Carrier:
        """The code, about to carry on a state; `leads` as `ModelCarrier` takes them."""

    @abstractmethod
    def not_covered(self, *, elastic: bool) -> tuple[str, ...]:
        """What a replay by it leaves to the model."""


class ModelCarrier:
    """The model's kernels, or kernels with hooks."""

    def __init__(
        self, state: State, leads: np.ndarray | None = None, hooks: Hooks | None = None
    ) -> None:
        """Take a state over.

        Args:
            state: changed from now on.
            leads: of an elastic replay, int32 by object: the failure it came in place of. With
                them the model reclaims and compacts.
            hooks: functions in place of decisions.
        """
        self.state, self._leads = state, leads
        self._advance: Callable[..., int] = advance
        if leads is not None:
            from pagealloc_model.allocator.events import advance_elastic

            self._advance = advance_elastic
        if hooks is not None:
            from pagealloc_model.allocator.hooks import ELASTIC_LOOP, LITERAL_LOOP, advance_with

            self._advance = advance_with(hooks, LITERAL_LOOP if leads is None else ELASTIC_LOOP)

    def advance(
        self, events: np.ndarray, places: np.ndarray, low: int, high: int, until_ns: int
    ) -> int:
        """As `allocator.events.advance`."""
        arrays, leads = self.state.arrays(places), self._leads
        if leads is None:
            return self._advance(arrays, events, low, high, until_ns)
        return int(self._advance(arrays, events, leads, low, high, until_ns))

    def settle(self) -> None:
        """Nothing to do: the arrays are the state."""

    def close(self) -> None:
        """Nothing to do."""
