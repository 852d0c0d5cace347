"""The state that a replay begins with, as a state file has it: nothing of it is guessed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import LISTED, ReadLists, StartImage
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.base.text import count_of
from pagealloc_model.predicted.demand.demand import KnownStart
from pagealloc_model.predicted.start.evidence import frame_count
from pagealloc_model.recording.state_file import (
    ON_FREE_LIST,
    ON_LRU_LIST,
    ON_PCP_LIST,
    MachineState,
)

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import State
    from pagealloc_model.predicted.demand.demand import Demand
    from pagealloc_model.recording.machine import Machine
    from pagealloc_model.recording.state_instant import DatedState

_LAGGED = ("NR_FREE_PAGES", "NR_FREE_CMA_PAGES")
"""Counters of zones that watermark tests read without what CPUs hold back (S1.10)."""
_PREV_FREE_HIGH_ORDER = 1
"""Bit of `struct per_cpu_pages`' flags."""


def read_image(machine: Machine, demand: Demand, dated: DatedState) -> StartImage:
    """The start image that a state file gives.

    Args:
        machine: its zones and CPUs.
        demand: what is asked for from the state's instant on; it says which of the pages in use
            are freed later.
        dated: the state.

    Raises:
        RecordingError: the state is of another machine than the recording's snapshots.
    """
    state, length = dated.state, frame_count(machine)
    numbers = zone_numbers(machine, dated)
    buddies = listed_records(state, ON_FREE_LIST, numbers)
    on_lists = listed_records(state, ON_PCP_LIST, numbers)
    free = np.zeros(length, bool)
    for order in np.unique(buddies["order"]):
        firsts = buddies["pfn"][buddies["order"] == order].astype(np.int64)
        free[(firsts[:, None] + np.arange(1 << int(order))).ravel()] = True
    pages = min(length, len(state.page_flags))
    is_lru = state.page_flags[:pages] >> np.uint64(state.about["flags"]["lru"]) & np.uint64(1)
    movable = np.zeros(length, bool)
    movable[:pages] = is_lru.astype(bool)
    for first in np.flatnonzero(movable[:pages] & (state.page_order[:pages] > 0)):
        movable[first : first + (1 << int(state.page_order[first]))] = True
    block_types = np.full(length >> machine.pageblock_order, -1, np.int8)
    blocks = min(len(block_types), len(state.block_type))
    block_types[:blocks] = state.block_type[:blocks]
    at_start = demand.objects[demand.at_start]
    at_start = at_start[at_start["pfn"] + (np.int64(1) << at_start["order"]) <= length]
    by_zone = _places_by_zone(machine, numbers)
    return StartImage(
        free=free,
        movable=movable & ~free,
        block_types=block_types,
        listed=on_lists,
        pcp_high=np.zeros((len(machine.zones), machine.nr_cpus), np.int64),
        allocated_pfn=at_start["pfn"].astype(np.int32),
        allocated_order=at_start["order"].astype(np.int8),
        origin=(
            f"state file {dated.path.name}: {count_of(len(buddies), 'free buddy', 'free buddies')} "
            f"and {count_of(len(on_lists), 'page')} of per-CPU lists are in the kernel's own "
            "order, and limits and counters of lists and zones are its own",
            *(() if state.is_exact else (f"{dated.path.name}: {state.carried_words()}",)),
        ),
        read=ReadLists(
            buddies=buddies,
            pageset_words=_pageset_words(machine, state, by_zone),
            zone_words=_zone_words(state, by_zone),
        ),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadReclaim:
    """What reclaim and compaction begin with, as a state file has it.

    Attributes:
        lru: int8 by page frame: the LRU list of its folio plus one, 0 for none.
        age: int64 by page frame: the lower, the nearer to its list's tail.
        zone_words, node_words: int64 by zone and by node, by word of `pressure_layout`.
        skipped: bool by pageblock: compaction leaves it out.
        pageblock_order: order of these pageblocks.
    """

    lru: np.ndarray
    age: np.ndarray
    zone_words: dict[int, np.ndarray]
    node_words: dict[int, np.ndarray]
    skipped: np.ndarray
    pageblock_order: int

    def put_into(self, state: State) -> State:
        """A state with these words and skip marks; it is changed."""
        base = int(state.st[at.PRESSURE_BASE])
        for first, size, words in (
            (pr.ZONES_BASE, pr.ZONE_WORDS, self.zone_words),
            (pr.NODES_BASE, pr.NODE_WORDS, self.node_words),
        ):
            for word, values in words.items():
                begin = int(state.st[base + first]) + word
                state.st[begin : begin + size * len(values) : size] = values
        if self.pageblock_order == state.machine.pageblock_order:
            firsts = np.flatnonzero(self.skipped) << self.pageblock_order
            state.folios["skip"][firsts[firsts < len(state.folios)]] = 1
        return state


def read_reclaim(machine: Machine, dated: DatedState) -> ReadReclaim:
    """LRU lists, kswapd's failures and where compaction stands, as a state file has them."""
    state, about = dated.state, dated.state.about
    length = frame_count(machine)
    pfns, lists = state.list_of_entries(ON_LRU_LIST)
    lru, age = np.zeros(length, np.int8), np.zeros(length, np.int64)
    orders = state.page_order[pfns]
    for order in np.unique(orders):
        entries = np.flatnonzero(orders == order)
        pages = pfns[entries, None].astype(np.int64) + np.arange(1 << int(order))
        known = (pages < length).all(axis=1)
        lru[pages[known]] = state.list_type[lists[entries[known]], None] + 1
        age[pages[known]] = -entries[known, None]
    by_zone = _places_by_zone(machine, zone_numbers(machine, dated))
    zones = {
        pr.ZONE_MIGRATE_ASYNC: state.zone_compact_migrate_pfn[:, 0],
        pr.ZONE_MIGRATE_SYNC: state.zone_compact_migrate_pfn[:, 1],
        pr.ZONE_FREE_FROM: state.zone_compact_free_pfn,
        pr.ZONE_INIT_MIGRATE: state.zone_compact_init_migrate_pfn,
        pr.ZONE_INIT_FREE: state.zone_compact_init_free_pfn,
        pr.ZONE_CONSIDERED: state.zone_compact_considered,
        pr.ZONE_DEFER_SHIFT: state.zone_compact_defer_shift,
        pr.ZONE_ORDER_FAILED: state.zone_compact_order_failed,
    }
    nodes = [list(about["nodes"]).index(node) for node in machine.nodes]
    return ReadReclaim(
        lru=lru,
        age=age,
        zone_words={word: values[by_zone] for word, values in zones.items()},
        node_words={pr.KSWAPD_FAILURES: state.node_kswapd_failures[nodes]},
        skipped=state.block_skip != 0,
        pageblock_order=int(about["pageblock_order"]),
    )


def _places_by_zone(machine: Machine, numbers: np.ndarray) -> np.ndarray:
    """Place of each of the machine's zones in a state file, -1 for zones that it lacks."""
    by_zone = np.full(len(machine.zones), -1)
    by_zone[numbers[numbers >= 0]] = np.flatnonzero(numbers >= 0)
    return by_zone


def zone_numbers(machine: Machine, dated: DatedState) -> np.ndarray:
    """The machine's number of each zone of a state file, -1 for zones that it has not.

    Raises:
        RecordingError: a zone with pages is none of the machine's, or at another place.
    """
    about, state = dated.state.about, dated.state
    numbers = np.full(len(state.zone_start), -1)
    for place in range(len(numbers)):
        node, kind = divmod(place, len(about["zones"]))
        numbers[place] = machine.zone_index(about["nodes"][node], about["zones"][kind])
        if not state.zone_managed[place]:
            continue
        zone = machine.zones[numbers[place]] if numbers[place] >= 0 else None
        if zone is None or zone.start_pfn != state.zone_start[place]:
            title = f"zone {about['zones'][kind]} of node {about['nodes'][node]}"
            what = f"{title} is not where the recording's snapshots have it"
            raise RecordingError(dated.path, what, todo="keep it with its own recording")
    return numbers


def listed_records(state: MachineState, kind: int, numbers: np.ndarray) -> np.ndarray:
    """`LISTED` records of all entries of the lists of a kind, in the state file's order."""
    pfns, lists = state.list_of_entries(kind)
    records = np.zeros(len(pfns), LISTED)
    records["pfn"] = pfns
    records["zone"] = numbers[state.list_zone[lists]]
    records["order"] = state.list_order[lists]
    records["migratetype"] = state.list_type[lists]
    records["cpu"] = state.list_cpu[lists]
    return records


def known_start(dated: DatedState) -> KnownStart:
    """The instant of a state and the pages that are on its lists."""
    on_lists = np.zeros(len(dated.state.page_flags), bool)
    for kind in (ON_FREE_LIST, ON_PCP_LIST):
        pfns, lists = dated.state.list_of_entries(kind)
        orders = dated.state.list_order[lists]
        for order in np.unique(orders):
            firsts = pfns[orders == order].astype(np.int64)
            on_lists[(firsts[:, None] + np.arange(1 << int(order))).ravel()] = True
    return KnownStart(dated.time_ns, on_lists)


def machine_as_read(machine: Machine, dated: DatedState) -> Machine:
    """The machine with limits of per-CPU lists and watermark boosts as a state file has them."""
    state, numbers = dated.state, zone_numbers(machine, dated)
    zones = list(machine.zones)
    for place in np.flatnonzero((numbers >= 0) & (state.zone_managed > 0)):
        number = int(numbers[place])
        pagesets = tuple(
            replace(
                pageset,
                count=int(state.pageset_count[place, pageset.cpu]),
                high=int(state.pageset_high[place, pageset.cpu]),
                batch=int(state.pageset_batch[place, pageset.cpu]),
            )
            for pageset in zones[number].pagesets
            if pageset.cpu < state.pageset_count.shape[1]
        )
        boost = int(state.zone_boost[place])
        zones[number] = replace(zones[number], boost=boost, pagesets=pagesets)
    return replace(machine, zones=tuple(zones))


def _pageset_words(
    machine: Machine, state: MachineState, by_zone: np.ndarray
) -> dict[int, np.ndarray]:
    """Words of pagesets by offset, of the fields that the kernel has."""
    words = {
        at.PCP_ALLOC_FACTOR: state.pageset_alloc_factor,
        at.PCP_FREE_COUNT: state.pageset_free_count,
        at.PCP_EXPIRE: state.pageset_expire,
        at.PCP_PREV_FREE_HIGH_ORDER: np.where(
            state.pageset_flags < 0, -1, state.pageset_flags & _PREV_FREE_HIGH_ORDER
        ),
    }
    cpus = min(machine.nr_cpus, state.pageset_count.shape[1])
    has_pageset = (by_zone >= 0) & (state.zone_managed[by_zone] > 0)
    made = {}
    for word, values in words.items():
        table = np.zeros((len(by_zone), machine.nr_cpus), np.int64)
        table[:, :cpus] = np.where(has_pageset[:, None], values[by_zone, :cpus], 0)
        if bool((table >= 0).all()):
            made[word] = table
    for word, name in zip((at.PCP_FREE_DELTA, at.PCP_FREE_CMA_DELTA), _LAGGED, strict=True):
        table = np.zeros((len(by_zone), machine.nr_cpus), np.int64)
        held = _held_back(state, name)[by_zone, :cpus]
        table[:, :cpus] = np.where(has_pageset[:, None], held, 0)
        made[word] = table
    return made


def _zone_words(state: MachineState, by_zone: np.ndarray) -> dict[int, np.ndarray]:
    """Words of zones by offset."""
    words = {
        at.ZONE_RESERVED_HIGHATOMIC: state.zone_reserved_highatomic,
        at.ZONE_THRESHOLD: state.zone_stat_threshold.max(axis=1, initial=0),
        at.ZONE_FREE_UNFOLDED: _held_back(state, _LAGGED[0]).sum(axis=1),
        at.ZONE_FREE_CMA_UNFOLDED: _held_back(state, _LAGGED[1]).sum(axis=1),
    }
    return {word: np.where(by_zone >= 0, values[by_zone], 0) for word, values in words.items()}


def _held_back(state: MachineState, counter: str) -> np.ndarray:
    """What each CPU holds back of a zone's counter, shape (zones, CPUs); 0 without the counter."""
    names = list(state.about["zone_stat"])
    if counter not in names:
        return np.zeros(state.zone_stat_diff.shape[:2], np.int64)
    return state.zone_stat_diff[:, :, names.index(counter)]
