"""Small tables that follow the data contracts, for tests of figures, posts and widgets."""

from __future__ import annotations

import pandas as pd

START_NS = 5_000_000_000
TIMES_NS = [START_NS + step * 1_000_000_000 for step in range(5)]
ZONES = ("DMA32", "Normal")
MIGRATETYPES = ("Unmovable", "Movable", "Reclaimable", "HighAtomic")


def free_pages(scale: int = 1) -> pd.DataFrame:
    rows = [
        (time_ns, 0, zone, order, migratetype, buddies, buddies << order)
        for step, time_ns in enumerate(TIMES_NS)
        for zone in ZONES
        for order in range(11)
        for migratetype in MIGRATETYPES
        for buddies in [scale * (step + 1) * (12 - order)]
    ]
    names = ["time_ns", "node", "zone", "order", "migratetype", "buddies", "pages"]
    return pd.DataFrame(rows, columns=names)


def pageblocks(highatomic: int = 5) -> pd.DataFrame:
    blocks = {"Unmovable": 40, "Movable": 400, "Reclaimable": 0, "HighAtomic": highatomic}
    rows = [
        (time_ns, 0, zone, migratetype, count * step)
        for step, time_ns in enumerate(TIMES_NS, start=1)
        for zone in ZONES
        for migratetype, count in blocks.items()
    ]
    return pd.DataFrame(rows, columns=["time_ns", "node", "zone", "migratetype", "blocks"])


def pcp(cpus: int = 2) -> pd.DataFrame:
    rows = [
        (time_ns, 0, zone, cpu, 63 * (step % 3 + 1), 252.0)
        for step, time_ns in enumerate(TIMES_NS)
        for zone in ZONES
        for cpu in range(cpus)
    ]
    return pd.DataFrame(rows, columns=["time_ns", "node", "zone", "cpu", "count", "high"])


def lock() -> pd.DataFrame:
    rows = [
        (time_ns, 0, zone, site, 100, 6300, 6300)
        for time_ns in TIMES_NS
        for zone in ZONES
        for site in ("refill", "drain")
    ]
    names = ["time_ns", "node", "zone", "site", "acquisitions", "objects", "pages"]
    unknown = dict.fromkeys(["hold_ns", "wait_ns", "max_hold_ns"], pd.NA)
    return pd.DataFrame(rows, columns=names).assign(**unknown)


def transactions() -> pd.DataFrame:
    rows = [
        (0, zone, cpu, site, "", size, 10_000 // size)
        for zone in ZONES
        for cpu in range(2)
        for site in ("refill", "drain")
        for size in (1, 2, 63, 64, 127, 2015)
    ]
    names = ["node", "zone", "cpu", "site", "cause", "objects", "transactions"]
    return pd.DataFrame(rows, columns=names)


def fallbacks() -> pd.DataFrame:
    rows = [
        ("Unmovable", "Movable", 0, 9, "claim_block", 12),
        ("Unmovable", "Movable", 0, 4, "steal", 3),
        ("Reclaimable", "Movable", 0, 5, "claim", 7),
    ]
    names = ["alloc_migratetype", "fallback_migratetype", "alloc_order", "fallback_order"]
    return pd.DataFrame(rows, columns=[*names, "kind", "count"])


def outcomes(reason: str = "") -> pd.DataFrame:
    unknown = pd.NA if reason else 3
    return pd.DataFrame(
        {
            "class": ["thp", "atomic"],
            "order": [9, 2],
            "asked": [20, 50],
            "succeeded": [unknown, 50],
            "failed": [unknown, 0],
            "stalled": [unknown, 0],
            "reason": [reason, ""],
        }
    )


def errors() -> pd.DataFrame:
    rows = [
        ("free_pages", "all", 1000.0, 1010.0, 0.01, "pages", "start", 900.0, -0.1, "predicted"),
        ("pcp_count", "zone=Normal,cpu=1", 240.0, pd.NA, pd.NA, "pages", "", pd.NA, pd.NA,
         "predicted"),
    ]  # fmt: skip
    names = ["metric", "scope", "measured", "predicted", "error", "unit"]
    table = pd.DataFrame(rows, columns=[*names, "null_model", "null", "null_error", "kind"])
    sides = {"least": table["predicted"], "most": table["predicted"]}
    return table.assign(counted=table["measured"], **sides)


def judged_rows() -> pd.DataFrame:
    """The same, judged: a clear gain, a change within the error, one that failed its null model."""
    nan = float("nan")
    return comparison_rows().assign(
        error=[-0.05, 0.3, 0.03, nan],
        error_words=["-5.0%", "30.0%", "3/9", "NA"],
        null_model="nothing changes",
        null_error=[-1.0, 0.4, 0.01, nan],
        null_words=["-100.0%", "40.0%", "1/9", "NA"],
        change_low=[-21.0, -4000.0, -30.0, nan],
        change_high=[-19.0, 16000.0, 30.0, nan],
        verdict=["better", "within error", "unproven", "unknown"],
    )


def comparison_rows() -> pd.DataFrame:
    rows = [
        ("highatomic_blocks", "all", 20.0, 0.0, -1.0, "pageblocks", "lower"),
        ("free_pages", "zone=Normal", 17000.0, 23000.0, 6000 / 17000, "pages", "higher"),
        ("refill_transactions", "all", 900.0, 900.0, 0.0, "transactions", ""),
        ("thp_success", "all", pd.NA, pd.NA, pd.NA, "%", "higher"),
    ]
    names = ["metric", "scope", "base", "patch", "change", "unit", "better"]
    return pd.DataFrame(rows, columns=names)
