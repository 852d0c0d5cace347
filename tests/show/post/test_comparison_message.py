"""Complete messages: what a list's server or a reader would stumble over, and the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.base.text import number
from pagealloc_model.cli import main
from pagealloc_model.numbers.comparison import (
    Change,
    ModelError,
    ModelErrors,
    RepeatedComparison,
    repeated,
)
from pagealloc_model.numbers.result_tables import measures, row_words
from pagealloc_model.numbers.statistics import paired_p, smallest_p
from pagealloc_model.numbers.values import Quantity
from pagealloc_model.show.post.comparison_message import (
    _believed_table,
    _short_measure,
    _told,
    posted_claim,
    shown_rows,
)
from pagealloc_model.show.post.tables import repeated_table
from tests.small_recordings import write_recording

PATCH = "pcp_batch=31"
MOST_LINES = 60
SECTIONS = ("What", "On what", "Results", "Charts", "How far to believe it", "Assumed", "Reproduce")


@pytest.fixture(scope="module")
def posted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, pd.DataFrame]]:
    """The text that the command writes for kbuild, and the rows its table is made from."""
    path = Path(__file__).parents[3] / "data" / "kbuild"
    if not path.exists():
        pytest.skip("data/kbuild is not in this checkout")
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("posted")
    patch.setenv("BROWSER_PATH", str(folder / "no-browser"))
    assert main(["post", str(path), "--patch", PATCH, "--full", "-o", str(folder / "post")]) == 0
    patch.undo()
    recording = pm.open(path)
    rows = (
        pm.compare(pm.replay(recording), pm.replay(recording, pm.Policy(pcp_batch=31)))
        .validated()
        .rows
    )
    written = pd.read_csv(folder / "post" / "table.csv")
    assert written["base"].fillna(-1).tolist() == rows["base"].fillna(-1).tolist()
    yield (folder / "post" / "post.txt").read_bytes().decode("utf-8"), rows


def table_cells(text: str) -> dict[tuple[str, str], list[str]]:
    """(metric, scope) -> cells of the first table of a post."""
    body = text.split("Results\n-------\n")[1].split("\n\nSign rule")[0]
    rows, heading, scope = {}, "", ""
    for line in re.split(r"\n-{20,}\n", body)[1].splitlines():
        if line.startswith("  "):
            words, cells = re.fullmatch(r" +(.*?) *((?:(?:-?[\d.]+|NA) .*)?)", line).groups()
            scope = words or scope
            if cells:
                rows[heading, scope] = cells.split()
        else:
            heading = line.split(" (")[0]
    return rows


def test_a_post_is_complete_in_plain_narrow_text(posted: tuple[str, pd.DataFrame]) -> None:
    text, _ = posted
    assert text.isascii() and "\t" not in text
    assert max(map(len, text.splitlines())) <= 72
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    assert not re.search(r"^From ", text, re.MULTILINE)  # a mailbox would split there
    header, _, body = text.partition("\n\n")
    assert header == "Subject: mm/page_alloc: predicted effect of pcp_batch=31 on kbuild"
    for title in SECTIONS:
        assert f"\n{title}\n{'-' * len(title)}\n" in f"\n{body}"
    assert "goes from 63 to 31 pages" in " ".join(body.split())
    assert body.count("Not modelled:") == 1
    assert not re.search(r"\b[ST]\d+\.?\d*\b|[{}]", text)
    assert "  $ pagealloc post kbuild --patch pcp_batch=31\n" in text


def test_the_numbers_of_a_post_are_those_of_its_source(posted: tuple[str, pd.DataFrame]) -> None:
    text, rows = posted
    cells = table_cells(text)
    shown = shown_rows(rows)
    assert len(cells) == len(shown) > 10
    for row in shown.itertuples():
        change, error, *ends = measures(row)
        wanted = [number(row.base), number(row.patch), change, *ends, error, row.null_words]
        assert cells[row.metric, row.scope][:7] == wanted
        assert float(wanted[0]) == pytest.approx(row.base, rel=0.005, abs=0.005)
    by_site = text.split("zone->lock acquisitions by site\n")[1].split("\n\n")[0].splitlines()
    drawn = [int(line.split()[-1]) for line in by_site]
    of = rows.set_index("metric")
    sites = ("refill", "drain", "buddy_alloc", "direct_free")
    assert drawn == [of.loc[f"{site}_transactions", side] for site in sites for side in _SIDES]


_SIDES = ("base", "patch")


def test_several_runs_are_tested_and_the_test_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = str(write_recording(tmp_path / "small", page_flags=False))
    arguments = ["post", small, "--patch", "pcp_batch=2", "--seeds", "3", "--no-validation"]
    assert main([*arguments, "--style", "mmtests"]) == 2
    assert "add --full" in capsys.readouterr().err
    assert main([*arguments, "--format", "md", "--full", "--style", "mmtests"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "# mm/page_alloc: predicted effect of pcp_batch=2 on small\n\n## What\n"
    )
    assert "sign-flip permutation test" in " ".join(printed.split())
    assert "With 3 runs p is at least 0.25: no row can be marked." in printed.replace("\n", " ")
    assert "--seeds 3 --style mmtests" in printed.replace("\\\n    ", "")
    assert "Amean" in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["highatomic_stock", "--patch", "min_free_kbytes=16384"], "goes from 45056 to 16384 kB"),
        (
            ["mixed_6.1", "--patch", "defrag_mode=1"],
            "Here the model predicts thp_fault_alloc 1 -> 6 (within the model's error);",
        ),
        (
            ["xfree", "--patch", "percpu_pagelist_high_fraction=8"],
            "goes from 0 to 1/8. For the recorded demand",
        ),
        (
            [
                *("xfree", "--patch"),
                "pageblock_ownership=pcp_buddy,ownership.remote_free=lockless",
            ],
            "ownership.remote_free (frees wait",
        ),
        (
            ["xfree", "--patch", "pageblock_ownership=pcp_buddy"],
            "Subject: Re: mm: page_alloc: pcp buddy allocator",
        ),
        (
            ["xfree", "--base", "pcp_free_batched=0", "--patch", "pcp_free_batched=1"],
            "4 snapshots. pagealloc info doubts its memory and CPUs.",
        ),
    ],
)
def test_a_message_has_one_screen_and_says_what_happens(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["post", *words]) == 0
    text = capsys.readouterr().out
    assert text.count("\n") <= MOST_LINES
    said_all = " ".join(text.split())
    assert all(part in said_all for part in (said, "Not modelled: ", " under its own policy, "))
    assert f"$ pagealloc post {' '.join(words)}" in " ".join(text.replace("\\", "").split())
    assert not re.search(r"\b[ST]\d+\.?\d*\b|[{}]", text)


def test_rows_of_a_message_can_be_believed() -> None:
    rows = comparison_of([("", 40.0 + run, 20.0 + run) for run in range(6)]).rows
    assert _believed_table(rows, {}).splitlines()[2].split()[-1] == "better"
    key = (rows["metric"].iloc[0], rows["scope"].iloc[0])
    titles, _, row = _believed_table(rows.head(1), {key: 41.0}).splitlines()
    assert titles.split()[:3] == ["measured", "predicted", "patch"]
    assert row.split()[1] == "41"
    assert row_words(rows.assign(metric="free_pages", scope="zone=Normal").iloc[0]) == (
        "free pages in Normal"
    )


def test_the_paired_test_is_exact() -> None:
    base = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
    assert paired_p(base, [value + 1 for value in base]) == smallest_p(6) == 2 / 64
    assert paired_p(base, [11, 10, 13, 12, 15, 14]) == 1.0
    assert paired_p(base, base) == 1.0
    assert np.isnan(paired_p([1.0], [2.0]))
    assert paired_p(range(20), range(1, 21)) <= 0.001


def comparison_of(rows: list[tuple[str, float, float]]) -> RepeatedComparison:
    class Side:
        asked_policy = pm.Policy()
        name = "made up"

    class Run:
        base = patch = Side
        seeds = 1

        def __init__(self, base: float, patch: float) -> None:
            sides = (
                Quantity(metric="refills", better="lower", values=np.array([value]))
                for value in (base, patch)
            )
            known = ModelError(
                measured=base, predicted=base, error=0.1, null_model="none", null_error=9.0
            )
            before, after = sides
            self.errors = ModelErrors()
            self.runs = [[Change(before=before, after=after, error=known, spread=0.01)]]

    return repeated([Run(base, patch) for _, base, patch in rows])  # type: ignore[misc]


@pytest.mark.parametrize("style", ["signed", "mmtests"])
def test_significant_changes_stand_between_asterisks(style: str) -> None:
    sure = comparison_of([("", 40.0 + run, 20.0 + run) for run in range(6)])
    unsure = comparison_of([("", 40.0 + run, 40.0 + (-1) ** run) for run in range(6)])
    text = repeated_table(sure, style=style)  # type: ignore[arg-type]
    assert re.search(r"\*[^*\n]*%\)?\*", text)
    assert max(map(len, text.splitlines())) <= 72
    assert not re.search(r"\*[^*\n]*%\)?\*", repeated_table(unsure, style=style))  # type: ignore[arg-type]


def test_means_and_spread_are_those_of_the_runs() -> None:
    row = comparison_of([("", 1.0, 2.0), ("", 3.0, 6.0)]).rows.iloc[0]
    assert (row["base"], row["patch"], row["change"], row["runs"]) == (2.0, 4.0, 2.0, 2)
    assert row["base_std"] == pytest.approx(2**0.5)


def test_seeds_below_one_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["post", "kbuild", "--patch", PATCH, "--seeds", "0"]) == 2
    assert "--seeds 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "patch", "reason"),
    [
        ("kbuild", "extfrag_threshold=600", "no predicted change is larger than the"),
        ("zram_swap_A1", "min_free_kbytes=1024", "under the recorded policy no quantity of"),
    ],
)
def test_what_cannot_be_believed_makes_no_message(
    name: str, patch: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["post", name, "--patch", patch]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"pagealloc: no message: {reason}")
    assert printed.err.count("\n") == 1


def test_what_says_nothing_new_is_no_row_of_a_message() -> None:
    """Whole blocks without the reserve, and less than one block, in the mean."""
    values = {
        ("free_in_whole_blocks", "zone=Normal"): (600.0, 1200.0),
        ("free_in_whole_blocks_not_highatomic", "zone=Normal"): (600.0, 1200.0),
        ("free_in_whole_blocks", "zone=DMA32"): (600.0, 1200.0),
        ("free_in_whole_blocks_not_highatomic", "zone=DMA32"): (500.0, 1100.0),
        ("free_in_whole_blocks", "zone=DMA"): (0.0, 14.0),
        ("free_pages", "zone=DMA"): (0.0, 14.0),
    }
    rows = pd.DataFrame(
        [
            {"metric": metric, "scope": scope, "base": base, "patch": patch, "verdict": "better"}
            for (metric, scope), (base, patch) in values.items()
        ]
    )
    machine = SimpleNamespace(counted_order=9)
    comparison = SimpleNamespace(base=SimpleNamespace(machine=machine))
    whole = SimpleNamespace(rows=rows, comparisons=[comparison])
    assert _told(whole).index.tolist() == [0, 2, 3, 5]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("measure", "shown"),
    [
        ("-41.5%", "-42%"),
        ("-8.9%", "-8.9%"),
        ("-99.6%", "-99.6%"),
        ("+4740n", "+4,740"),
        ("+3.1pt", "+3.1 points"),
        ("NA", "NA"),
    ],
)
def test_measures_in_a_message_have_no_marks(measure: str, shown: str) -> None:
    assert _short_measure(measure) == shown


def test_a_refused_recording_makes_no_message_and_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its snapshot is of an hour after its events."""
    far = write_recording(tmp_path / "far", page_flags=False)
    (snapshot,) = (far / "snapshots").iterdir()
    snapshot.rename(snapshot.with_name(f"{int(snapshot.name) + 3600 * 10**9:020d}"))
    for more in ([], ["--figure", str(tmp_path / "figure.svg")]):
        assert main(["post", str(far), "--patch", "pcp_batch=2", *more]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("pagealloc: no message: snapshots' time: none among")
        assert printed.err.count("\n") == 1
    assert not list(tmp_path.glob("figure*"))


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("pageblock_ownership", "system time of simple kernel builds: -4 to -3 %."),
        ("highatomic_gate_order", "THP success rate: 1 to 6 -> 44 to 78 %;"),
        ("pcp_free_batched", "during boot: 2,092."),
    ],
)
def test_posted_ranges_and_units_are_said(field: str, words: str) -> None:
    assert words in posted_claim([field])
