"""The reply to the thread on defrag_mode, what it is made of, and rounds on a real machine."""

from __future__ import annotations

import itertools
import json
import os
import tomllib
from pathlib import Path

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.defrag_mode import native_rounds, registered_rounds
from pagealloc_model.notebooks.studies.defrag_mode.defrag_reply import (
    QUOTED,
    RECORDINGS,
    TREES,
    cap_rows,
    defrag_reply,
    rules_claim_holds,
    tree_rows,
)
from pagealloc_model.notebooks.studies.others.shipped_data import shipped_data

from pagealloc_model.cli import main
from pagealloc_model.show.post import posted_figures


def test_the_command_prints_a_mail_of_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["post", "--reply", "defrag_mode"]) == 0
    text = capsys.readouterr().out
    assert text == defrag_reply().to_text()
    assert text.startswith("Subject: Re: [PATCH 0/5] mm: reliable huge page allocator\n")
    assert text.isascii() and "nan" not in text.lower().split()
    assert max(map(len, text.splitlines())) <= 72
    assert text.count("\n") <= 25
    assert text.split("\n\n")[1].startswith("I do not reproduce the gain")
    mail = defrag_reply().to_mail("20250313.1-1-a@b.org")
    assert mail.startswith("To: Johannes Weiner <hannes@cmpxchg.org>\nCc: JP Kobryn ")


def test_quoted_rows_are_those_of_the_cover_letter() -> None:
    text = " ".join(defrag_reply().to_text().split())
    posted = posted_figures("defrag_mode_series").set_index(["quantity", "variant"])["low"]
    for name in QUOTED.values():
        pair = (posted[name, side] for side in ("unpatched", "patched"))
        assert "{} {:,.0f} -> {:,.0f}".format(name, *pair) in text


@pytest.mark.parametrize("name", ["registered", "rules"])
def test_all_that_was_written_down_was_run(name: str) -> None:
    plan = registered_rounds.registered(name)
    runs = registered_rounds.shipped(name)
    wanted = itertools.product(
        *(plan[key] for key in ("recordings", "trees", "faults", "survivors", "seeds")),
        registered_rounds.SIDES,
    )
    columns = ["recording", "tree", "faults", "survivors", "seed", "side"]
    assert sorted(runs[columns].itertuples(index=False, name=None)) == sorted(wanted)


def test_every_tree_of_the_mail_has_every_recording_and_the_failing_ones_are_in_it() -> None:
    rows = tree_rows()
    assert sorted(zip(rows["tree"], rows["recording"], strict=True)) == sorted(
        itertools.product(TREES, RECORDINGS)
    )
    signs = rows[rows["tree"] == "posted"].set_index("recording")["sign"]
    assert (signs < 10).sum() == 3
    text = " ".join(defrag_reply().to_text().split())
    assert signs.to_dict() == {"mixed_6.1": 10, "matrix_A1": 2, "matrix_C1": 3, "defrag_7.3": 6}
    assert (
        "10 of 12 posted rows their sign on one recording of four, 6, 3 and 2 on the others" in text
    )


def test_the_page_has_the_shares_of_every_tree(checkout: Path) -> None:
    rows = tree_rows().set_index(["tree", "recording"])
    page = (checkout / "docs" / "defrag_registered.md").read_text()
    for tree in TREES:
        name = "7.3" if tree == "today" else tree
        cells = (
            f"{row['vanilla']:.0f} to {row['defrag_mode']:.0f} "
            f"({row['low']:+.0f} to {row['high']:+.0f})"
            for row in (rows.loc[(tree, recording)] for recording in RECORDINGS)
        )
        assert f"| {name} | {' | '.join(cells)} |" in page


def test_the_cap_makes_the_mode_serve_less_and_the_other_side_more() -> None:
    rows = cap_rows().set_index(["recording", "side"])
    assert rows.loc[("mixed_6.1", "defrag_mode"), "high"] < 0
    assert rows.loc[("mixed_6.1", "vanilla"), "low"] > 0
    assert rules_claim_holds()


def test_native_runs_show_the_mode_only_without_the_disturbed_one() -> None:
    rounds = native_rounds.shipped_rounds()
    assert rounds.groupby("mode")["run"].nunique().to_dict() == {0: 4, 1: 4}
    quiet = rounds[rounds["disturbed"] == 0]
    points, low, high = native_rounds.change(quiet)
    assert low < points < high
    assert (points, low, high) == pytest.approx((6.4, 0.9, 11.9), abs=0.05)
    _, low, high = native_rounds.change(rounds)
    assert low < 0 < high


