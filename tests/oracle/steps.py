"""What happens to an allocator, one step at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.oracle.literal import Pages
from tests.oracle.page_alloc import Allocator


class Step(NamedTuple):
    """A call of one of an oracle's methods."""

    call: str  # name of the method
    words: dict[str, Any]  # its arguments by name

    @property
    def cpu(self) -> int:
        """The CPU that acts, 0 where the step says nothing."""
        actor = self.words.get("request")
        return self.words.get("by", self.words.get("cpu", 0)) if actor is None else actor.cpu


def step(call: str, **words: Any) -> Step:
    return Step(call, words)


def take_step(oracle: Allocator, taken: Step) -> tuple[Pages, ...]:
    """Take a step on an oracle; the pages of each object that it is given."""
    given = getattr(oracle, taken.call)(**taken.words)
    if taken.call == "alloc":
        return () if given is None else (((given, taken.words["request"].order),),)
    if taken.call == "isolate":
        return tuple(piece for piece in given if piece)
    return (given,) if given else ()
