"""The figure of a reply to a thread: `pagealloc post --reply NAME --figure FILE`."""

from __future__ import annotations

import plotly.graph_objects as go
from pagealloc_model.notebooks.studies.defrag_mode.round_tables import GUESTS, shipped_rounds
from pagealloc_model.notebooks.studies.highatomic.idle_reserve_tables import (
    GUEST_SCORES,
    shipped_table,
)
from pagealloc_model.notebooks.studies.others import figures

SCORE = (
    "Recorded in a guest of 6.12.117 with 2 GiB: a burst of atomic requests fills the reserve, "
    "then come 5 huge-page faults a second, defrag=madvise, not advised. The score, from the "
    "guest's free lists, is the share of free memory in pieces smaller than a huge page; above 90 "
    "kcompactd compacts by itself. Free HighAtomic blocks count as whole pieces in it."
)
ROUNDS = (
    "Guests of 7.3.4, 512 MiB, 2 emulated CPUs: rounds of a build's files beside 100 huge-page "
    "faults. Lines are means over two boots, bands go from the lower to the higher. vanilla: "
    "vm.defrag_mode=0; defrag_mode: 1."
)


def reply_figure(name: str) -> tuple[go.Figure, str]:
    """The figure that a reply shows, and its caption, which is in it too."""
    if name == "highatomic":
        scores = shipped_table(GUEST_SCORES)
        tables = {"": scores[scores["side"] == "whole"]}
        title = "Free reserved blocks hold the fragmentation score at or below 90"
        return figures.score_over_time(tables, title=title, caption=SCORE), SCORE
    rounds = shipped_rounds(GUESTS)
    hosts = {
        f"{host} host": rounds[rounds["recording"] == f"guest 7.3.4, SLUB, {host} host"]
        for host in ("busy", "quiet")
    }
    title = "Huge pages become fewer from round to round, with vm.defrag_mode 0 and 1"
    figure = figures.rounds_served(hosts, title=title, caption=ROUNDS)
    figure.update_traces(line_dash="dash", selector={"name": "vanilla"})  # for grey
    return figure, ROUNDS
