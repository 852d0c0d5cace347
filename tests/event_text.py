"""Recordings written as event text: what a test says happened, one call per event."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pagealloc_model.recording.trace.columns import Trace
from pagealloc_model.recording.trace.trace_text import read_perf_script


class EventText:
    """Events 1 us apart; `cpu`, `pid` and `comm` hold until changed."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.cpu, self.pid, self.comm = 0, 10, "task"

    def on(self, cpu: int, pid: int = 10, comm: str = "task") -> EventText:
        self.cpu, self.pid, self.comm = cpu, pid, comm
        return self

    def event(self, name: str, body: str) -> None:
        time = f"1.{len(self.lines):06d}"
        self.lines.append(f"{self.comm} {self.pid} [{self.cpu:03d}] {time}: {name}: {body}")

    def alloc(
        self, pfn: int, order: int = 0, gfp: str = "GFP_KERNEL", migratetype: int = 0
    ) -> None:
        page = "(nil)" if pfn < 0 else hex(pfn)
        self.event(
            "kmem:mm_page_alloc",
            f"page={page} pfn={max(pfn, 0):#x} order={order} migratetype={migratetype} "
            f"gfp_flags={gfp}",
        )

    def free(self, pfn: int, order: int = 0) -> None:
        self.event("kmem:mm_page_free", f"page={pfn:#x} pfn={pfn:#x} order={order}")

    def batched(self, pfn: int) -> None:
        self.event("kmem:mm_page_free_batched", f"page={pfn:#x} pfn={pfn:#x} order=0")

    def locked(self, *pfns: int, order: int = 0, migratetype: int = 0, refill: int = 1) -> None:
        for pfn in pfns:
            self.event(
                "kmem:mm_page_alloc_zone_locked",
                f"page={pfn:#x} pfn={pfn:#x} order={order} migratetype={migratetype} "
                f"percpu_refill={refill}",
            )

    def drained(self, *pfns: int, order: int = 0, migratetype: int = 0) -> None:
        for pfn in pfns:
            self.event(
                "kmem:mm_page_pcpu_drain",
                f"page={pfn:#x} pfn={pfn:#x} order={order} migratetype={migratetype}",
            )

    def fallback(
        self, pfn: int, *, order: int = 0, found: int, owned: int, wanted: int = 0, taken: int = 1
    ) -> None:
        self.event(
            "kmem:mm_page_alloc_extfrag",
            f"page={pfn:#x} pfn={pfn:#x} alloc_order={order} fallback_order={found} "
            f"pageblock_order=9 alloc_migratetype={wanted} fallback_migratetype={taken} "
            f"fragmenting={int(found < 9)} "
            f"change_ownership={owned}",
        )

    def trace(self, directory: Path) -> Trace:
        path = directory / "events.txt"
        path.write_text("\n".join(self.lines) + "\n")
        return read_perf_script(path)


def gfp_from_names(text: str, bits: Mapping[str, int]) -> int:
    """The gfp word that prints as `text`, such as "GFP_KERNEL|__GFP_ZERO" or "0x1000000"."""
    word = 0
    for name in text.split("|"):
        if name not in ("none", "0"):
            word |= bits[name] if name in bits else int(name, 16)
    return word
