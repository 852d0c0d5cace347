"""Reports of failed allocations as kernels print them, of zones that a test makes up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

LETTERS = {
    "Unmovable": "U",
    "Movable": "M",
    "Reclaimable": "E",
    "HighAtomic": "H",
    "CMA": "C",
    "Isolate": "I",
}


@dataclass(frozen=True, kw_only=True)
class MadeZone:
    """A zone, pages; `blocks` are free blocks by type and order."""

    node: int = 0
    name: str = "Normal"
    min: int = 1000
    boost: int = 0
    managed: int = 1 << 20
    reserved_highatomic: int = 0
    lowmem_reserve: tuple[int, ...] = (0, 0, 0, 0)
    blocks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    further: int = 0
    """Free pages that no list has, as where a page is freed between the two lines."""

    def pages(self, migratetype: str = "") -> int:
        rows = [self.blocks.get(migratetype, ())] if migratetype else self.blocks.values()
        return sum(count << order for row in rows for order, count in enumerate(row))

    @property
    def free(self) -> int:
        return self.pages() - self.pages("Isolate") + self.further


def report(
    zones: Sequence[MadeZone],
    *,
    order: int = 4,
    gfp: str = "GFP_KERNEL|__GFP_COMP",
    version: tuple[int, int] = (6, 12),
    page_kb: int = 4,
    orders: int = 11,
    prefix: str = "",
    oom: bool = False,
    stack: str = " <TASK>",
    mode: str = "0x40cc0",
) -> str:
    """A page allocation failure or OOM report with what kernels of that version print."""
    names = f"({gfp})" if version >= (4, 7) else ""
    release = f"{version[0]}.{version[1]}.7-made-up"
    user = "UID: 0 " if version >= (6, 12) else ""
    first = f"kworker/u8:3: page allocation failure: order:{order}, mode:{mode}{names}"
    if version >= (4, 12):
        first += ", nodemask=(null)"
    if version >= (5, 0):
        first += ",cpuset=/,mems_allowed=0-1"
    if oom:
        first = f"stress invoked oom-killer: gfp_mask={mode}{names}, order={order}, oom_score_adj=0"
    lines = [
        first,
        f"CPU: 1 {user}PID: 77 Comm: kworker/u8:3 Not tainted {release} #1 PREEMPT",
        "Hardware name: made up for a test",
        "Call Trace:",
        stack,
        " warn_alloc+0xf3/0x16c",
        "Mem-Info:",
        "active_anon:5 inactive_anon:110691 isolated_anon:0",
        f" free:{sum(zone.free for zone in zones)} free_pcp:0 free_cma:0",
    ]
    for node in sorted({zone.node for zone in zones}):
        lines.append(
            f"Node {node} active_anon:20kB inactive_anon:442764kB active_file:4408kB "
            "inactive_file:19104kB unevictable:0kB shmem:0kB all_unreclaimable? no"
        )
    for zone in zones:
        lines += [_row(zone, version, page_kb), _reserve(zone)]
    for zone in zones:
        lines.append(_buddies(zone, page_kb, orders))
    lines += ["5957 total pagecache pages", "Free swap  = 1024kB", "Total swap = 2048kB"]
    return "".join(f"{prefix}{line}\n" for line in lines)


def _row(zone: MadeZone, version: tuple[int, int], page_kb: int) -> str:
    """show_free_areas(): a zone's sizes, kB."""
    gap = zone.min // 4
    sizes = {"free": zone.free}
    if version >= (5, 16):
        sizes["boost"] = zone.boost
    for place, name in enumerate(("min", "low", "high")):
        sizes[name] = zone.min + zone.boost + gap * place
    if version >= (5, 6):
        sizes["reserved_highatomic"] = zone.reserved_highatomic
    if version >= (7, 0):
        sizes["free_highatomic"] = zone.pages("HighAtomic")
    sizes |= {"active_file": 11, "inactive_file": 22, "present": zone.managed}
    sizes |= {"managed": zone.managed, "free_pcp": 3, "free_cma": zone.pages("CMA")}
    words = " ".join(f"{name}:{pages * page_kb}kB" for name, pages in sizes.items())
    return f"Node {zone.node} {zone.name} {words}"


def _reserve(zone: MadeZone) -> str:
    return f"lowmem_reserve[]: {' '.join(map(str, zone.lowmem_reserve))}"


def _buddies(zone: MadeZone, page_kb: int, orders: int) -> str:
    """show_free_areas(): free blocks by order with the letters of the types that have some."""
    words = []
    for order in range(orders):
        counts = {name: row[order] for name, row in zone.blocks.items() if order < len(row)}
        letters = "".join(LETTERS[name] for name in LETTERS if counts.get(name))
        words.append(
            f"{sum(counts.values())}*{page_kb << order}kB" + (f" ({letters})" if letters else "")
        )
    return f"Node {zone.node} {zone.name}: {' '.join(words)} = {zone.pages() * page_kb}kB"


ALMOST = (
    "Node 0 Normal free:1kB " + "a:1kB" * 100_000,
    "Node 0 Normal: " + "1*4kB (U) " * 100_000,
    "page allocation failure: order:4, mode:0x0(" + "A|" * 100_000,
    "Node 0 " + "x" * 100_000 + " all_unreclaimable? ",
    "nodemask=" + "1-9," * 100_000 + " mems_allowed=" + "0," * 100_000,
    "CPU: 1 Comm: " + "6.1." * 100_000,
    "] " * 200_000 + ": page allocation failure: order:4, mode:0x0",
    "lowmem_reserve[]:" + " 1" * 200_000,
    "Linux version " + "9." * 100_000,
    "Node 9999 Normal free:1kB min:1kB low:1kB high:1kB",
    "999999999999999*4kB " * 1000,
)
"""Lines that a pattern which goes back would take very long over."""
