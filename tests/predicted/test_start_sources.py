"""What page flags, owners and first touches say of the start, on machines made in code."""

import gzip
from pathlib import Path

import numpy as np

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.invariants import broken_invariants
from pagealloc_model.allocator.state import StartImage
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.start.image import start_state
from pagealloc_model.recording.proc import pages as flags
from pagealloc_model.recording.recorded_machine import recorded_policy
from pagealloc_model.recording.recording import Recording
from tests.small_recordings import (
    BEFORE_NS,
    BLOCK,
    END_PFN,
    NORMAL,
    TimedEvents,
    start_free,
    write_recording,
    write_snapshot,
)

HUGE_BLOCK = NORMAL.start_pfn + 6 * BLOCK
KERNEL_BLOCK = NORMAL.start_pfn
USER_BLOCK = NORMAL.start_pfn + 9 * BLOCK


def image_of(path: Path) -> StartImage:
    recording = pm.open(path)
    return prepare(recording, recorded_rules(recording).rules, Assumptions(), 0).image


def sound(recording: Recording) -> bool:
    rules = recorded_rules(recording).rules
    made = prepare(recording, rules, Assumptions(), 0)
    state = start_state(
        made.machine, made.demand, made.image, rules, recorded_policy(recording), Assumptions()
    )
    return broken_invariants(state) == []


def events_far_from_the_start() -> TimedEvents:
    events = TimedEvents()
    events.alloc(NORMAL.start_pfn + 15 * BLOCK + 7, gfp="GFP_HIGHUSER_MOVABLE", migratetype=1)
    return events


def write_flags(path: Path, words: np.ndarray) -> None:
    content = words.astype("<u8").tobytes()
    (path / "kpageflags.u64.gz").write_bytes(gzip.compress(content, 1))


def with_unflagged(path: Path, listed: int) -> Path:
    """A recording in which some pages show no flag, with so many pages on each CPU's lists.

    A huge page's block and, beside slab pages, a kernel's block are bare, and so are runs of 8, 2
    and 1 pages among user pages.
    """
    write_recording(path, events_far_from_the_start(), snapshots=False)
    free = start_free()
    words = np.where(free, flags.BUDDY, flags.PGTABLE).astype(np.uint64)
    words[KERNEL_BLOCK : KERNEL_BLOCK + BLOCK] = 0
    words[KERNEL_BLOCK + BLOCK : KERNEL_BLOCK + 2 * BLOCK] = flags.SLAB
    words[HUGE_BLOCK : HUGE_BLOCK + BLOCK] = 0
    words[USER_BLOCK : USER_BLOCK + BLOCK] = flags.LRU
    for first, pages in ((8, 8), (32, 2), (77, 1)):
        words[USER_BLOCK + first : USER_BLOCK + first + pages] = 0
    write_flags(path, words)
    free[KERNEL_BLOCK + BLOCK : KERNEL_BLOCK + 2 * BLOCK] = False
    free[HUGE_BLOCK : HUGE_BLOCK + BLOCK] = False
    free[USER_BLOCK : USER_BLOCK + BLOCK] = False
    write_snapshot(path, BEFORE_NS, free, {"Normal": listed})
    return path


def test_an_unflagged_block_among_user_blocks_is_a_freed_huge_page(tmp_path: Path) -> None:
    path = with_unflagged(tmp_path / "huge", listed=BLOCK + 20)
    listed = image_of(path).listed
    whole = listed[listed["order"] == 9]
    assert whole["pfn"].tolist() == [HUGE_BLOCK]
    assert whole["migratetype"].tolist() == [at.MOVABLE]
    assert sound(pm.open(path))


def test_unflagged_runs_among_user_pages_are_on_lists_of_their_order(tmp_path: Path) -> None:
    listed = image_of(with_unflagged(tmp_path / "runs", listed=40)).listed
    mine = listed[(listed["pfn"] >= USER_BLOCK) & (listed["pfn"] < USER_BLOCK + BLOCK)]
    assert {(int(each["pfn"]) - USER_BLOCK, int(each["order"])) for each in mine} == {
        (8, 3), (32, 1), (77, 0),
    }  # fmt: skip
    assert (mine["migratetype"] == at.MOVABLE).all()


def test_lists_hold_as_much_as_the_snapshot_says(tmp_path: Path) -> None:
    for listed in (3, 40, BLOCK + 20):
        image = image_of(with_unflagged(tmp_path / str(listed), listed))
        normal = image.listed[image.listed["zone"] == 1]
        sizes = 1 << normal["order"].astype(np.int64)
        assert np.bincount(normal["cpu"], sizes).tolist() == [listed, listed]


def test_origin_says_how_many_pages_are_guessed(tmp_path: Path) -> None:
    origin = image_of(with_unflagged(tmp_path / "said", listed=40)).origin
    assert any("0 are known by the CPU that takes them first, 11 by their flags" in line
               and "69 are guessed" in line for line in origin)  # fmt: skip


def owner_text(pfn: int, order: int, kind: str, block: str, comm: str = "make") -> str:
    return (
        f"Page allocated via order {order}, mask 0xcc0(GFP_KERNEL), pid 9, tgid 9 ({comm}), "
        f"ts 100 ns\nPFN {pfn:#x} type {kind} Block {pfn >> 9} type {block} Flags 0x0()\n\n"
    )


