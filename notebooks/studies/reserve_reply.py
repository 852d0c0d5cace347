"""The reply to the thread on the highatomic reserve: a mechanism, figures, questions."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.layout import NOT_AVAILABLE, Row, text_table
from pagealloc_model.show.post.message import Fixed, Message, Section, Words
from pagealloc_model.verdict.statistics import mean_interval

SUBJECT = "Re: [PATCH] mm/page_alloc: skip high atomic reservation"
MECHANISM = (
    "How can 1% of memory do this? One way is in the source (6.12, unchanged in 7.3). Proactive "
    "compaction begins where the score of fragmentation_score_zone() is above 90, at the default "
    "compaction_proactiveness of 20. The score is the share of free memory in pieces smaller than "
    "a huge page. Free blocks on the HighAtomic lists count as whole, though no huge page may be "
    "served from them. So a reserve whose free blocks are a tenth of the free memory keeps the "
    "score at 90 or below: 312 of them do up to 6.1 GiB free, a tenth of a 64 GiB host. "
    "kcompactd then never begins by itself, and unadvised faults with defrag=madvise do not "
    "compact either."
)
NOT_EXPLAINED = (
    "It does not explain the fall of pgscan_kswapd, which in the model appears in one point of 54, "
    "under defrag=defer. Another way to it is seen where the reserve grows: kswapd, woken by "
    "atomic requests of order 1 to 3, does not count what the reserve holds of these orders and "
    "goes on reclaiming."
)
MERGED_RULE = (
    "7.3.4 with the load of the last table, its own rule and without it: then each atomic request "
    "of order 1 to 3 reserves that the free lists serve, in need or not. Without the rule the "
    "reserve is full within seconds; with it blocks come one by one while kswapd works at the low "
    "mark, and half of the cap is reached. Either way most of it is crumbs: a few pages in use "
    "keep a block from being whole, and the gate has no measurable effect on THP. Least and most "
    "over boots of reserved blocks (the cap is 10) and of whole ones as huge pages are asked for, "
    "and of thousands of pages that kcompactd scanned."
)
DEFERRED = (
    "With defrag=defer (6.12.117, the same load): from recordings under madvise alone the model "
    "foretells what defer changes, and the gate under it. The null model, no change, is 0."
)
BY_HAND = (
    "6.12.117 in an emulated guest of 2 GiB, enabled=always, defrag=madvise, faults not advised. "
    "Atomic requests of orders 1 to 3 fill the reserve and end; then 60 s of five huge-page faults "
    "a second. THP success with its 95% interval over boots (Student's t); least and most over "
    "boots of wholly free reserved blocks, and of thousands of pages that kcompactd and kswapd "
    "scanned."
)
RECORDED = (
    "The same with a load whose atomic requests have orders 0 to 3, recorded. It left the reserve "
    "in crumbs, which hide little. Points of THP success, Welch's 95% interval over boots; "
    "predicted from recordings of the earlier side alone."
)
REGIONS = (
    "Made-up hosts of 4 to 16 GiB, three a region, three seeds each: mean THP success, and the "
    "range of the change over hosts, in points. Idle: the reserve is full and free at first; "
    "burst, steady: atomic requests fill it for 10 s, or all the time. With defrag=always it "
    "is worse: where faults fail, they take the reserve's whole blocks back and go on with them, "
    "which a host that never reserved has full of page cache."
)
SIZES = (
    "By size of host, an idle reserve, one rate a GiB: THP success and the range of its change "
    "over seeds (one run of 64 GiB, whose reserve has the 312 posted blocks)."
)
QUESTIONS = (
    "transparent_hugepage/defrag, and are the faults madvised?",
    "vm.compaction_proactiveness, and compact_daemon_wake and compact_daemon_migrate_scanned a "
    "second, on both sides? The mechanism needs the latter near 0 without the patch.",
    "/proc/buddyinfo and /proc/pagetypeinfo of an unpatched host: free pages of orders 9 and 10 in "
    "the reserve against all free pages. It needs a tenth or more.",
    "Does vm.compaction_proactiveness=0 on both sides take the difference away? If THP success "
    "stays at 44-78% with the patch, this is not the mechanism.",
    "Failures of atomic requests of orders 1 to 3 in a burst after quiet hours, not on average.",
)


def reserve_reply(
    two_by_two: pd.DataFrame,
    large: pd.DataFrame,
    answers: pd.DataFrame,
    regions: pd.DataFrame,
    sizes: pd.DataFrame,
    by_hand: pd.DataFrame,
    guests: pd.DataFrame,
    slowpath: pd.DataFrame,
    slowpath_changes: pd.DataFrame,
    deferred: pd.DataFrame,
) -> Message:
    """The whole reply, each figure with its interval, spread or verdict.

    Args:
        two_by_two: defrag, gate, proactiveness, thp_success, low, high.
        large: the same of a 64 GiB host, from one run a cell.
        answers: answer, thp_success, low, high; failed_order_1 to 3, each with _least and _most.
        regions: load, defrag, proactiveness, mainline, gate, least, most.
        sizes: load, defrag, gib, runs, mainline, gate, least, most.
        by_hand: gate, proactiveness, thp_success, whole_blocks, kcompactd_scanned and
            kswapd_scanned of guests without a prediction, a row a boot.
        guests: changes of THP success in guests: pair, before, change, low, high, predicted,
            verdict, runs_before, runs_after.
        slowpath: slowpath_only, gate, thp_success, reserved_blocks, whole_blocks and
            kcompactd_scanned of guests with 7.3, a row a boot.
        slowpath_changes: as `guests`, of these.
        deferred: as `guests`, for defrag=defer.
    """
    sections = (
        Section(title="One way", blocks=(Words(text=MECHANISM), Words(text=NOT_EXPLAINED))),
        Section(
            title="Measured in guests, and predicted",
            blocks=(
                Words(text=BY_HAND),
                Fixed(text=_by_hand(by_hand)),
                Words(text=RECORDED),
                Fixed(text=_changes(guests)),
                Words(text=DEFERRED),
                Fixed(text=_changes(deferred)),
                Words(text=MERGED_RULE),
                Fixed(text=_slowpath(slowpath)),
                Fixed(text=_changes(slowpath_changes)),
            ),
        ),
        Section(
            title="In the model",
            blocks=(
                Words(
                    text="THP success on a made-up 16 GiB host whose reserve is full and idle, and "
                    "its 95% interval over seeds; on one of 64 GiB, a run a cell. Rules of 6.18; "
                    "no parameter was fitted to the posted figures."
                ),
                Fixed(text=_cells(two_by_two, large)),
            ),
        ),
        Section(
            title="Where it holds, and where not",
            blocks=(
                Words(text=f"{REGIONS} {_without_proactive(regions)}"),
                Fixed(text=_regions(regions)),
                Words(text=f"{SIZES} {_after_a_burst(sizes)}"),
                Fixed(text=_sizes(sizes[sizes["load"] == "idle"])),
            ),
        ),
        Section(
            title="What each answer costs",
            blocks=(
                Words(
                    text="A 4 GiB host, 50 s without atomic requests, then 10 s of 40,000/s that "
                    "live for 50 ms: THP success in the quiet with its 95% interval, and failed "
                    "requests of the burst, per 10,000 of the order, least and most of five seeds."
                ),
                Fixed(text=_answers(answers)),
            ),
        ),
        Section(
            title="Questions",
            blocks=tuple(Words(text=each, bullet=True) for each in QUESTIONS),
        ),
    )
    return Message(subject=SUBJECT, sections=sections)


def _percent(value: float) -> str:
    return NOT_AVAILABLE if pd.isna(value) else f"{100 * value:.0f}%"


def _interval(low: float, high: float) -> str:
    if pd.isna(low) or pd.isna(high):
        return "one run"
    return f"{100 * low:.0f} to {100 * high:.0f}"


def _range(values: pd.Series, unit: float = 1) -> str:
    """Return the least and the most, or the one value if they look alike."""
    ends = [f"{value / unit:.0f}" for value in (values.min(), values.max())]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _success(boots: pd.DataFrame) -> tuple[str, str, str]:
    """Return how many boots there are, their mean THP success, and its interval."""
    mean, low, high = mean_interval(boots["thp_success"].to_list())
    return str(len(boots)), _percent(mean), _interval(max(low, 0.0), min(high, 1.0))


def _by_hand(boots: pd.DataFrame) -> str:
    header = Row(
        heading="gate",
        label="proactiveness",
        cells=("boots", "THP", "interval", "blocks", "kcompactd", "kswapd"),
    )
    rows = [
        Row(
            heading=f"gate at order {gate}" if gate else "mainline",
            label=str(share),
            cells=(
                *_success(own),
                _range(own["whole_blocks"]),
                _range(own["kcompactd_scanned"], 1000),
                _range(own["kswapd_scanned"], 1000),
            ),
        )
        for (gate, share), own in boots.groupby(["gate", "proactiveness"], sort=False)
    ]
    return text_table(header, rows)


def _slowpath(boots: pd.DataFrame) -> str:
    header = Row(
        heading="rule",
        label="gate",
        cells=("boots", "THP", "interval", "blocks", "whole", "kcompactd"),
    )
    rows = [
        Row(
            heading="7.3's rule" if rule else "without it",
            label=f"at order {gate}" if gate else "none",
            cells=(
                *_success(own),
                _range(own["reserved_blocks"]),
                _range(own["whole_blocks"]),
                _range(own["kcompactd_scanned"], 1000),
            ),
        )
        for (rule, gate), own in boots.groupby(["slowpath_only", "gate"], sort=False)
    ]
    return text_table(header, rows)


def _changes(changes: pd.DataFrame) -> str:
    header = Row(heading="THP success", label="", cells=("before", "change", "interval", "model"))
    rows = [
        Row(
            heading=str(row["pair"]),
            label=f"{row['runs_before']} and {count_of(row['runs_after'], 'boot')}",
            cells=(
                _percent(row["before"]),
                f"{100 * row['change']:+.0f}",
                _interval(row["low"], row["high"]),
                f"{100 * row['predicted']:+.0f}: {row['verdict']}",
            ),
        )
        for row in changes.to_dict("records")
    ]
    return text_table(header, rows)


def _cells(two_by_two: pd.DataFrame, large: pd.DataFrame) -> str:
    header = Row(heading="THP success", label="proactiveness", cells=("mainline", "", "gate", ""))
    rows = []
    for words, table in (("16 GiB", two_by_two), ("64 GiB", large)):
        for (defrag, share), own in table.groupby(["defrag", "proactiveness"], sort=False):
            cells = []
            for row in own.sort_values("gate").to_dict("records"):
                cells += [_percent(row["thp_success"]), _interval(row["low"], row["high"])]
            heading = f"{words}, defrag={defrag}"
            rows.append(Row(heading=heading, label=str(share), cells=tuple(cells)))
    return text_table(header, rows)


def _without_proactive(regions: pd.DataFrame) -> str:
    own = regions[regions["proactiveness"] == 0]
    least, most = (f"{100 * value:+.0f}" for value in (own["least"].min(), own["most"].max()))
    return f"At the default proactiveness; at 0 the change is {least} to {most} in all regions."


def _regions(regions: pd.DataFrame) -> str:
    header = Row(heading="reserve", label="defrag", cells=("mainline", "gate", "range"))
    rows = [
        Row(heading=str(row["load"]), label=str(row["defrag"]), cells=_levels(row))
        for row in regions[regions["proactiveness"] > 0].to_dict("records")
    ]
    return text_table(header, rows)


def _after_a_burst(sizes: pd.DataFrame) -> str:
    own = sizes[sizes["load"] == "burst"]
    least, most = (f"{100 * value:+.0f}" for value in (own["least"].min(), own["most"].max()))
    return (
        "In the three minutes after 10 s of 800 atomic requests a second and GiB the change is "
        f"{least} to {most}, for hardly a block was reserved."
    )


def _sizes(sizes: pd.DataFrame) -> str:
    header = Row(heading="reserve, defrag", label="GiB", cells=("mainline", "gate", "range"))
    rows = [
        Row(
            heading=f"{row['load']}, {row['defrag']}",
            label=f"{row['gib']}" if row["runs"] > 1 else f"{row['gib']}, one run",
            cells=_levels(row),
        )
        for row in sizes.to_dict("records")
    ]
    return text_table(header, rows)


def _levels(row: dict[Hashable, Any]) -> tuple[str, str, str]:
    return (
        _percent(row["mainline"]),
        _percent(row["gate"]),
        f"{100 * row['least']:+.0f} to {100 * row['most']:+.0f}",
    )


def _answers(answers: pd.DataFrame) -> str:
    header = Row(
        heading="answer",
        label="",
        cells=("THP", "interval", "order 1", "order 2", "order 3"),
    )
    rows = [
        Row(
            heading="in the quiet, in the burst",
            label=str(row["answer"]),
            cells=(
                _percent(row["thp_success"]),
                _interval(row["low"], row["high"]),
                *(_failures(row, order) for order in (1, 2, 3)),
            ),
        )
        for row in answers.to_dict("records")
    ]
    return text_table(header, rows)


def _failures(row: dict[Hashable, Any], order: int) -> str:
    known = [row[f"failed_order_{order}_{end}"] for end in ("least", "most")]
    ends = [f"{value:.0f}" if value >= 1 else f"{value:.2g}" for value in known]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
