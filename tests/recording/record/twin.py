"""A machine that goes on while it is read: a replay, read piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.diagnosis.page_for_page import _free_lists, advanced, pcp_lists
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.start.as_read import zone_numbers
from pagealloc_model.recording.record.carried_state import ListHead, MovingReading
from pagealloc_model.recording.record.machine_state import Pages
from pagealloc_model.recording.recorded_machine import recorded_policy
from pagealloc_model.recording.recording import Recording
from pagealloc_model.recording.state_file import (
    ON_FREE_LIST,
    ON_LRU_LIST,
    ON_PCP_LIST,
    MachineState,
)

BASE, SIZE, LINK = 0xFFFF_EA00_0000_0000, 64, 8
HEADS = 0xFFFF_8880_0000_0000
POISON = 0xDEAD_0000_0000_0100
PIECE = 1024
Row = tuple[int, int, int, int, int]


class Twin:
    """A literal replay from a recording's first state file as a machine with `struct page`s."""

    def __init__(self, recording: Recording) -> None:
        assert recording.start_state is not None
        assumptions = Assumptions(reclaim="literal")
        rules = recorded_rules(recording).rules
        self._prepared = prepare(recording, rules, assumptions, 0)
        self.events = self._prepared.demand.events
        self._objects = self._prepared.demand.objects
        self._places = self._prepared.demand.starting_places()
        self._state = self._prepared.state(rules, recorded_policy(recording), assumptions)
        self._read = recording.start_state.state
        self._numbers = zone_numbers(self._prepared.machine, recording.start_state).tolist()
        self._changed = np.zeros(len(self._read.page_flags), bool)
        self.position = 0
        zones = [number for number, own in enumerate(self._numbers) if own >= 0]
        cpus = range(self._prepared.machine.nr_cpus)
        self.rows: list[Row] = [
            (ON_FREE_LIST, zone, -1, order, kind)
            for zone in zones
            for order in range(11)
            for kind in range(6)
        ]
        self.rows += [
            (ON_PCP_LIST, zone, cpu, order, kind)
            for zone in zones
            for cpu in cpus
            for order, kinds in ((0, 3), (1, 3), (2, 3), (3, 3), (9, 2))
            for kind in range(kinds)
        ]
        self.rows += [(ON_LRU_LIST, 0, -1, -1, kind) for kind in range(4)]

    def go_on(self, position: int) -> None:
        """Advance to an event."""
        for event in self.events[self.position : position]:
            if event["operation"] == at.FREE:
                first = int(self._places[event["object"]])
                if first < 0:
                    first = int(self._objects[event["object"]]["pfn"])
                self._changed[first : first + (1 << int(event["order"]))] = True
            advanced(self._state, self.events, self._places, self.position, self.position + 1)
            self.position += 1

    def lists(self) -> dict[Row, list[int]]:
        """Entries of all lists, head first."""
        place = {own: number for number, own in enumerate(self._numbers) if own >= 0}
        asked = [row[1:] for row in self.rows if row[0] == ON_PCP_LIST]
        own = [(self._numbers[zone], cpu, order, kind) for zone, cpu, order, kind in asked]
        lists: dict[Row, list[int]] = {}
        for kind, found in (
            (ON_FREE_LIST, _free_lists(self._state)),
            (ON_PCP_LIST, pcp_lists(self._state, own)),
        ):
            for (zone, cpu, order, migratetype), pfns in found.items():
                lists[kind, place[zone], cpu, order, migratetype] = pfns
        read = self._read
        for number in read.lists(ON_LRU_LIST).tolist():
            pfns = read.pages_of(number)
            row = (ON_LRU_LIST, 0, -1, -1, int(read.list_type[number]))
            lists[row] = lists.get(row, []) + pfns[~self._changed[pfns]].tolist()
        return lists

    def state(self) -> MachineState:
        """What reading it while it stands still gives."""
        lists = self.lists()
        rows = [row for row in self.rows if lists.get(row)]
        table = np.array(rows, np.int64).reshape(-1, 5).T
        names = ("kind", "zone", "cpu", "order", "type")
        free = np.zeros(len(self._changed), bool)
        for row in rows:
            if row[0] != ON_LRU_LIST:
                size = 1 << row[3]
                free[(np.array(lists[row])[:, None] + np.arange(size)).ravel()] = True
        low = np.uint64((1 << (max(self._read.about["flags"].values()) + 1)) - 1)
        flags = np.where(self._changed, self._read.page_flags & ~low, self._read.page_flags)
        kept = np.where(self._changed, 1, self._read.page_refcount)
        kept = np.where((self._read.page_refcount == 0) & ~free, 1, kept)
        counts = np.where(self._read.page_refcount < 0, -1, np.where(free, 0, kept))
        state = replace(
            self._read,
            page_flags=flags,
            page_refcount=counts.astype(np.int32),
            **{f"list_{name}": column for name, column in zip(names, table, strict=True)},
            list_length=np.array([len(lists[row]) for row in rows], np.int64),
            listed_pfn=np.concatenate([lists[row] for row in rows]).astype(np.int32),
            block_type=self._block_types(),
        )
        on_lists, held = state.pages_on_lists()
        counter = list(state.about["zone_stat"]).index("NR_FREE_PAGES")
        stat, diff = state.zone_stat.copy(), state.zone_stat_diff.copy()
        stat[:, counter], diff[:, :, counter] = on_lists, 0
        return replace(state, zone_stat=stat, zone_stat_diff=diff, pageset_count=held)

    def _time_ns(self, position: int) -> int:
        """When it stands at an event: right after the one before."""
        return int(self.events["time_ns"][max(position - 1, 0)]) + (position > 0)

    def _block_types(self) -> np.ndarray:
        kinds = self._read.block_type.copy()
        count = min(len(kinds), len(self._state.blocks))
        known = kinds[:count] >= 0
        kinds[:count][known] = self._state.blocks["migratetype"][:count][known]
        return kinds

    def heads(self) -> tuple[ListHead, ...]:
        return tuple(ListHead(HEADS + 16 * place, row) for place, row in enumerate(self.rows))

    def pages(self, state: MachineState) -> Pages:
        """The `struct page`s of a state of its own."""
        length = len(state.page_flags)
        following, before = np.full(length, POISON, np.uint64), np.full(length, POISON, np.uint64)
        free_order = np.full(length, -1, np.int8)
        place = {row: number for number, row in enumerate(self.rows)}
        for number in range(len(state.list_kind)):
            pfns = state.pages_of(number).astype(np.int64)
            names = ("kind", "zone", "cpu", "order", "type")
            row = tuple(int(getattr(state, f"list_{name}")[number]) for name in names)
            head = np.uint64(HEADS + 16 * place[row])  # type: ignore[index]
            nodes = np.uint64(BASE + LINK) + pfns.astype(np.uint64) * np.uint64(SIZE)
            following[pfns], before[pfns] = np.r_[nodes[1:], head], np.r_[head, nodes[:-1]]
            if row[0] == ON_FREE_LIST:
                free_order[pfns] = row[3]
        return Pages(
            base=BASE,
            size=SIZE,
            link_offset=LINK,
            flags=state.page_flags,
            next=following,
            prev=before,
            refcount=state.page_refcount,
            free_order=free_order,
            pieces=np.zeros((0, 4), np.int64),
        )

    def read_while_it_goes_on(self, begin: int, end: int) -> tuple[MovingReading, MachineState]:
        """Read piece after piece from an event to another; and the state at the end."""
        self.go_on(begin)
        length = len(self._changed)
        pieces = range(0, length, PIECE)
        read = self.pages(self.state())
        columns = ("flags", "next", "prev", "refcount", "free_order")
        torn = {name: np.zeros_like(getattr(read, name)) for name in columns}
        rows = []
        for number, first in enumerate(pieces):
            position = begin + (end - begin) * number // len(pieces)
            if position > self.position:
                self.go_on(position)
                read = self.pages(self.state())
            for name, column in torn.items():
                column[first : first + PIECE] = getattr(read, name)[first : first + PIECE]
            time_ns = self._time_ns(position)
            rows.append((first, min(PIECE, length - first), time_ns, time_ns))
        self.go_on(end)
        truth = self.state()
        pages = read._replace(**torn, pieces=np.array(rows, np.int64))
        none = {f"list_{name}": np.zeros(0, np.int64) for name in ("kind", "zone", "cpu", "order")}
        moving = replace(
            truth,
            page_flags=pages.flags,
            page_refcount=pages.refcount,
            **none,
            list_type=np.zeros(0, np.int64),
            list_length=np.zeros(0, np.int64),
            listed_pfn=np.zeros(0, np.int32),
        )
        reading = MovingReading(
            state=moving,
            pages=pages,
            heads=self.heads(),
            isolated=5,
            instant_ns=self._time_ns(end),
            reader=-1,
        )
        return reading, truth


