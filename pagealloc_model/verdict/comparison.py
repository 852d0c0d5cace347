"""Two policies over the same demand: base, patch, and the change between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.scopes import zone_scope
from pagealloc_model.base.text.comparison_table import Style, comparison_table
from pagealloc_model.base.text.footer import Footer
from pagealloc_model.base.version import __version__
from pagealloc_model.policy.policy import Assumptions, policy_settings
from pagealloc_model.policy.policy_fields import Setting
from pagealloc_model.predicted.hold_sites import EMPTY_SITES
from pagealloc_model.predicted.predicted_tables import LITERAL
from pagealloc_model.predicted.replay import Replay
from pagealloc_model.recording.provenance_check import LEVELS, USABLE, ProvenanceCheck

Metric = tuple[str, str, float, str, str]
"""Name, scope, value, unit, and which direction is better: "lower", "higher" or ""."""

SITES = ("refill", "drain", "buddy_alloc", "direct_free")
UNKNOWN = ("thp_success", "compaction_success", "reclaim_scanned")


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Two replays of one recording side by side.

    Attributes:
        base: the replay compared against.
        patch: the replay with the change.
        rows: metric, scope, base, patch, change (relative to base), unit, better.
    """

    base: Replay
    patch: Replay
    rows: pd.DataFrame

    def to_text(self, width: int = 72, style: Style = "signed") -> str:
        """The table with its sign rule and provenance, at most `width` columns of ASCII."""
        return comparison_table(self.rows, self.footer(), style=style, width=width)

    def to_dict(self) -> dict[str, object]:
        """What `pagealloc compare --json` prints."""
        rows = self.rows.astype(object).where(self.rows.notna(), None)
        return {
            "base": self.base.provenance,
            "patch": self.patch.provenance,
            "rows": rows.to_dict(orient="records"),
        }

    def footer(self) -> Footer:
        """What both columns were made from."""
        diverged = {
            f"{side} {name}": count
            for side, replay in (("base", self.base), ("patch", self.patch))
            for name, count in replay.divergence.items()
            if name in ("forced", "failed", "in_base_pages", "orphan_frees")
        }
        return Footer(
            recording=self.base.name,
            kernel=self.base.rules_origin,
            policy_difference=_difference(self.base, self.patch),
            version=f"{__version__} (model {self.base.provenance['model']})",
            lost_events=self.base.losses,
            divergences=diverged,
            assumptions=_assumed(self.base.assumptions),
            doubts=doubts_of(self.base.checks),
        )


def compare(base: Replay, patch: Replay) -> Comparison:
    """Put two replays of the same recording side by side.

    Raises:
        UsageError: the replays differ in recording, window, rules, assumptions or seed, so that a
            difference could not be laid at the policy's door.
    """
    for name in ("name", "rules", "assumptions", "seed"):
        mine, other = getattr(base, name), getattr(patch, name)
        if mine != other:
            raise UsageError(
                f"cannot compare replays of different {name}: {_brief(mine)} and {_brief(other)}"
            )
    if not np.array_equal(base.demand.events, patch.demand.events):
        raise UsageError(f"cannot compare replays of different recordings, both named {base.name}")
    if not np.array_equal(base.edges, patch.edges):
        raise UsageError("cannot compare replays of different windows")
    before, after = list(_metrics(base)), list(_metrics(patch))
    found = {(metric, scope): value for metric, scope, value, _, _ in after}
    rows = []
    for metric, scope, value, unit, better in before:
        other = found.get((metric, scope), np.nan)
        change = (other - value) / value if value else (0.0 if other == value else np.nan)
        rows.append((metric, scope, value, other, change, unit, better))
    columns = ["metric", "scope", "base", "patch", "change", "unit", "better"]
    return Comparison(base=base, patch=patch, rows=pd.DataFrame(rows, columns=columns))


def doubts_of(checks: Sequence[ProvenanceCheck]) -> tuple[str, ...]:
    """Return what is not plainly usable, one line each, what is refused first."""
    odd = [each for each in checks if each.level != USABLE]
    odd.sort(key=lambda each: -LEVELS.index(each.level))
    return tuple(f"{each.check} ({each.level}): {each.found}" for each in odd)


def _assumed(assumptions: Assumptions) -> str:
    line = f"reclaim {assumptions.reclaim}, counters {assumptions.counters}"
    return line if assumptions.reclaim == "elastic" else f"{line}; NA: {LITERAL}"


def _brief(value: object) -> str:
    return str(getattr(value, "name", value))


