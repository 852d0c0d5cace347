"""The reply to the thread on the highatomic reserve: claim, mechanism, one table, questions."""

from __future__ import annotations

import pandas as pd

from pagealloc_model.base.table import Column, Table
from pagealloc_model.base.text import NOT_AVAILABLE
from pagealloc_model.show.post.comparison_message import posted_claim
from pagealloc_model.show.post.message import Fixed, Message, Section, Words
from pagealloc_model.verdict.statistics import mean_interval

SUBJECT = "Re: [PATCH] mm/page_alloc: skip high atomic reservation"
MECHANISM = (
    "One way in which 1% of memory can do this is in the source (6.12, unchanged in 7.3). "
    "Proactive compaction begins where fragmentation_score_zone() is above 90, at the default "
    "compaction_proactiveness of 20. The score is the share of free memory in pieces smaller than "
    "a huge page. Free HighAtomic blocks count as whole, though no huge page is served from them. "
    "A reserve whose free blocks are a tenth of the free memory keeps the score at 90 or below: "
    "312 of them do up to 6.1 GiB free. kcompactd then never begins by itself, and unadvised "
    "faults with defrag=madvise do not compact either. It does not explain the fall of "
    "pgscan_kswapd."
)
READING = (
    "THP success, and its 95% interval over boots or seeds; p is vm.compaction_proactiveness. No "
    "parameter was fitted to the posted figures."
)
QUESTIONS = (
    "transparent_hugepage/defrag, and are the faults madvised?",
    "compact_daemon_wake and compact_daemon_migrate_scanned a second, on both sides? The latter "
    "must be near 0 without the patch.",
    "/proc/pagetypeinfo of an unpatched host: are free pages of orders 9 and 10 in the reserve a "
    "tenth of all free pages?",
    "Does vm.compaction_proactiveness=0 on both sides take the difference away? If THP success "
    "stays at 44-78% with the patch, this is not the mechanism.",
)


def reserve_reply(
    two_by_two: pd.DataFrame,
    large: pd.DataFrame,
    answers: pd.DataFrame,
    regions: pd.DataFrame,
    by_hand: pd.DataFrame,
    guests: pd.DataFrame,
) -> Message:
    """The whole reply, each figure with its interval, spread or verdict."""
    refute = "What would refute it:"
    blocks = (
        Words(text=posted_claim(["highatomic_gate_order"])),
        Words(text=MECHANISM),
        Words(text=READING),
        Fixed(text=_cells(two_by_two, large, by_hand)),
        Words(text=f"{_not_everywhere(guests, regions)} {_price(answers)}"),
        Words(text=refute),
        *(Words(text=each, bullet=True) for each in QUESTIONS),
    )
    return Message(subject=SUBJECT, sections=(Section(title="", blocks=blocks),))


def _percent(value: float) -> str:
    return NOT_AVAILABLE if pd.isna(value) else f"{100 * value:.0f}%"


def _interval(low: float, high: float) -> str:
    if pd.isna(low) or pd.isna(high):
        return "one run"
    return f"{100 * low:.0f} to {100 * high:.0f}"


def _cells(two_by_two: pd.DataFrame, large: pd.DataFrame, by_hand: pd.DataFrame) -> str:
    """A row for each machine, defrag and proactiveness: mainline, then the gate at order 3."""
    rows = []
    for share, own in by_hand.groupby("proactiveness", sort=False):
        cells = []
        for _, boots in own.groupby("gate"):
            mean, low, high = mean_interval(boots["thp_success"].to_list())
            cells += [_percent(mean), _interval(max(low, 0.0), min(high, 1.0))]
        rows.append(("guest, 6.12.117, 2 GiB, 3 boots", f"madvise, p={share}", *cells))
    for words, table in (("16 GiB", two_by_two), ("64 GiB", large)):
        for (defrag, share), own in table.groupby(["defrag", "proactiveness"], sort=False):
            if defrag == "madvise" or share:
                cells = []
                for row in own.sort_values("gate").to_dict("records"):
                    cells += [_percent(row["thp_success"]), _interval(row["low"], row["high"])]
                rows.append((f"made up, {words}, reserve idle", f"{defrag}, p={share}", *cells))
    titles = ("mainline", "interval", "gate", "interval")
    names = (Column(title="machine", words=True), Column(title="defrag", words=True))
    return Table((*names, *titles), rows).to_text()


def _not_everywhere(guests: pd.DataFrame, regions: pd.DataFrame) -> str:
    """What guests did under a load that leaves few free blocks, and hosts of other loads."""
    gate = guests[guests["pair"].str.startswith("A -> E")].iloc[0]
    ends = {
        load: f"{100 * own['least'].min():+.0f} to {100 * own['most'].max():+.0f}"
        for load, own in regions[regions["proactiveness"] > 0].groupby("load")
    }
    return (
        "It needs free blocks in the reserve. In guests whose load left pages in use in each of "
        f"them, the gate changed THP success by {100 * gate['change']:+.0f} points "
        f"({100 * gate['low']:.0f} to {100 * gate['high']:.0f}; the model said "
        f"{100 * gate['predicted']:+.0f}): {gate['verdict']}. On made-up hosts of 4 to 16 GiB the "
        f"change is {ends['idle']} points with an idle reserve, {ends['burst']} after a burst, "
        f"{ends['steady']} under steady atomic load."
    )


def _price(answers: pd.DataFrame) -> str:
    """Failed requests of order 3 in a burst."""
    by_answer = answers.set_index("answer")

    def failures(answer: str) -> str:
        row = by_answer.loc[answer]
        least, most = row["failed_order_3_least"], row["failed_order_3_most"]
        return f"{least:.0f} to {most:.0f}" if least != most else f"{least:.0f}"

    return (
        "The gate has a price: of 10,000 atomic requests of order 3 in a burst after a quiet time, "
        f"{failures('gate at order 3')} fail with it and {failures('mainline')} without (made up, "
        "4 GiB, five seeds)."
    )
