"""Requests for folios as a recording shows them: served at once or after work, or fallen back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.objects import (
    ANYWHERE,
    LOCAL,
    LOCAL_FIRST,
    REQUEST,
    OpenFailures,
    link_replacements,
)
from pagealloc_model.base.arrays import parts
from pagealloc_model.recording.machine import PAGE_KB
from pagealloc_model.recording.snapshot import Snapshot
from pagealloc_model.recording.trace.columns import Event, Trace

if TYPE_CHECKING:
    import pandas as pd

CLASS_NAMES = {pr.ANON: "anon", pr.FILE: "file"}
"""Names of the classes that folios come in (S10.12)."""
FOLIO_COLUMNS = ("class", "order", "asked", "at_once", "after_work", "failed", "reason")
NEITHER_RECORDED = "neither direct reclaim nor direct compaction was recorded"
GFP_MOVABLE, GFP_RECLAIMABLE, GFP_COMP = 0x8, 0x10, 0x40000


def page_classes(gfp: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The class of the pages that each request asks for (S2.3, S2.4, S10.12).

    Movable pages are anonymous, unless their request is one of the page cache: for reading ahead
    (NORETRY), for writing (WRITE), or without FS. What is asked for as huge pages are, of any
    order, is anonymous.
    """

    def has(bits: int) -> np.ndarray:
        return (gfp & np.uint32(bits)) != 0

    is_thp = (order > 0) & has(GFP_COMP) & has(at.GFP_NOMEMALLOC)
    is_file = (has(pr.GFP_NORETRY | at.GFP_WRITE) | ~has(pr.GFP_FS)) & ~is_thp
    conditions = [has(GFP_MOVABLE) & is_file, has(GFP_MOVABLE), has(GFP_RECLAIMABLE)]
    choices = [pr.FILE, pr.ANON, pr.RECLAIMABLE]
    return np.select(conditions, choices, pr.KERNEL).astype(np.uint32)


def folio_table(counts: np.ndarray, *, known: bool = True, reason: str = "") -> pd.DataFrame:
    """`FOLIO_COLUMNS` of requests for anonymous memory and page cache, orders that were asked for.

    Args:
        counts: of (classes, orders, `pressure_layout.OUTCOME_NAMES`); attempts that the caller
            makes again are not counted as asked.
        known: whether the words on work are known; else they are NA, for a reason.
        reason: why something is NA.
    """
    import pandas as pd

    rows = []
    for kind, name in CLASS_NAMES.items():
        for order, words in enumerate(counts[kind].tolist()):
            asked, served, _, after, again = words
            if asked - again:
                split = (served - after, after) if known else (pd.NA, pd.NA)
                rows.append((name, order, asked - again, *split, asked - again - served, reason))
    table = pd.DataFrame(rows, columns=list(FOLIO_COLUMNS))
    types = dict.fromkeys(FOLIO_COLUMNS[2:-1], "Int64")
    return table.astype({"class": "str", "order": "int64", **types, "reason": "str"})


def recorded_folios(trace: Trace, stalled: np.ndarray, *, known: bool) -> pd.DataFrame:
    """`folio_table` of a recording.

    Args:
        trace: its events.
        stalled: rows, ascending, of requests that reclaimed or compacted.
        known: whether those were recorded.
    """
    counts = np.zeros((pr.CLASSES * at.ORDERS, pr.OUTCOME_WORDS), np.int64)
    for part in parts(len(trace)):
        is_request = (trace.event[part] == Event.ALLOC) & (trace.order[part] < at.ORDERS)
        rows = np.flatnonzero(is_request) + part.start
        gfp, order = trace.gfp[rows], trace.order[rows].astype(np.int64)
        kind = page_classes(gfp, order)
        served, after = trace.pfn[rows] >= 0, np.isin(rows, stalled)
        again = ~served & (huge_attempts(gfp, order, kind) == LOCAL_FIRST)
        place = kind.astype(np.int64) * at.ORDERS + order
        masks = (np.ones(len(rows), bool), served, after, served & after, again)
        for word, mask in enumerate(masks):
            counts[:, word] += np.bincount(place[mask], minlength=len(counts))
    shape = (pr.CLASSES, at.ORDERS, pr.OUTCOME_WORDS)
    reason = "" if known else NEITHER_RECORDED
    return folio_table(counts.reshape(shape), known=known, reason=reason)


