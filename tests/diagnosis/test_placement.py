"""Single choices judged from the true state before each, and what that state rests on."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import CorruptStateError
from pagealloc_model.diagnosis import placement
from pagealloc_model.diagnosis.judging import CHOICES
from pagealloc_model.diagnosis.placement import Placement
from tests.allocator.faults import module_source
from tests.judged_shares import shares
from tests.oracle_recording import record
from tests.small_recordings import (
    NORMAL,
    EventText,
    TimedEvents,
    shipped_recording,
    write_recording,
)

FIRST = 1024
"""A page frame at a pageblock's start, far from others."""


def judged(directory: Path, events: EventText) -> Placement:
    """Judge events that come without any state file."""
    recording = write_recording(directory / "recording", events, snapshots=False, page_flags=False)
    return pm.open(recording).judge_choices()


def outcome(placement: Placement, choice: str, scope: str = "all") -> tuple[int, int, int]:
    """Judged, hits and unjudged."""
    table = placement.choices
    row = table[(table["choice"] == choice) & (table["scope"] == scope)].iloc[0]
    return int(row.judged), int(row.hits), int(row.unjudged)


def missed(placement: Placement, choice: str) -> list[tuple[int, int]]:
    """Predicted and actual of each miss."""
    misses = placement.misses[placement.misses["choice"] == choice]
    return [(int(row.predicted), int(row.actual)) for row in misses.itertuples()]


REFILL = "locked 0 1 2 3 4 5 6 7, alloc 0"
"""A refill of eight pages, of which the first is allocated."""
BUDDY = "free 0/4, locked 0:1, alloc 0:1"
"""A buddy of 16 pages that events show to be free, and one page taken from it."""
ALL_OUT = "alloc 1, alloc 2, alloc 3, alloc 4, alloc 5, alloc 6, alloc 7"
FOUR_BACK = f"{REFILL}, {ALL_OUT}, free 0, free 1, free 2, free 3"
MISSED_REFILL = f"{REFILL}, locked 64 65, alloc 64, {ALL_OUT}"


def events_of(text: str) -> TimedEvents:
    """Events as words, pages counted from `FIRST`: /order, :migratetype."""
    events = TimedEvents()
    for word in text.split(", "):
        name, *pages = word.split()
        kinds = [re.split("[:/]", page)[1:] for page in pages]
        more: dict[str, Any] = {"order": int(kinds[0][0])} if kinds[0] and "/" in word else {}
        if kinds[0] and ":" in word:
            more = {"migratetype": int(kinds[0][0])}
            if name == "alloc":
                more["gfp"] = "GFP_HIGHUSER_MOVABLE"
        frames = [FIRST + int(re.split("[:/]", page)[0]) for page in pages]
        getattr(events, name)(*frames, **more)
    return events


@pytest.mark.parametrize(
    ("text", "choice", "counts"),
    [
        # Refilled pages go in order, and freed ones come back first.
        (f"{REFILL}, alloc 1, free 0, alloc 0, alloc 2", "pcp_pop", (4, 4, 0)),
        # Pages on a list since the start are not judged.
        ("alloc 0, alloc 1, alloc 2, alloc 3", "pcp_pop", (0, 0, 4)),
        # A batch enters the list page by page after all its frees.
        (
            f"{REFILL}, alloc 1, free 0, free 1, batched 0, batched 1, alloc 1, alloc 0",
            "pcp_pop",
            (4, 4, 0),
        ),
        # No size is judged where no snapshot shows the limits.
        (
            "locked 0/3, locked 8/3, alloc 0/3, alloc 8/3, "
            "locked 256/3, locked 264/3, alloc 256/3, alloc 264/3",
            "refill_size",
            (0, 0, 2),
        ),
        # A buddy is cut at its low end, then the page beside it goes.
        (f"{BUDDY}, locked 1:1 2:1, alloc 1:1", "buddy_pfn", (3, 3, 0)),
        ("locked 0 9, alloc 0", "buddy_pfn", (0, 0, 2)),
        # The coldest pages are drained first.
        (f"{FOUR_BACK}, drained 0 1 2", "drain_page", (3, 3, 0)),
    ],
)
def test_choices_from_a_known_state_are_hits_and_others_are_not_judged(
    text: str, choice: str, counts: tuple[int, int, int], tmp_path: Path
) -> None:
    assert outcome(judged(tmp_path, events_of(text)), choice) == counts


