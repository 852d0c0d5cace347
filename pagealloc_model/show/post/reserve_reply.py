"""The reply to the thread on the highatomic reserve: a mechanism, figures, questions."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from pagealloc_model.base.text.layout import NOT_AVAILABLE, Row, text_table
from pagealloc_model.show.post.message import Block, Fixed, Message, Section, Words

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
    "It does not explain the fall of pgscan_kswapd. In one point of 54 of the map below it "
    "appears, by 65%, together with THP success of 11% -> 62%: there, under defrag=defer. Another "
    "way to it is seen where the reserve grows: kswapd, woken by atomic requests of order 1 to 3, "
    "does not count what the reserve holds of these orders and goes on reclaiming."
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
    guests: pd.DataFrame,
    by_hand: pd.DataFrame,
) -> Message:
    """The whole reply, each figure with its interval, spread or verdict.

    Args:
        two_by_two: defrag, gate, proactiveness, thp_success, low, high.
        large: the same of a 64 GiB host, from one run a cell.
        answers: answer, thp_success, low, high, failed_order_1 to 3, kswapd_scanned.
        regions: load, defrag, proactiveness, mainline, gate, least, most.
        guests: changes of THP success in guests: axis, pair, before, change, low, high,
            predicted, verdict, runs_before, runs_after.
        by_hand: gate, proactiveness, boots, thp_success, low, high, whole_blocks,
            kcompactd_scanned, kswapd_scanned of guests without a prediction.
    """
    sections = (
        Section(title="One way", blocks=(Words(text=MECHANISM), Words(text=NOT_EXPLAINED))),
        Section(
            title="Measured in guests, and predicted", blocks=(*_by_hand(by_hand), *_guests(guests))
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
                Words(
                    text="Made-up hosts of 4 to 16 GiB, three a region, three seeds each: mean THP "
                    "success, and the range of the change over hosts, in points. Idle: the "
                    "reserve is full and free at first; burst, steady: atomic requests fill it "
                    "for 10 s, or all the time. Where faults compact themselves (always) the patch "
                    "is worse."
                ),
                Fixed(text=_regions(regions)),
            ),
        ),
        Section(
            title="What each answer costs",
            blocks=(
                Words(
                    text="A 4 GiB host, 50 s without atomic requests, then 10 s of 40,000/s that "
                    "live for 50 ms: THP success in the quiet with its 95% interval, and failed "
                    "requests of the burst, per 10,000 of the order."
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


def _by_hand(boots: pd.DataFrame) -> Iterator[Block]:
    yield Words(
        text="6.12.117 in an emulated guest of 2 GiB, enabled=always, defrag=madvise, faults not "
        "advised. Atomic requests of orders 1 to 3 fill the reserve and end; then 60 s of five "
        "huge-page faults a second. THP success with its 95% interval over boots (Student's t), "
        "wholly free reserved blocks, and thousands of pages that kcompactd and kswapd scanned."
    )
    header = Row(
        heading="gate",
        label="proactiveness",
        cells=("boots", "THP", "interval", "blocks", "kcompactd", "kswapd"),
    )
    rows = [
        Row(
            heading=f"gate at order {row['gate']}" if row["gate"] else "mainline",
            label=str(row["proactiveness"]),
            cells=(
                str(row["boots"]),
                _percent(row["thp_success"]),
                _interval(row["low"], row["high"]),
                f"{row['whole_blocks']:.1f}",
                f"{row['kcompactd_scanned'] / 1000:.0f}",
                f"{row['kswapd_scanned'] / 1000:.0f}",
            ),
        )
        for row in boots.to_dict("records")
    ]
    yield Fixed(text=text_table(header, rows))


def _guests(guests: pd.DataFrame) -> Iterator[Block]:
    if guests.empty:
        yield Words(text="Not yet.")
        return
    yield Words(
        text="The same with a load whose atomic requests have orders 0 to 3, recorded. It left "
        "the reserve in crumbs, which hide little. Points of THP "
        "success, Welch's 95% interval over boots; predicted from recordings of the earlier side "
        "alone."
    )
    header = Row(heading="THP success", label="", cells=("before", "change", "interval", "model"))
    rows = [
        Row(
            heading=str(row["pair"]),
            label=f"{row['runs_before']} and {row['runs_after']} boots",
            cells=(
                _percent(row["before"]),
                f"{100 * row['change']:+.0f}",
                _interval(row["low"], row["high"]),
                f"{100 * row['predicted']:+.0f}: {row['verdict']}",
            ),
        )
        for row in guests.to_dict("records")
    ]
    yield Fixed(text=text_table(header, rows))


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


def _regions(regions: pd.DataFrame) -> str:
    header = Row(
        heading="reserve, defrag", label="proactiveness", cells=("mainline", "gate", "range")
    )
    rows = [
        Row(
            heading=f"{row['load']}, {row['defrag']}",
            label=str(row["proactiveness"]),
            cells=(
                _percent(row["mainline"]),
                _percent(row["gate"]),
                f"{100 * row['least']:+.0f} to {100 * row['most']:+.0f}",
            ),
        )
        for row in regions.to_dict("records")
    ]
    return text_table(header, rows)


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
                *(f"{row[f'failed_order_{order}']:.3g}" for order in (1, 2, 3)),
            ),
        )
        for row in answers.to_dict("records")
    ]
    return text_table(header, rows)
