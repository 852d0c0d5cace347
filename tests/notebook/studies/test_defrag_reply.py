"""The reply to the thread on defrag_mode, what it is made of, and rounds on a real machine."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies import native_rounds, registered_rounds
from pagealloc_model.notebooks.studies.defrag_reply import (
    QUOTED,
    RECORDINGS,
    TREES,
    cap_rows,
    defrag_reply,
    rules_claim_holds,
    tree_rows,
)

from pagealloc_model.cli import main
from pagealloc_model.show.post import posted_figures


def test_the_command_prints_a_mail_of_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["post", "--reply", "defrag_mode"]) == 0
    text = capsys.readouterr().out
    assert text == defrag_reply().to_text()
    assert text.startswith("Subject: Re: [PATCH 0/5] mm: reliable huge page allocator\n")
    assert text.isascii() and "nan" not in text.lower().split()
    assert max(map(len, text.splitlines())) <= 72
    assert text.count("\n") <= 60


def test_quoted_rows_are_those_of_the_cover_letter() -> None:
    lines = defrag_reply().to_text().splitlines()
    quoted = [line.split() for line in lines if " -> " in line]
    posted = posted_figures("defrag_mode_series").set_index(["quantity", "variant"])["value"]
    assert [(" ".join(words[:-3]), words[-3], words[-1]) for words in quoted] == [
        (name, posted[name, "unpatched"], posted[name, "patched"]) for name in QUOTED
    ]


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
    lines = defrag_reply().to_text().splitlines()
    shown = next(line for line in lines if line.startswith("signs, as posted"))
    assert [int(word) for word in shown.split()[3:]] == [signs[name] for name in RECORDINGS]


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
    for side, served in (("A", 70), ("B", 75), ("C", 80), ("D", 85)):
        folder = tmp_path / "runs" / f"{side}1"
        (folder / "rounds").mkdir(parents=True)
        run = {"side": side, "repeat": 1, "status": "done", "path": str(folder / "recording")}
        (folder / "run.json").write_text(json.dumps(run))
        for number in range(12):
            counts = {"thp_fault_alloc": served * number, "thp_fault_fallback": 100 * number}
            words = "".join(f"{name} {value}\n" for name, value in counts.items())
            (folder / "rounds" / f"{number}.vmstat").write_text(words)
    rounds = native_rounds.measured_rounds(tmp_path)
    assert rounds.groupby("defrag")["mode"].unique().map(sorted).to_dict() == {
        "madvise": [0, 1],
        "always": [0, 1],
    }
    assert set(rounds["round"]) == set(range(1, 12))
    shares = native_rounds.share(rounds, ["defrag", "mode"])
    assert shares["always", 1] == pytest.approx(100 * 85 / 185)
    assert shares["madvise", 0] == pytest.approx(100 * 70 / 170)
    madvise = rounds[rounds["defrag"] == "madvise"]
    assert isinstance(native_rounds.trend(madvise), pd.Series)
