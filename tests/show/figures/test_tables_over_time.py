"""Figures of tables over time: rates, sizes, fallbacks, outcomes, the highatomic reserve."""

import pandas as pd

from pagealloc_model.show import figures
from pagealloc_model.show.post import posted_figures
from tests import synthetic_tables as tables
from tests.show.figures.test_faceted import notes_of, traces_of


def test_many_cpus_are_added_up() -> None:
    figure = figures.pcp_counts(tables.pcp(16), tables.pcp(16))
    trace = traces_of(figure)["Normal, all CPUs/predicted:0"]
    assert list(trace.y) == [16 * 63 * count for count in (1, 2, 3, 1, 2)]


def test_rates_are_per_second_of_bin_width() -> None:
    trace = traces_of(figures.transaction_rates(tables.lock(), None))["refill/measured:0"]
    assert set(trace.y) == {200.0}


def test_rates_of_tables_with_other_bins_are_comparable() -> None:
    fine = tables.lock()
    finer = pd.concat([fine, fine.assign(time_ns=fine["time_ns"] + 500_000_000)])
    sparse = fine[fine["time_ns"] != tables.TIMES_NS[2]]
    shown = traces_of(figures.transaction_rates(sparse, finer))
    assert list(shown["refill/predicted:0"].y) == [400.0] * 5
    assert list(shown["refill/measured:0"].y) == [200.0, 200.0, 0.0, 200.0, 200.0]


def test_a_lone_bin_is_no_narrow_one() -> None:
    fine = tables.lock()
    lone = fine[fine["time_ns"] == tables.TIMES_NS[0]]
    closer = fine.assign(time_ns=fine["time_ns"] // 100)
    shown = traces_of(figures.transaction_rates(lone, closer))
    assert list(shown["refill/measured:0"].y) == [200.0]


def test_transaction_sizes_are_binned_by_powers_of_two() -> None:
    figure = figures.transaction_sizes(tables.transactions(), tables.transactions())
    trace = traces_of(figure)["refill/predicted:0"]
    by_bin = dict(zip(trace.x, trace.y, strict=True))
    assert list(by_bin)[:3] == ["1", "2", "4"]
    assert by_bin["64"] == 4 * (10_000 // 64 + 10_000 // 127)
    assert figure.layout.yaxis.type == "log"


def test_fallbacks_name_both_types_and_the_kind() -> None:
    trace = traces_of(figures.fallbacks(tables.fallbacks(), None))["fallbacks/measured:0"]
    assert dict(zip(trace.y, trace.x, strict=True)) == {
        "Unmovable steals from Movable": 3,
        "Unmovable claims a whole block of Movable": 12,
        "Reclaimable claims a part-used block of Movable": 7,
    }


def test_highatomic_shows_each_recording_policy_and_the_posted_figures() -> None:
    def from_start(table: pd.DataFrame) -> pd.DataFrame:
        return figures.since_start(table, tables.START_NS)

    figure = figures.highatomic_blocks(
        {"stock": from_start(tables.pageblocks()), "gate3": from_start(tables.pageblocks(0))},
        {"mainline": from_start(tables.pageblocks(6)), "gate": from_start(tables.pageblocks(0))},
        posted_figures("highatomic"),
    )
    shown = traces_of(figure)
    assert list(shown["all zones/measured:0"].y) == [10, 20, 30, 40, 50]
    assert list(shown["all zones/predicted:1"].y) == [0] * 5
    assert any("309-312" in note and "64 GB" in note for note in notes_of(figure))


def test_unknown_outcomes_say_why() -> None:
    reason = "a literal replay takes success from the recording"
    figure = figures.outcomes(tables.outcomes(), tables.outcomes(reason), 9)
    assert list(traces_of(figure)["outcomes/predicted:0"].x) == ["asked"]
    assert any(reason in note for note in notes_of(figure))