@pytest.mark.parametrize(
    ("text", "choice", "misses"),
    [
        (f"{REFILL}, alloc 2, alloc 1", "pcp_pop", [(FIRST + 1, FIRST + 2)]),
        (MISSED_REFILL, "refill_when", [(0, 2)]),
        (f"{BUDDY}, locked 8:1, alloc 8:1", "buddy_pfn", [(FIRST + 1, FIRST + 8)]),
        (f"{FOUR_BACK}, drained 1 0 2", "drain_page", [(FIRST, FIRST + 1)]),
    ],
)
def test_another_choice_is_a_miss(
    text: str, choice: str, misses: list[tuple[int, int]], tmp_path: Path
) -> None:
    """Not the head of a list; a refill beside a page; a larger part; a warmer page."""
    assert missed(judged(tmp_path, events_of(text)), choice) == misses


def test_a_page_that_left_without_an_event_makes_the_next_choice_unjudged(tmp_path: Path) -> None:
    placement = judged(tmp_path, events_of(f"{REFILL}, alloc 2, free 1, alloc 1"))
    assert outcome(placement, "pcp_pop") == (2, 2, 1)
    assert placement.repairs["pages that left a per-CPU list without an event"] == 1


def test_an_interrupt_within_a_batch_frees_to_the_buddy(tmp_path: Path) -> None:
    batch = "free 0, free 1, batched 0, free 3, batched 1, alloc 1, alloc 0"
    placement = judged(tmp_path, events_of(f"{REFILL}, alloc 1, alloc 2, alloc 3, {batch}"))
    assert placement.nested == 1
    assert missed(placement, "pcp_pop") == []


def test_an_interrupt_finds_lists_of_another_zone_unlocked(tmp_path: Path) -> None:
    other = NORMAL.first_free - FIRST
    batch = f"free 0, free 1, batched 0, free {other}, batched 1, alloc {other}"
    events = events_of(f"{REFILL}, alloc 1, alloc 2, locked {other}, alloc {other}, {batch}")
    placement = pm.open(write_recording(tmp_path / "recording", events)).judge_choices()
    assert placement.nested == 0
    assert missed(placement, "pcp_pop") == []


class TestFallbacks:
    def events(self, owned: int, taken: int) -> TimedEvents:
        events = TimedEvents()
        events.free(FIRST, order=4)
        events.free(FIRST + 64, order=0)
        events.drained(FIRST + 64, migratetype=1)
        if owned:
            events.locked(taken, migratetype=0)
        events.fallback(taken, found=4, owned=owned)
        events.alloc(taken)
        return events

    def test_a_claim_where_the_block_is_worth_it(self, tmp_path: Path) -> None:
        placement = judged(tmp_path, self.events(1, FIRST + 64))
        assert missed(placement, "fallback") == []
        assert outcome(placement, "fallback")[0] == 1

    def test_a_steal_in_its_place_is_a_miss(self, tmp_path: Path) -> None:
        assert missed(judged(tmp_path, self.events(0, FIRST)), "fallback") == [(1, 2)]


class TestAnIndependentKernel:
    """The oracle's own choices, written down as a recording, are the model's, one by one."""

    @pytest.mark.parametrize("seed", [1, 2, 3])
    @pytest.mark.parametrize("orders", [(0,), (0, 0, 4, 5, 1), (0, 0, 0, 1, 2, 3, 9)])
    def test_pages_are_all_as_the_model_names_them(
        self, seed: int, orders: tuple[int, ...], tmp_path: Path
    ) -> None:
        placement = pm.open(record(tmp_path / "oracle", seed, 800, orders)).judge_choices()
        for choice in ("pcp_pop", "refill_when", "buddy_pfn", "fallback"):
            assert missed(placement, choice) == []
        assert outcome(placement, "pcp_pop")[0] > 100
        assert outcome(placement, "buddy_pfn")[0] > 50

    def test_sizes_follow_once_snapshots_have_shown_the_limits(self, tmp_path: Path) -> None:
        placement = pm.open(record(tmp_path / "oracle", 1, 1500)).judge_choices()
        assert missed(placement, "refill_size") == []
        assert outcome(placement, "refill_size")[0] > 30

    def test_without_jit_the_outcome_is_the_same(self, checkout: Path, tmp_path: Path) -> None:
        recording = record(tmp_path / "oracle", 1, 200)
        assert _interpreted(checkout, checkout, recording) == shares(recording)


FAULTS = {
    "zone": (
        "watermark",
        "    return free - needed - m.st[region + at.ZONE_LOWMEM_RESERVE + highest_type]\n",
        "    return needed - free\n",
    ),
    "refill_size": ("pcp", "wanted = base << m.st", "wanted = base << 1 + m.st"),
    "buddy_pfn": (
        "buddy",
        "        pfn = m.st[free_list_at(zone, current, migratetype) + at.HEAD]\n",
        "        pfn = m.st[free_list_at(zone, current, migratetype) + at.TAIL]\n",
    ),
    "drain_page": (
        "pcp",
        "        if index == lists:\n            index = 0\n    return index",
        "        if index == lists:\n            index = 0\n"
        "    return index if m.st[pcp + at.PCP_LISTS + at.TAIL] < 0 else 0",
    ),
}
"""By choice: kernel source, text as it is, once in the file, and a fault in its place."""


