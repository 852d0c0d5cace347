"""Why a replay from a state file gave other pages than the kernel: each request has one cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.objects import HIDDEN
from pagealloc_model.base.table import Column, Table, word_columns
from pagealloc_model.diagnosis.page_for_page import PageForPage, advanced, pcp_lists
from pagealloc_model.predicted.demand.bulk import bulk_calls
from pagealloc_model.recording.state_file import ON_FREE_LIST, ON_PCP_LIST
from pagealloc_model.recording.trace.columns import Event, Trace

if TYPE_CHECKING:
    from pagealloc_model.allocator.state import State
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.state_file import MachineState

BULK = "allocation without event: alloc_pages_bulk()"
UNSEEN = "allocation without event: any other caller"
COMPACTION = "allocation without event: compaction's scan for free pages"
UNSEEN_FREE = "free without event"
UNSEEN_DRAIN = "drain without event"
AMID = "another CPU amid a refill or drain"
INTERRUPT = "interrupt beside it, or amid a drain"
OTHER_LIST = "refill or drain of other pages, or at another time"
PREEMPTED = "request preempted between its page and its event"
ORDER = "other order of a list"
NO_PAGE = "the model had no page in one piece"
CAUSES = {
    BULK: "the model's page, or the kernel's, is one that a probe saw a bulk allocation take",
    COMPACTION: "an isolation that a scan's event counts, without naming pages, has it since its "
    "last event",
    UNSEEN: "the kernel's next event of the model's page frees it, or it is in use at the end; or "
    "an allocation that only its free shows has the kernel's page in the model",
    UNSEEN_FREE: "a recorded allocation still has the kernel's page in the model",
    UNSEEN_DRAIN: "the kernel took the page from a free list, with no drain after it was freed",
    AMID: "before and after it another CPU moves pages to or from its lists in one run of events; "
    "the model moves them all at once",
    INTERRUPT: "the event before or after it on this CPU is an interrupt's, or it is one's itself; "
    "or an interrupt freed the page past its list, which a drain had in use",
    OTHER_LIST: "the page is on another list, or another CPU's, on one side",
    PREEMPTED: "another task's next event says that it has the model's page: it may have taken it "
    "before, and lost the CPU",
    ORDER: "both pages are on this CPU's list on both sides",
    NO_PAGE: "",
}
"""Causes, in the order in which they are told apart, and how each is told."""
_LARGEST_ORDER = 10
_NEAR_NS = 50_000
_ROWS_NEAR = 64
_IN_USE, _FREE, _PCP, _UNKNOWN = "in use", "free", "per-CPU", ""


@dataclass(frozen=True, kw_only=True)
class Departure:
    """A request that got another page while nothing before it explains that.

    Attributes:
        request: its number among the requests.
        seconds: after the state's instant.
        cpu, order: of the request.
        pfn, model_pfn: the kernel's page and the model's.
        kernel_has: where the kernel has the model's page.
        model_has: where the model has the kernel's page.
        cause: one of `CAUSES`.
        requests: departed requests that follow from it, with itself.
    """

    request: int
    seconds: float
    cpu: int
    order: int
    pfn: int
    model_pfn: int
    kernel_has: str
    model_has: str
    cause: str
    requests: int

    def words(self) -> str:
        """One sentence for a note."""
        return (
            f"request {self.request} of order {self.order} on CPU {self.cpu}, {self.seconds:.6f} s "
            f"after the state: the kernel gave page {self.pfn}, the model {self.model_pfn}; the "
            f"kernel had the model's page {self.kernel_has or 'at no known place'}, the model the "
            f"kernel's {self.model_has}: {self.cause}"
        )


@dataclass(frozen=True, kw_only=True)
class DepartureCauses:
    """Causes of all departures of a recording.

    A request departs by itself where neither page was part of a departure before. Else it follows
    from that one, until the model gives the page where the kernel does.
    """

    requests: int
    departures: tuple[Departure, ...]

    def counts(self) -> dict[str, tuple[int, int]]:
        """Departures by cause, and the requests that they are or that follow from them."""
        counted = {}
        for cause in CAUSES:
            own = [each.requests for each in self.departures if each.cause == cause]
            if own:
                counted[cause] = (len(own), sum(own))
        return counted

    def table(self) -> Table:
        """Departed requests by cause; they add up to all of them."""
        counts = self.counts()
        counts["all"] = (len(self.departures), sum(each.requests for each in self.departures))
        rows = [
            [cause, roots, departed, f"{departed / max(self.requests, 1):.2%}"]
            for cause, (roots, departed) in counts.items()
        ]
        columns = [*word_columns("cause of another page"), "departures", "requests"]
        caption = "requests that got another page than the kernel's, by cause"
        return Table([*columns, Column(title="of all")], rows, caption, grouped=False)


def departure_causes(recording: Recording, found: PageForPage) -> DepartureCauses:
    """Causes of the departures of a replay.

    Args:
        recording: with a state file.
        found: its replay beside the kernel.
    """
    roots, sizes = _roots(found)
    last = recording.states[-1].state if found.free_lists else None
    seen = _PagesSeen(recording.trace, found, last)
    _, pages = bulk_calls(recording.trace, found.prepared.machine)
    bulk = frozenset(pages.tolist())
    departures = [
        _departure(found, request, sizes[place], state, places, seen, bulk)
        for place, (request, state, places) in enumerate(_states_before(found, roots))
    ]
    return DepartureCauses(requests=found.requests, departures=tuple(departures))


def _roots(found: PageForPage) -> tuple[list[int], list[int]]:
    """Requests that departed by themselves, and how many follow from each, with itself."""
    part_of: dict[int, int] = {}
    roots: list[int] = []
    sizes: list[int] = []
    pairs = zip(found.pfn.tolist(), found.model_pfn.tolist(), strict=True)
    for request, (kernel, model) in enumerate(pairs):
        if kernel == model:
            part_of.pop(kernel, None)
            continue
        root = part_of.get(model, part_of.get(kernel))
        if root is None:
            root = len(roots)
            roots.append(request)
            sizes.append(0)
        sizes[root] += 1
        part_of[kernel] = root
        if model >= 0:
            part_of[model] = root
    return roots, sizes


def _states_before(
    found: PageForPage, requests: list[int]
) -> Iterator[tuple[int, State, np.ndarray]]:
    """The model's state right before each of these requests, and where objects are."""
    state, places, position = found.start(), found.prepared.demand.starting_places(), 0
    for request in requests:
        row = int(found.rows[request])
        advanced(state, found.prepared.demand.events, places, position, row)
        position = row
        yield request, state, places


