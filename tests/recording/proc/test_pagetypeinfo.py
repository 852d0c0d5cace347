"""/proc/pagetypeinfo."""

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.proc.counts import parse_pagetypeinfo
from tests.recording.proc.samples_of import RELEASES, sample


@pytest.mark.parametrize("release", RELEASES)
def test_all_rows_are_read(release: str) -> None:
    text = sample(release, "pagetypeinfo")
    info = parse_pagetypeinfo(text)
    assert (info.pageblock_order, info.pages_per_block) == (9, 512)
    assert len(info.free_lists) == text.count(", type ")
    assert len(info.free_lists) == len(info.pageblocks) * len(info.migratetypes)


def test_labels_are_the_kernels_numbering() -> None:
    assert parse_pagetypeinfo(sample("6.12", "pagetypeinfo")).migratetypes == (
        "Unmovable",
        "Movable",
        "Reclaimable",
        "HighAtomic",
    )
    assert parse_pagetypeinfo(sample("6.1", "pagetypeinfo")).migratetypes[4:] == ("CMA", "Isolate")


def test_block_counts() -> None:
    info = parse_pagetypeinfo(sample("6.12", "pagetypeinfo"))
    normal = info.pageblocks[1]
    assert (normal.zone, normal.blocks) == ("Normal", (14, 493, 0, 5))
    assert info.mixed_pageblocks == ()
    assert info.is_exact


def test_several_nodes_lower_bounds_and_mixed_blocks() -> None:
    info = parse_pagetypeinfo(sample("6.1", "pagetypeinfo"))
    assert {row.node for row in info.free_lists} == {0, 1}
    cut = [row for row in info.free_lists if any(row.lower_bound)]
    assert [(row.node, row.zone, row.migratetype) for row in cut] == [(0, "Normal", "Movable")]
    assert cut[0].buddies[0] == 100000 and cut[0].lower_bound == (True, *[False] * 10)
    assert not info.is_exact
    assert [row.blocks for row in info.mixed_pageblocks] == [(1, 20, 3, 0, 0, 0)] * 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Page block order: 9\n", "", "ends without 'Page block order:'"),
        ("Page block order: 9", "Page block order: nine", "'nine' is not a count"),
        ("type    Unmovable     49", "type    Unmovable", "line 5: has 10 counts for 11 orders"),
        ("DMA32           11 ", "DMA32 ", "line 15: has 3 counts for 4 migratetypes"),
        (", type   HighAtomic", ", type       Purple", "counts no blocks of type Purple"),
        ("Free pages count", "Pages count", "is neither a header nor a zone's row"),
        ("type    Unmovable     49", "type    Unmovable 2147483649", "more than memory can have"),
        (", type   HighAtomic", ", type      Movable", "is a row that was there before"),
    ],
)
def test_odd_text_is_one_clear_error(old: str, new: str, message: str) -> None:
    text = sample("6.12", "pagetypeinfo")
    assert old in text
    with pytest.raises(RecordingError, match=message):
        parse_pagetypeinfo(text.replace(old, new, 1))


def test_text_cut_before_the_block_counts_is_refused() -> None:
    text = sample("7.2", "pagetypeinfo")
    with pytest.raises(RecordingError, match="ends without free lists and block counts"):
        parse_pagetypeinfo(text[: text.index("Number of blocks")])