@pytest.fixture(scope="module")
def sound(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[list[object]]]:
    """A recording that the oracle made, and the shares of the package as it is."""
    recording = record(tmp_path_factory.mktemp("sound") / "oracle", 1, 400)
    return recording, _interpreted(checkout, checkout, recording)


@pytest.mark.parametrize("choice", FAULTS)
def test_a_fault_in_a_choice_lowers_its_share(
    choice: str, checkout: Path, sound: tuple[Path, list[list[object]]], tmp_path: Path
) -> None:
    module, right, wrong = FAULTS[choice]
    recording, rows = sound
    copy = tmp_path / "faulty" / "pagealloc_model"
    shutil.copytree(checkout / "pagealloc_model", copy, ignore=shutil.ignore_patterns("__py*"))
    source = module_source(copy, module)
    text = source.read_text()
    assert text.count(right) == 1
    source.write_text(text.replace(right, wrong))
    faulty = _interpreted(checkout, copy.parent, recording)
    assert _share(faulty, choice) < _share(rows, choice) - 0.01


def _interpreted(checkout: Path, package_parent: Path, recording: Path) -> list[list[object]]:
    """Shares that a package run by Python yields."""
    path = os.pathsep.join((str(package_parent), str(checkout)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.judged_shares", str(recording)],
        cwd=package_parent,
        env=os.environ | {"PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    rows: list[list[object]] = json.loads(done.stdout)
    return rows


def _share(rows: list[list[object]], choice: str) -> float:
    totals = next(row for row in rows if row[:2] == [choice, "all"])
    return float(str(totals[3])) / float(str(totals[2]))


PAGE_SHARES = {"kbuild": 0.999, "xfree": 0.999, "highatomic_stock": 0.98, "highatomic_gate3": 0.98}
"""Shares that the shipped recordings reach in every choice of pages, at least."""


@pytest.fixture(scope="module", params=PAGE_SHARES)
def shipped_placement(request: pytest.FixtureRequest) -> tuple[str, Placement]:
    return request.param, shipped_recording(request.param).judge_choices()


ZONE_SHARES = {"kbuild": 1.0, "xfree": 1.0, "highatomic_stock": 0.99, "highatomic_gate3": 0.97}
"""The same of the zone that serves a request."""


class TestShippedRecordings:
    def test_zones_are_named_far_from_a_mark_and_mostly_near_one(
        self, shipped_placement: tuple[str, Placement]
    ) -> None:
        name, placement = shipped_placement
        judged_count, hits, _ = outcome(placement, "zone")
        assert hits >= ZONE_SHARES[name] * judged_count
        classes = placement.zone_classes
        assert classes["judged"].sum() == judged_count
        far = classes[classes["margin_at_least"] == 1024]
        assert far["hits"].sum() >= 0.998 * far["judged"].sum()

    def test_pages_are_named_from_the_true_state(
        self, shipped_placement: tuple[str, Placement]
    ) -> None:
        name, placement = shipped_placement
        for choice in ("pcp_pop", "refill_when", "buddy_pfn", "drain_page"):
            judged_count, hits, unjudged = outcome(placement, choice)
            assert hits >= PAGE_SHARES[name] * judged_count, choice
            assert judged_count > unjudged, choice

    def test_every_choice_is_counted_once_in_each_partition(
        self, shipped_placement: tuple[str, Placement]
    ) -> None:
        _, placement = shipped_placement
        table = placement.choices.assign(kind=placement.choices["scope"].str.split("=").str[0])
        sums = table.groupby(["choice", "kind"])[["judged", "hits", "unjudged"]].sum()
        for choice in CHOICES:
            for kind in sums.loc[choice].index:
                assert tuple(sums.loc[(choice, kind)]) == tuple(sums.loc[(choice, "all")])
        bins = placement.over_time.groupby("choice")[["judged", "unjudged"]].sum()
        for choice in bins.index:
            assert tuple(bins.loc[choice]) == tuple(
                sums.loc[(choice, "all")][["judged", "unjudged"]]
            )


def test_kernels_whose_lists_do_not_follow_block_types_are_refused(tmp_path: Path) -> None:
    recording = pm.open(write_recording(tmp_path / "recording", release="6.1.192"))
    with pytest.raises(pm.PolicyError, match=r"6\.12 on"):
        recording.judge_choices()


def test_the_command_ends_with_one_line_that_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "resync", lambda *_: 0)
    events = TimedEvents()
    events.alloc(FIRST)
    with pytest.raises(CorruptStateError, match=r"at 0\.000000 s \(event 0\) page frame"):
        judged(tmp_path, events)
