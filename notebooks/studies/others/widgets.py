"""Interactive views of the studies: sliders made from `Policy`, a figure and a table each."""

from __future__ import annotations

import html
import threading
from collections import ChainMap
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import lru_cache, partial
from typing import Any

import ipywidgets
import pandas as pd
from pagealloc_model.notebooks.studies.defrag_mode.build_host import BuildHost, run_build_host
from pagealloc_model.notebooks.studies.defrag_mode.defrag_hosts import (
    DEFRAG_MODE,
    RULES,
    defrag_table,
    judged_rows,
    served_shares,
)
from pagealloc_model.notebooks.studies.others.figures import huge_page_trend
from pagealloc_model.notebooks.studies.pcp_buddy.ownership_effects import (
    SHOWN,
    OwnershipEffects,
    measured_over_time,
    ownership_effects,
    ownership_rows,
    ownership_table,
    words_of,
)

import pagealloc_model as pm
from pagealloc_model.base.text import count_of, rounded
from pagealloc_model.measured.call_stacks import recorded_spinlocks
from pagealloc_model.measured.costs import recorded_costs
from pagealloc_model.measured.measured import Measured
from pagealloc_model.notebook.controls import MOST_AT_FIRST, PolicyControls, number_slider
from pagealloc_model.notebook.page_widget import folded_text
from pagealloc_model.notebook.view import Explorer, Progress, View
from pagealloc_model.notebook.what_changes import replays_html
from pagealloc_model.numbers.comparison import recorded_values
from pagealloc_model.numbers.errors import recorded_lock_model
from pagealloc_model.numbers.locks import lock_policy_rows, lock_policy_table
from pagealloc_model.policy import OwnershipOptions
from pagealloc_model.predicted.lock_times import LockModel, LockTimes
from pagealloc_model.predicted.reclaim_mode import choose_reclaim
from pagealloc_model.show import figures
from pagealloc_model.show.figures.faceted import Drawing
from pagealloc_model.show.post.comparison_message import posted_figures

_HIGHATOMIC_FIELDS = ("highatomic_gate_order", "highatomic_reserve_percent", "highatomic_from_pcp")
_HIGHATOMIC_LABELS = {"highatomic_gate_order": "costly-order threshold"}
MAINLINE_GATE, PROPOSED_GATE = 0, 3
AS_RECORDED, THIS_POLICY = "predicted, policy as recorded", "predicted, changed policy"

Sources = Mapping[str, "tuple[Measured | pm.Replay, int]"]
"""Legend label -> what has the tables, and its recording's first event in ns."""


def highatomic(recording: pm.Recording | str, *others: pm.Recording | str) -> Explorer:
    """HighAtomic pageblocks and free memory by type under a threshold that a slider sets.

    Predictions replay the first recording; the slider starts at the rule that it was not made
    under, mainline's or the proposal's. What the others measured is drawn beside, on their own
    time axis from their own start: they are separate runs.
    """
    recordings = [pm.open(name) if isinstance(name, str) else name for name in (recording, *others)]
    first, first_start = recordings[0], recordings[0].trace.span_ns[0]
    measurements = {
        f"measured, {recording.name}": (recording.measure(), recording.trace.span_ns[0])
        for recording in recordings
    }
    own = choose_reclaim(first).assumptions
    base = pm.replay(first, assumptions=own)
    posted = posted_figures("highatomic")

    def compute(policy: pm.Policy, progress: Progress, cancelled: threading.Event) -> View:
        patch = base
        if policy != pm.Policy():
            patch = pm.replay(
                first, policy, assumptions=own, progress=progress, cancel=cancelled.is_set
            )
        predictions = {
            AS_RECORDED: (base, first_start),
            THIS_POLICY: (patch, first_start),
        }
        return View(
            figure=_figure(measurements, predictions, posted),
            words=lambda: replays_html(base, patch),
            replay=patch,
        )

    gate = PROPOSED_GATE if not base.policy.highatomic_gate_order else MAINLINE_GATE
    controls = PolicyControls(
        _HIGHATOMIC_FIELDS,
        labels=_HIGHATOMIC_LABELS,
        recorded=recorded_values(base),
        start={"highatomic_gate_order": gate},
    )
    return Explorer(f"{first.name}: the highatomic reserve", controls, compute)