def write_owners(path: Path) -> None:
    """The first block of each zone is the kernel's, and one odd block has a few user pages."""
    blocks = "".join(
        owner_text(first + index, 0, "Unmovable", "Unmovable")
        for first in (0, NORMAL.start_pfn)
        for index in range(BLOCK)
    )
    odd = owner_text(HUGE_BLOCK + 4, 2, "Movable", "Reclaimable")
    odd += owner_text(USER_BLOCK + 8, 3, "Unmovable", "Movable")
    (path / "page_owner.txt").write_text(blocks + odd)


def with_owners(path: Path, *, page_flags: bool) -> Path:
    write_recording(path, events_far_from_the_start(), snapshots=False, page_flags=page_flags)
    free = start_free()
    free[HUGE_BLOCK + 4 : HUGE_BLOCK + 8] = False
    free[USER_BLOCK + 8 : USER_BLOCK + 16] = False
    if page_flags:
        write_flags(path, np.where(free, flags.BUDDY, 0))
    write_owners(path)
    directory = write_snapshot(path, BEFORE_NS, free)
    table = directory / "pagetypeinfo"
    table.write_text(table.read_text().replace("Normal 1 15 0 0 0", "Normal 1 14 1 0 0"))
    return path


def test_owners_name_block_types_orders_and_movability(tmp_path: Path) -> None:
    for page_flags in (True, False):
        path = with_owners(tmp_path / str(page_flags), page_flags=page_flags)
        image = image_of(path)
        types = image.block_types
        assert types[HUGE_BLOCK >> 9] == at.RECLAIMABLE
        assert (types == at.RECLAIMABLE).sum() == 1
        assert types[USER_BLOCK >> 9] == at.MOVABLE
        assert types[[0, NORMAL.start_pfn >> 9]].tolist() == [at.UNMOVABLE] * 2
        orders = dict(zip(image.allocated_pfn.tolist(), image.allocated_order, strict=True))
        assert (orders[HUGE_BLOCK + 4], orders[USER_BLOCK + 8]) == (2, 3)
        assert image.movable[HUGE_BLOCK + 4 : HUGE_BLOCK + 8].all()
        assert not image.movable[USER_BLOCK + 8 : USER_BLOCK + 16].any()
        assert not image.free[USER_BLOCK + 8 : USER_BLOCK + 16].any()
        assert sound(pm.open(path))
        assert any("orders and movability of 1,026 allocations" in line for line in image.origin)
        assert any("4 of 24 have their recorded type" in line for line in image.origin)


def test_an_owned_page_is_on_no_list(tmp_path: Path) -> None:
    path = with_owners(tmp_path / "owned", page_flags=True)
    (path / "page_owner.txt").rename(path / "kept")
    guess = image_of(path).listed
    assert not len(guess)
    for directory in (path / "snapshots").iterdir():
        text = (directory / "zoneinfo").read_text()
        (directory / "zoneinfo").write_text(text.replace("count: 0", "count: 12"))
    without = image_of(path).listed
    assert np.isin(without["pfn"], np.arange(NORMAL.start_pfn, NORMAL.start_pfn + BLOCK)).any()
    (path / "kept").rename(path / "page_owner.txt")
    owned = np.zeros(END_PFN, bool)
    owned[:BLOCK] = owned[NORMAL.start_pfn : NORMAL.start_pfn + BLOCK] = True
    owned[HUGE_BLOCK + 4 : HUGE_BLOCK + 8] = owned[USER_BLOCK + 8 : USER_BLOCK + 16] = True
    known = image_of(path).listed
    assert not owned[known["pfn"]].any()
    for listed in (known, without):
        assert (1 << listed["order"].astype(np.int64)).sum() == 4 * 12


def first_touches(rest: int) -> TimedEvents:
    """CPU 0 takes 3 pages that nobody had, then `rest` pages that were in the buddy."""
    events = TimedEvents()
    for index in range(3):
        events.on(cpu=0).alloc(NORMAL.start_pfn + index, migratetype=1)
    for index in range(rest):
        events.on(cpu=0).alloc(NORMAL.first_free + index, migratetype=1)
    events.wait(100)
    events.on(cpu=1).alloc(NORMAL.first_free + 4000, migratetype=0)
    return events


def test_first_touches_name_pages_and_what_a_refill_left(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "rest", first_touches(5), snapshots=False)
    words = np.where(start_free(), flags.BUDDY, flags.PGTABLE)
    words[NORMAL.start_pfn : NORMAL.start_pfn + 3] = 0
    write_flags(path, words)
    write_snapshot(path, BEFORE_NS, start_free(), {"Normal": 23})
    write_snapshot(path, 1_000_000_000 + 50, start_free(), {"Normal": 23})
    listed = image_of(path).listed
    mine = listed[(listed["zone"] == 1) & (listed["cpu"] == 0)]
    assert mine["pfn"][:3].tolist() == [NORMAL.start_pfn + index for index in range(3)]
    assert (mine["migratetype"][:3] == at.MOVABLE).all()
    assert (mine["migratetype"] == at.MOVABLE).sum() > 3
