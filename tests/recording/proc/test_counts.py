"""Files of counts: buddyinfo, pagetypeinfo, vmstat, read times, kallsyms."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.proc.counts import (
    format_read_times,
    parse_buddyinfo,
    parse_pagetypeinfo,
    parse_read_times,
    parse_vmstat,
    read_kallsyms,
)
from tests.recording.proc.samples_of import RELEASES, sample
from tests.recording.proc.test_state_files import (
    LISTED,
    READ_TIMES,
    START,
    TEXT,
)


@pytest.mark.parametrize("release", RELEASES)
def test_sums_of_buddyinfo_and_pagetypeinfo_agree(release: str) -> None:
    buddies = parse_buddyinfo(sample(release, "buddyinfo"))
    types = parse_pagetypeinfo(sample(release, "pagetypeinfo"))
    for zone in buddies.zones:
        rows = [r for r in types.free_lists if (r.node, r.zone) == (zone.node, zone.zone)]
        by_type = sum(n << order for row in rows for order, n in enumerate(row.buddies))
        assert by_type == pytest.approx(zone.free_pages, rel=0.01)


@pytest.mark.parametrize("release", RELEASES)
def test_all_rows_of_pagetypeinfo_are_read(release: str) -> None:
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


def test_several_nodes_lower_bounds_and_mixed_blocks() -> None:
    info = parse_pagetypeinfo(sample("6.1", "pagetypeinfo"))
    assert {row.node for row in info.free_lists} == {0, 1}
    cut = [row for row in info.free_lists if any(row.lower_bound)]
    assert [(row.node, row.zone, row.migratetype) for row in cut] == [(0, "Normal", "Movable")]
    assert cut[0].buddies[0] == 100000 and cut[0].lower_bound == (True, *[False] * 10)
    assert not info.is_exact


@pytest.mark.parametrize("release", RELEASES)
def test_every_line_of_vmstat_is_one_counter(release: str) -> None:
    text = sample(release, "vmstat")
    stat = parse_vmstat(text)
    assert len(stat.values) == len(text.splitlines())
    assert stat.get("nr_free_pages") and stat.get("pgfree")


def test_times_that_are_written_are_read() -> None:
    times = {"buddyinfo": (5, 9), "zoneinfo": (9, 12)}
    assert parse_read_times(format_read_times(times), READ_TIMES) == times
    assert parse_read_times("{}", READ_TIMES) == {}


def test_names_of_addresses(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    symbols = read_kallsyms(path)
    assert symbols is not None
    assert symbols.name_at(START) == symbols.name_at(START + 255) == "rmqueue_bulk"
    assert symbols.name_at(START + 256) == "_raw_spin_lock"
    assert symbols.name_at(START - 1) == f"{START - 1:#x}"
    assert symbols.name_at(START + (1 << 23)) == f"{START + (1 << 23):#x}"
    assert symbols.name_at(START + (1 << 24)) == "far"


def test_hidden_addresses_and_other_text(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_text("0000000000000000 T _text\n0000000000000000 t vmstat_update\n")
    assert read_kallsyms(path) is None
    path.write_text(f"{LISTED}no symbol\n")
    with pytest.raises(RecordingError, match="line 6: no address, type and name"):
        read_kallsyms(path)
