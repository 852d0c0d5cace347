"""What happens to an allocator, one step at a time."""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracle import Oracle


@dataclass(frozen=True)
class Asked:
    """What a request asks for; arguments as of `Oracle.alloc`."""

    cpu: int
    order: int
    migratetype: int
    highest_zone: int
    bits: int


@dataclass(frozen=True)
class Alloc(Asked):
    """Ask for pages; arguments as of `Oracle.alloc`."""

    recorded_success: bool
    reclaimed: int = 0


@dataclass(frozen=True)
class Replayed(Asked):
    """A request that succeeded in the recording; arguments as of `Oracle.alloc_as_recorded`.

    A hidden one has no event of its own.
    """

    reclaimed: int = 0
    only_zone: int | None = None
    is_hidden: bool = False


@dataclass(frozen=True)
class Failed(Asked):
    """A request that failed in the recording; arguments as of `Oracle.fail_as_recorded`."""

    reclaimed: int = 0


@dataclass(frozen=True)
class BeginRequest(Asked):
    """Interrupts come into a request's refill; arguments as of `Oracle.begin_request`."""


@dataclass(frozen=True)
class HoldDrained:
    """Interrupts come into the drain of a CPU's last free."""

    cpu: int


@dataclass(frozen=True)
class Isolate:
    """Recorded compaction takes free pages; arguments as of `Oracle.isolate`."""

    cpu: int
    zone: int
    orders: tuple[int, ...]


@dataclass(frozen=True)
class Capture:
    """Recorded compaction serves a request; arguments as of `Oracle.capture`."""

    cpu: int
    zone: int
    order: int
    migratetype: int


@dataclass(frozen=True)
class Free:
    """Free pages in use, perhaps as one of a folio batch, perhaps by an interrupt during one."""

    cpu: int
    pfn: int
    order: int
    batched: bool = False
    interrupts: bool = False


@dataclass(frozen=True)
class FreeSingly:
    """Free single pages that served one request, last first, perhaps as folio batches."""

    cpu: int
    pages: Live
    batched: bool = False


@dataclass(frozen=True)
class FreeNothing:
    """Free pages that are not in use here, perhaps as one of a folio batch."""

    cpu: int
    order: int
    batched: bool = False


@dataclass(frozen=True)
class Tick:
    """A CPU's vmstat worker runs, when it is due or when the recording says so."""

    cpu: int
    is_recorded: bool = False


@dataclass(frozen=True)
class DrainAll:
    """All per-CPU lists are emptied."""


@dataclass(frozen=True)
class KillCpu:
    """A CPU goes offline; another empties its lists."""

    cpu: int
    by: int


@dataclass(frozen=True)
class ReviveCpu:
    """A CPU comes back online."""

    cpu: int


@dataclass(frozen=True)
class KswapdStart:
    """A recorded run begins, for zones up to a type."""

    node: int
    highest_zone: int


@dataclass(frozen=True)
class KswapdStop:
    """A recorded run ends."""

    node: int


@dataclass(frozen=True)
class SetPcpHigh:
    """A page set's limit becomes what a recording found."""

    zone: int
    cpu: int
    high: int


@dataclass(frozen=True)
class SetBoost:
    """A zone's boost becomes what a recording found."""

    zone: int
    pages: int


@dataclass(frozen=True)
class DrainZone:
    """A CPU empties another's lists of one zone, as recorded."""

    zone: int
    cpu: int
    by: int


@dataclass(frozen=True)
class DrainLocal:
    """Recorded compaction empties the lists of its CPU of the zone that it compacts."""

    zone: int
    cpu: int


@dataclass(frozen=True)
class Grow:
    """A zone gets memory that it had not."""

    zone: int
    pfn: int
    order: int
    cpu: int


@dataclass(frozen=True)
class ReclaimBegin(Asked):
    """Direct reclaim begins for a request; arguments as of `Oracle.begin_reclaim`."""

    number: int


@dataclass(frozen=True)
class ReclaimInVain(Asked):
    """Direct reclaim ends, and its request goes on; arguments as of `Oracle.reclaim_in_vain`."""


Step = (
    Alloc
    | Replayed
    | Failed
    | BeginRequest
    | HoldDrained
    | Isolate
    | Capture
    | Free
    | FreeSingly
    | FreeNothing
    | Tick
    | DrainAll
    | KillCpu
    | ReviveCpu
    | KswapdStart
    | KswapdStop
    | SetPcpHigh
    | SetBoost
    | DrainZone
    | DrainLocal
    | Grow
    | ReclaimBegin
    | ReclaimInVain
)

Live = tuple[tuple[int, int], ...]
"""(First page, order) of what serves one request: a buddy, or single pages."""


CALLS = {
    Failed: "fail_as_recorded",
    BeginRequest: "begin_request",
    HoldDrained: "hold_drained",
    Free: "free",
    FreeSingly: "free_singly",
    DrainAll: "drain_all",
    KillCpu: "kill_cpu",
    ReviveCpu: "revive_cpu",
    KswapdStart: "start_kswapd",
    KswapdStop: "stop_kswapd",
    SetPcpHigh: "set_pcp_high",
    SetBoost: "set_boost",
    DrainZone: "drain_zone",
    DrainLocal: "drain_local",
    Grow: "grow",
    ReclaimBegin: "begin_reclaim",
    ReclaimInVain: "reclaim_in_vain",
}
"""Methods of an oracle that take a step's fields and give nothing."""


def take_step(oracle: Oracle, step: Step) -> Live:
    """One step on an oracle; the pages it is given, if any."""
    words = dict(vars(step))
    match step:
        case Alloc():
            pfn = oracle.alloc(**words)
            return () if pfn is None else ((pfn, step.order),)
        case Replayed():
            if words.pop("is_hidden"):
                del words["reclaimed"]
                return oracle.alloc_hidden(**words)
            return oracle.alloc_as_recorded(**words)
        case Isolate():
            return tuple(page for piece in oracle.isolate(**words) for page in piece)
        case Capture():
            return oracle.capture(**words)
        case FreeNothing():
            oracle.free_nothing(step.cpu, batched=step.batched)
        case Tick(is_recorded=True):
            oracle.tick_as_recorded(step.cpu)
        case Tick():
            oracle.tick(step.cpu)
        case _:
            getattr(oracle, CALLS[type(step)])(**words)
    return ()
