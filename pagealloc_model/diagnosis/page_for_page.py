"""A replay from the machine's own state beside the kernel: page for page, list for list."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.objects import RECORDED
from pagealloc_model.allocator.pcp import order_to_pindex
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.table import Table, word_columns
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.start.as_read import listed_records, zone_numbers
from pagealloc_model.predicted.tables import pageblock_map, recorded_pageblock_map
from pagealloc_model.recording.recorded_machine import recorded_policy
from pagealloc_model.recording.state_file import ON_FREE_LIST, ON_PCP_LIST

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import State
    from pagealloc_model.predicted.prepared import Prepared
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.state_instant import DatedState

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class ListsAtEnd:
    """The model's lists and pageblocks beside those of a state file.

    Attributes:
        lists: free lists, or per-CPU lists, that have a page on either side.
        same_order: of these, those with the same pages in the same order.
        same_pages: those with the same pages in any order.
        pages: pages on the kernel's lists.
        pages_shared: pages that are on the same list, and of one order, on both sides.
    """

    lists: int
    same_order: int
    same_pages: int
    pages: int
    pages_shared: int


@dataclass(frozen=True, kw_only=True, eq=False)
class PageForPage:
    """What a replay from a state file has of the kernel's pages.

    Attributes:
        prepared: what was replayed.
        start: makes the state that it begins with.
        requests: recorded requests from the state's instant on.
        rows: int64 by request: its event among the demand's.
        same: bool by request: it got the kernel's page.
        seconds: float by request: after the state's instant.
        pfn: int64 by request: the kernel's page.
        model_pfn: int64 by request: the model's, -1 for none in one piece.
        by_next: what a null model has: bool by request, the page that the same CPU freed last, of
            the same order and not allocated since, is the kernel's.
        free_lists, pcp_lists: lists at the last state file's instant, None without a second one.
        blocks: pageblocks with memory, and how many have the kernel's type there.
        order_distance: half the sum of differences of the shares that orders have in free pages.
        maps: `pageblock_map` tables of then, "recorded" and "predicted".
    """

    prepared: Prepared
    start: Callable[[], State]
    requests: int
    rows: np.ndarray
    same: np.ndarray
    seconds: np.ndarray
    pfn: np.ndarray
    model_pfn: np.ndarray
    by_next: np.ndarray
    free_lists: ListsAtEnd | None = None
    pcp_lists: ListsAtEnd | None = None
    blocks: tuple[int, int] = (0, 0)
    order_distance: float = float("nan")
    maps: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def until_departure(self) -> int:
        """Requests before the first one that got another page."""
        return self.requests if self.same.all() else int(np.argmin(self.same))

    def share(self, seconds: float = math.inf) -> float:
        """Share of requests with the kernel's page: of the first seconds with any, or of all."""
        return self._share(self.same, seconds)

    def null_share(self, seconds: float = math.inf) -> float:
        """The same of the null model."""
        return self._share(self.by_next, seconds)

    def table(self) -> Table:
        """How near the replay came, each share of requests beside the null model's."""
        departed = self.until_departure
        first = "none" if departed == self.requests else f"{departed:,}"
        rows = [["requests", f"{self.requests:,}", ""], ["first other page at request", first, ""]]
        for words, seconds in (("first second", 1.0), ("all", math.inf)):
            shares = (f"{share(seconds):.1%}" for share in (self.share, self.null_share))
            rows.append([f"requests with its page, {words}", *shares])
        for words, lists in (("free lists", self.free_lists), ("per-CPU lists", self.pcp_lists)):
            if lists is not None:
                of = f"of {lists.lists}"
                rows.append([f"{words} the same, by position", f"{lists.same_order} {of}", ""])
                rows.append([f"{words} the same, as sets", f"{lists.same_pages} {of}", ""])
        if self.free_lists is not None:
            known, same = self.blocks
            rows.append(["pageblocks of the same type", f"{same} of {known}", ""])
            rows.append(["shares of orders off by", f"{self.order_distance:.4f}", ""])
        columns = [*word_columns("page for page with the kernel"), "model", "null: freed last"]
        return Table(columns, rows, "a replay from the state file beside the kernel", grouped=False)

    def to_dict(self) -> dict[str, object]:
        """What the table shows, as numbers."""
        content: dict[str, object] = {
            "requests": self.requests,
            "until_departure": self.until_departure,
            "share_first_second": self.share(1.0),
            "null_share_first_second": self.null_share(1.0),
            "share": self.share(),
            "null_share": self.null_share(),
        }
        for name in ("free_lists", "pcp_lists"):
            lists = getattr(self, name)
            content[name] = None if lists is None else asdict(lists)
        known, same = self.blocks
        content["blocks"] = {"known": known, "same": same}
        return content | {"order_distance": self.order_distance}

    def _share(self, hits: np.ndarray, seconds: float) -> float:
        counted = hits[self.seconds < self.seconds[:1] + seconds]
        return float(counted.mean()) if len(counted) else float("nan")