def _figure(measurements: Sources, predictions: Sources, posted: pd.DataFrame) -> Drawing:
    blocks = figures.highatomic_blocks.drawing(
        _tables(measurements, "pageblocks"), _tables(predictions, "pageblocks"), posted
    )
    free_pages = figures.free_pages_by_migratetype.drawing(
        _tables(measurements, "free_pages"), _tables(predictions, "free_pages")
    )
    return figures.stacked.drawing([blocks, free_pages])


def _tables(sources: Sources, name: str) -> dict[str, pd.DataFrame]:
    """One table of each source, on a time axis that begins where its recording does."""
    return {
        label: figures.since_start(getattr(source, name), start_ns)
        for label, (source, start_ns) in sources.items()
    }


def _still(share: float) -> None:
    """Progress of what is not waited for."""


Timed = tuple["pm.Replay | pm.synthetic.Run", LockTimes]
CPUS_MAX = 32


class _Load:
    """A recording on its own CPUs, its streams on more, or a made-up load in which some purge.

    Args:
        recording: of a machine.
        model: costs of its locks.
    """

    def __init__(self, recording: pm.Recording, model: LockModel) -> None:
        self.recording, self._model = recording, model
        self.assumptions = choose_reclaim(self.recording).assumptions
        self.base = pm.replay(self.recording, assumptions=self.assumptions)
        self.nr_cpus = self.base.machine.nr_cpus
        self.demand = lru_cache(maxsize=4)(self._demand)
        self.as_recorded = lru_cache(maxsize=2)(partial(self._timed, self.base.policy))

    def is_recorded(self, cpus: int, purging: int = 0) -> bool:
        return not purging and cpus == self.nr_cpus

    def words(self, cpus: int, purging: int = 0) -> str:
        what = "purgers" if purging else self.recording.name
        return f"{what} on {count_of(cpus, 'CPU')}"

    def lines(self, cpus: int, purging: int = 0) -> tuple[str, ...]:
        """Assumptions of what is not as recorded."""
        return () if self.is_recorded(cpus, purging) else self.demand(cpus, purging).lines

    def cpus_slider(self) -> ipywidgets.IntSlider:
        """A slider for how many CPUs the recording's streams are repeated on."""
        own = self.nr_cpus
        return number_slider("CPUs (streams repeated)", own, own, max(CPUS_MAX, own), own)

    def sides(
        self, policy: pm.Policy, on: tuple[int, ...], progress: Progress, cancelled: threading.Event
    ) -> tuple[Timed, Timed]:
        """The recorded policy and another one, at the same time; the former is kept."""
        if not self.is_recorded(*on):
            self.demand(*on)
        with ThreadPoolExecutor(1) as pool:
            base = pool.submit(self.as_recorded, *on)
            patch = self._timed(policy, *on, progress=progress, cancelled=cancelled)
            return base.result(), patch

    def _timed(self, *asked: Any, **told: Any) -> Timed:
        run = self._run(*asked, **told)
        return run, run.lock_times(self._model)

    def _run(
        self,
        policy: pm.Policy,
        cpus: int,
        purging: int = 0,
        progress: Progress = _still,
        cancelled: threading.Event | None = None,
    ) -> pm.Replay | pm.synthetic.Run:
        if self.is_recorded(cpus, purging):
            cancel = cancelled.is_set if cancelled is not None else None
            assumed = {"assumptions": self.assumptions}
            return pm.replay(self.recording, policy, **assumed, progress=progress, cancel=cancel)
        demand = self.demand(cpus, purging)
        return pm.synthetic.run(demand, policy, rules=self.base.rules, progress=progress)

    def _demand(self, cpus: int, purging: int) -> pm.synthetic.Demand:
        rules = self.base.rules
        if not purging:
            return pm.synthetic.scaled_up(self.recording, cpus, rules=rules)
        return pm.synthetic.scenario(
            "purgers",
            gib=max(cpus, 4),
            nr_cpus=cpus,
            purging_cpus=min(purging, cpus - 1),
            pages=PURGED_PAGES,
            rounds=PURGED_ROUNDS,
            rules=rules,
        )