def _difference(base: Replay, patch: Replay) -> str:
    before, after = base.policy.given(), patch.policy.given()
    changed = []
    if base.kernel != patch.kernel:
        changed.append(f"code: {base.kernel or 'model'} -> {patch.kernel or 'model'}")
    if base.hooks != patch.hooks:
        before_hooks, after_hooks = (", ".join(each.hooks) or "none" for each in (base, patch))
        changed.append(f"hooks: {before_hooks} -> {after_hooks}")
    changed += [
        f"{name}: {_shown(name, before)} -> {_shown(name, after)}"
        for name in policy_settings()
        if before.get(name) != after.get(name)
    ]
    return "; ".join(changed) or "none"


def _shown(name: str, given: Mapping[str, Setting]) -> str:
    value = given.get(name)
    if value is None and "." in name:
        value = policy_settings()[name].default
    if value is None:
        return "as recorded"
    return value if isinstance(value, str) else str(int(value))


def _metrics(replay: Replay) -> Iterator[Metric]:
    yield from _lock_metrics(replay)
    machine = replay.machine
    samples = replay.samples
    order = machine.pageblock_order
    weights = 1 << np.arange(samples.free_buddies.shape[2], dtype=np.int64)
    for index, zone in enumerate(machine.zones):
        if not zone.managed:
            continue
        scope = zone_scope(zone.node, zone.name, machine.nodes)
        pages = samples.free_buddies[:, index] * weights[None, :, None]
        yield "free_pages", scope, float(pages.sum(axis=(1, 2)).mean()), "pages", ""
        whole = float(pages[:, order:].sum(axis=(1, 2)).mean())
        yield "free_in_whole_blocks", scope, whole, "pages", "higher"
        usable = float(pages[:, order:, :3].sum(axis=(1, 2)).mean())
        yield "free_in_whole_blocks_not_highatomic", scope, usable, "pages", "higher"
        counts = samples.pcp[:, index, :, 0].sum(axis=1)
        yield "pcp_count", scope, float(counts.mean()), "pages", ""
        blocks = samples.blocks[:, index, 3]
        yield "highatomic_blocks", f"{scope},at=end", float(blocks[-1]), "blocks", "lower"
        yield "highatomic_blocks", f"{scope},at=most", float(blocks.max()), "blocks", "lower"
    yield from _list_metrics(replay)
    fallbacks = replay.fallbacks
    yield "extfrag_events", "all", float(fallbacks["count"].sum()), "events", "lower"
    yield from _pressure_metrics(replay)


def _pressure_metrics(replay: Replay) -> Iterator[Metric]:
    """What only an elastic replay knows: huge pages, compaction and pages scanned."""
    if replay.assumptions.reclaim != "elastic":
        for name in UNKNOWN:
            yield name, "all", np.nan, "", "higher"
        return
    counters = replay.vmstat.groupby("name")["value"].last().astype(float)
    asked = counters["thp_fault_alloc"] + counters["thp_fault_fallback"]
    stalls = counters["compact_stall"]
    scanned = counters["pgscan_kswapd"] + counters["pgscan_direct"]
    served = counters["thp_fault_alloc"] / asked if asked else np.nan
    found = counters["compact_success"] / stalls if stalls else np.nan
    yield "thp_success", "all", served, "share", "higher"
    yield "compaction_success", "all", found, "share", "higher"
    yield "reclaim_scanned", "all", scanned, "pages", "lower"


def _list_metrics(replay: Replay) -> Iterator[Metric]:
    """pcp->lock and remote frees at the end; a kernel build counts neither."""
    use = replay.list_use
    last = use[use["time_ns"] == use["time_ns"].max()]
    for metric, column in (
        ("pcp_lock_acquisitions", "lock_acquisitions"),
        ("pcp_lock_hand_overs", "lock_hand_overs"),
        ("remote_frees", "remote_frees"),
    ):
        total = last[column].sum(min_count=1)
        unknown = bool(replay.kernel) or pd.isna(total)
        yield metric, "all", np.nan if unknown else float(total), "", "lower"


def _lock_metrics(replay: Replay) -> Iterator[Metric]:
    full = replay.transactions_full
    found = int((~full["site"].isin(EMPTY_SITES)).sum())
    pages = int(full["pages"].sum())
    yield "zone_lock_acquisitions", "all", float(len(full)), "", "lower"
    yield "pages_per_acquisition", "all", pages / found if found else np.nan, "pages", ""
    for site in SITES:
        mine = full[full["site"] == site]
        yield f"{site}_transactions", "all", float(len(mine)), "", "lower"
        yield f"{site}_pages", "all", float(mine["pages"].sum()), "pages", ""
    for site in EMPTY_SITES:
        yield f"{site}_transactions", "all", float((full["site"] == site).sum()), "", "lower"
    drains = full.loc[full["site"] == "drain", "pages"]
    longest = float(drains.max()) if len(drains) else 0.0
    yield "longest_drain", "all", longest, "pages", "lower"