def page_for_page(recording: Recording) -> PageForPage:
    """Replay a recording from its state file, up to the last one if there are several.

    Args:
        recording: with a state file.

    Raises:
        UsageError: the recording has no state file.
    """
    if recording.start_state is None:
        raise UsageError(f"{recording.path}: has no state file, so pages have no known place")
    assumptions = Assumptions(reclaim="literal")
    rules = recorded_rules(recording).rules
    prepared = prepare(recording, rules, assumptions, 0)
    start = partial(prepared.state, rules, recorded_policy(recording), assumptions)
    last = recording.states[-1] if len(recording.states) > 1 else None
    state, places, stop = run_until(prepared, start(), last)
    events, objects = prepared.demand.events[:stop], prepared.demand.objects
    wanted = np.isin(events["operation"], (at.ALLOC, at.CAPTURE))
    rows = np.flatnonzero(wanted & (objects["kind"][events["object"]] == RECORDED))
    requests = events[rows]
    pfn = objects["pfn"][requests["object"]].astype(np.int64)
    model_pfn = places[requests["object"]].astype(np.int64)
    begin_ns = recording.start_state.time_ns
    at_end = {} if last is None else compared(state, prepared, last)
    return PageForPage(
        prepared=prepared,
        start=start,
        requests=len(requests),
        rows=rows,
        same=pfn == model_pfn,
        seconds=(requests["time_ns"] - begin_ns) / _SECOND_NS,
        pfn=pfn,
        model_pfn=model_pfn,
        by_next=freed_last(events, objects)[rows],
        **at_end,
    )


def run_until(
    prepared: Prepared, state: State, end: DatedState | None
) -> tuple[State, np.ndarray, int]:
    """Advance a state up to a state file's instant: it, objects' places, and events done."""
    events, places = prepared.demand.events, prepared.demand.starting_places()
    stop = len(events) if end is None else bisect_left(events["time_ns"], end.time_ns)
    advanced(state, events, places, 0, stop)
    return state, places, stop


def advanced(
    state: State, events: np.ndarray, places: np.ndarray, position: int, stop: int
) -> None:
    """Advance a state and the objects' places from one event's position up to another's."""
    # whoever only describes a recording need not wait for the event loop
    from pagealloc_model.allocator.events import advance

    while position < stop:
        position = advance(state.arrays(places), events, position, stop, -1)
        state.st[at.LOG_ROWS] = 0