class _PagesSeen:
    """Where the kernel has a page, by the events before and after."""

    def __init__(self, trace: Trace, found: PageForPage, end: MachineState | None) -> None:
        self.trace = trace
        events, objects = found.prepared.demand.events, found.prepared.demand.objects
        scans = events[events["operation"] == at.ISOLATE_FREE]
        self._isolated: dict[int, list[int]] = {}
        firsts = objects["pfn"][scans["object"]].tolist()
        for pfn, order, time_ns in zip(
            firsts, scans["order"].tolist(), scans["time_ns"].tolist(), strict=True
        ):
            for page in range(pfn, pfn + (1 << order)):
                self._isolated.setdefault(page, []).append(time_ns)
        size = np.int64(1) << np.clip(trace.order, 0, _LARGEST_ORDER).astype(np.int64)
        # a fallback's event stands beside that of the pages it gave
        size[(trace.pfn < 0) | (trace.event == Event.EXTFRAG)] = 0
        row = np.repeat(np.arange(len(trace)), size)
        first = np.repeat(np.cumsum(size) - size, size)
        page = trace.pfn[row] + np.arange(len(row)) - first
        by_page = np.argsort(page, kind="stable")
        self._pages, self._rows = page[by_page], row[by_page]
        self._listed: dict[int, str] = {}
        self._in_use = np.zeros(0, bool)
        if end is not None:
            self._in_use = end.page_refcount > 0
            for kind, name in ((ON_FREE_LIST, _FREE), (ON_PCP_LIST, _PCP)):
                pfns, _ = end.list_of_entries(kind)
                self._listed |= dict.fromkeys(pfns.tolist(), name)

    def rows(self, pfn: int) -> np.ndarray:
        """Rows of the events of a page."""
        low, high = np.searchsorted(self._pages, [pfn, pfn + 1])
        return self._rows[low:high]

    def allocation(self, pfn: int, time_ns: int) -> int:
        """Row of the allocation of a page next to a time."""
        rows = self.rows(pfn)
        rows = rows[self.trace.event[rows] == Event.ALLOC]
        return int(rows[np.argmin(np.abs(self.trace.time_ns[rows] - time_ns))])

    def place(self, pfn: int, row: int) -> str:
        """Where the kernel has a page before a row's event."""
        rows = self.rows(pfn)
        after = int(np.searchsorted(rows, row))
        if after < len(rows):
            event = Event(int(self.trace.event[rows[after]]))
            if event in (Event.FREE, Event.FREE_BATCHED):
                return _IN_USE
            return _FREE if event == Event.ZONE_LOCKED else _PCP
        if pfn in self._listed:
            return self._listed[pfn]
        return _IN_USE if pfn < len(self._in_use) and self._in_use[pfn] else _UNKNOWN

    def is_isolated(self, pfn: int, row: int) -> bool:
        """Tell whether a scan of compaction has taken it since its last event before a row."""
        rows = self.rows(pfn)
        last = int(np.searchsorted(rows, row)) - 1
        since_ns = int(self.trace.time_ns[rows[last]]) if last >= 0 else -1
        now_ns = int(self.trace.time_ns[row])
        return any(since_ns <= each <= now_ns for each in self._isolated.get(pfn, ()))

    def is_taken_before(self, pfn: int, row: int) -> bool:
        """Tell whether the next event of another task, by a row, says that it has a page."""
        trace, rows = self.trace, self.rows(pfn)
        after = rows[rows > row]
        if not len(after) or trace.event[after[0]] != Event.ALLOC:
            return False
        task, between = trace.pid[after[0]], slice(row + 1, after[0])
        own = (trace.pid[between] == task) & (trace.in_interrupt[between] <= 0)
        return bool(task != trace.pid[row]) and not own.any()

    def freed_past_lists(self, pfn: int, row: int) -> int:
        """Row of its free, if it was on a free list after that with no event of a drain, or -1."""
        rows = self.rows(pfn)
        after = int(np.searchsorted(rows, row))
        near = rows[max(after - 2, 0) : after + 1]
        around = self.trace.event[near]
        freed = np.isin(around[:-1], (Event.FREE, Event.FREE_BATCHED))
        missed = near[:-1][freed & (around[1:] == Event.ZONE_LOCKED)]
        return int(missed[-1]) if len(missed) else -1


