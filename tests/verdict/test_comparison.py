"""Comparisons: what may be compared, the sign of a change, text and JSON."""

import json
from pathlib import Path

import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli.arguments import json_text
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.verdict.comparison import Comparison
from tests.small_recordings import NORMAL, busy_events, shipped_recording, write_recording


@pytest.fixture(scope="module")
def gate() -> Comparison:
    recording = shipped_recording("highatomic_gate3")
    return pm.compare(
        pm.replay(recording, Policy(highatomic_gate_order=0)),
        pm.replay(recording, Policy(highatomic_gate_order=3)),
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> pm.Recording:
    return pm.open(write_recording(tmp_path_factory.mktemp("recordings") / "small"))


def test_change_is_relative_to_base(gate: Comparison) -> None:
    rows = gate.rows.set_index(["metric", "scope"])
    blocks = rows.loc[("highatomic_blocks", "zone=DMA32,at=end")]
    assert blocks["base"] > 0
    assert blocks["patch"] == 0
    assert blocks["change"] == -1.0
    assert blocks["better"] == "lower"
    known = gate.rows.dropna(subset=["base", "patch"])
    known = known[known["base"] != 0]
    expected = (known["patch"] - known["base"]) / known["base"]
    assert known["change"].to_list() == pytest.approx(expected.to_list())


def test_rows_have_the_promised_columns(gate: Comparison) -> None:
    columns = ["metric", "scope", "base", "patch", "change", "unit", "better"]
    assert list(gate.rows.columns) == columns
    assert not gate.rows.duplicated(["metric", "scope"]).any()
    assert set(gate.rows["better"]) <= {"lower", "higher", ""}


def test_what_a_literal_replay_cannot_know_is_na(gate: Comparison) -> None:
    unknown = gate.rows[gate.rows["metric"].isin(["thp_success", "compaction_success"])]
    assert len(unknown) == 2
    assert unknown[["base", "patch", "change"]].isna().all(axis=None)


def test_equal_policies_change_nothing(small: pm.Recording) -> None:
    rows = pm.compare(pm.replay(small), pm.replay(small, Policy())).rows
    known = rows.dropna(subset=["base"])
    assert (known["base"] == known["patch"]).all()
    assert (known["change"] == 0).all()


def test_swapping_the_sides_turns_the_sign(gate: Comparison) -> None:
    back = pm.compare(gate.patch, gate.base).rows
    both = gate.rows.merge(back, on=["metric", "scope"], suffixes=("", "_back"))
    assert (both["base"].fillna(0) == both["patch_back"].fillna(0)).all()
    moved = both[(both["change"] != 0) & both["change"].notna() & both["change_back"].notna()]
    assert ((moved["change"] > 0) == (moved["change_back"] < 0)).all()


@pytest.mark.parametrize("style", ["signed", "mmtests"])
def test_text_fits_72_columns_of_ascii(gate: Comparison, style: str) -> None:
    text = gate.to_text(width=72, style=style)  # type: ignore[arg-type]
    assert max(len(line) for line in text.splitlines()) <= 72
    assert text.isascii()
    assert "\t" not in text
    for word in ("highatomic_gate3", "highatomic_gate_order", pm.__version__):
        assert word in text


def test_json_has_the_promised_shape(gate: Comparison) -> None:
    shown = json.loads(json_text(gate.to_dict()))
    assert set(shown) >= {"base", "patch", "rows"}
    assert shown["base"]["changed"] == {"highatomic_gate_order": 0}
    assert shown["patch"]["changed"] == {"highatomic_gate_order": 3}
    for row in shown["rows"]:
        assert set(row) >= {"metric", "scope", "base", "patch", "change", "unit", "better"}
    by_name = {row["metric"]: row for row in shown["rows"]}
    assert by_name["thp_success"]["base"] is None


def test_different_assumptions_are_refused(small: pm.Recording) -> None:
    other = pm.replay(small, assumptions=Assumptions(decay_period_ns=500_000_000))
    with pytest.raises(UsageError, match="different assumptions"):
        pm.compare(pm.replay(small), other)


def test_different_rules_are_refused(small: pm.Recording) -> None:
    with pytest.raises(UsageError, match=r"different rules: 6\.18 and 7\.2"):
        pm.compare(pm.replay(small), pm.replay(small, rules="7.2"))


def test_different_seeds_are_refused(small: pm.Recording) -> None:
    with pytest.raises(UsageError, match="different seed: 0 and 1"):
        pm.compare(pm.replay(small), pm.replay(small, seed=1))


def test_different_windows_are_refused() -> None:
    recording = shipped_recording("highatomic_gate3")
    part = pm.replay(recording, window=(1.0, 2.0))
    with pytest.raises(UsageError, match="different windows"):
        pm.compare(pm.replay(recording), part)


def test_different_recordings_are_refused(small: pm.Recording) -> None:
    with pytest.raises(UsageError, match="different name"):
        pm.compare(pm.replay(small), pm.replay(shipped_recording("highatomic_gate3")))


def test_recordings_of_the_same_name_are_told_apart(small: pm.Recording, tmp_path: Path) -> None:
    events = busy_events()
    events.alloc(NORMAL.first_free)
    namesake = pm.open(write_recording(tmp_path / "small", events))
    with pytest.raises(UsageError, match="different"):
        pm.compare(pm.replay(small), pm.replay(namesake))
