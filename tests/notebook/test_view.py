import asyncio
import base64
import threading

import numpy as np
import plotly.graph_objects as go
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.notebook.controls import PolicyControls
from pagealloc_model.notebook.picture import Chart, Picture, as_json, moves_between
from pagealloc_model.notebook.view import Compute, Explorer, LatestOnly, Progress, View
from pagealloc_model.policy.policy import Policy
from pagealloc_model.show.figures.faceted import Drawing, drawing_of

PATIENCE_S = 20


def line(values: list[float], title: str = "") -> go.Figure:
    return go.Figure(go.Scatter(x=[0, 1], y=values, meta="line"), {"title": {"text": title}})


def explorer(compute: Compute) -> Explorer:
    return Explorer("title", PolicyControls(["pcp_batch", "pcp_free_batched"]), compute)


def batch_view(policy: Policy, progress: Progress, cancelled: threading.Event) -> View:
    progress(0.5)
    return View(figure=line([0.0, float(policy.pcp_batch or 0)]), words=lambda: str(policy))


def test_figures_move_in_place_and_others_take_it() -> None:
    chart = Chart()
    chart.show(line([1, 2]))
    picture = chart.picture
    chart.show(line([3, 4]))
    assert list(chart.figure.data[0].y) == [3, 4]
    chart.show(line([3, 4], "other"))
    assert chart.figure.layout.title.text == "other"
    assert chart.picture is picture


def test_a_page_that_connects_later_gets_all_that_is_on_show() -> None:
    picture = Picture(drawing_of(line([1, 2], "whole")))
    picture.show(drawing_of(line([1, 5], "whole")))
    held = picture.get_state()["drawn"]
    assert list(held["data"][0]["y"]) == [1, 5]
    assert held["layout"]["title"]["text"] == "whole"


def test_only_what_moved_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, object]] = []
    monkeypatch.setattr(Picture, "_send_moves", lambda _, content: sent.append(content))
    picture = Picture(two_lines([1.0, 2.0]))
    picture.show(two_lines([1.0, 2.0]))
    assert sent == []
    picture.show(two_lines([1.5, 2.0]))
    picture.show(two_lines([1.5, 9.0]))
    assert [[number for number, _ in message["moves"]] for message in sent] == [[1], [1]]
    assert [message["in_place"] for message in sent] == [True, True]
    packed = base64.b64decode(sent[-1]["moves"][0][1]["y"]["bdata"])
    assert np.frombuffer(packed).tolist() == [1.5, 9.0]


def test_bars_move_in_place_and_other_categories_do_not() -> None:
    first, higher, renamed = (
        Drawing(traces=[{"type": "bar", "x": names, "y": np.array(values)}], layout={})
        for names, values in ((["a", "b"], [1.0, 2.0]), (["a", "b"], [1.0, 3.0]), (["a"], [1.0]))
    )
    moves = moves_between(first, higher)
    assert moves is not None
    coordinates, _, in_place = moves
    assert list(coordinates) == [0]
    assert in_place
    others = moves_between(first, renamed)
    assert others is not None
    assert not others[2]
    assert moves_between(first, Drawing(traces=first.traces, layout={"height": 3})) is None


def test_notes_alone_are_sent_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, object]] = []
    monkeypatch.setattr(Picture, "_send_moves", lambda _, content: sent.append(content))
    first, second = (
        Drawing(traces=two_lines([1.0, 2.0]).traces, layout={"annotations": [{"text": text}]})
        for text in ("none", "few")
    )
    picture = Picture(first)
    picture.show(second)
    assert sent == [{"moves": [], "notes": [{"text": "few"}], "in_place": True}]
    assert picture.get_state()["drawn"]["layout"]["annotations"] == [{"text": "few"}]


def test_maps_are_sent_in_single_precision_where_that_is_exact() -> None:
    exact, fine = np.array([[0.5, np.nan]]), np.array([[0.1, 1.0]])
    for values, kind in ((exact, "f4"), (fine, "f8")):
        packed = as_json(values)
        assert packed["dtype"] == kind
        sent = np.frombuffer(base64.b64decode(packed["bdata"]), kind)
        assert np.array_equal(sent, values[0], equal_nan=True)


