"""Two policies side by side: what changes, and which changes are beyond the model's error."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from IPython.lib.pretty import pretty

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.numbers import comparison as model_errors
from pagealloc_model.numbers import vocabulary as voc
from pagealloc_model.numbers.comparison import (
    BELIEVED,
    BETTER,
    CHANGED,
    DOUBTED,
    ONE_SEED,
    SAME,
    UNCHECKED,
    UNKNOWN,
    UNPROVEN,
    WITHIN_ERROR,
    WORSE,
    Change,
    Comparison,
    ModelError,
    ModelErrors,
    guest_words,
    interval_of,
    judged_runs,
    repeated,
    verdict_of,
)
from pagealloc_model.numbers.values import WINDOWS, Quantity
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted.prepared import Prepared
from tests.small_recordings import LITERAL, NORMAL, busy_events, shipped_recording, write_recording


@pytest.fixture(scope="module")
def gate() -> Comparison:
    recording = shipped_recording("highatomic_gate3")
    return pm.compare(
        pm.replay(recording, Policy(highatomic_gate_order=0), assumptions=LITERAL),
        pm.replay(recording, Policy(highatomic_gate_order=3), assumptions=LITERAL),
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> pm.Recording:
    return pm.open(write_recording(tmp_path_factory.mktemp("recordings") / "small"))


def test_change_is_in_the_unit_of_its_row(gate: Comparison) -> None:
    rows = gate.rows.set_index(["metric", "scope"])
    blocks = rows.loc[("highatomic_blocks", "zone=DMA32,at=end")]
    assert blocks["base"] > 0
    assert blocks["patch"] == 0
    assert blocks["change"] == -blocks["base"]
    assert blocks["better"] == "lower"
    known = gate.rows.dropna(subset=["base", "patch"])
    assert (known["change"] == known["patch"] - known["base"]).all()
    assert not gate.rows.duplicated(["metric", "scope"]).any()
    unknown = gate.rows[gate.rows["metric"].isin(["thp_success", "compaction_success"])]
    assert len(unknown) == 2
    assert unknown[["base", "patch", "change"]].isna().all(axis=None)


def test_swapping_the_sides_turns_the_sign(gate: Comparison) -> None:
    back = pm.compare(gate.patch, gate.base).rows
    both = gate.rows.merge(back, on=["metric", "scope"], suffixes=("", "_back"))
    assert (both["base"].fillna(0) == both["patch_back"].fillna(0)).all()
    moved = both[(both["change"] != 0) & both["change"].notna() & both["change_back"].notna()]
    assert ((moved["change"] > 0) == (moved["change_back"] < 0)).all()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"assumptions": Assumptions(decay_period_ns=500_000_000)}, "different assumptions"),
        (
            {"policy": Policy(min_free_kbytes=9000), "assumptions": None},
            "different modes of reclaim",
        ),
        ({"rules": "7.2"}, r"different rules: 6\.18 and 7\.2"),
        ({"seed": 1}, "different seed: 0 and 1"),
        ({"window": (0.0, 0.5)}, "different windows"),
        ({"recording": "highatomic_gate3"}, "different name"),
    ],
)
def test_replays_that_differ_in_more_than_the_policy_are_refused(
    other: dict[str, Any], said: str
) -> None:
    recording = shipped_recording("xfree")
    second = shipped_recording(other.pop("recording", "xfree"))
    with pytest.raises(UsageError, match=said):
        pm.compare(
            pm.replay(recording, assumptions=LITERAL),
            pm.replay(second, **({"assumptions": LITERAL} | other)),
        )


def test_recordings_of_the_same_name_are_told_apart(small: pm.Recording, tmp_path: Path) -> None:
    events = busy_events()
    events.alloc(NORMAL.first_free)
    namesake = pm.open(write_recording(tmp_path / "small", events))
    with pytest.raises(UsageError, match="different"):
        pm.compare(pm.replay(small), pm.replay(namesake))


DATA = Path(__file__).parents[2] / "data"
KEY = ("m", "all")
EDGES = np.arange(WINDOWS + 1)


def error(of: float, null: float = 1e9, predicted: float = 1e9) -> ModelError:
    measured = predicted - of
    return ModelError(
        measured=measured, predicted=predicted, error=of, null_model="none", null_error=null
    )


def total(parts: np.ndarray, better: str = "lower") -> Quantity:
    return Quantity(
        metric="m",
        better=better,  # type: ignore[arg-type]
        time_ns=np.arange(WINDOWS),
        values=parts,
    )


def change(
    before: Quantity, after: Quantity, of: ModelError | None = None, dispersion: float = 1.0
) -> Change:
    by_row = {} if of is None else {KEY: of}
    return Change.of(before, after, EDGES, ModelErrors(by_row=by_row, dispersion=dispersion))


def even(value: float, better: str = "lower") -> Quantity:
    return total(np.full(WINDOWS, float(value)), better)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    recording = shipped_recording("highatomic_gate3")
    base = pm.replay(recording, assumptions=LITERAL)
    patch = pm.replay(recording, Policy(pcp_batch=31), assumptions=LITERAL)
    return pm.compare(base, patch).validated()


@pytest.mark.parametrize(
    ("patch", "interval", "better", "of", "expected"),
    [
        (90.0, (-12, -8), "lower", error(2), BETTER),
        (110.0, (8, 12), "lower", error(2), WORSE),
        (110.0, (8, 12), "higher", error(2), BETTER),
        (110.0, (8, 12), "", error(2), CHANGED),
        (110.0, (-1, 21), "lower", error(2), WITHIN_ERROR),
        (110.0, (math.nan, math.nan), "lower", error(2), WITHIN_ERROR),
        (110.0, (8, 12), "lower", error(2, null=1), UNPROVEN),
        (110.0, (-1, 21), "lower", error(2, null=1), WITHIN_ERROR),
        (100.0, (0, 0), "lower", error(2, null=1), SAME),
        (110.0, (8, 12), "lower", error(0, null=0), WORSE),
        (110.0, (8, 12), "lower", None, UNCHECKED),
        (100.0, (0, 0), "lower", error(2), SAME),
        (math.nan, (math.nan, math.nan), "lower", error(2), UNKNOWN),
    ],
)
def test_verdicts(
    patch: float, interval: tuple[float, float], better: str, of: ModelError | None, expected: str
) -> None:
    one = change(even(100 / WINDOWS, better), even(patch / WINDOWS, better), of)
    assert verdict_of([one], *interval) == expected
    if expected in BELIEVED:
        assert verdict_of([replace(one, refused=True)], *interval) == DOUBTED


def test_the_interval_is_that_of_windows_widened_by_the_error() -> None:
    sides = even(10_000), even(20_000)
    plain = interval_of([change(*sides)])
    judged = judged_runs([change(*sides, error(5_000, predicted=100_000.0))])
    assert judged["change_low"] < plain[0] < 100_000 < plain[1] < judged["change_high"]
    assert judged["verdict"] == WORSE
    wide = judged_runs([change(*sides, error(60_000, predicted=100_000.0))])
    assert wide["verdict"] == WITHIN_ERROR


@pytest.mark.parametrize("of", [None, error(90.0, predicted=100.0), error(4e6)])
@pytest.mark.parametrize("patch", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("unit", ["", "share"])
def test_no_interval_goes_where_the_quantity_cannot(
    patch: float, unit: str, of: ModelError | None
) -> None:
    noisy = np.arange(WINDOWS) * 10.0
    before, after = (total(values) for values in (noisy, noisy * patch))
    if unit:
        before, after = (
            replace(side, unit=unit, how="ratio", per=np.full(WINDOWS, 90.0 * max(patch, 1)))
            for side in (before, after)
        )
        of = of and error(0.5, predicted=0.9)
    low, high = interval_of([change(before, after, of)])
    assert -before.value <= low <= after.value - before.value <= high
    assert low < high
    if unit:
        assert high <= 1 - before.value


def test_a_change_in_one_window_alone_is_not_told() -> None:
    once = np.zeros(WINDOWS)
    once[3] = 40.0
    judged = judged_runs([change(even(10), total(np.full(WINDOWS, 10.0) + once), error(1))])
    assert judged["change_low"] <= 0 < judged["change_high"]
    assert judged["verdict"] == WITHIN_ERROR


def test_snapshots_that_missed_most_of_it_check_nothing() -> None:
    missed = error(0, predicted=1)
    assert judged_runs([change(even(10), even(12), missed)])["verdict"] == UNCHECKED


@pytest.mark.parametrize("seed", range(5))
def test_nineteen_of_twenty_intervals_hold_the_truth(seed: int) -> None:
    """Also where one window says something of the next, as half of each does here."""
    dice = np.random.default_rng(seed)
    held, cases = 0, 200

    def run(rate: float) -> Quantity:
        steps = dice.poisson(rate, WINDOWS + 1).astype(float)
        return total((steps[1:] + steps[:-1]) / 2)

    for _ in range(cases):
        base, patch, other = run(50), run(55), run(50)
        low, high = interval_of([change(base, patch)])
        held += low <= run(55).value - other.value <= high
    assert 0.88 <= held / cases <= 1


def test_seeds_that_disagree_widen_the_interval() -> None:
    agreeing = [change(even(100), even(200)) for _ in range(3)]
    disagreeing = [change(even(100), even(value)) for value in (100, 200, 300)]
    alone, one, both = (interval_of(changes) for changes in (agreeing[:1], agreeing, disagreeing))
    assert one == pytest.approx(alone)
    assert both[1] - both[0] > 2 * (one[1] - one[0])


def test_rows_carry_error_interval_and_verdict(comparison: Comparison) -> None:
    rows = comparison.rows.set_index(["metric", "scope"])
    assert rows.loc[("pages_per_refill", "at=p50"), "verdict"] == CHANGED
    assert rows.loc[("refill_pages", "all"), "verdict"] == WITHIN_ERROR
    assert rows.loc[("remote_frees", "all"), "verdict"] == UNKNOWN
    said = rows[rows["verdict"].isin(BELIEVED)]
    assert ((said["change_low"] > 0) | (said["change_high"] < 0)).all()
    assert ((said["error"].abs() < said["null_error"].abs()) | (said["error"] == 0)).all()


def test_the_short_text_begins_with_what_changes(comparison: Comparison) -> None:
    first, table = " ".join(repr(comparison).split("\n\n")[0].split()), repr(comparison)
    believed = comparison.rows["verdict"].isin(BELIEVED)
    known = comparison.rows["verdict"] != UNKNOWN
    assert first.startswith(f"{comparison.base.name}, pcp_batch=31: ")
    assert f"{believed.sum()} of {known.sum()} changes are larger than the model's error" in first
    assert "pages refilled" in table and "hold time" not in table
    assert len(table.splitlines()) <= 36
    refused = replace(comparison, errors=ModelErrors(refused="of one task"))
    assert repr(refused).startswith(f"{comparison.base.name}, pcp_batch=31: believe no row: of one")


def test_changes_of_what_a_null_model_predicts_as_well_are_told_with_a_mark(
    comparison: Comparison,
) -> None:
    known = comparison.errors.by_row
    by_row = {key: replace(error, null_error=error.error) for key, error in known.items()}
    doubtful = replace(comparison, errors=replace(comparison.errors, by_row=by_row))
    was, now = (
        each.rows.set_index(["metric", "scope"])["verdict"] for each in (comparison, doubtful)
    )
    beyond = was.isin(BELIEVED) & (comparison.rows["error"] > 0).to_numpy()
    assert beyond.any() and (now[beyond] == UNPROVEN).all()
    assert (now[~beyond] == was[~beyond]).all()
    said = " ".join(repr(doubtful).split())
    assert "(unproven); " in said and "unproven: larger than the model's error, but" in said
    assert f"{sum(was.isin(BELIEVED))} of " in said


def test_guests_that_ran_with_a_setting_are_named() -> None:
    said = guest_words(["min_free_kbytes", "pcp_batch"], "elastic")
    assert said.startswith("Experiments varied vm.min_free_kbytes (matrix, native_pairs,")
    file = DATA / "tables" / "experiments_effects.csv"
    effects = pd.read_csv(file).query("setting == 'vm.min_free_kbytes'")["elastic"]
    right = int(effects.str.contains("[=+]").sum())
    assert f"of {len(effects)} quantities" in said and f", {right} were predicted" in said
    assert f" {int(effects.str.contains('=').sum())} within" in said
    assert guest_words(["pcp_batch"], "elastic") == guest_words(["min_free_kbytes"], "none") == ""


@pytest.mark.parametrize("name", ["matrix", "two_nodes"])
def test_a_null_model_that_is_as_near_does_not_tell_whether_a_change_comes(name: str) -> None:
    """Every effect went as predicted, those of quantities that a null model has as well, too."""
    recording = shipped_recording(f"{name}_A1")
    known = model_errors.model_errors(recording, None, Assumptions(reclaim="elastic")).by_row
    table = pd.read_csv(DATA / "experiments" / name / "changes.csv")
    effects = table[
        table["pair"].str.startswith("A ")
        & (table["mode"] == "elastic")
        & ((table["low"] > 0) | (table["high"] < 0))
    ]
    rows = {number.run: number for number in voc.RUNS if number.name}
    as_near = 0
    for effect in effects[effects["metric"].isin(rows)].itertuples():
        number = rows[effect.metric]
        of = [
            error
            for (metric, scope), error in known.items()
            if metric == number.name and scope.startswith(number.scope or "zone=")
        ]
        if of:
            assert effect.predicted * effect.change > 0, effect
            as_near += any(not error.beats_null for error in of)
    assert as_near > 0


def test_a_recording_is_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = pm.open(shipped_recording("highatomic_gate3").path)
    calls = []
    real = model_errors.validate
    monkeypatch.setattr(
        model_errors, "validate", lambda *words, **names: calls.append(1) or real(*words, **names)
    )
    base = pm.replay(recording, assumptions=LITERAL)
    for batch in (31, 15):
        pm.compare(
            base, pm.replay(recording, Policy(pcp_batch=batch), assumptions=LITERAL)
        ).validated()
    assert len(calls) == 1


def test_what_shows_a_comparison_enters_no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = pm.open(shipped_recording("highatomic_gate3").path)
    base, patch = (
        pm.replay(recording, Policy(pcp_batch=batch), assumptions=LITERAL) for batch in (15, 31)
    )

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a replay was entered")

    with monkeypatch.context() as patched:
        patched.setattr(Prepared, "state", refuse)
        compared = pm.compare(base, patch)
        shown = [repr(compared), compared._repr_html_(), pretty(compared)]
        assert all("validated()" in " ".join(text.split()) for text in shown)
        assert not compared.rows["verdict"].isin(BELIEVED).any()
        with pytest.raises(AssertionError, match="a replay was entered"):
            compared.validated()
    errors = compared.validated().errors
    assert errors.by_row
    assert pm.compare(base, patch).errors == errors


def test_a_literal_replay_tells_nothing_of_what_acts_by_reclaim() -> None:
    recording = shipped_recording("highatomic_gate3")
    sides = [
        pm.replay(recording, Policy(min_free_kbytes=size), assumptions=LITERAL)
        for size in (None, 90112)
    ]
    text = pm.compare(*sides).validated().to_text()
    assert " ".join(text.split()).startswith(
        "Believe no row of this comparison: min_free_kbytes changes when reclaim runs"
    )


def test_bursts_widen_the_interval_of_rare_events() -> None:
    few, many = (
        Quantity(metric="m", better="lower", how="count", values=np.array([value]))
        for value in (16.0, 80.0)
    )
    low, high = interval_of([change(few, many)] * 2)
    assert 0 < low < 64 < high
    low, high = interval_of([change(few, many, dispersion=9.0)] * 2)
    assert low < 0


@pytest.mark.parametrize("mode", ["literal", "elastic"])
def test_what_differs_between_seeds_as_between_sides_is_no_change(mode: str) -> None:
    none, all_15 = (
        Quantity(metric="m", better="lower", how="last", values=np.array([value]))
        for value in (0.0, 15.0)
    )
    errors = ModelErrors(by_row={KEY: error(1.0)})
    sides = [(all_15, none), (none, all_15), (all_15, none), (none, none), (all_15, all_15)]
    runs = [Change.of(*pair, EDGES, errors, mode) for pair in sides]
    assert judged_runs(runs)["verdict"] == WITHIN_ERROR
    assert judged_runs(runs[:1] * 5)["verdict"] == BETTER
    # of one run nobody knows which it is, where the model decides what is reclaimed
    alone = judged_runs(runs[:1])
    assert alone["verdict"] == (ONE_SEED if mode == "elastic" else BETTER)
    assert math.isnan(alone["change_low"]) == (mode == "elastic")  # type: ignore[arg-type]


def test_rows_over_seeds_are_means_with_each_seeds_own_error() -> None:
    recording, assumptions = shipped_recording("mixed_6.1"), Assumptions(reclaim="elastic")
    runs = []
    for seed in range(2):
        sides = [
            pm.replay(recording, Policy(pcp_batch=batch), assumptions=assumptions, seed=seed)
            for batch in (None, 62)
        ]
        validation = pm.validate(recording, assumptions=assumptions, seed=seed)
        runs.append(pm.compare(*sides).validated(validation))
    both = runs[0].over_seeds(2)
    assert both.seeds == 2 and runs[0].over_seeds(1).seeds == 1
    rows = both.rows.set_index(["metric", "scope"])
    own = [run.rows.set_index(["metric", "scope"]) for run in runs]
    in_both = own[0].index.intersection(own[1].index)
    for name in ("base", "patch", "error"):
        mean = (own[0].loc[in_both, name] + own[1].loc[in_both, name]) / 2
        pd.testing.assert_series_equal(rows.loc[in_both, name], mean, check_names=False)
    assert (own[0].loc[in_both, "base"] != own[1].loc[in_both, "base"]).any()
    # what one seed alone counts is 0 in the other
    alone = own[0].index.difference(own[1].index)
    assert len(alone) and set(alone) <= set(rows.index)
    half = own[0].loc[alone, "patch"] / 2
    pd.testing.assert_series_equal(rows.loc[alone, "patch"], half, check_names=False)
    assert "Means over 2 seeds." in " ".join(repr(both).split())
    text = " ".join(both.to_text().split())
    assert "7/9; means of 2 seeds. unchecked" in text and "means of 2 seeds per column" in text
    assert "7/9; of one seed. unchecked" in " ".join(runs[0].to_text().split())
    assert both.to_dict()["seeds"] == 2
    assert repeated([both]).runs == 2


def test_of_rare_events_one_seed_says_nothing() -> None:
    few, many = (Quantity(metric="m", how="count", values=np.array([value])) for value in (9, 99))
    alone = change(few, many, error(1.0))
    assert math.isnan(judged_runs([alone])["change_low"])  # type: ignore[arg-type]
    assert judged_runs([alone])["verdict"] == ONE_SEED
    assert judged_runs([alone, alone])["verdict"] == CHANGED


@pytest.mark.parametrize("reclaim", ["literal", "elastic"])
def test_no_change_takes_a_quantity_below_zero(reclaim: str) -> None:
    recording, assumptions = shipped_recording("highatomic_gate3"), Assumptions(reclaim=reclaim)
    base = pm.replay(recording, assumptions=assumptions)
    patch = pm.replay(recording, Policy(pcp_batch=127), assumptions=assumptions)
    rows = pm.compare(base, patch).rows
    known = rows[rows["change_low"].notna()]
    assert len(known) > 20
    assert (known["change_low"] >= -known["base"]).all()
    assert (known["change_low"] <= known["change"]).all()
    assert (known["change"] <= known["change_high"]).all()