def freed_last(events: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """Null model: a request gets what its CPU freed last of that order; bool by event."""
    hits = np.zeros(len(events), bool)
    stacks: dict[tuple[int, int], list[int]] = {}
    gone: set[int] = set()
    free, pfns = at.FREE, objects["pfn"]
    for row, event in enumerate(events[["operation", "cpu", "order", "object"]].tolist()):
        operation, cpu, order, number = event
        stack = stacks.setdefault((cpu, order), [])
        pfn = int(pfns[number])
        if operation == free:
            stack.append(pfn)
            gone.discard(pfn)
        elif operation in (at.ALLOC, at.HIDDEN_ALLOC, at.CAPTURE):
            while stack and stack[-1] in gone:
                stack.pop()
            hits[row] = bool(stack) and stack[-1] == pfn
            gone.add(pfn)
    return hits


def compared(state: State, prepared: Prepared, end: DatedState) -> dict[str, object]:
    """Lists and pageblocks of a model's state beside those of a state file."""
    numbers = zone_numbers(prepared.machine, end)
    kernel_free = _by_list(listed_records(end.state, ON_FREE_LIST, numbers))
    kernel_pcp = _by_list(listed_records(end.state, ON_PCP_LIST, numbers))
    model_free, model_pcp = _free_lists(state), pcp_lists(state, list(kernel_pcp))
    kinds = end.state.block_type
    count = min(len(kinds), len(state.blocks))
    known = (kinds[:count] >= 0) & (state.blocks["zone"][:count] > 0)
    same = kinds[:count] == state.blocks["migratetype"][:count]
    shares = [_order_shares(lists) for lists in (kernel_free, model_free)]
    predicted = pageblock_map(state)
    recorded = recorded_pageblock_map(predicted, end.state, prepared.machine)
    return {
        "maps": {"recorded": recorded, "predicted": predicted},
        "free_lists": _compare(kernel_free, model_free),
        "pcp_lists": _compare(kernel_pcp, model_pcp),
        "blocks": (int(known.sum()), int((known & same).sum())),
        "order_distance": float(np.abs(shares[0] - shares[1]).sum() / 2),
    }


_Lists = dict[tuple[int, int, int, int], list[int]]
"""Pages by zone, CPU (-1: free lists), order and migratetype, head first."""


def _by_list(records: np.ndarray) -> _Lists:
    lists: _Lists = {}
    for pfn, zone, order, migratetype, cpu in records.tolist():
        lists.setdefault((zone, cpu, order, migratetype), []).append(pfn)
    return lists


def _free_lists(state: State) -> _Lists:
    lists: _Lists = {}
    for zone in range(len(state.machine.zones)):
        words = state.zone_region(zone)[at.ZONE_LISTS :]
        words = words.reshape(at.ORDERS, at.MIGRATETYPES, at.LIST_WORDS)
        for order, migratetype in np.argwhere(words[:, :, at.ENTRIES] > 0).tolist():
            pages = state.list_pages(words[order, migratetype])
            lists[zone, -1, order, migratetype] = pages
    return lists


def pcp_lists(state: State, asked: list[tuple[int, int, int, int]]) -> _Lists:
    """Per-CPU lists of the model: those of orders and types that are asked for, or not empty."""
    lists: _Lists = {}
    orders = {(order, kind) for _, _, order, kind in asked}
    orders |= {(order, kind) for order in range(4) for kind in range(at.PCP_TYPES)}
    for zone in range(len(state.machine.zones)):
        for cpu in range(state.machine.nr_cpus):
            region = state.pcp_region(zone, cpu)
            words = region[at.PCP_LISTS : at.PCP_SITES].reshape(-1, at.LIST_WORDS)
            for order, kind in sorted(orders):
                own = words[order_to_pindex.py_func(state.arrays(), order, kind)]
                if own[at.ENTRIES] > 0:
                    lists[zone, cpu, order, kind] = state.list_pages(own)
    return lists


def _compare(kernel: _Lists, model: _Lists) -> ListsAtEnd:
    keys = sorted(kernel.keys() | model.keys())
    sides = [(kernel.get(key, []), model.get(key, [])) for key in keys]
    shared = [
        len(set(one) & set(other)) << key[2] for key, (one, other) in zip(keys, sides, strict=True)
    ]
    return ListsAtEnd(
        lists=len(keys),
        same_order=sum(one == other for one, other in sides),
        same_pages=sum(set(one) == set(other) for one, other in sides),
        pages=sum(len(one) << key[2] for key, (one, _) in zip(keys, sides, strict=True)),
        pages_shared=sum(shared),
    )


def _order_shares(lists: _Lists) -> np.ndarray:
    pages = np.zeros(at.ORDERS)
    for (_, _, order, _), firsts in lists.items():
        pages[order] += len(firsts) << order
    return pages / max(pages.sum(), 1)