SIZES = {
    "as recorded": None,
    "none": 0,
    "64 KiB": 1 << 4,
    "64 KiB, 2 MiB": 1 << 4 | 1 << 9,
    "2 MiB": 1 << 9,
    "16 KiB to 2 MiB": 1020,
}
"""Masks of orders that anonymous faults ask for, None for the recorded ones."""


def huge_pages(recording: pm.Recording | str) -> Explorer:
    """Share of requests for folios that are served, by order, with defrag_mode's parts."""
    names = ("defrag_mode", "defrag_kswapd_assist", "defrag_watermarks", "thp_defrag")
    return _folios(recording, names, {"defrag_mode": True})


def folio_sizes(recording: pm.Recording | str) -> Explorer:
    """Share of requests for folios that are served, by order, under sizes that a slider sets."""
    sizes = ipywidgets.SelectionSlider(
        options=[*SIZES.items()],
        value=SIZES["16 KiB to 2 MiB"],
        description="sizes of anonymous folios",
        continuous_update=False,
        style={"description_width": "300px"},
        layout={"width": "660px"},
    )
    return _folios(recording, ("thp_defrag",), {}, sizes)


def pageblock_orders(recording: pm.Recording | str) -> Explorer:
    """Share of requests for folios that are served, by order, with pageblocks of another order."""
    return _folios(recording, ("pageblock_order", "min_free_kbytes"), {"pageblock_order": 7})


def _folios(
    recording: pm.Recording | str,
    names: tuple[str, ...],
    start: Mapping[str, int],
    *sizes: ipywidgets.SelectionSlider,
) -> Explorer:
    first = pm.open(recording) if isinstance(recording, str) else recording
    own = pm.Assumptions(reclaim="elastic")
    base, measured = pm.replay(first, assumptions=own), first.measure().folios

    def compute(
        policy: pm.Policy, progress: Progress, cancelled: threading.Event, *asked_orders: int | None
    ) -> View:
        masks = [{"huge_anon_orders": each} for each in asked_orders if each is not None]
        asked, patch = pm.Policy.from_settings(dict(ChainMap(*masks, policy.given()))), base
        if asked != pm.Policy():
            patch = pm.replay(
                first, asked, assumptions=own, progress=progress, cancel=cancelled.is_set
            )
        predicted = dict(zip((AS_RECORDED, THIS_POLICY), (base.folios, patch.folios), strict=True))
        return View(
            figure=figures.folios.drawing({f"measured, {first.name}": measured}, predicted),
            words=lambda: replays_html(base, patch),
            replay=patch,
        )

    controls = PolicyControls(names, recorded=recorded_values(base), start=start)
    return Explorer(f"{first.name}: folios by order", controls, compute, sizes)


_PCP_BATCHING_LABELS = {
    "pcp_free_batched": "batch frees of a full list",
    "pcp_batch": "",
    "pcp_batch_scale_max": "",
    "pcp_decay_batched": "batch the periodic decay",
    "pcp_drain_batched": "batch full drains",
}
"""Fields of the controls, and what they are called where it is not their own name."""


