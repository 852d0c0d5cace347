"""Counts with their nouns: "1 event", "2 events"."""

from __future__ import annotations


def count_of(count: int, one: str, more: str = "") -> str:
    """Return a count and what is counted, in singular or plural.

    Args:
        count: a whole number; thousands are set apart by commas.
        one: words for one of them.
        more: words for any other count; by default the same with an "s".
    """
    return f"{count:,} {one if count == 1 else more or one + 's'}"
