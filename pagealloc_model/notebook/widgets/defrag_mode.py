"""defrag_mode and its parts on a made-up host that builds a kernel, beside the post (S8.6)."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import ipywidgets

from pagealloc_model.notebook.controls import PolicyControls, number_slider
from pagealloc_model.notebook.view import Explorer, Progress, View
from pagealloc_model.notebooks.studies.build_host import BuildHost, run_build_host
from pagealloc_model.notebooks.studies.defrag_study import (
    DEFRAG_MODE,
    RULES,
    judged_rows,
    served_shares,
)
from pagealloc_model.notebooks.studies.defrag_table import defrag_table
from pagealloc_model.notebooks.studies.huge_page_trend import huge_page_trend
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.show.post import posted_figures

if TYPE_CHECKING:
    import pandas as pd

FIELDS = (
    "defrag_mode",
    "defrag_kswapd_assist",
    "defrag_watermarks",
    "compact_gap",
    "thp_defrag",
)
LABELS = {
    "defrag_mode": "ban on fallbacks (defrag_mode)",
    "defrag_kswapd_assist": "kswapd and kcompactd assist",
    "defrag_watermarks": "watermarks in whole blocks",
    "thp_defrag": "faults may (thp_defrag)",
}
PARTS = FIELDS[:3]
"""The series' steps; each run takes seconds, so that a page without a kernel offers no others."""
DEMAND_FIELDS = ("thp_defrag",)
"""What both sides have in common."""
HOST = BuildHost(scale=128)
GIB_LEAST, GIB_MOST = 8, 32
BURST_LEAST, BURST_MOST, BURST_STEP = 256, 2048, 256
ONE_SEED = "One seed, hence no interval and no sign judged. Right here:"


class DefragMode(ipywidgets.VBox):
    """An explorer of defrag_mode with sliders for memory and for the size of bursts.

    Attributes:
        gib: memory, GiB.
        burst: huge pages of a burst.
        explorer: policy controls, figure and table.
    """

    def __init__(self, host: BuildHost) -> None:
        self._host = host
        self._posted = posted_figures("defrag_mode")
        self.gib = number_slider("memory (GiB)", int(host.gib), GIB_LEAST, GIB_MOST, GIB_LEAST)
        self.burst = number_slider(
            "huge pages of a burst", host.burst_huge_pages, BURST_LEAST, BURST_MOST, BURST_STEP
        )
        self._run = lru_cache(maxsize=16)(self._made_run)
        controls = PolicyControls(FIELDS, labels=LABELS, start=DEFRAG_MODE.given())
        self.explorer = Explorer(
            "kernel build with bursts: vanilla beside the controls' policy",
            controls,
            self._compute,
            in_menus=PARTS,
        )
        for slider in (self.gib, self.burst):
            slider.observe(lambda _: self.explorer.redraw(), "value")
        super().__init__([self.gib, self.burst, self.explorer])

    def _compute(self, policy: Policy, progress: Progress, cancelled: threading.Event) -> View:
        host = replace(self._host, gib=self.gib.value, burst_huge_pages=self.burst.value)
        given = policy.given()
        vanilla = Policy.from_settings({name: given.get(name) for name in DEMAND_FIELDS})
        base = self._run(host, vanilla)
        progress(0.5)
        runs = _both(base, base if cancelled.is_set() else self._run(host, policy))
        return View(
            figure=huge_page_trend.drawing(served_shares(runs, self._posted), patch="policy above"),
            text=defrag_table(judged_rows(runs, self._posted), ONE_SEED),
        )

    def _made_run(self, host: BuildHost, policy: Policy) -> pd.DataFrame:
        return run_build_host(host, policy, rules=KernelRules.preset(RULES))


def _both(base: pd.DataFrame, patch: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    sides = [table.assign(side=side, seed=0) for side, table in (("base", base), ("patch", patch))]
    return pd.concat(sides, ignore_index=True)


def defrag_mode(host: BuildHost = HOST) -> DefragMode:
    """What the parts of defrag_mode do to huge pages, compaction and reclaim of a made-up host.

    Args:
        host: where the sliders start; its steps are short, for quick answers.
    """
    return DefragMode(host)
