"""What was derived from a value, kept as long as the value lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any


class Memo:
    """A base of values that keep what was derived from them, each result under a key.

    A key begins with the name of what finds the result. A result must not refer to the value:
    both would then live until Python collects cycles.
    """

    @cached_property
    def memo(self) -> dict[Hashable, Any]:
        """The results by key."""
        return {}

    def remembered(self, key: Hashable, find: Callable[[], Any]) -> Any:
        """The result under a key, found when it is first asked for."""
        if key not in self.memo:
            self.memo[key] = find()
        return self.memo[key]
