"""Fleets: two sides of recordings, and what is said of their difference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.cli import main
from pagealloc_model.numbers.statistics import resampled_interval
from pagealloc_model.sweeps import records
from pagealloc_model.sweeps.fleets import range_words
from tests.show.post.test_tables import assert_mailable
from tests.small_recordings import write_recording


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recordings for each side: two hosts and three."""
    folder = tmp_path_factory.mktemp("sides")
    for name in ("a/a0", "a/a1", "b/b0", "b/b1", "b/b2"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        (write_recording(path) / "note.txt").write_text(name)
    (folder / "b" / "logs").mkdir()
    return folder


@pytest.fixture(scope="module")
def replayed(sides: Path) -> pm.fleets.FleetResult:
    return pm.fleets.fleet(
        [sides / "a"], [str(sides / "b")], patch_policy=pm.Policy(pcp_batch=4), cache=False
    )


def test_a_folder_of_recordings_is_a_side(sides: Path, replayed: pm.fleets.FleetResult) -> None:
    hosts = replayed.to_pandas()
    assert list(hosts["host"]) == ["a0", "a1", "b0", "b1", "b2"]
    assert list(hosts["side"]) == ["base"] * 2 + ["patch"] * 3
    assert list(hosts["effective_policy"].str.contains("pcp_batch=4")) == [False] * 2 + [True] * 3
    compared = replayed.compared(["drain_pages"])
    assert compared["base_hosts"].item() == 2
    assert compared["patch_hosts"].item() == 3
    named = pm.fleets.fleet([sides / "a" / "a0"], [sides / "a" / "a1"], cache=False)
    assert list(named.hosts["host"]) == ["a0", "a1"]


def test_the_same_hosts_under_two_policies_are_compared_host_by_host(
    replayed: pm.fleets.FleetResult,
) -> None:
    values = [10.0, 1000.0, 3000.0, 70000.0, 900000.0, 5e6]
    hosts = pd.DataFrame(
        [
            {"side": side, "host": f"h{number}", "drain_pages": value + more, "error": ""}
            for side, more in (("base", 0.0), ("patch", 5.0))
            for number, value in enumerate(values)
        ]
    )
    same = replace(replayed, hosts=hosts)
    row = same.compared(["drain_pages"]).iloc[0]
    assert same.is_paired
    assert (row["difference_low"], row["difference_high"]) == (5, 5)
    assert row["p"] == 2 / 2 ** len(values)
    others = replace(same, hosts=hosts.assign(host=hosts["side"] + hosts["host"]))
    row = others.compared(["drain_pages"]).iloc[0]
    assert not others.is_paired
    assert row["difference_low"] < 0 < row["difference_high"]
    assert row["p"] > 0.5
    assert not replayed.is_paired


def test_a_folder_without_recordings_is_refused(sides: Path) -> None:
    with pytest.raises(RecordingError, match=r"logs: is a directory without perf\.data"):
        pm.fleets.fleet([sides / "b" / "logs"], [sides / "a"], cache=False)
    with pytest.raises(UsageError, match="at least one recording"):
        pm.fleets.fleet([], [sides / "a"], cache=False)


def test_a_host_that_fails_is_a_row_with_its_error(replayed: pm.fleets.FleetResult) -> None:
    hosts = replayed.to_pandas()
    hosts.loc[0, "error"] = "memory ends"
    some = replace(replayed, hosts=hosts)
    assert list(some.failed["host"]) == ["a0"]
    text = some.to_text()
    assert "1 hosts" in text
    assert_mailable(text)
    with pytest.raises(UsageError, match=r"^all 5 hosts failed; a0 of side base: memory ends"):
        replace(replayed, hosts=hosts.assign(error="memory ends")).compared()


def test_the_figure_shows_every_host(replayed: pm.fleets.FleetResult) -> None:
    figure = replayed.figure(["drain_pages", "free_pages"])
    shown = {trace.meta: len(trace.y) for trace in figure.data}
    assert shown["drain_pages/base"] == 2
    assert shown["free_pages/patch"] == 3
    with pytest.raises(UsageError, match="no metric 'thp_success'"):
        replayed.compared(["thp_success"])


def test_the_command_prints_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "cache_directory", lambda: tmp_path)
    path = str(write_recording(tmp_path / "small"))
    recorded = ["fleet", "--base-hosts", path, "--patch-hosts", path, "--patch", "pcp_batch=4"]
    output = tmp_path / "hosts.parquet"
    assert main([*recorded, "-o", str(output)]) == 0
    assert_mailable(capsys.readouterr().out)
    assert list(pd.read_parquet(output)["side"]) == ["base", "patch"]
    assert main([*recorded, "--json", "--metrics", "drain_pages"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["metric"] for row in printed["compared"]] == ["drain_pages"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--base-hosts", "kbuild"], "a fleet needs hosts"),
        (
            ["--base-hosts", "kbuild", "--patch-hosts", "xfree", "--patch", "pcp_batch=0"],
            "outside 1 to",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


RNG = np.random.default_rng(5)


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    return resampled_interval(lambda mean: mean, values)


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    covered = 0
    for _ in range(200):
        values = RNG.normal(10, 2, 40)
        low, high = mean_interval(values)
        covered += low <= 10 <= high
    assert 180 <= covered <= 199


def compared(hosts: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    hosts = hosts.assign(error="", host=[f"h{number}" for number in range(len(hosts))])
    result = pm.fleets.FleetResult(hosts=hosts, policies={})
    return result.compared(metrics)


def sides_of(base: list[float], patch: list[float]) -> pd.DataFrame:
    sides = ["base"] * len(base) + ["patch"] * len(patch)
    return pd.DataFrame({"side": sides, "value": [*base, *patch]})


def test_single_hosts_have_neither_interval_nor_test() -> None:
    row = compared(sides_of([1.0], [0, 1, 2, 3]), ["value"]).iloc[0]
    unknown = ["base_mean_low", "base_mean_high", "difference_low", "difference_high", "p"]
    assert row[unknown].isna().all()


def test_p_values_are_those_of_the_named_test_adjusted_for_false_discoveries() -> None:
    apart = sides_of([0, 1, 2, 3, 4], [10, 11, 12, 13, 14])
    hosts = apart.assign(same=1.0, lacking=[*[np.nan] * 5, *range(5)], near=[0, 2, 4, 6, 8] * 2)
    rows = compared(hosts, ["value", "lacking", "same", "near"]).set_index("metric")
    # all 252 orders of 5 + 5 values are equally likely; 2 of them are as far apart as these
    assert rows.loc["value", "p"] == pytest.approx(2 / 252)
    assert rows.loc["same", "p"] == 1.0
    assert rows.loc["value", "p_adjusted"] == pytest.approx(3 * 2 / 252)
    assert np.isnan(rows.loc["lacking", "p_adjusted"])


def test_sides_are_compared_metric_by_metric_without_failed_hosts() -> None:
    hosts = pd.DataFrame(
        {
            "side": ["base"] * 5 + ["patch"] * 5,
            "blocks": [309, 310, 312, 311, np.nan, 1, 1, 1, 1, 1],
            "same": [1.0, 2, 3, 4, 5, 5, 4, 3, 2, 1],
        }
    )
    blocks, same = compared(hosts, ["blocks", "same"]).itertuples()
    assert (blocks.base_hosts, blocks.base_lowest, blocks.base_highest) == (4, 309, 312)
    assert blocks.difference == pytest.approx(-309.5)
    assert blocks.difference_low <= -309.5 <= blocks.difference_high
    assert blocks.change == pytest.approx(-309.5 / 310.5)
    assert blocks.significant
    assert same.difference == 0
    assert not same.significant


def test_ranges_of_large_numbers_have_no_parts() -> None:
    assert range_words(63054.56, 66778.13) == "63,055-66,778"
    assert range_words(0.5027, 0.5577) == "0.5027-0.5577"
    assert (range_words(1.0, 1.0), range_words(309, 312)) == ("1", "309-312")