def _departure(
    found: PageForPage,
    request: int,
    size: int,
    state: State,
    places: np.ndarray,
    seen: _PagesSeen,
    bulk: frozenset[int],
) -> Departure:
    event = found.prepared.demand.events[found.rows[request]]
    kernel, model = int(found.pfn[request]), int(found.model_pfn[request])
    row = seen.allocation(kernel, int(event["time_ns"]))
    model_has, holder = _model_place(state, places, found, kernel)
    kernel_has = seen.place(model, row) if model >= 0 else _UNKNOWN
    cpu = int(event["cpu"])
    if model < 0:
        cause = NO_PAGE
    elif kernel_has == _IN_USE or holder == HIDDEN:
        is_isolated = any(seen.is_isolated(pfn, row) for pfn in (kernel, model))
        cause = BULK if {kernel, model} & bulk else COMPACTION if is_isolated else UNSEEN
    elif holder >= 0:
        cause = UNSEEN_FREE
    elif (freed := max(seen.freed_past_lists(pfn, row) for pfn in (kernel, model))) >= 0:
        # an interrupt amid a drain finds the lists in use, and frees to the buddy (S4.10)
        cause = INTERRUPT if seen.trace.in_interrupt[freed] == 1 else UNSEEN_DRAIN
    elif _is_amid_transaction(seen, row):
        cause = AMID
    elif _is_beside_interrupt(seen, row):
        cause = INTERRUPT
    elif model_has != f"on the list of CPU {cpu}" or kernel_has == _FREE:
        cause = OTHER_LIST
    else:
        cause = PREEMPTED if seen.is_taken_before(model, row) else ORDER
    return Departure(
        request=request,
        seconds=float(found.seconds[request]),
        cpu=cpu,
        order=int(event["order"]),
        pfn=kernel,
        model_pfn=model,
        kernel_has=kernel_has,
        model_has=model_has,
        cause=cause,
        requests=size,
    )


def _is_amid_transaction(seen: _PagesSeen, row: int) -> bool:
    """Tell whether another CPU's events just before and after a row's move pages of its lists."""
    trace = seen.trace
    moves = (Event.ZONE_LOCKED, Event.PCPU_DRAIN)
    for cpu in np.unique(trace.cpu[max(row - _ROWS_NEAR, 0) : row]).tolist():
        if cpu == trace.cpu[row]:
            continue
        sides = []
        for near in (
            range(row - 1, max(row - _ROWS_NEAR, 0) - 1, -1),
            range(row, row + _ROWS_NEAR),
        ):
            other = next((r for r in near if r < len(trace) and trace.cpu[r] == cpu), -1)
            sides.append((trace.event[other], trace.pid[other]) if other >= 0 else None)
        if sides[0] is not None and sides[0] == sides[1] and sides[0][0] in moves:
            return True
    return False


def _is_beside_interrupt(seen: _PagesSeen, row: int) -> bool:
    """Tell whether an interrupt's event is beside a row's on its CPU, or is the row itself."""
    trace = seen.trace
    near = slice(max(row - 8, 0), row + 9)
    own = (trace.cpu[near] == trace.cpu[row]) & (
        np.abs(trace.time_ns[near] - trace.time_ns[row]) < _NEAR_NS
    )
    return bool((trace.in_interrupt[near][own] == 1).any())


def _model_place(state: State, places: np.ndarray, found: PageForPage, pfn: int) -> tuple[str, int]:
    """Where the model has a page, and the kind of the object that has it, -1 for none."""
    for order in range(at.ORDERS):
        head = pfn >> order << order
        page = state.pages[head]
        if page["order"] < order:
            continue
        if page["where"] == at.BUDDY:
            return f"in a free buddy of order {page['order']}", -1
        if page["where"] == at.ON_PCP:
            for (_, cpu, _, _), pages in pcp_lists(state, []).items():
                if head in pages:
                    return f"on the list of CPU {cpu}", -1
        if page["where"] == at.ALLOCATED:
            objects = found.prepared.demand.objects
            owners = np.flatnonzero(places == head)
            return "in use", int(objects["kind"][owners[-1]]) if len(owners) else HIDDEN
    return "in use since before the state", HIDDEN
