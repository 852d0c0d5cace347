"""Fleets of recordings and of made-up hosts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.cli import main
from pagealloc_model.numbers.statistics import resampled_interval
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.recording.machine import synthetic_machine
from pagealloc_model.sweeps import records
from pagealloc_model.sweeps.fleets import (
    range_words,
    run_cache_host,
)
from tests.show.post.test_tables import assert_mailable
from tests.small_recordings import write_recording

HOSTS = pm.fleets.SyntheticHosts(
    count=3, gib=2, nr_cpus=2, rules="6.18", cache_pages=1 << 15, read_pages=1 << 15
)
GATE = pm.Policy(highatomic_gate_order=3)


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> pm.fleets.FleetResult:
    cache = tmp_path_factory.mktemp("points")
    return pm.fleets.fleet(HOSTS, HOSTS.with_other_seeds(), patch_policy=GATE, cache=cache)


def test_small_made_up_hosts_have_room_for_their_cache() -> None:
    for gib in (1, 4, 5):
        (host,) = pm.fleets.SyntheticHosts(count=1, gib=gib).hosts().values()
        highest = [zone.managed for zone in host["machine"].zones if zone.managed][-1]
        assert 0 < host["cache_pages"] <= highest // 2


def test_hosts_differ_by_seed_and_sides_by_policy(made_up: pm.fleets.FleetResult) -> None:
    hosts = made_up.to_pandas()
    assert list(hosts["side"]) == ["base"] * 3 + ["patch"] * 3
    assert list(hosts["host"]) == [f"host {seed}" for seed in range(6)]
    assert made_up.failed.empty
    assert hosts["reclaimed_pages"].nunique() == 6
    assert (hosts.loc[hosts["side"] == "base", "highatomic_blocks_most"] > 0).all()
    assert (hosts.loc[hosts["side"] == "patch", "highatomic_blocks_most"] == 0).all()


def test_a_host_is_the_same_every_time(tmp_path: Path, made_up: pm.fleets.FleetResult) -> None:
    again = pm.fleets.fleet(
        HOSTS, HOSTS.with_other_seeds(), patch_policy=GATE, cache=tmp_path, workers=1
    )
    drop = ["seconds", "finished"]
    pd.testing.assert_frame_equal(again.hosts.drop(columns=drop), made_up.hosts.drop(columns=drop))
    result = pm.fleets.fleet(HOSTS, HOSTS.with_other_seeds(), patch_policy=GATE, cache=tmp_path)
    pd.testing.assert_frame_equal(result.hosts, again.hosts)


def test_a_host_keeps_its_pages_and_kswapd_keeps_up() -> None:
    rules = KernelRules.preset("6.18")
    machine = synthetic_machine(2, 2, rules)
    row, free_buddies = run_cache_host(
        machine, pm.Policy(), rules, seed=3, cache_pages=1 << 15, read_pages=1 << 15
    )
    free = (free_buddies.sum(axis=(1, 3)) << np.arange(15)).sum(axis=1)
    low, high = (
        sum(getattr(zone, mark) + zone.lowmem_reserve[2] for zone in machine.zones if zone.managed)
        for mark in ("min", "high")
    )
    assert free.min() > low
    assert free.max() < 4 * high
    assert row["reclaimed_pages"] > 1 << 14
    assert row["kswapd_wakes"] > 0
    assert row["requests_failed"] == 0
    assert row["atomic_requests"] > 0


def test_a_host_that_fails_is_a_row_with_its_error() -> None:
    huge = pm.fleets.SyntheticHosts(count=1, gib=1, nr_cpus=2, rules="6.18", cache_pages=1 << 20)
    with pytest.raises(UsageError, match=r"^all 2 hosts failed; host 0 of side base: .*do not fit"):
        pm.fleets.fleet(huge, huge, cache=False).compared()
    result = pm.fleets.fleet(huge, HOSTS, cache=False)
    assert list(result.failed["side"]) == ["base"]
    assert "do not fit" in result.failed["error"].iloc[0]
    assert_mailable(result.to_text())


def test_recordings_are_hosts_too(tmp_path: Path) -> None:
    recordings = {
        name: str(write_recording(tmp_path / name)) for name in ("a0", "a1", "b0", "b1", "b2")
    }
    for name, path in recordings.items():
        (Path(path) / "note.txt").write_text(name)
    result = pm.fleets.fleet(
        [recordings["a0"], recordings["a1"]],
        [recordings[name] for name in ("b0", "b1", "b2")],
        patch_policy=pm.Policy(pcp_batch=4),
        cache=False,
    )
    assert list(result.hosts["host"]) == ["a0", "a1", "b0", "b1", "b2"]
    compared = result.compared(["drain_pages"])
    assert compared["base_hosts"].item() == 2
    assert compared["patch_hosts"].item() == 3
    assert "huge pages" not in result.to_text()


def test_the_figure_shows_every_host(made_up: pm.fleets.FleetResult) -> None:
    figure = made_up.figure(["reclaimed_pages", "highatomic_blocks_end"])
    shown = {trace.meta: len(trace.y) for trace in figure.data}
    assert shown["reclaimed_pages/base"] == 3
    assert shown["highatomic_blocks_end/patch"] == 3
    with pytest.raises(UsageError, match="no metric 'thp_success'"):
        made_up.compared(["thp_success"])


@pytest.mark.parametrize("setting", ["pageblock_order=7", "huge_anon_orders=16"])
def test_made_up_hosts_refuse_what_they_lack(setting: str) -> None:
    policy = pm.Policy.parse([setting])
    with pytest.raises(PolicyError, match="made-up hosts of a fleet lack it"):
        pm.fleets.fleet(HOSTS, HOSTS, patch_policy=policy, cache=False)


def test_the_command_prints_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "cache_directory", lambda: tmp_path)
    path = str(write_recording(tmp_path / "small"))
    recorded = ["fleet", "--base", path, "--patch", path, "--patch-set", "pcp_batch=4"]
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
        ([], "a fleet needs hosts"),
        (["--synthetic", "2", "--base", "kbuild"], "makes up both sides"),
        (["--synthetic", "-1"], "at least one host"),
        (["--synthetic", "2", "--reclaim", "elastic"], "leave --reclaim out"),
        (["--synthetic", "1", "--patch-set", "pcp_batch=0"], "outside 1 to 511"),
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
    result = pm.fleets.FleetResult(hosts=hosts.assign(error=""), policies={}, synthetic=False)
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
