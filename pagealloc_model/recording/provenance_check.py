"""One thing that a conclusion rests on, and how far it can be relied on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

USABLE, DOUBT, REFUSED = "usable", "usable with doubt", "refused"
LEVELS = (USABLE, DOUBT, REFUSED)


@dataclass(frozen=True, kw_only=True)
class ProvenanceCheck:
    """What was checked and what came of it.

    Attributes:
        check: its name.
        level: "usable", "usable with doubt" or "refused".
        found: what the recording shows.
        todo: what to do about it, "" if there is nothing to do.
    """

    check: str
    level: str
    found: str
    todo: str = ""

    def to_dict(self) -> dict[str, str]:
        """As `info --json` prints it."""
        todo = {"todo": self.todo} if self.todo else {}
        return {"check": self.check, "level": self.level, "found": self.found, **todo}

    def __str__(self) -> str:
        """One line."""
        return f"{self.check}: {self.found}" + (f"; {self.todo}" if self.todo else "")


def worst(checks: Sequence[ProvenanceCheck]) -> str:
    """Return the level of all checks together."""
    return max((each.level for each in checks), key=LEVELS.index, default=USABLE)


def believed_words(checks: Sequence[ProvenanceCheck]) -> str:
    """Return one line: whether a recording can be believed, and what speaks against it."""
    odd = [each for each in checks if each.level != USABLE]
    if not odd:
        return f"can be believed: all {len(checks)} checks passed"
    names = ", ".join(each.check for each in odd)
    if worst(odd) == REFUSED:
        return f"cannot be believed: {names}; pagealloc info says why"
    return f"can be believed with doubt: {names}; pagealloc info says why"