def test_rounds_of_an_experiment_are_read_from_its_vmstat(tmp_path: Path) -> None:
    for side, served in (("A", 70), ("B", 80)):
        folder = tmp_path / "runs" / f"{side}1"
        (folder / "rounds").mkdir(parents=True)
        run = {"side": side, "repeat": 1, "status": "done", "path": str(folder / "recording")}
        run |= {"seconds": 1.0, "identity": ""}
        (folder / "run.json").write_text(json.dumps(run))
        for number in range(12):
            counts = {"thp_fault_alloc": served * number, "thp_fault_fallback": 100 * number}
            words = "".join(f"{name} {value}\n" for name, value in counts.items())
            place = folder / "rounds" / f"{number}.vmstat"
            place.write_text(words)
            os.utime(place, ns=(0, number * 5 * 10**9))
            read = folder / "recording" / "snapshots" / f"{number:03}" / "pressure_memory"
            read.parent.mkdir(parents=True)
            read.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={number * 9000}\nfull")
            os.utime(read, ns=(0, number * 10 * 10**9))
    rounds = native_rounds.measured_rounds(tmp_path)
    assert rounds.groupby("mode")["round"].unique().map(list).to_dict() == {
        0: list(range(1, 12)),
        1: list(range(1, 12)),
    }
    assert set(rounds["s"]) == {5.0}
    assert rounds["pressure_ms"].to_list() == pytest.approx([4.5] * 22)
    shares = native_rounds.share(rounds, ["mode"])
    assert shares.to_list() == pytest.approx([100 * 70 / 170, 100 * 80 / 180])
    assert native_rounds.trend(rounds).abs().max() == pytest.approx(0)


def test_all_that_was_registered_of_native_rounds_is_judged() -> None:
    rounds = native_rounds.shipped_rounds("native_rounds")
    table = native_rounds.verdicts(rounds, native_rounds.shipped_predictions())
    folder = shipped_data("it") / "experiments" / "native_rounds"
    plan = tomllib.loads((folder / "registered.toml").read_text())
    assert list(table.index) == list(plan["quantities"])
    assert rounds.groupby("mode")["run"].nunique().max() <= plan["repeats"]
    runs = pd.read_csv(folder / "runs.csv")
    assert (runs["status"] == "done").sum() == rounds.groupby(["mode", "run"]).ngroups
    assert ((table["low"] <= table["difference"]) & (table["difference"] <= table["high"])).all()
    assert table.loc[["seconds", "pressure"], "predicted"].isna().all()
    assert table["direction"].notna().equals(table["effect"] & table["predicted"].notna())


def test_the_page_has_every_registered_quantity(checkout: Path) -> None:
    page = (checkout / "docs" / "defrag_registered.md").read_text()
    lines = native_rounds.change_lines()
    assert len(lines) == len(native_rounds.QUANTITIES)
    assert all(line in page for line in lines)


def test_only_without_the_disturbed_run_the_mode_changes_anything() -> None:
    assert not native_rounds.shipped_verdicts()["effect"].any()
    quiet = native_rounds.shipped_verdicts(undisturbed=True)
    assert quiet.loc["served", "high"] < 0
    assert quiet.loc["stalls", "low"] > 0
    assert quiet.loc[["daemon_wakes", "daemon_scanned"], "within"].all()
    decay = native_rounds.trend(native_rounds.shipped_rounds("native_rounds"))
    assert (decay > 0).all()


def test_a_measured_change_is_judged_by_what_was_registered() -> None:
    def rounds_of(sides: list[list[int]]) -> pd.DataFrame:
        return pd.DataFrame(
            [
                {
                    **dict.fromkeys(native_rounds.COUNTERS, 0),
                    **{"mode": mode, "run": run, "seed": 0, "round": number},
                    **{"thp_fault_alloc": served, "thp_fault_fallback": 100 - served},
                }
                for mode, side in enumerate(sides)
                for run, served in enumerate(side)
                for number in range(6)
            ]
        )

    measured = rounds_of([[50, 52, 54], [70, 72, 74]])
    for guess in (90, 72, 40):
        predicted = rounds_of([[50], [guess]])
        row = native_rounds.verdicts(measured, predicted).loc["served"]
        assert row["difference"] == pytest.approx(20)
        assert row["effect"] and row["posted"]
        wanted = (guess > 50, abs(guess - 50 - 20) < 6, abs(guess - 70) < 20)
        assert (row["direction"], row["within"], row["nearer"]) == wanted