def pcp_batching(recording: pm.Recording | str) -> Explorer:
    """Holds and waits at zone->lock with batches of other sizes, on the recorded CPUs or on more.

    Times are of a machine that is not traced: costs are fitted to the recording, without what
    tracing adds. The sizes of refills and drains stand beside the measured ones.
    """
    first = pm.open(recording) if isinstance(recording, str) else recording
    costs = recorded_costs(first).untraced()
    load = _Load(first, LockModel(costs=costs, unfair=recorded_spinlocks(first)[0]))
    measured = first.measure().transactions

    def compute(
        policy: pm.Policy, progress: Progress, cancelled: threading.Event, count: int
    ) -> View:
        sides = load.sides(policy, (count, 0), progress, cancelled)
        (base_run, base), (patch_run, patch) = sides
        names = (AS_RECORDED, THIS_POLICY)
        runs = dict(zip(names, (base_run.transactions, patch_run.transactions), strict=True))
        times = dict(zip(names, (base.acquisitions, patch.acquisitions), strict=True))
        sizes = figures.transaction_sizes.drawing(
            measured if load.is_recorded(count) else None, runs
        )
        title = (
            f"base: {load.recording.name} as recorded; patch: {policy}; {count_of(count, 'CPU')}"
        )

        def words() -> str:
            rows = lock_policy_rows(base, patch)
            text = lock_policy_table(base, patch, title, load.lines(count))
            return _few_html(rows, _LOCK_ROWS) + folded_text(text)

        figure = figures.stacked.drawing([sizes, figures.lock_times.drawing(times)])
        return View(figure=figure, words=words)

    recorded = recorded_values(load.base)
    controls = PolicyControls(
        tuple(_PCP_BATCHING_LABELS),
        labels={name: label for name, label in _PCP_BATCHING_LABELS.items() if label},
        recorded=recorded,
        start={"pcp_free_batched": not recorded["pcp_free_batched"]},
        at_first=2,
    )
    return Explorer(f"{load.recording.name}: zone->lock", controls, compute, (load.cpus_slider(),))


_LOCK_ROWS = (
    ("contended", "all", "acquisitions that find zone->lock taken"),
    ("time waiting", "all", "time waiting for zone->lock"),
    ("longest wait", "all", "longest wait for zone->lock"),
    ("longest wait at pcp->lock", "all", "longest wait for a pcp->lock"),
    ("longest spell without rescheduling", "all", "longest spell without rescheduling"),
)
"""Rows below the figure: metric, scope, and what they are called there."""


def _few_html(rows: pd.DataFrame, shown: Sequence[tuple[str, str, str]]) -> str:
    """The rows that say most as a small table: as recorded, this policy, unit."""
    by_name = rows.set_index(["metric", "scope"])
    lines = ["<tr><th></th><th>as recorded</th><th>changed policy</th></tr>"]
    for metric, scope, words in shown:
        row = by_name.loc[(metric, scope)]
        unit = f" ({row['unit']})" if row["unit"] else ""
        cells = (html.escape(words + unit), *map(rounded, (row["base"], row["patch"])))
        lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f'<div class="pagealloc-difference"><table>{"".join(lines)}</table></div>'


_PCP_BUDDY_FIRST = ("pageblock_ownership", "ownership.remote_free")
"""What the posted versions differ in."""
_PCP_BUDDY_FIELDS = dict.fromkeys(
    (*_PCP_BUDDY_FIRST, *(f"ownership.{option.name}" for option in fields(OwnershipOptions)))
)
PURGED_PAGES, PURGED_ROUNDS = 1024, 4
"""Memory that an allocator touches before it is purged, and how often, in the made-up load."""