def places(state: MachineState) -> np.ndarray:
    """Which list each page frame is on, as one number; 0 for none. Shape (page frames, 2).

    The first column is of free and per-CPU lists, the second of LRU lists.
    """
    found = np.zeros((len(state.page_flags), 2), np.int64)
    for number in range(len(state.list_kind)):
        row = [int(getattr(state, f"list_{name}")[number]) for name in _COLUMNS]
        kind, zone, cpu, order, migratetype = row
        key = ((((kind + 1) * 64 + zone) * 64 + cpu + 1) * 64 + order + 1) * 64 + migratetype
        pfns = state.pages_of(number).astype(np.int64)
        side = int(kind == ON_LRU_LIST)
        found[(pfns[:, None] + np.arange(1 << max(order, 0))).ravel(), side] = key
    return found


_COLUMNS = ("kind", "zone", "cpu", "order", "type")


def followers(state: MachineState, kinds: Sequence[int]) -> dict[int, int]:
    """The entry after each one in its list, -1 at the tail."""
    after: dict[int, int] = {}
    for number in range(len(state.list_kind)):
        if state.list_kind[number] in kinds:
            pfns = state.pages_of(number).tolist()
            after |= dict(zip(pfns, [*pfns[1:], -1], strict=True))
    return after


def in_place(truth: MachineState, other: MachineState) -> dict[str, float]:
    """Shares of page frames, of moving ones, and of entries whose place is the true one."""
    one, two = places(truth), places(other)
    known = truth.page_refcount >= 0
    same = (one == two)[known].all(axis=1)
    listed = ((one > 0) | (two > 0))[known]
    shares = {"page frames on the true list": float(same.mean())}
    for name, kind in (("free lists", 1), ("per-CPU lists", 2)):
        own = ((one[:, 0] >> 24) == kind) | ((two[:, 0] >> 24) == kind)
        shares[name] = float((one[own, 0] == two[own, 0]).mean()) if own.any() else 1.0
    own = listed[:, 1]
    shares["LRU lists"] = float((one == two)[known][own, 1].mean()) if own.any() else 1.0
    for name, kinds in (
        ("neighbours in free lists", (ON_FREE_LIST,)),
        ("neighbours in per-CPU lists", (ON_PCP_LIST,)),
        ("neighbours in LRU lists", (ON_LRU_LIST,)),
    ):
        right, found = followers(truth, kinds), followers(other, kinds)
        shares[name] = sum(found.get(pfn, -2) == follower for pfn, follower in right.items()) / max(
            len(right), 1
        )
    return shares
