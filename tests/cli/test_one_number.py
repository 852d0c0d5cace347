"""One recording and one policy give one number, whoever is asked."""

from __future__ import annotations

import json
from threading import Event

import pytest

import pagealloc_model as pm
from pagealloc_model.cli import main
from pagealloc_model.measured.measured import Measured
from pagealloc_model.notebook.explore_tabs import TABS, Question, SidesOf
from pagealloc_model.numbers.vocabulary import sweep_row
from tests.small_recordings import shipped_recording

MODES = {"mixed_6.1": "elastic", "quiet_guest": "literal"}
"""A small recording of a kernel that reclaimed, and one of a kernel that did not."""
TOTALS = ("refill_pages", "drain_pages", "extfrag_events")


@pytest.fixture(scope="module", params=MODES)
def recording(request: pytest.FixtureRequest) -> pm.Recording:
    return shipped_recording(request.param)


@pytest.fixture(scope="module")
def replay(recording: pm.Recording) -> pm.Replay:
    return pm.replay(recording)


def totals(rows: list[dict[str, object]]) -> dict[str, object]:
    """Predicted totals of the whole machine among a validation's errors."""
    whole = (row for row in rows if row["scope"] == "all" and row["metric"] in TOTALS)
    return {str(row["metric"]): row["predicted"] for row in whole}


def counted(tables: pm.Replay | Measured) -> dict[str, int]:
    """The same, counted in the tables of a replay."""
    sizes = tables.transactions_full.groupby("site")["pages"].sum()
    pages = {f"{site}_pages": int(sizes.get(site, 0)) for site in ("refill", "drain")}
    return pages | {"extfrag_events": int(tables.fallbacks["count"].sum())}


def test_a_command_and_python_validate_alike(
    recording: pm.Recording, replay: pm.Replay, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(recording.path), "--json", "--seeds", "1"]) == 0
    printed = json.loads(capsys.readouterr().out)
    validation = pm.validate(recording)
    chosen = validation.replay.reclaim
    assert printed["reclaim"]["mode"] == chosen.mode == MODES[recording.name]
    assert printed["reclaim"]["why"] == chosen.why == replay.reclaim.why
    assert str(chosen) in " ".join(validation.to_text().split())
    own = totals(validation.errors.to_dict("records"))
    assert totals(printed["metrics"]) == own
    assert own.items() <= counted(replay).items() and own


def test_a_sweep_and_the_explorer_have_the_numbers_of_a_replay(
    recording: pm.Recording, replay: pm.Replay
) -> None:
    swept = pm.sweep([recording], cache=False, workers=1)
    expected = sweep_row(replay)
    assert swept.rows[list(expected)].iloc[0].to_dict() == pytest.approx(expected, nan_ok=True)
    assert swept.reclaim[recording.name].why == replay.reclaim.why
    question = Question(base=pm.Policy(), candidate=pm.Policy(), window=None, tab=TABS[0].name)
    sides = SidesOf(recording).answer(question, lambda _: None, Event())
    assert counted(sides.base) == counted(replay)
    assert sides.reclaim == replay.reclaim


def test_points_of_a_recording_share_the_mode_that_their_policies_ask_for() -> None:
    points = {"min_free_kbytes": [None, 9000]}
    swept = pm.sweep(["quiet_guest"], points, cache=False, workers=1)
    assert list(swept.rows["error"]) == ["", ""]
    assert all("reclaim=elastic" in words for words in swept.rows["assumptions"])
    assert swept.reclaim["quiet_guest"].why == "min_free_kbytes acts through reclaim"
    hosts = pm.fleets.fleet(
        ["quiet_guest"],
        ["quiet_guest"],
        patch_policy=pm.Policy(min_free_kbytes=9000),
        cache=False,
    )
    assert all("reclaim=elastic" in words for words in hosts.hosts["assumptions"])
    assert "min_free_kbytes acts through reclaim" in hosts.reclaim_words
