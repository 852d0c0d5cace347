"""A state set up page by page, and steps taken on it, for cases worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.events import advance
from pagealloc_model.allocator.state import State, make_state, note_isolated_blocks, place_buddies
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.machine import Machine, Zone

BLOCK = 512
KERNEL = at.GFP_DIRECT_RECLAIM | at.GFP_KSWAPD_RECLAIM
FAR = 1 << 62
"""A time at which no decay tick is due."""

ListName = tuple[int, int]
"""Order and migratetype of a free list."""


def one_zone(blocks: int = 8, **fields: int) -> Machine:
    """A machine with one CPU and one zone "DMA32" (so that nothing is NOFRAGMENT) at page 0."""
    pages = blocks * BLOCK
    sizes = {"start_pfn": 0, "spanned": pages, "present": pages, "managed": pages}
    marks = {"min": 0, "low": 0, "high": 0}
    return Machine(zones=(Zone(name="DMA32", **{**sizes, **marks, **fields}),), nr_cpus=1)


@dataclass
class Small:
    """A machine's state, all blocks MOVABLE and no page anywhere until put there.

    Attributes:
        rules: preset name.
        machine: where it runs.
        policy: what is swept.
        assumptions: ours.
        state: the model's arrays.
    """

    rules: str
    machine: Machine = field(default_factory=one_zone)
    policy: Policy = field(default_factory=Policy)
    assumptions: Assumptions = field(default_factory=Assumptions)
    state: State = field(init=False)

    def __post_init__(self) -> None:
        """Make the state; every page moved is logged, no tick is due."""
        self.state = make_state(
            self.machine,
            KernelRules.preset(self.rules),
            self.policy,
            self.assumptions,
            log_rows=1 << 18,
        )
        self.state.st[at.LOG_PAGES] = 1
        self.state.st[at.NEXT_TICK] = self.state.st[at.TICK_BASE] = FAR
        self._places = np.full(1 << 12, -1, np.int32)
        self._objects = 0
        self._owner: dict[int, int] = {}

    def tag(self, block: int, migratetype: int) -> None:
        """Give a block a type."""
        self.state.blocks[block]["migratetype"] = migratetype
        note_isolated_blocks(self.state)

    def put_free(self, order: int, *pfns: int, migratetype: int | None = None) -> None:
        """Put buddies at the tails of their blocks' lists, or of those of another type."""
        blocks = self.state.blocks["migratetype"]
        before = blocks.copy()
        if migratetype is not None:
            blocks[[pfn // BLOCK for pfn in pfns]] = migratetype
        orders = np.full(len(pfns), order, np.int8)
        firsts = np.array(pfns, np.int32)
        place_buddies(self.state.arrays(), firsts, orders)
        blocks[:] = before

    def put_allocated(self, order: int, *pfns: int, movable: bool = False) -> None:
        """Put pages in use."""
        for pfn in pfns:
            record = self.state.pages[pfn]
            record["where"], record["order"], record["tag"] = at.ALLOCATED, order, movable
            self._own(pfn, order)

    def alloc(
        self, order: int, migratetype: int, bits: int = KERNEL, *, cpu: int = 0, highest: int = 0
    ) -> int:
        """A request from zones up to a type; the page it gets, -1 if none."""
        number = self._objects
        self._take(
            operation=at.ALLOC,
            object=number,
            order=order,
            migratetype=migratetype,
            bits=bits,
            cpu=cpu,
            zone=highest,
        )
        pfn = int(self._places[number])
        self._own(pfn, order)
        return pfn

    def free(self, pfn: int, order: int = 0, *, cpu: int = 0) -> None:
        """Free a page."""
        number = self._owner.pop(pfn)
        self._take(operation=at.FREE, object=number, order=order, cpu=cpu)

    def start_kswapd(self, node: int, highest: int) -> None:
        """A recorded run begins on the node with this index."""
        self._take(operation=at.KSWAPD_START, offset=node, zone=highest)

    def stop_kswapd(self, node: int) -> None:
        """It ends."""
        self._take(operation=at.KSWAPD_STOP, offset=node)

    def tick(self, cpu: int = 0) -> None:
        """A CPU's decay tick."""
        self.state.st[at.TICK_CPU] = cpu
        self.state.st[at.NEXT_TICK] = 1
        self.state.st[at.LOG_ROWS] = 0
        no_events = np.zeros(0, at.EVENT)
        advance(self.state.arrays(self._places), no_events, 0, 0, 1)
        self.state.st[at.NEXT_TICK] = self.state.st[at.TICK_BASE] = FAR

    def list(self, order: int, migratetype: int) -> list[int]:
        """Pages of a free list, head first."""
        start = at.ZONE_LISTS + (order * at.MIGRATETYPES + migratetype) * at.LIST_WORDS
        return self.state.list_pages(self.zone[start : start + at.LIST_WORDS])

    def block_type(self, block: int) -> int:
        """A block's migratetype."""
        return int(self.state.blocks[block]["migratetype"])

    @property
    def zone(self) -> np.ndarray:
        """The zone's words."""
        return self.state.zone_region(0)

    @property
    def pageset(self) -> np.ndarray:
        """The CPU's words."""
        return self.state.pcp_region(0, 0)

    @property
    def removals(self) -> list[tuple[int, ...]]:
        """Page events of the last step: (kind, pfn, order, migratetype, rest of extfrag's)."""
        rows = self.state.log[: int(self.state.st[at.LOG_ROWS])].tolist()
        return [
            (kind, *rest[:6]) if kind == at.LOG_EXTFRAG else (kind, *rest[:3])
            for kind, _, _, _, *rest in rows
            if kind >= at.SITES
        ]

    @property
    def drains(self) -> list[int]:
        """Pages of each overflow drain of the last step."""
        rows = self.state.log[: int(self.state.st[at.LOG_ROWS])]
        return [int(row[7]) for row in rows if row[0] == at.SITE_DRAIN_COMMIT]

    def _own(self, pfn: int, order: int) -> None:
        self._places[self._objects] = pfn
        self._owner[pfn] = self._objects
        self._objects += 1

    def _take(self, **fields: int) -> None:
        self.state.st[at.LOG_ROWS] = 0
        events = np.zeros(1, at.EVENT)
        for name, value in fields.items():
            events[name] = value
        assert advance(self.state.arrays(self._places), events, 0, 1, -1) == 1
