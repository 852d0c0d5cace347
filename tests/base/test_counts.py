"""Counts with their nouns, and that texts take them from there."""

from __future__ import annotations

import pytest

from pagealloc_model.base.text import count_of


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (count_of(0, "event"), "0 events"),
        (count_of(1, "event"), "1 event"),
        (count_of(12345, "event"), "12,345 events"),
        (count_of(1, "miss", "misses"), "1 miss"),
        (count_of(2, "miss", "misses"), "2 misses"),
        (count_of(1, "event was", "events were"), "1 event was"),
    ],
)
def test_nouns_agree_with_their_counts(words: str, said: str) -> None:
    assert words == said
