"""Two policies side by side: what changes, and which changes are beyond the model's error."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli.arguments import json_text
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.recording.trace.columns import Event
from pagealloc_model.verdict import comparison as model_errors
from pagealloc_model.verdict.comparison import (
    BELIEVED,
    BETTER,
    CHANGED,
    DOUBTED,
    FAILS_NULL,
    SAME,
    UNCHECKED,
    UNKNOWN,
    WITHIN_ERROR,
    WORSE,
    Comparison,
    ModelError,
    ModelErrors,
    believable_words,
    failed_last,
    judged_change,
    possible_interval,
    repeated,
    verdict_of,
)
from pagealloc_model.verdict.quantities import WINDOWS, Quantity, windows_interval
from pagealloc_model.verdict.statistics import draws
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


KEY = ("m", "all")
BOTH = (draws(WINDOWS, 0), draws(WINDOWS, 1))
EDGES = np.arange(WINDOWS + 1)


def error(of: float, null: float = 100.0, predicted: float = 1e9) -> ModelError:
    return ModelError(measured=0, predicted=predicted, error=of, null_model="none", null_error=null)


def total(parts: np.ndarray, better: str = "lower") -> Quantity:
    return Quantity(
        metric="m",
        better=better,  # type: ignore[arg-type]
        time_ns=np.arange(WINDOWS),
        values=parts,
    )


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    recording = shipped_recording("highatomic_gate3")
    return pm.compare(pm.replay(recording), pm.replay(recording, Policy(pcp_batch=31)))


@pytest.mark.parametrize(
    ("change", "interval", "better", "of", "expected"),
    [
        (-10.0, (-12, -8), "lower", error(2), BETTER),
        (10.0, (8, 12), "lower", error(2), WORSE),
        (10.0, (8, 12), "higher", error(2), BETTER),
        (10.0, (8, 12), "", error(2), CHANGED),
        (10.0, (-1, 21), "lower", error(2), WITHIN_ERROR),
        (10.0, (8, 12), "lower", error(11), WITHIN_ERROR),
        (10.0, (8, 12), "lower", error(2, null=1), FAILS_NULL),
        (10.0, (8, 12), "lower", error(0, null=0), WORSE),
        (10.0, (8, 12), "lower", None, UNCHECKED),
        (0.0, (0, 0), "lower", error(2), SAME),
        (math.nan, (math.nan, math.nan), "lower", error(2), UNKNOWN),
    ],
)
def test_verdicts(
    change: float,
    interval: tuple[float, float],
    better: str,
    of: ModelError | None,
    expected: str,
) -> None:
    assert verdict_of(change, *interval, better, of, refused=False) == expected
    if expected in BELIEVED:
        assert verdict_of(change, *interval, better, of, refused=True) == DOUBTED


def test_the_interval_is_that_of_windows_widened_by_the_error() -> None:
    even = total(np.full(WINDOWS, 10.0))
    more = total(np.full(WINDOWS, 12.0))
    errors = ModelErrors(by_row={KEY: error(5)})
    judged = judged_change(even, more, EDGES, errors, BOTH)
    assert (judged["low"], judged["high"]) == (35, 45)
    assert judged["verdict"] == WORSE
    wide = judged_change(even, more, EDGES, ModelErrors(by_row={KEY: error(50)}), BOTH)
    assert wide["verdict"] == WITHIN_ERROR


def test_a_change_in_one_window_alone_is_not_told() -> None:
    once = np.zeros(WINDOWS)
    once[3] = 40.0
    judged = judged_change(
        total(np.full(WINDOWS, 10.0)),
        total(np.full(WINDOWS, 10.0) + once),
        EDGES,
        ModelErrors(by_row={KEY: error(1)}),
        BOTH,
    )
    assert judged["low"] <= 0 < judged["high"]
    assert judged["verdict"] == WITHIN_ERROR


def test_snapshots_that_missed_most_of_it_check_nothing() -> None:
    errors = ModelErrors(by_row={KEY: error(0, predicted=1)})
    pair = total(np.full(WINDOWS, 10.0)), total(np.full(WINDOWS, 12.0))
    assert judged_change(*pair, EDGES, errors, BOTH)["verdict"] == UNCHECKED


@pytest.mark.parametrize("seed", range(5))
def test_nineteen_of_twenty_intervals_hold_the_truth(seed: int) -> None:
    dice = np.random.default_rng(seed)
    drawn, held, cases = BOTH, 0, 200
    for _ in range(cases):
        base = total(dice.poisson(50, WINDOWS).astype(float))
        patch = total(dice.poisson(55, WINDOWS).astype(float))
        low, high = windows_interval(base, patch, EDGES, drawn)
        held += low <= 5 * WINDOWS <= high
    assert 0.88 <= held / cases <= 0.99


def test_rows_carry_error_interval_and_verdict(comparison: Comparison) -> None:
    rows = comparison.judged.set_index(["metric", "scope"])
    assert rows.loc[("refill_transactions", "all"), "verdict"] == WORSE
    assert rows.loc[("refill_pages", "all"), "verdict"] == WITHIN_ERROR
    assert rows.loc[("remote_frees", "all"), "verdict"] == UNKNOWN
    said = rows[rows["verdict"].isin(BELIEVED)]
    change = (said["patch"] - said["base"]).abs()
    assert (change > said["error"]).all()
    assert ((said["low"] > 0) | (said["high"] < 0)).all()
    assert (said["error"] < said["null_error"]).all()


def test_what_failed_its_null_model_comes_last(comparison: Comparison) -> None:
    failed = (comparison.judged["verdict"] == FAILS_NULL).tolist()
    assert any(failed)
    assert failed == sorted(failed)
    assert failed_last(comparison.judged)["metric"].tolist() == comparison.judged["metric"].tolist()


def test_the_first_line_says_what_to_believe(comparison: Comparison) -> None:
    first = comparison.to_text().split("\n\n")[0].replace("\n", " ")
    assert first == comparison.believable.replace("\n", " ")
    assert "refill_transactions" in first
    assert "within the model's error" in first
    assert "drain_pages" not in first.split("; of the other rows")[0]
    refused = believable_words(comparison.judged, "of one task")
    assert refused == "Believe no row of this comparison: of one task."


def test_a_recording_is_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = pm.open(shipped_recording("highatomic_gate3").path)
    calls = []
    real = model_errors.validate
    monkeypatch.setattr(
        model_errors, "validate", lambda *words, **names: calls.append(1) or real(*words, **names)
    )
    base = pm.replay(recording)
    for batch in (31, 15):
        pm.compare(base, pm.replay(recording, Policy(pcp_batch=batch))).to_text()
    assert len(calls) == 1


def test_nothing_is_said_of_a_recording_that_is_refused(comparison: Comparison) -> None:
    errors = ModelErrors(by_row=comparison.errors.by_row, refused="recorded: single tasks")
    changed = replace(comparison, known_errors=errors)
    assert not changed.judged["verdict"].isin(BELIEVED).any()
    assert DOUBTED in set(changed.judged["verdict"])
    assert changed.to_text().startswith("Believe no row of this comparison")


def test_in_a_notebook_what_cannot_be_believed_is_dim(comparison: Comparison) -> None:
    shown = comparison._repr_html_()
    body = shown.partition("<tbody>")[2].partition("</tbody>")[0]
    dim = ['pa-words pa-dim">' in row for row in body.split("<tr>")[1:]]
    known = comparison.judged[comparison.judged[["base", "patch"]].notna().any(axis=1)]
    assert dim == [verdict not in BELIEVED for verdict in known["verdict"]]
    assert 0 < sum(dim) < len(dim)


def test_a_literal_replay_tells_nothing_of_what_acts_by_reclaim() -> None:
    recording = shipped_recording("highatomic_gate3")
    sides = [pm.replay(recording, Policy(min_free_kbytes=each)) for each in (None, 90112)]
    text = pm.compare(*sides).to_text()
    assert " ".join(text.split()).startswith(
        "Believe no row of this comparison: min_free_kbytes changes when reclaim runs"
    )


def test_bursts_widen_the_interval_of_rare_events() -> None:
    few, many = (
        Quantity(metric="m", better="lower", how="count", values=np.array([value]))
        for value in (16.0, 48.0)
    )
    low, high = windows_interval(few, many, EDGES, BOTH)
    assert 0 < low < 32 < high
    low, high = windows_interval(few, many, EDGES, BOTH, dispersion=9.0)
    assert low < 0


def test_json_has_the_verdicts(comparison: Comparison) -> None:
    printed = json.loads(json_text(comparison.to_dict()))
    assert printed["believable"].startswith("Believe ")
    assert {"error", "null_model", "null_error", "low", "high", "verdict"} <= set(
        printed["rows"][0]
    )


def test_repeats_widen_the_interval(comparison: Comparison) -> None:
    recording = shipped_recording("highatomic_gate3")
    other = pm.compare(
        pm.replay(recording, seed=1), pm.replay(recording, Policy(pcp_batch=31), seed=1)
    )
    whole = repeated([comparison, other])
    rows = whole.rows.set_index(["metric", "scope"])
    one = comparison.judged.set_index(["metric", "scope"])
    key = ("refill_transactions", "all")
    width = rows.loc[key, "high"] - rows.loc[key, "low"]
    assert width > one.loc[key, "high"] - one.loc[key, "low"]
    assert whole.believable.startswith("Believe ")


def test_fallbacks_outside_the_demand_s_span_say_nothing_of_bursts() -> None:
    trace = SimpleNamespace(
        time_ns=np.array([5]), event=np.array([Event.EXTFRAG]), demand_span_ns=(10, 20)
    )
    validation = SimpleNamespace(recording=SimpleNamespace(trace=trace))
    assert model_errors._dispersion(validation) == 1.0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("interval", "base", "unit", "possible"),
    [
        ((-150.0, 20.0), 100.0, "pages", (-100.0, 20.0)),
        ((-50.0, 20.0), 100.0, "pages", (-50.0, 20.0)),
        ((-0.9, 0.9), 0.75, "share", (-0.75, 0.25)),
        ((3.0, 9.0), 0.0, "", (3.0, 9.0)),
        ((-9.0, 9.0), math.nan, "", (-9.0, 9.0)),
    ],
)
def test_an_interval_ends_where_the_quantity_does(
    interval: tuple[float, float], base: float, unit: str, possible: tuple[float, float]
) -> None:
    assert possible_interval(*interval, base, unit) == possible


@pytest.mark.parametrize("reclaim", ["literal", "elastic"])
def test_no_change_takes_a_quantity_below_zero(reclaim: str) -> None:
    recording, assumptions = shipped_recording("highatomic_gate3"), Assumptions(reclaim=reclaim)
    base = pm.replay(recording, assumptions=assumptions)
    patch = pm.replay(recording, Policy(pcp_batch=127), assumptions=assumptions)
    rows = pm.compare(base, patch).judged
    known = rows[rows["low"].notna()]
    assert len(known) > 20
    assert (known["low"] >= -known["base"]).all()
    assert (known["low"] <= known["high"]).all()
