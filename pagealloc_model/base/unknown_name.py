"""What an error says of a name that is not known: the nearest ones, else all."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

NEAREST = 3


def known_names(name: str, known: Iterable[str], all_of_them: str) -> str:
    """Return the end of an error's line: a question with the nearest names, else all names.

    Args:
        name: as it was written.
        known: names that there are.
        all_of_them: what they are, as "fields".
    """
    known = tuple(known)
    near = get_close_matches(name, known, NEAREST)
    if not near:
        near = [each for each in known if each.rpartition(".")[2] == name]
    return f"did you mean {' or '.join(near)}?" if near else f"{all_of_them}: {', '.join(known)}"