def huge_attempts(gfp: np.ndarray, order: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """int8: which attempt of its fault each request for a huge page is (S8.5); ANYWHERE of others.

    Those on the task's node go on elsewhere if in vain, as far as they may reclaim.
    """
    is_local = (order == pr.THP_ORDER) & (kind == pr.ANON)
    both = np.uint32(at.GFP_NOMEMALLOC | at.GFP_THISNODE)
    is_local &= gfp & both == both
    has_another = gfp & np.uint32(at.GFP_DIRECT_RECLAIM) != 0
    return np.where(is_local, np.where(has_another, LOCAL_FIRST, LOCAL), ANYWHERE).astype(np.int8)


def recorded_falls(trace: Trace) -> pd.DataFrame:
    """Fallbacks of failed requests for folios: class, order, to, count.

    `to` is the order that the same task was served with next in place of it (T10.4), -1 where
    nothing came in its place.
    """
    import pandas as pd

    table = pd.DataFrame(columns=["class", "order", "to", "count"])
    table = table.astype({"class": "str", "order": "int64", "to": "int64", "count": "int64"})
    if not any(
        (
            (trace.pfn[part] == -1) & (trace.event[part] == Event.ALLOC) & (trace.order[part] > 0)
        ).any()
        for part in parts(len(trace))
    ):
        return table
    links, pieces, begin = OpenFailures(), [], 0
    leads = np.full(int((trace.event == Event.ALLOC).sum()), -1, np.int32)
    for part in parts(len(trace)):
        is_request = (trace.event[part] == Event.ALLOC) & (trace.order[part] < at.ORDERS)
        rows = np.flatnonzero(is_request) + part.start
        kind = page_classes(trace.gfp[rows], trace.order[rows])
        rows, kind = rows[kind >= pr.ANON], kind[kind >= pr.ANON]
        own = np.zeros(len(rows), REQUEST)
        own["task"], own["kind"], own["order"] = trace.pid[rows], kind, trace.order[rows]
        own["failed"], own["object"] = trace.pfn[rows] < 0, np.arange(begin, begin + len(rows))
        begin += len(rows)
        own["attempt"] = huge_attempts(trace.gfp[rows], trace.order[rows], kind)
        link_replacements(own, *links.of(own), leads)
        pieces.append(own[["kind", "order", "failed", "attempt"]])
    asked = np.concatenate(pieces)
    to = _served_in_place(leads[: len(asked)], asked["failed"] != 0)
    is_last = (asked["attempt"] != LOCAL_FIRST) & (asked["order"] > 0)
    failed = np.flatnonzero((asked["failed"] != 0) & is_last)
    last = to[failed]
    found = pd.DataFrame(
        {
            "class": [CLASS_NAMES[kind] for kind in asked["kind"][failed].tolist()],
            "order": asked["order"][failed].astype(np.int64),
            "to": np.where(last < 0, -1, asked["order"][last]).astype(np.int64),
        }
    )
    found = found.groupby(["class", "order", "to"], as_index=False).size()
    return found.rename(columns={"size": "count"}).astype(table.dtypes.to_dict())


def _served_in_place(leads: np.ndarray, failed: np.ndarray) -> np.ndarray:
    """By request: the first one served in place of it, directly or in steps; -1 for none."""
    first = np.full(len(leads), len(leads), np.int64)
    members = np.flatnonzero((leads >= 0) & ~failed)
    outermost = leads[members].astype(np.int64)
    while (known := outermost >= 0).any():
        np.minimum.at(first, outermost[known], members[known])
        outermost[known] = leads[outermost[known]]
    return np.where(first == len(leads), -1, first)


def counted_folios(snapshots: Iterable[Snapshot]) -> pd.DataFrame:
    """Counters of `transparent_hugepage/hugepages-SIZE/stats`: time_ns, order, name, value."""
    import pandas as pd

    rows = []
    for snapshot in snapshots:
        for name, value in (snapshot.folio_stats.values if snapshot.folio_stats else {}).items():
            size, _, counter = name.partition("/")
            kib = size.removeprefix("hugepages-").removesuffix("kB")
            if kib.isdecimal() and int(kib) >= PAGE_KB:
                order = (int(kib) // PAGE_KB).bit_length() - 1
                rows.append((snapshot.time_ns, order, counter, value))
    return pd.DataFrame(rows, columns=["time_ns", "order", "name", "value"])


def fault_shares(counters: pd.DataFrame) -> dict[int, float]:
    """By order: share of anonymous faults served, from the first to the last of `counted_folios`.

    Orders that no fault asked for are left out.
    """
    shares = {}
    for order, rows in counters.groupby("order"):
        values = rows.sort_values("time_ns").groupby("name")["value"].agg(["first", "last"])
        added = (values["last"] - values["first"]).to_dict()
        served = added.get("anon_fault_alloc", 0)
        asked = served + added.get("anon_fault_fallback", 0)
        if asked:
            shares[int(order)] = served / asked
    return shares


def folio_shares(folios: pd.DataFrame) -> Sequence[tuple[str, str, np.ndarray, np.ndarray]]:
    """Of a `folio_table`: metric, scope, part and whole, by class and order above 0."""
    import pandas as pd

    found = []
    for row in folios[folios["order"] > 0].to_dict("records"):
        scope = f"class={row['class']},order={row['order']}"
        asked, failed, at_once = (
            float("nan") if pd.isna(row[name]) else float(row[name])
            for name in ("asked", "failed", "at_once")
        )
        found.append(("folio_success", scope, np.array([asked - failed]), np.array([asked])))
        found.append(("folio_at_once", scope, np.array([at_once]), np.array([asked])))
    return found
