"""Measured tables: schema, what is NA, and sums that must hold on real recordings."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pagealloc_model.measured.measured import (
    REQUEST_CLASSES,
    Measured,
    block_types_table,
    measure,
    request_classes,
)
from pagealloc_model.recording.recording import Recording, open_recording
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Event, Trace
from tests import synthetic_perf_data as perf
from tests.event_text import EventText
from tests.measured.test_transactions_announced import DMA32, NORMAL, ZONES, Events
from tests.recording.proc.samples_of import DIRECTORY
from tests.synthetic_perf_data import Declared, Tracepoint

SCHEMA = {
    "free_pages": "time_ns node zone order migratetype buddies pages",
    "pageblocks": "time_ns node zone migratetype blocks",
    "pcp": "time_ns node zone cpu count high",
    "lock": "time_ns node zone site acquisitions objects pages hold_ns wait_ns max_hold_ns",
    "transactions": "node zone cpu site cause objects transactions",
    "transactions_full": "time_ns node zone cpu site cause objects pages order migratetype",
    "fallbacks": "alloc_migratetype fallback_migratetype alloc_order fallback_order kind count",
    "outcomes": "class order asked succeeded failed stalled reason",
    "folios": "class order asked at_once after_work failed reason",
    "folio_falls": "class order to count",
    "vmstat": "name time_ns value",
}
PAGE = 0x10000


def write_recording(directory: Path, text: EventText, release: str, **meta: object) -> Recording:
    """A recording of event text with one snapshot of a sample kernel."""
    directory.mkdir()
    text.lines.insert(0, f"# os release : {release}.1")
    (directory / "perf.data").write_bytes(gzip.compress("\n".join(text.lines).encode() + b"\n"))
    uname = ["Linux", "host", f"{release}.1", "#1", "x86_64"]
    (directory / "meta.json").write_text(json.dumps({"bundle_version": 1, "uname": uname, **meta}))
    shutil.copytree(DIRECTORY / release, directory / "snapshots" / "00000000001000000002")
    return open_recording(directory)


def busy() -> EventText:
    """A refill, an allocation that fails, fallbacks of all kinds and a drain."""
    text = EventText()
    text.locked(PAGE, PAGE + 1)
    text.alloc(PAGE)
    text.alloc(-1, order=9, gfp="GFP_TRANSHUGE", migratetype=1)
    text.fallback(PAGE + 512, found=9, owned=1)
    text.fallback(PAGE + 70, found=5, owned=1)
    text.fallback(PAGE + 90, found=0, owned=0)
    text.fallback(PAGE + 91, found=0, owned=0)
    text.free(PAGE)
    text.drained(PAGE)
    return text


def assert_schema(measured: Measured) -> None:
    for name, columns in SCHEMA.items():
        assert list(getattr(measured, name).columns) == columns.split(), name


@pytest.mark.parametrize("release", ["6.1", "6.12", "7.2"])
def test_every_table_has_its_columns(tmp_path: Path, release: str) -> None:
    measured = measure(write_recording(tmp_path / "run", busy(), release))
    assert_schema(measured)
    assert measured.boundaries == "inferred"
    assert any("no kprobes recorded" in note for note in measured.notes)


def test_a_bare_event_file_has_the_same_columns_and_says_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "events.txt"
    path.write_text("\n".join(busy().lines) + "\n")
    measured = measure(open_recording(path))
    assert_schema(measured)
    for name in ("free_pages", "pageblocks", "pcp", "vmstat"):
        assert not len(getattr(measured, name))
    assert measured.transactions_full["zone"].isna().all()
    assert any("no zoneinfo" in note for note in measured.notes)


def test_snapshot_tables_are_the_files(tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "run", busy(), "6.12")
    measured = measure(recording)
    types = recording.snapshots[0].pagetypeinfo
    assert types is not None
    free = measured.free_pages.query("zone == 'Normal' and migratetype == 'HighAtomic'")
    assert free["buddies"].tolist() == [20, 28, 24, 20, 14, 9, 7, 2, 1, 1, 0]
    assert (free["pages"] == free["buddies"] * 2 ** free["order"]).all()
    blocks = measured.pageblocks.query("zone == 'Normal'").set_index("migratetype")["blocks"]
    assert blocks["HighAtomic"] == 5
    lists = measured.pcp.query("zone == 'DMA32'")
    assert lists["count"].tolist() == [808, 48, 25, 13] and (lists["high"] == 2670).all()
    assert measured.vmstat["time_ns"].unique().tolist() == [1_000_000_002]


def test_a_lower_bound_is_not_a_value(tmp_path: Path) -> None:
    free = measure(write_recording(tmp_path / "run", busy(), "6.1")).free_pages
    unknown = free[free["buddies"].isna()]
    assert unknown[["node", "zone", "order", "migratetype"]].values.tolist() == [
        [0, "Normal", 0, "Movable"]
    ]
    assert unknown["pages"].isna().all()


def test_fallback_kinds(tmp_path: Path) -> None:
    table = measure(write_recording(tmp_path / "run", busy(), "6.12")).fallbacks
    assert table.set_index("kind")["count"].to_dict() == {"steal": 2, "claim": 1, "claim_block": 1}
    assert set(table["alloc_migratetype"]) == {"Unmovable"}
    assert set(table["fallback_migratetype"]) == {"Movable"}


def test_outcomes_count_calls(tmp_path: Path) -> None:
    text = busy()
    text.event("vmscan:mm_vmscan_direct_reclaim_begin", "order=0 gfp_flags=GFP_KERNEL")
    text.alloc(PAGE + 5, gfp="GFP_ATOMIC")
    text.alloc(PAGE + 6)
    text.alloc(PAGE + 7)
    table = measure(write_recording(tmp_path / "run", text, "6.12")).outcomes
    rows = {row["class"]: row for row in table.to_dict("records")}
    assert rows["thp"]["failed"] == 1 and rows["thp"]["succeeded"] == 0
    assert rows["kernel"]["asked"] == 3 and rows["kernel"]["stalled"] == 1
    assert rows["atomic"]["stalled"] == 0


def test_stalls_nobody_recorded_are_unknown(tmp_path: Path) -> None:
    table = measure(write_recording(tmp_path / "a", busy(), "6.12")).outcomes
    assert table["stalled"].isna().all() and (table["reason"] != "").all()
    perf = ["perf", "record", "-e", "vmscan:mm_vmscan_direct_reclaim_begin"]
    table = measure(write_recording(tmp_path / "b", busy(), "6.12", perf=perf)).outcomes
    assert (table["stalled"] == 0).all()


def test_lock_bins_add_up_and_times_are_unknown(tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "run", busy(), "6.12")
    measured = measure(recording, bin_ns=2_000)
    assert measured.lock["acquisitions"].sum() == len(measured.transactions_full)
    assert measured.lock["objects"].sum() == measured.transactions_full["objects"].sum()
    assert ((measured.lock["time_ns"] - measured.start_ns) % 2_000 == 0).all()
    assert measured.lock[["hold_ns", "wait_ns", "max_hold_ns"]].isna().all(axis=None)


def test_probes_that_never_fired_still_bound_transactions(tmp_path: Path) -> None:
    names = ["pa:pcp_bulk_alloc", "pa:pcp_bulk_alloc_ret", "pa:pcp_bulk_free"]
    measured = measure(write_recording(tmp_path / "run", busy(), "6.12", perf=names))
    assert measured.boundaries == "kprobes"
    assert "pa:free_one was not recorded: direct frees are left out" in measured.notes
    assert set(measured.transactions_full["site"]) == {"buddy_alloc"}


def test_drain_holds_follow_release_and_switch(tmp_path: Path) -> None:
    def drains(name: str, release: str, **sysctl: str) -> list[int]:
        text = EventText()
        text.free(PAGE)
        text.drained(*range(PAGE, PAGE + 100))
        full = measure(write_recording(tmp_path / name, text, release, sysctl=sysctl))
        return full.transactions_full.query("site == 'drain'")["objects"].tolist()

    assert drains("old", "6.12") == [100]
    assert drains("batched", "7.2") == [63, 37]
    assert drains("unbatched", "7.2", pcp_free_batched="0") == [100]


SUMMED = [
    pytest.param("kbuild", "shipped"),
    *(pytest.param(name, "full_recording", marks=pytest.mark.long) for name in ("xfree", "exit")),
]


@pytest.mark.parametrize(("name", "where"), SUMMED)
def test_every_page_that_crossed_the_lock_is_in_one_transaction(
    request: pytest.FixtureRequest, name: str, where: str
) -> None:
    recording = open_recording(request.getfixturevalue(where)(name))
    measured, trace = measure(recording), recording.trace
    full = measured.transactions_full
    by_site = full.groupby("site")["objects"].sum()
    drained = int(np.count_nonzero(trace.event == Event.PCPU_DRAIN))
    assert by_site["drain"] == pytest.approx(drained, rel=1e-3)
    removed = int(np.count_nonzero(trace.event == Event.ZONE_LOCKED))
    taken = by_site.get("refill", 0) + by_site.get("buddy_alloc", 0)
    assert removed <= taken <= removed + trace.count(Event.EXTFRAG)
    assert measured.transactions["transactions"].sum() == len(full)
    assert full["zone"].notna().all()


@pytest.mark.long
def test_inference_is_near_the_truth_where_both_exist(
    full_recording: Callable[[str], Path],
) -> None:
    recording = open_recording(full_recording("highatomic_stock"))
    truth = measure(recording)
    assert truth.boundaries == "kprobes"
    tables = {k: v for k, v in recording.trace.tables.items() if not k.startswith("pa:")}
    arguments = [word for word in recording.meta["perf"] if not word.startswith("pa:")]
    attributes = {f.name: getattr(recording, f.name) for f in fields(recording)}
    without = Recording(**(attributes | {"meta": {**recording.meta, "perf": arguments}}))
    without.__dict__["trace"] = replace(recording.trace, tables=tables)
    guess = measure(without)
    assert guess.boundaries == "inferred"
    for site in ("refill", "drain"):
        holds = [len(side.transactions_full.query(f"site == '{site}'")) for side in (truth, guess)]
        assert holds[1] == pytest.approx(holds[0], rel=0.03)


@pytest.mark.parametrize("probes", [(), ("pa:pcp_bulk_alloc", "pa:pcp_bulk_free")])
def test_no_events_make_empty_tables(tmp_path: Path, probes: tuple[str, ...]) -> None:
    perf = [*probes, "pa:pcp_bulk_alloc_ret", "pa:free_one"]
    recording = write_recording(tmp_path / "run", busy(), "6.12", perf=perf)
    none = np.zeros(0)
    recording.__dict__["trace"] = Trace(**dict.fromkeys(COLUMN_TYPES, none))
    measured = measure(recording)
    for name in ("transactions_full", "transactions", "lock", "fallbacks", "outcomes"):
        assert list(getattr(measured, name).columns) == SCHEMA[name].split()
        assert not len(getattr(measured, name))


# Changes of pageblocks' types from the kprobe, in hand-made perf.data


TYPES = ("Unmovable", "Movable", "Reclaimable", "HighAtomic")
BASE = 0xFFD4000000000000
MT: Declared = ("s32 mt", 4, True)
WORDS: dict[str, Declared] = {
    name: (f"u64 {name}", 8, False) for name in ("pfn", "mask", "page", "base")
}


def block_types(directory: Path, fields: str, *events: dict[str, int]) -> pd.DataFrame:
    point = Tracepoint("pa:block_type", 530, (MT, *(WORDS[name] for name in fields.split())))
    recorded = Events((perf.ALLOC, point))
    for values in events:
        recorded.add(point, **values)
    return block_types_table(recorded.trace(directory), ZONES, migratetypes=TYPES)


@pytest.mark.parametrize(
    ("fields", "events", "expected"),
    [
        # Bits of a block that are not its type's, as compaction sets them, are no change of type.
        (
            "pfn mask",
            [(3, DMA32, 7), (8, DMA32, 8), (9, NORMAL, 15)],
            [
                [1010, 0, "DMA32", 0, DMA32, "HighAtomic"],
                [1030, 0, "Normal", 0, NORMAL, "Movable"],
            ],
        ),
        # A page has a frame number where vmemmap begins; an anonymised recording has lost it.
        (
            "page base",
            [(0, BASE + 64 * NORMAL, BASE)],
            [[1010, 0, "Normal", 0, NORMAL, "Unmovable"]],
        ),
        ("page", [(6, BASE + 64 * NORMAL)], None),
        ("page base", [(6, 0xFFFF888000000050, 0xFFFF888000000010)], None),
    ],
)
def test_a_block_is_where_the_kernel_says(
    tmp_path: Path, fields: str, events: list[tuple[int, ...]], expected: list[list[object]] | None
) -> None:
    names = ("mt", *fields.split())
    rows = (dict(zip(names, values, strict=True)) for values in events)
    table = block_types(tmp_path, fields, *rows)
    if expected is not None:
        assert table.values.tolist() == expected
        return
    assert table[["node", "zone", "pfn", "migratetype"]].isna().all(axis=None)
    assert table["time_ns"].tolist() == [1010]


def test_no_probe_no_changes(tmp_path: Path) -> None:
    recorded = Events((perf.ALLOC,))
    recorded.alloc(DMA32)
    table = block_types_table(recorded.trace(tmp_path), ZONES, migratetypes=TYPES)
    assert table.empty and list(table) == ["time_ns", "node", "zone", "cpu", "pfn", "migratetype"]


# Classes of requests by gfp word


@pytest.mark.parametrize(
    ("gfp", "order", "expected"),
    [
        (0x1C24CA, 9, "thp"),
        (0x1C20CA, 9, "thp"),
        (0x1C24CA, 4, "movable"),
        (0x820, 0, "atomic"),
        (0x2800, 3, "nowait"),
        (0x100CCA, 0, "movable"),
        (0xCD0, 0, "reclaimable"),
        (0xCE0, 0, "kernel"),
        (0xCC0, 2, "kernel"),
    ],
)
def test_class(gfp: int, order: int, expected: str) -> None:
    code = request_classes(np.array([gfp], np.uint32), np.array([order]), bits={})
    assert REQUEST_CLASSES[code[0]] == expected
