"""The explorer of a whole recording, without a browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

import pagealloc_model as pm
from pagealloc_model.notebook.explore import RecordingExplorer, explore
from pagealloc_model.notebook.explore_tabs import Question, as_python
from pagealloc_model.numbers.comparison import recorded_values
from pagealloc_model.policy.policy import policy_settings
from pagealloc_model.predicted.tables import pageblock_map
from pagealloc_model.show import figures
from pagealloc_model.show.figures.pageblock_map import (
    LEVELS,
    outline,
)
from tests.small_recordings import shipped_replay

PATIENCE_S = 120


def traces(explorer: RecordingExplorer) -> dict[str, list[float]]:
    figure = explorer.charts[explorer.tabs.value].figure
    return {str(trace.meta): list(trace.y) for trace in figure.data if "predicted" in trace.meta}


def settle(explorer: RecordingExplorer) -> None:
    assert explorer.wait(PATIENCE_S)


def test_every_setting_has_a_control_with_its_kernel_name(explorer: RecordingExplorer) -> None:
    settings = policy_settings()
    assert list(explorer.controls.values) == list(settings)
    groups = dict.fromkeys(setting.metadata["group"] for setting in settings.values())
    assert list(explorer.controls.openers) == list(groups)
    rows = [row for box in explorer.controls.children[2::2] for row in box.children]
    names = [row.children[-1].value for row in rows]
    assert len(names) == len(settings)
    assert any("pcp-&gt;batch" in name for name in names)


def test_groups_open_and_close(explorer: RecordingExplorer) -> None:
    opener = explorer.controls.openers["highatomic reserve"]
    box = explorer.controls.children[explorer.controls.children.index(opener) + 1]
    assert box.layout.display == "none"
    opener.value = True
    assert box.layout.display is None


def test_base_and_candidate_are_those_of_pm_replay(
    recording: pm.Recording, explorer: RecordingExplorer
) -> None:
    explorer.controls.values["pcp_batch"].value = 2
    settle(explorer)
    for lane, policy in enumerate((pm.Policy(), pm.Policy(pcp_batch=2))):
        table = pm.replay(recording, policy).free_pages
        for order, rows in table.groupby("order"):
            wanted = rows.groupby("time_ns")["pages"].sum()
            drawn = traces(explorer).get(f"{order}/predicted:{lane}")
            assert drawn == list(wanted) or (drawn is None and wanted.nunique() == 1)
    explorer.controls.reset()
    settle(explorer)


def test_a_part_of_the_recording_can_be_replayed(explorer: RecordingExplorer) -> None:
    whole = explorer.timeline.slider.max
    explorer.timeline.slider.value = (whole / 4, whole / 2)
    settle(explorer)
    chart = explorer.charts[explorer.tabs.value].figure
    times = np.concatenate([trace.x for trace in chart.data if "predicted" in trace.meta])
    times = times[~np.isnan(times)]
    assert whole / 4 - 0.01 <= times.min() <= times.max() <= whole / 2 + whole / 50
    assert f"window={explorer.timeline.window!r}" in explorer.keeping.python
    explorer.timeline.pick()
    settle(explorer)
    assert "window" not in explorer.keeping.python


def test_brushing_the_strip_moves_the_window(explorer: RecordingExplorer) -> None:
    half = explorer.timeline.slider.max / 2
    explorer.timeline.strip.brushed = [half, 0.0]
    settle(explorer)
    assert explorer.timeline.window == pytest.approx((0.0, half), abs=0.01)
    explorer.timeline.pick()
    settle(explorer)


def test_the_candidate_can_become_the_base(explorer: RecordingExplorer) -> None:
    explorer.take_as_base(pm.Policy(pcp_batch=2))
    settle(explorer)
    assert "base pcp_batch=2" in explorer.status.value
    assert "base = pm.replay(rec, pm.Policy(pcp_batch=2), " in explorer.keeping.python
    explorer.take_as_base(pm.Policy())
    settle(explorer)


def test_the_text_reproduces_the_state(recording: pm.Recording) -> None:
    question = Question(
        base=pm.Policy(), candidate=pm.Policy(pcp_batch=2), window=(0.0, 0.5), tab="pcp"
    )
    names: dict[str, object] = {}
    code = as_python(recording, question, "literal").replace("(0.0, 0.5)", "None")
    exec(code.replace("print", "str"), names)
    again = explore(
        recording, base=question.base, candidate=question.candidate, window=None, tab="pcp"
    )
    assert again.question.candidate == question.candidate
    assert names["candidate"].asked_policy == question.candidate


def test_reclaim_is_chosen_as_commands_do_and_can_be_asked_for(explorer: RecordingExplorer) -> None:
    assert "Reclaim is literal" in explorer.reclaim_told.value
    explorer.controls.values["defrag_mode"].value = True
    settle(explorer)
    assert "Reclaim is elastic" in explorer.reclaim_told.value
    assert "defrag_mode acts through reclaim" in explorer.reclaim_told.value
    assert explorer.keeping.python.count("assumptions=pm.Assumptions(reclaim='elastic')") == 2
    explorer.reclaim.value = "literal"
    settle(explorer)
    assert "as asked for" in explorer.reclaim_told.value
    assert "candidate = pm.replay(rec, pm.Policy(), " in explorer.keeping.python
    assert "candidate=pm.Policy(defrag_mode=True), tab=" in explorer.keeping.python
    assert "reclaim='literal')" in explorer.keeping.python
    explorer.controls.values["extfrag_threshold"].value = 10
    settle(explorer)
    assert "no effect here: extfrag_threshold acts through reclaim" in explorer.status.value
    explorer.reclaim.value = "auto"
    explorer.controls.reset()
    settle(explorer)


def test_an_option_of_what_is_off_says_so(explorer: RecordingExplorer) -> None:
    explorer.controls.values["ownership.recovers"].value = False
    settle(explorer)
    assert "no effect here: pageblock_ownership is off" in explorer.status.value
    explorer.controls.reset()
    settle(explorer)


def test_nested_settings_are_written_so_that_they_can_be_read_back(recording: pm.Recording) -> None:
    nested = pm.Policy.parse(["pageblock_ownership=pcp_buddy", "ownership.fit_test=always"])
    question = Question(base=pm.Policy(), candidate=nested, window=None, tab="pcp")
    line = as_python(recording, question, "literal").splitlines()[4]
    expression = line.partition("rec, ")[2].rpartition(", assumptions=")[0]
    assert eval(expression, {"pm": pm}) == nested


def test_errors_appear_in_the_widget_and_the_next_value_recovers(
    explorer: RecordingExplorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise pm.UsageError("3 <is> refused")

    with monkeypatch.context() as patch:
        patch.setattr(pm, "replay", refuse, raising=False)
        explorer.controls.values["pcp_batch"].value = 3
        settle(explorer)
    assert 'role="alert"' in explorer.status.value
    assert "error: 3 &lt;is&gt; refused" in explorer.status.value
    explorer.controls.reset()
    settle(explorer)
    assert "shown: base as recorded" in explorer.status.value


def test_a_candidate_given_from_the_start_is_not_snapped(recording: pm.Recording) -> None:
    policy = pm.Policy(pcp_high_min=65)
    slider = explore(recording, candidate=policy).controls.values["pcp_high_min"]
    assert slider.value == 65
    assert (slider.value - slider.min) % slider.step == 0


def test_a_map_accounts_for_every_page(recording: pm.Recording) -> None:
    replay = pm.replay(recording)
    table = pageblock_map(replay.final)
    free = replay.free_pages[replay.free_pages["time_ns"] == replay.samples.time_ns[-1]]
    assert table["free_pages"].sum() == free["pages"].sum()
    listed = replay.pcp[replay.pcp["time_ns"] == replay.samples.time_ns[-1]]
    assert table["pcp_pages"].sum() == listed["count"].sum()
    assert (table["free_pages"] + table["pcp_pages"] <= table["pages"]).all()
    types = table.groupby("migratetype").size()
    blocks = replay.pageblocks[replay.pageblocks["time_ns"] == replay.samples.time_ns[-1]]
    counted = blocks.groupby("migratetype")["blocks"].sum()
    assert types.to_dict() == counted[counted > 0].to_dict()


def middles(trace: go.Scatter, symbol: str) -> list[float]:
    """Where the marks of a trace are along x: the middles of their outlines."""
    points = np.asarray(trace.x, float).reshape(-1, len(outline(symbol)))
    reached = [np.nanmin(points, axis=1), np.nanmax(points, axis=1)]
    return np.mean(reached, axis=0).round(6).tolist()


def map_of(pfn: object, migratetype: object, free_pages: object = 0) -> pd.DataFrame:
    table = {"pfn": pfn, "node": 0, "zone": "Normal", "migratetype": migratetype}
    return pd.DataFrame(table | {"free_pages": free_pages, "pcp_pages": 0, "pages": 512})


def test_a_map_shows_type_occupancy_and_difference() -> None:
    before = map_of([0, 512, 1024], ["Movable", "Unmovable", "Movable"], [512, 0, 256])
    after = map_of([0, 512, 1024], ["Movable", "Unmovable", "HighAtomic"], [0, 0, 256])
    figure = figures.pageblock_map({"a": before, "b": after}, ("a", "b"))
    traces = {trace.meta: trace for trace in figure.data}
    first, second = traces["map/a"], traces["map/b"]
    assert {trace.mode for trace in figure.data if trace.type == "scatter"} == {"none"}
    assert list(first.z[0][:3]) == [LEVELS, LEVELS - 1, LEVELS + LEVELS // 2]
    assert list(second.z[0][:3]) == [2 * LEVELS - 1, LEVELS - 1, 2 * LEVELS + LEVELS // 2]
    assert list(traces["map/change"].z[0][:3]) == [-512, 0, 0]
    assert set(traces["map/types"].text) == {"Movable / HighAtomic"}
    assert middles(traces["map/types"], "x-thin") == [4.0]
    assert middles(traces["map/fewer"], "triangle-down") == [0.0]
    assert middles(traces["map/fewer/edge"], "triangle-down") == [0.0]


def test_a_map_leaves_one_line_empty_where_memory_has_a_hole() -> None:
    table = map_of([0, 512, 1 << 20], "Movable")
    figure = figures.pageblock_map({"a": table, "b": table}, ("a", "b"))
    is_empty = np.isnan(np.asarray(figure.data[0].z, float)).all(axis=1)
    assert list(is_empty) == [False, True, False]
    assert list(figure.layout.yaxis.tickvals) == [0, 2]
    assert list(figure.layout.yaxis.ticktext) == ["0", "4"]


def test_changed_fields_stand_on_top_and_are_taken_back(recording: pm.Recording) -> None:
    explorer = explore(recording)
    batch, high = (explorer.controls.values[name] for name in ("pcp_batch", "pcp_high_min"))
    recorded = batch.value
    for value in (5, 4, 3):
        batch.value = value
    high.value += high.step
    names = [row["name"] for row in explorer.changed.rows]
    assert (names, explorer.changed.rows[0]["value"]) == (["pcp_batch", "pcp_high_min"], "3")
    explorer.changed.undo()
    assert explorer.question.candidate == pm.Policy(pcp_batch=3)
    explorer.changed.undo()  # the steps of one field are one change
    assert explorer.question.candidate == pm.Policy()
    assert batch.value == recorded
    assert not explorer.changed.undoable
    batch.value = 3
    explorer.changed._handle_custom_msg({"give_back": "pcp_batch"}, [])
    assert explorer.changed.rows == []
    settle(explorer)


def shown_fields(explorer: RecordingExplorer) -> list[str]:
    rows = zip(policy_settings(), explorer.controls.rows.values(), strict=True)
    return [name for name, row in rows if row.layout.display != "none"]


def test_fields_are_found_by_their_kernel_names(explorer: RecordingExplorer) -> None:
    explorer.controls.search.value = "MAX_MANAGED reserve"
    assert shown_fields(explorer) == ["highatomic_reserve_percent"]
    openers = explorer.controls.openers
    left = [group for group, opener in openers.items() if opener.layout.display != "none"]
    assert left == ["highatomic reserve"]
    explorer.controls.search.value = ""
    assert len(shown_fields(explorer)) == len(policy_settings())


def test_a_saved_state_is_restored(
    recording: pm.Recording, explorer: RecordingExplorer, tmp_path: Path
) -> None:
    question = Question(
        base=pm.Policy(pcp_batch=7),
        candidate=pm.Policy.parse(["pcp_high_min=65", "ownership.fit_test=always"]),
        window=(0.0, 0.5),
        tab="pcp",
    )
    saved = tmp_path / "saved.json"
    saved.write_text(question.as_json())
    assert explore(recording, state=saved).question == question
    before = explorer.question
    explorer.keeping._handle_custom_msg({"restore": saved.read_text()}, [])
    settle(explorer)
    assert explorer.question == question
    assert Question.from_json(explorer.keeping.state) == question
    explorer.restore(before)
    settle(explorer)
    for damaged in ("", "[]", '{"base": 1}', saved.read_text().replace("pcp_batch", "nothing")):
        explorer.keeping._handle_custom_msg({"restore": damaged}, [])
        assert 'role="alert"' in explorer.status.value
        assert explorer.question == before
    with pytest.raises(pm.UsageError, match="cannot be read"):
        explore(recording, state=tmp_path / "absent.json")


@pytest.mark.parametrize("window", ["[2, 1]", "[1, 1]", "[-1, 1]", "[0, Infinity]", "[NaN, 1]"])
def test_a_state_with_an_impossible_window_is_refused(window: str) -> None:
    state = Question(base=pm.Policy(), candidate=pm.Policy(), window=None, tab="pcp").as_json()
    with pytest.raises(pm.UsageError, match="does not end after it begins"):
        Question.from_json(state.replace('"window": null', f'"window": {window}'))


def test_a_state_nested_too_deep_is_refused() -> None:
    with pytest.raises(pm.UsageError, match="nested too deep"):
        Question.from_json("[" * 100_000)


def test_limits_that_the_kernel_does_not_print_are_those_that_it_computes() -> None:
    """6.12 prints neither bound of per-CPU lists (S4.3)."""
    base = shipped_replay("highatomic_gate3")
    zone = max(base.machine.zones, key=lambda zone: zone.managed)
    assert zone.pagesets[0].high_min is None
    values = recorded_values(base)
    assert 0 < values["pcp_high_min"] < values["pcp_high_max"] < zone.managed


def test_controls_start_at_what_the_machine_had() -> None:
    values = recorded_values(shipped_replay("highatomic_stock"))
    assert (values["min_free_kbytes"], values["thp_defrag"]) == (45056, "always")