def test_of_several_figures_only_the_one_that_moved_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Picture] = []
    monkeypatch.setattr(Picture, "_send_moves", lambda picture, _: sent.append(picture))
    chart = Chart()
    chart.show(two_lines([1.0, 2.0]), two_lines([1.0, 2.0]))
    chart.show(two_lines([1.0, 2.0]), two_lines([1.5, 2.0]))
    assert sent == [chart.children[1]]


def two_lines(values: list[float]) -> Drawing:
    x = np.array([0.0, 1.0])
    traces = [
        {"type": "scatter", "x": x, "y": np.array([0.0, 4.0]), "meta": "still"},
        {"type": "scatter", "x": x, "y": np.array(values), "meta": "moving"},
    ]
    return Drawing(traces=traces, layout={})


def test_the_explorer_shows_the_recorded_policy_and_follows_its_sliders() -> None:
    view = explorer(batch_view)
    assert list(view.chart.figure.data[0].y) == [0, 0]
    assert "as recorded" in view.text.value
    view.controls.values["pcp_batch"].value = 99
    assert view.wait(PATIENCE_S)
    assert list(view.chart.figure.data[0].y) == [0, 99]
    assert "pcp_batch=99" in view.status.value


def test_errors_are_visible_and_the_next_value_recovers() -> None:
    def compute(policy: Policy, progress: Progress, cancelled: threading.Event) -> View:
        if policy.pcp_batch == 13:
            raise UsageError("13 <is> refused")
        return batch_view(policy, progress, cancelled)

    view = explorer(compute)
    view.controls.values["pcp_batch"].value = 13
    assert view.wait(PATIENCE_S)
    assert "error: 13 &lt;is&gt; refused" in view.status.value
    view.controls.values["pcp_batch"].value = 14
    assert view.wait(PATIENCE_S)
    assert "pcp_batch=14" in view.status.value


def test_a_newer_request_cancels_the_older() -> None:
    started = threading.Event()
    answers = []

    def compute(request: str, cancelled: threading.Event) -> str:
        if request == "slow":
            started.set()
            assert cancelled.wait(PATIENCE_S)
        return request

    worker = LatestOnly(compute, answers.append, answers.append)
    worker.submit("slow")
    assert started.wait(PATIENCE_S)
    worker.submit("overtaken or not")
    worker.submit("newest")
    assert worker.wait(PATIENCE_S)
    assert answers[-1] == "newest"
    assert "slow" not in answers


def test_what_the_own_thread_hands_over_is_done_at_once_and_others_wait_for_its_loop() -> None:
    """Else the progress of a first view would overwrite the words that the view is shown."""
    said: list[str] = []

    async def cell() -> None:
        worker: LatestOnly[int, int] = LatestOnly(lambda number, _: number, print, print)
        worker.hand_over(lambda: said.append("half done"))
        said.append("shown")
        other = threading.Thread(target=worker.hand_over, args=(lambda: said.append("later"),))
        other.start()
        other.join()
        assert said == ["half done", "shown"]
        await asyncio.sleep(0)

    asyncio.run(cell())
    assert said == ["half done", "shown", "later"]


def test_bounds_that_cross_are_said_and_what_was_shown_stays() -> None:
    controls = PolicyControls(["pcp_high_min", "pcp_high_max"], recorded={"pcp_high_max": 640})
    view = Explorer("list bounds", controls, batch_view)
    shown = view.chart.picture
    controls.values["pcp_high_max"].value = 64
    view.wait()
    controls.values["pcp_high_min"].value = 128
    view.wait()
    assert "pcp_high_min=128 is above pcp_high_max=64" in view.status.value
    assert view.chart.picture is shown
    controls.values["pcp_high_min"].value = 64
    view.wait()
    assert "pcp_high_min=64 pcp_high_max=64" in view.status.value
