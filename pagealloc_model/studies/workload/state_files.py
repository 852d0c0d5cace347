"""/proc/zoneinfo and /proc/pagetypeinfo of a machine whose memory is all free (T12)."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import State
from pagealloc_model.recording.machine import Machine


def zoneinfo_text(state: State) -> str:
    """As the kernel prints it, per-CPU lists empty.

    Args:
        state: a state made for the machine: limits of its per-CPU lists.
    """
    lines: list[str] = []
    for index, zone in enumerate(state.machine.zones):
        sizes = ("min", "low", "high", "spanned", "present", "managed")
        lines += [
            f"Node {zone.node}, zone {zone.name:>8}",
            f"  pages free     {zone.managed}",
            f"        boost    {zone.boost}",
            *[f"        {name:<8} {getattr(zone, name)}" for name in sizes],
            f"        protection: ({', '.join(map(str, zone.lowmem_reserve))})",
        ]
        if zone.managed:
            lines += ["  pagesets"]
            for cpu in range(state.machine.nr_cpus):
                lines += _pageset(state, index, cpu)
            lines += ["  node_unreclaimable:  0", f"  start_pfn:           {zone.start_pfn}"]
    return "\n".join(lines) + "\n"


def _pageset(state: State, zone: int, cpu: int) -> list[str]:
    region = state.pcp_region(zone, cpu)
    words = {
        "count": 0,
        "high": int(region[at.PCP_HIGH]),
        "batch": int(region[at.PCP_BATCH]),
    }
    if state.st[at.RULE_PCP_AUTO_TUNED]:
        words["high_min"] = int(region[at.PCP_HIGH_MIN])
        words["high_max"] = int(region[at.PCP_HIGH_MAX])
    return [f"    cpu: {cpu}", *[f"              {name}: {value}" for name, value in words.items()]]


def pagetypeinfo_text(machine: Machine) -> str:
    """As the kernel prints it: everything Movable, in the largest buddies."""
    orders = range(machine.max_order + 1)
    names = machine.migratetypes
    lines = [
        f"Page block order: {machine.pageblock_order}",
        f"Pages per block:  {1 << machine.pageblock_order}",
        "",
        f"Free pages count per migrate type at order {''.join(f'{order:7}' for order in orders)}",
    ]
    populated = [zone for zone in machine.zones if zone.managed]
    for zone in populated:
        for name in names:
            counts = [0] * len(orders)
            if name == "Movable":
                counts[-1] = zone.managed >> machine.max_order
            cells = "".join(f"{count:7}" for count in counts)
            lines.append(f"Node {zone.node:4}, zone {zone.name:>8}, type {name:>12} {cells}")
    lines += ["", f"Number of blocks type {' '.join(names)}"]
    for zone in populated:
        blocks = [
            zone.managed >> machine.pageblock_order if name == "Movable" else 0 for name in names
        ]
        lines.append(f"Node {zone.node}, zone {zone.name:>8} {' '.join(map(str, blocks))}")
    return "\n".join(lines) + "\n"
