"""What a replay predicts, as the tables that predictions and measurements share."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.invariants import set_words
from pagealloc_model.allocator.state import State
from pagealloc_model.base.arrays import parts
from pagealloc_model.recording.machine import Machine

EMPTY_REFILL, EMPTY_BUDDY_ALLOC = at.SITES, at.SITES + 1
SITE_NAMES = {
    at.SITE_REFILL: ("refill", ""),
    at.SITE_DRAIN_COMMIT: ("drain", "commit"),
    at.SITE_DRAIN_DECAY: ("drain", "decay"),
    at.SITE_DRAIN_ALL: ("drain", "drain_all"),
    at.SITE_BUDDY_ALLOC: ("buddy_alloc", ""),
    at.SITE_DIRECT_FREE: ("direct_free", ""),
    at.SITE_RESERVE: ("reserve", ""),
    at.SITE_UNRESERVE: ("unreserve", ""),
    at.SITE_BOOST_RESET: ("boost_reset", ""),
    EMPTY_REFILL: ("empty_refill", ""),
    EMPTY_BUDDY_ALLOC: ("empty_buddy_alloc", ""),
}
"""Site and cause of each of `named_sites`."""
EMPTY_SITES = (SITE_NAMES[EMPTY_REFILL][0], SITE_NAMES[EMPTY_BUDDY_ALLOC][0])
_OBJECTS = 6


def named_sites(log: np.ndarray) -> np.ndarray:
    """Return the site of each hold, a key of `SITE_NAMES`.

    Args:
        log: int64, shape (rows, LOG_COLUMNS), without rows of pages.
    """
    site = log[:, 0]
    found_nothing = log[:, _OBJECTS] == 0
    site = np.where(found_nothing & (site == at.SITE_REFILL), EMPTY_REFILL, site)
    return np.where(found_nothing & (site == at.SITE_BUDDY_ALLOC), EMPTY_BUDDY_ALLOC, site)


FALLBACK_KINDS = {at.CLAIM_BLOCK: "claim_block", at.CLAIM: "claim", at.STEAL: "steal"}
LITERAL = "a literal replay repeats the recorded reclaim and cannot know this under another policy"
UNKNOWN_COUNTERS = (
    "thp_fault_alloc",
    "thp_fault_fallback",
    "compact_stall",
    "compact_success",
    "compact_fail",
    "pgscan_kswapd",
    "pgsteal_kswapd",
    "allocstall_normal",
)


def _managed(machine: Machine) -> list[int]:
    return [index for index, zone in enumerate(machine.zones) if zone.managed]


def _frame(
    machine: Machine, time_ns: np.ndarray, shape: tuple[int, ...], names: list[str]
) -> dict[str, np.ndarray]:
    """Key columns for values of shape (times, managed zones, *shape), in C order."""
    zones = _managed(machine)
    full = (len(time_ns), len(zones), *shape)
    grids = np.indices(full).reshape(len(full), -1)
    zone_names = np.array([machine.zones[index].name for index in zones], object)
    nodes = np.array([machine.zones[index].node for index in zones])
    columns = {
        "time_ns": time_ns[grids[0]],
        "node": nodes[grids[1]],
        "zone": zone_names[grids[1]],
    }
    for axis, name in enumerate(names):
        columns[name] = grids[axis + 2]
    return columns


def free_pages(machine: Machine, time_ns: np.ndarray, buddies: np.ndarray) -> pd.DataFrame:
    """Free buddies by time, zone, order, migratetype.

    Args:
        machine: names of zones and migratetypes.
        time_ns: shape (samples,).
        buddies: shape (samples, zones, orders, migratetypes).
    """
    types = len(machine.migratetypes)
    orders = machine.max_order + 1
    values = buddies[:, _managed(machine), :orders, :types]
    columns = _frame(machine, time_ns, (orders, types), ["order", "migratetype"])
    columns["migratetype"] = np.array(machine.migratetypes, object)[columns["migratetype"]]
    columns["buddies"] = values.ravel()
    columns["pages"] = columns["buddies"] << columns["order"]
    return pd.DataFrame(columns)


def pageblocks(machine: Machine, time_ns: np.ndarray, blocks: np.ndarray) -> pd.DataFrame:
    """Pageblocks by time, zone, migratetype; `blocks` has shape (samples, zones, migratetypes)."""
    types = len(machine.migratetypes)
    columns = _frame(machine, time_ns, (types,), ["migratetype"])
    columns["migratetype"] = np.array(machine.migratetypes, object)[columns["migratetype"]]
    columns["blocks"] = blocks[:, _managed(machine), :types].ravel()
    return pd.DataFrame(columns)


def boosts(machine: Machine, time_ns: np.ndarray, values: np.ndarray) -> pd.DataFrame:
    """Watermark boosts by time and zone, pages; `values` has shape (samples, zones)."""
    columns = _frame(machine, time_ns, (), [])
    columns["pages"] = values[:, _managed(machine)].ravel()
    return pd.DataFrame(columns)


def pcp(machine: Machine, time_ns: np.ndarray, values: np.ndarray) -> pd.DataFrame:
    """Per-CPU list counts by time, zone, CPU; `values` has shape (samples, zones, cpus, 2)."""
    columns = _frame(machine, time_ns, (machine.nr_cpus,), ["cpu"])
    kept = values[:, _managed(machine)]
    columns["count"] = kept[..., 0].ravel()
    columns["high"] = kept[..., 1].ravel().astype(float)
    return pd.DataFrame(columns)


def lock(machine: Machine, edges: np.ndarray, log: np.ndarray) -> pd.DataFrame:
    """zone->lock use by time bin, zone and site.

    Args:
        machine: names of zones.
        edges: int64, bin edges.
        log: int64, shape (rows, LOG_COLUMNS): every hold between the first edge and the last.
    """
    log = log[log[:, 0] < at.SITES]
    names = list(dict.fromkeys(name for name, _ in SITE_NAMES.values()))
    number = np.array([names.index(SITE_NAMES[site][0]) for site in range(len(SITE_NAMES))])
    managed = _managed(machine)
    place = np.full(len(machine.zones), -1)
    place[managed] = np.arange(len(managed))
    bins = np.searchsorted(edges, log[:, 1], "right") - 1
    zones = place[log[:, 2]]
    inside = (bins >= 0) & (bins < len(edges) - 1) & (zones >= 0)
    cells = (bins * len(managed) + zones) * len(names) + number[named_sites(log)]
    columns = _frame(machine, edges[:-1], (len(names),), ["site"])
    columns["site"] = np.array(names, object)[columns["site"]]
    amounts = {"acquisitions": np.ones(len(log)), "objects": log[:, 6], "pages": log[:, 7]}
    for name, amount in amounts.items():
        sums = np.bincount(cells[inside], amount[inside], minlength=len(columns["site"]))
        columns[name] = sums.astype(np.int64)
    frame = pd.DataFrame(columns)
    for name in ("hold_ns", "wait_ns", "max_hold_ns"):
        frame[name] = np.nan
    return frame


def transactions_full(machine: Machine, log: np.ndarray) -> pd.DataFrame:
    """Every zone->lock hold; `log` has shape (rows, LOG_COLUMNS)."""
    log = log[log[:, 0] < at.SITES]
    site = named_sites(log)
    sites = np.array([SITE_NAMES[site][0] for site in range(len(SITE_NAMES))], object)
    causes = np.array([SITE_NAMES[site][1] for site in range(len(SITE_NAMES))], object)
    zones = np.array([zone.name for zone in machine.zones], object)
    types = np.array([*machine.migratetypes, ""], object)
    return pd.DataFrame(
        {
            "time_ns": log[:, 1],
            "node": np.array([zone.node for zone in machine.zones])[log[:, 2]],
            "zone": zones[log[:, 2]],
            "cpu": log[:, 3],
            "site": sites[site],
            "cause": causes[site],
            "objects": log[:, 6],
            "pages": log[:, 7],
            "order": log[:, 4],
            "migratetype": types[log[:, 5]],
        }
    )


def fallbacks(counts: np.ndarray) -> pd.DataFrame:
    """Fallback counts; `counts` has shape `layout.FALLBACK_SHAPE`."""
    names = ("Unmovable", "Movable", "Reclaimable")
    rows = [
        (names[wanted], names[other], order, found, FALLBACK_KINDS[kind], count)
        for (wanted, other, kind, order, found), count in zip(
            np.argwhere(counts).tolist(), counts[counts > 0].tolist(), strict=True
        )
    ]
    columns = ["alloc_migratetype", "fallback_migratetype", "alloc_order", "fallback_order"]
    return pd.DataFrame(rows, columns=[*columns, "kind", "count"])


_REQUESTS = (at.ALLOC, at.ALLOC_IN_ZONE, at.CAPTURE, at.RECORDED_FAILURE)


def outcomes(events: np.ndarray) -> pd.DataFrame:
    """Requests by order; whether they succeed under another policy is NA in a literal replay."""
    counts = np.zeros(at.ORDERS, np.int64)
    for part in parts(len(events)):
        together = events[part]
        asked = np.isin(together["operation"], _REQUESTS)
        counts += np.bincount(together["order"][asked], minlength=at.ORDERS)
    orders = np.flatnonzero(counts).astype(np.int8)
    counts = counts[orders]
    frame = pd.DataFrame({"class": "all", "order": orders, "asked": counts})
    for name in ("succeeded", "failed", "stalled"):
        frame[name] = pd.array([pd.NA] * len(frame), dtype="Int64")
    frame["reason"] = LITERAL
    return frame


def vmstat(time_ns: int) -> pd.DataFrame:
    """Counters that a literal replay cannot predict, all NA with the reason."""
    return pd.DataFrame(
        {
            "name": UNKNOWN_COUNTERS,
            "time_ns": time_ns,
            "value": pd.array([pd.NA] * len(UNKNOWN_COUNTERS), dtype="Int64"),
            "reason": LITERAL,
        }
    )


def elastic_vmstat(machine: Machine, time_ns: np.ndarray, counters: np.ndarray) -> pd.DataFrame:
    """Counters since the start by name and time.

    Args:
        machine: names of zone types.
        time_ns: int64, the samples' instants.
        counters: int64, shape (samples, words).
    """
    names = [*pr.COUNTER_NAMES, *(f"allocstall_{name.lower()}" for name in machine.zone_types)]
    words = [
        *range(pr.COUNTERS, pr.COUNTERS + len(pr.COUNTER_NAMES)),
        *range(pr.ALLOCSTALL, pr.ALLOCSTALL + len(machine.zone_types)),
    ]
    return pd.DataFrame(
        {
            "name": np.tile(np.array(names, object), len(time_ns)),
            "time_ns": np.repeat(time_ns, len(names)),
            "value": pd.array(counters[:, words].ravel(), dtype="Int64"),
            "reason": "",
        }
    )


def elastic_outcomes(counters: np.ndarray) -> pd.DataFrame:
    """Requests by order: asked, served as asked, failed, and those that reclaimed or compacted.

    Args:
        counters: int64, the last sample's words.
    """
    end = pr.OUTCOMES + at.ORDERS * pr.OUTCOME_WORDS
    words = counters[pr.OUTCOMES : end].reshape(at.ORDERS, pr.OUTCOME_WORDS)
    orders = np.flatnonzero(words[:, 0])
    asked, served, stalled = words[orders].T
    frame = pd.DataFrame({"class": "all", "order": orders.astype(np.int8), "asked": asked})
    columns = {"succeeded": served, "failed": asked - served, "stalled": stalled}
    for name, values in columns.items():
        frame[name] = pd.array(values, dtype="Int64")
    frame["reason"] = ""
    return frame


def divergence(counters: np.ndarray) -> dict[str, int]:
    """What the recording and an elastic replay disagreed on; empty for a literal one.

    Args:
        counters: int64 words, none of a literal replay.
    """
    if not len(counters):
        return {}
    first = pr.DROPPED_FREES
    return {name: int(counters[first + i]) for i, name in enumerate(pr.DIVERGENCE_NAMES)}


LOCK_COLUMNS = ("lock_acquisitions", "lock_hand_overs", "lock_drain_holds")
"""Of pcp->lock: to allocate or free; taken over from another CPU; to drain only."""

OWNERSHIP_COLUMNS = {
    "blocks_claimed": at.BLOCKS_CLAIMED,
    "blocks_recorded": at.BLOCKS_RECORDED,
    "blocks_recovered": at.BLOCKS_RECOVERED,
    "ownerships_ended": at.OWNERSHIPS_ENDED,
    "remote_frees": at.REMOTE_FREES,
    "remote_busy": at.REMOTE_BUSY,
    "list_splits": at.LIST_SPLITS,
    "list_merges": at.LIST_MERGES,
    "merge_entries": at.MERGE_ENTRIES,
    "recorded_entries": at.RECORDED_ENTRIES,
}
"""What ownership adds, by counter."""

PHASES = ("recover", "claim", "chunk", "classic")


def list_words(state: State) -> np.ndarray:
    """Counters of pcp->lock, int64, shape (zones, 3), see `LOCK_COLUMNS`."""
    return state.pcp_words(at.PCP_LOCKS, len(LOCK_COLUMNS)).sum(axis=1)


def ownership_counters(state: State) -> np.ndarray:
    """Counters of ownership, int64, shape (zones, SET_STRIDE), or (zones, 0) without it."""
    if not state.st[at.OWNERSHIP]:
        return np.zeros((len(state.machine.zones), 0), np.int64)
    return set_words(state).sum(axis=1)


def list_use(
    machine: Machine, time_ns: np.ndarray, locks: np.ndarray, owned: np.ndarray
) -> pd.DataFrame:
    """time_ns, node, zone, then `LOCK_COLUMNS` and `OWNERSHIP_COLUMNS`, Int64.

    Args:
        machine: names of zones.
        time_ns: int64, shape (samples,).
        locks: `list_words` at each, shape (samples, zones, 3).
        owned: `ownership_counters` at each, shape (samples, zones, SET_STRIDE or 0).
    """
    frame, zones = _by_zone(machine, time_ns)
    for place, name in enumerate(LOCK_COLUMNS):
        frame[name] = pd.array(locks[:, zones, place].ravel(), dtype="Int64")
    for name, counter in OWNERSHIP_COLUMNS.items():
        frame[name] = _counted(owned, zones, counter, len(frame))
    return frame


def refill_phases(machine: Machine, time_ns: np.ndarray, owned: np.ndarray) -> pd.DataFrame:
    """time_ns, node, zone, phase, refills, objects, pages of refills by phase (S12.3), Int64.

    Args:
        machine: names of zones.
        time_ns: int64, shape (samples,).
        owned: `ownership_counters` at each, shape (samples, zones, SET_STRIDE or 0).
    """
    parts = []
    for number, phase in enumerate(PHASES):
        frame, zones = _by_zone(machine, time_ns)
        frame["phase"] = phase
        for word, name in enumerate(("refills", "objects", "pages")):
            counter = at.SET_PHASES + number * at.PHASE_STRIDE + word
            frame[name] = _counted(owned, zones, counter, len(frame))
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def _by_zone(machine: Machine, time_ns: np.ndarray) -> tuple[pd.DataFrame, list[int]]:
    """One row per time and populated zone; and the numbers of those zones."""
    zones = [index for index, zone in enumerate(machine.zones) if zone.managed]
    frame = pd.DataFrame(
        {
            "time_ns": np.repeat(time_ns, len(zones)),
            "node": [machine.zones[zone].node for zone in zones] * len(time_ns),
            "zone": [machine.zones[zone].name for zone in zones] * len(time_ns),
        }
    )
    return frame, zones


def _counted(owned: np.ndarray, zones: list[int], counter: int, rows: int) -> pd.Series:
    if owned.shape[-1] == 0:
        return pd.array([pd.NA] * rows, dtype="Int64")
    return pd.array(owned[:, zones, counter].ravel(), dtype="Int64")


_KEPT_APART = 1 << 16


class TransactionCounts:
    """A histogram of zone->lock holds that grows with its bins, not with the holds.

    Args:
        machine: its zones and CPUs.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._keys = [np.zeros(0, np.int64)]
        self._counts = [np.zeros(0, np.int64)]

    def add(self, log: np.ndarray) -> None:
        """Count the transactions among log rows, int64, shape (rows, LOG_COLUMNS)."""
        log = log[log[:, 0] < at.SITES]
        list_of = log[:, 2] * self._machine.nr_cpus + log[:, 3]
        place = list_of * len(SITE_NAMES) + named_sites(log)
        keys, counts = np.unique(place << 32 | log[:, 6], return_counts=True)
        self._keys.append(keys)
        self._counts.append(counts)
        if sum(map(len, self._keys[1:])) > max(_KEPT_APART, len(self._keys[0])):
            self._fold()

    @property
    def transactions(self) -> pd.DataFrame:
        """The table that `Replay.transactions` is."""
        self._fold()
        keys, machine = self._keys[0], self._machine
        place = keys >> 32
        zone, cpu = np.divmod(place // len(SITE_NAMES), machine.nr_cpus)
        names = [SITE_NAMES[site] for site in range(len(SITE_NAMES))]
        site = place % len(SITE_NAMES)
        frame = pd.DataFrame(
            {
                "node": np.array([each.node for each in machine.zones])[zone],
                "zone": np.array([each.name for each in machine.zones], object)[zone],
                "cpu": cpu,
                "site": np.array([name for name, _ in names], object)[site],
                "cause": np.array([cause for _, cause in names], object)[site],
                "objects": keys & ((1 << 32) - 1),
                "transactions": self._counts[0],
            }
        )
        by = ["node", "zone", "cpu", "site", "cause", "objects"]
        return frame.sort_values(by).reset_index(drop=True)

    def _fold(self) -> None:
        """Bring equal keys together."""
        keys, inverse = np.unique(np.concatenate(self._keys), return_inverse=True)
        counts = np.zeros(len(keys), np.int64)
        np.add.at(counts, inverse, np.concatenate(self._counts))
        self._keys, self._counts = [keys], [counts]


def pageblock_map(state: State) -> pd.DataFrame:
    """One row per pageblock, by address.

    Columns: pfn (of its first page), node, zone, migratetype, free_pages (in the buddy),
    pcp_pages (on per-CPU lists), pages (its size).

    Args:
        state: such as a replay's `final`.
    """
    machine = state.machine
    order = machine.pageblock_order
    where = np.ascontiguousarray(state.pages["where"])
    in_zone = np.flatnonzero(state.blocks["zone"])
    zones = state.blocks["zone"][in_zone].astype(np.intp) - 1
    names = np.array([zone.name for zone in machine.zones], object)
    nodes = np.array([zone.node for zone in machine.zones])
    types = np.array(machine.migratetypes, object)
    return pd.DataFrame(
        {
            "pfn": in_zone << order,
            "node": nodes[zones],
            "zone": names[zones],
            "migratetype": types[state.blocks["migratetype"][in_zone]],
            "free_pages": _pages_per_block(state, where == at.BUDDY)[in_zone],
            "pcp_pages": _pages_per_block(state, where == at.ON_PCP)[in_zone],
            "pages": 1 << order,
        }
    )


def _pages_per_block(state: State, is_there: np.ndarray) -> np.ndarray:
    """int64 per pageblock: pages of the runs whose first frames are given, bool by page frame."""
    order = state.machine.pageblock_order
    heads = np.flatnonzero(is_there)
    orders = state.pages["order"][heads].astype(np.int64)
    counts = np.zeros(len(state.blocks), np.int64)
    small = orders <= order
    pages = np.bincount(heads[small] >> order, 1 << orders[small], minlength=len(counts))
    counts += pages.astype(np.int64)
    for head, larger in zip(heads[~small].tolist(), orders[~small].tolist(), strict=True):
        first = head >> order
        counts[first : first + (1 << (larger - order))] += 1 << order
    return counts
