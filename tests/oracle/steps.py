"""What happens to an allocator, one step at a time."""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracle import Oracle


@dataclass(frozen=True)
class Alloc:
    """Ask for pages; arguments as of `Oracle.alloc`."""

    cpu: int
    order: int
    migratetype: int
    highest_zone: int
    bits: int
    recorded_success: bool
    reclaimed: int = 0


@dataclass(frozen=True)
class Replayed:
    """A request that succeeded in the recording; arguments as of `Oracle.alloc_as_recorded`.

    A hidden one has no event of its own.
    """

    cpu: int
    order: int
    migratetype: int
    highest_zone: int
    bits: int
    reclaimed: int = 0
    only_zone: int | None = None
    is_hidden: bool = False


@dataclass(frozen=True)
class Failed:
    """A request that failed in the recording; arguments as of `Oracle.fail_as_recorded`."""

    cpu: int
    order: int
    migratetype: int
    highest_zone: int
    bits: int
    reclaimed: int = 0


@dataclass(frozen=True)
class BeginRequest:
    """Interrupts come into a request's refill; arguments as of `Oracle.begin_request`."""

    cpu: int
    order: int
    migratetype: int
    highest_zone: int
    bits: int


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
class ReclaimBegin:
    """Direct reclaim begins for a request; arguments as of `Oracle.begin_reclaim`."""

    number: int
    cpu: int
    order: int
    migratetype: int
    highest_zone: int
    bits: int


@dataclass(frozen=True)
class ReclaimInVain:
    """Direct reclaim ends, and its request goes on; arguments as of `Oracle.reclaim_in_vain`."""

    cpu: int
    order: int
    migratetype: int
    highest_zone: int
    bits: int


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


def take_step(oracle: Oracle, step: Step) -> Live:
    """One step on an oracle; the pages it is given, if any."""
    match step:
        case Alloc():
            pfn = oracle.alloc(**vars(step))
            return () if pfn is None else ((pfn, step.order),)
        case Replayed(is_hidden=True):
            return oracle.alloc_hidden(
                step.cpu,
                step.order,
                step.migratetype,
                step.highest_zone,
                step.bits,
                only_zone=step.only_zone,
            )
        case Replayed():
            request = {name: word for name, word in vars(step).items() if name != "is_hidden"}
            return oracle.alloc_as_recorded(**request)
        case Failed():
            oracle.fail_as_recorded(**vars(step))
        case BeginRequest():
            oracle.begin_request(**vars(step))
        case HoldDrained():
            oracle.hold_drained(step.cpu)
        case Isolate():
            return tuple(page for piece in oracle.isolate(**vars(step)) for page in piece)
        case Capture():
            return oracle.capture(**vars(step))
        case Free():
            oracle.free(
                step.cpu,
                step.pfn,
                step.order,
                batched=step.batched,
                interrupts=step.interrupts,
            )
        case FreeSingly():
            oracle.free_singly(step.cpu, step.pages, batched=step.batched)
        case FreeNothing():
            oracle.free_nothing(step.cpu, batched=step.batched)
        case Tick(is_recorded=True):
            oracle.tick_as_recorded(step.cpu)
        case Tick():
            oracle.tick(step.cpu)
        case DrainAll():
            oracle.drain_all()
        case KillCpu():
            oracle.kill_cpu(step.cpu, step.by)
        case ReviveCpu():
            oracle.revive_cpu(step.cpu)
        case KswapdStart():
            oracle.start_kswapd(step.node, step.highest_zone)
        case KswapdStop():
            oracle.stop_kswapd(step.node)
        case SetPcpHigh():
            oracle.set_pcp_high(step.zone, step.cpu, step.high)
        case SetBoost():
            oracle.set_boost(step.zone, step.pages)
        case DrainZone():
            oracle.drain_zone(step.zone, step.cpu, step.by)
        case DrainLocal():
            oracle.drain_local(step.zone, step.cpu)
        case Grow():
            oracle.grow(step.zone, step.pfn, step.order, step.cpu)
        case ReclaimBegin():
            oracle.begin_reclaim(**vars(step))
        case ReclaimInVain():
            oracle.reclaim_in_vain(**vars(step))
    return ()
