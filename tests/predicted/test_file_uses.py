"""What filemap events say of the page cache: reads that are uses of a page read before (T10.15)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.demand.demand import Demand, resolve_demand
from pagealloc_model.predicted.start.elastic import with_cached_pages
from tests.small_recordings import END_PFN, TimedEvents, small_machine

PAGE = 0x1000
ELASTIC = Assumptions(reclaim="elastic")


class Files(TimedEvents):
    """Events of a task that reads files, and of kswapd."""

    def read_in(self, pfn: int, index: int, inode: int = 7) -> None:
        """A page of a file is allocated and put into the page cache."""
        self.on(0, pid=1)
        self.alloc(pfn, gfp="GFP_HIGHUSER_MOVABLE", migratetype=1)
        self.filemap("add_to_page_cache", f"pfn={pfn} index={index}", inode)

    def read(self, index: int, last: int, inode: int = 7) -> None:
        """Pages of a file are read."""
        self.on(0, pid=1).filemap("get_pages", f"index={index} last_index={last}", inode)

    def reclaimed(self, pfn: int, index: int, inode: int = 7) -> None:
        """Kswapd takes a page."""
        self.on(1, pid=40, comm="kswapd0")
        self.filemap("delete_from_page_cache", f"pfn={pfn} index={index}", inode)
        self.free(pfn)

    def filemap(self, name: str, body: str, inode: int) -> None:
        self.event(f"filemap:mm_filemap_{name}", f"s_dev=1 i_ino={inode} {body}")


def demand_of(events: Files, directory: Path, assumptions: Assumptions = ELASTIC) -> Demand:
    return resolve_demand(events.trace(directory), small_machine(), assumptions)


def told(demand: Demand) -> list[tuple[int, int]]:
    return [tuple(each) for each in demand.events[["operation", "object"]].tolist()]


def again(inode: int = 7) -> Files:
    """A page is read, reclaimed, and read again elsewhere in memory."""
    events = Files()
    events.read_in(PAGE, 3)
    events.reclaimed(PAGE, 3)
    events.read_in(PAGE + 9, 3, inode)
    events.on(0, pid=1).free(PAGE + 9)
    return events


def test_a_page_read_again_after_reclaim_is_a_use_of_it(tmp_path: Path) -> None:
    demand = demand_of(again(), tmp_path)
    assert told(demand) == [(at.ALLOC, 0), (at.FREE, 0), (at.USE, 0), (at.FREE, 0)]
    use = demand.events[2]
    assert use["offset"] == 1
    assert use["bits"] >> pr.CLASS_SHIFT == pr.FILE
    assert demand.events["bits"][0] >> pr.CLASS_SHIFT == pr.FILE


def test_a_page_of_another_file_is_not(tmp_path: Path) -> None:
    demand = demand_of(again(inode=8), tmp_path)
    assert told(demand) == [(at.ALLOC, 0), (at.FREE, 0), (at.ALLOC, 1), (at.FREE, 1)]


def test_nor_is_one_that_its_owner_gave_up(tmp_path: Path) -> None:
    events = Files()
    events.read_in(PAGE, 3)
    events.on(0, pid=1).free(PAGE)
    events.read_in(PAGE + 9, 3)
    assert told(demand_of(events, tmp_path))[-1] == (at.ALLOC, 1)


def test_a_page_of_the_start_is_known_by_its_removal(tmp_path: Path) -> None:
    events = Files()
    events.reclaimed(PAGE, 3)
    events.read_in(PAGE + 9, 3)
    demand = demand_of(events, tmp_path)
    assert demand.objects["kind"][0] == resolved.AT_START
    assert told(demand)[-1] == (at.USE, 0)


def test_a_read_uses_each_page_once(tmp_path: Path) -> None:
    events = Files()
    for index in range(3):
        events.read_in(PAGE + index, index)
    events.read(1, 2)
    assert told(demand_of(events, tmp_path))[3:] == [(at.USE, 1), (at.USE, 2)]


def test_a_page_in_the_cache_throughout_gets_a_place_of_the_start(tmp_path: Path) -> None:
    """Two such pages, room for one: the uses of the other are left out."""
    events = Files()
    events.read_in(PAGE, 0)
    events.read(5, 6)
    events.read(5, 5)
    demand = demand_of(events, tmp_path)
    assert demand.unplaced_pages == 2
    lru = np.zeros(END_PFN, np.int8)
    lru[0x1900] = pr.INACTIVE_FILE + 1
    placed = with_cached_pages(demand, lru, seed=0)
    assert placed.objects[-1]["pfn"] == 0x1900
    assert told(placed)[1:] == [(at.USE, 1), (at.USE, 1)]
    assert len(placed.leads) == len(placed.objects)


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    off = replace(ELASTIC, elastic=ElasticAssumptions(file_uses=False))
    assert at.USE not in demand_of(again(), tmp_path, off).events["operation"]


def test_a_literal_replay_has_no_uses(tmp_path: Path) -> None:
    assert at.USE not in demand_of(again(), tmp_path, Assumptions()).events["operation"]
