"""/proc/buddyinfo."""

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.proc.counts import parse_buddyinfo, parse_pagetypeinfo
from tests.recording.proc.samples_of import RELEASES, sample


@pytest.mark.parametrize("release", RELEASES)
def test_sums_agree_with_pagetypeinfo_of_the_same_moment(release: str) -> None:
    buddies = parse_buddyinfo(sample(release, "buddyinfo"))
    types = parse_pagetypeinfo(sample(release, "pagetypeinfo"))
    for zone in buddies.zones:
        rows = [r for r in types.free_lists if (r.node, r.zone) == (zone.node, zone.zone)]
        by_type = sum(n << order for row in rows for order, n in enumerate(row.buddies))
        assert by_type == pytest.approx(zone.free_pages, rel=0.01)


def test_counts_by_order() -> None:
    dma32 = parse_buddyinfo(sample("6.18", "buddyinfo")).zones[1]
    assert (dma32.node, dma32.zone) == (0, "DMA32")
    assert dma32.free_buddies == (2, 3, 4, 2, 5, 4, 3, 4, 5, 3, 751)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no zone found"),
        ("Node 0, zone DMA\n", "line 1: has 0 orders"),
        ("Node 0, zone DMA 1 2\nNode 0, zone Normal 1\n", "line 2: has 1 orders"),
        ("Node 0, zone DMA 1 x\n", "'x' is not a count"),
        ("Node 0, zone DMA 1 2147483649\n", "more than memory can have"),
        ("Node 0, zone DMA 1\nNode 0, zone DMA 2\n", "line 2: zone DMA of node 0 appears a second"),
        ("hello\n", "is not a 'Node N, zone NAME ...' row"),
    ],
)
def test_odd_text_is_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        parse_buddyinfo(text)