def pcp_buddy(recording: pm.Recording | str) -> Explorer:
    """Effects of pageblock ownership on zone->lock, pcp->lock and fragmentation.

    Locks cost what they cost on the recorded machine, tracing included.
    """
    first = pm.open(recording) if isinstance(recording, str) else recording
    load = _Load(first, recorded_lock_model(first))
    cpus = load.cpus_slider()
    purging = number_slider("CPUs that only free, the others allocate", 0, 0, cpus.max // 2)
    measured = figures.since_start(
        measured_over_time(load.recording, load.base), load.recording.trace.demand_span_ns[0]
    )

    @lru_cache(maxsize=4)
    def mainline(*on: int) -> OwnershipEffects:
        return ownership_effects(*load.as_recorded(*on))

    def compute(
        policy: pm.Policy, progress: Progress, cancelled: threading.Event, *on: int
    ) -> View:
        patch = ownership_effects(*load.sides(policy, on, progress, cancelled)[1])
        base = mainline(*on)
        begin_ns = int(base.over_time["time_ns"].min())
        over_time = {
            label: figures.since_start(effects.over_time, begin_ns)
            for label, effects in ((AS_RECORDED, base), (THIS_POLICY, patch))
        }
        title = f"base: {load.words(*on)}; patch: {policy}"

        def words() -> str:
            text = ownership_table(base, patch, title, load.lines(*on))
            rows = [(*key, words_of(*key)) for key in SHOWN]
            return _few_html(ownership_rows(base, patch), rows) + folded_text(text)

        known = {"measured": measured} if load.is_recorded(*on) else None
        return View(figure=figures.ownership_over_time.drawing(known, over_time), words=words)

    controls = PolicyControls(
        tuple(_PCP_BUDDY_FIELDS),
        start={"pageblock_ownership": "pcp_buddy"},
        at_first=len(_PCP_BUDDY_FIRST),
    )
    title = f"{load.recording.name}: pageblock ownership"
    return Explorer(title, controls, compute, (cpus, purging))


_DEFRAG_MODE_FIELDS = (
    "defrag_mode",
    "defrag_kswapd_assist",
    "defrag_watermarks",
    "compact_gap",
    "thp_defrag",
)
_DEFRAG_MODE_LABELS = {
    "defrag_mode": "ban on fallbacks (defrag_mode)",
    "defrag_kswapd_assist": "kswapd and kcompactd assist",
    "defrag_watermarks": "watermarks in whole blocks",
    "thp_defrag": "faults may (thp_defrag)",
}
DEMAND_FIELDS = ("thp_defrag",)
"""Settings that both sides have in common."""
HOST = BuildHost(scale=128)
GIB_LEAST, GIB_MOST = 8, 32
BURST_LEAST, BURST_MOST, BURST_STEP = 256, 2048, 256
ONE_SEED = "One seed, hence no interval and no sign judged. Right here:"


def defrag_mode(host: BuildHost = HOST) -> Explorer:
    """Effects of defrag_mode's parts on huge pages, compaction and reclaim of a made-up host."""
    posted = posted_figures("defrag_mode")
    gib_slider = number_slider("memory (GiB)", int(host.gib), GIB_LEAST, GIB_MOST, GIB_LEAST)
    burst_slider = number_slider(
        "huge pages of a burst", host.burst_huge_pages, BURST_LEAST, BURST_MOST, BURST_STEP
    )

    @lru_cache(maxsize=16)
    def steps(gib: int, burst: int, policy: pm.Policy) -> pd.DataFrame:
        own = replace(host, gib=gib, burst_huge_pages=burst)
        return run_build_host(own, policy, rules=pm.KernelRules.preset(RULES))

    def compute(
        policy: pm.Policy,
        progress: Progress,
        cancelled: threading.Event,
        gib: int,
        burst: int,
    ) -> View:
        changed = policy.given()
        vanilla = pm.Policy.from_settings({name: changed.get(name) for name in DEMAND_FIELDS})
        base = steps(gib, burst, vanilla)
        progress(0.5)
        patch = base if cancelled.is_set() else steps(gib, burst, policy)
        sides = (("base", base), ("patch", patch))
        runs = pd.concat(
            [table.assign(side=side, seed=0) for side, table in sides], ignore_index=True
        )
        return View(
            figure=huge_page_trend.drawing(served_shares(runs, posted), patch="changed policy"),
            words=lambda: folded_text(defrag_table(judged_rows(runs, posted), ONE_SEED)),
        )

    controls = PolicyControls(
        _DEFRAG_MODE_FIELDS,
        labels=_DEFRAG_MODE_LABELS,
        start=DEFRAG_MODE.given(),
        at_first=MOST_AT_FIRST - 2,
    )
    title = "kernel build with bursts: vanilla beside the controls' policy"
    return Explorer(title, controls, compute, (gib_slider, burst_slider))
