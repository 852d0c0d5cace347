"""Counts with their nouns, and that texts take them from there."""

from __future__ import annotations

import pytest

from pagealloc_model.base.text.counts import counted


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (counted(0, "event"), "0 events"),
        (counted(1, "event"), "1 event"),
        (counted(12345, "event"), "12,345 events"),
        (counted(1, "miss", "misses"), "1 miss"),
        (counted(2, "miss", "misses"), "2 misses"),
        (counted(1, "event was", "events were"), "1 event was"),
    ],
)
def test_nouns_agree_with_their_counts(words: str, said: str) -> None:
    assert words == said
