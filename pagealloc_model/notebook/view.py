"""The frame of the interactive views: controls, what is going on, a table, figures."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ipywidgets

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.base.text import count_of
from pagealloc_model.notebook.controls import LatestOnly, PolicyControls, SpokenNames, Status
from pagealloc_model.notebook.picture import Chart, same_coordinates
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.replay import BY_RECLAIM, ELASTIC_SETTINGS
from pagealloc_model.show.figures.faceted import Drawing, drawing_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from pagealloc_model.predicted.replay import Replay

PROGRESS_EVERY_S = 0.2


@dataclass(frozen=True, kw_only=True)
class View:
    """The content of an explorer for one policy.

    Attributes:
        figure: with all its panels.
        text: plain text below the figure, shown in a fixed-width font.
        replay: of the policy, to tell why a change has no effect; None where it is not a replay.
    """

    figure: go.Figure | Drawing
    text: str
    replay: Replay | None = None


Progress = Callable[[float], None]
"""Called with the share done, 0 to 1."""
Compute = Callable[[Policy, Progress, threading.Event], View]
"""From a policy to a view; may stop early, with anything, once the event is set."""


class Answering(ipywidgets.VBox):
    """A widget that answers its controls on a worker thread; newer requests overtake older ones."""

    def _begin(
        self,
        compute: Callable[[Any, threading.Event], Any],
        deliver: Callable[[Any], None],
    ) -> None:
        self.status = Status()
        self._worker = LatestOnly(compute, deliver, self.status.fail)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is being computed; False if that took too long."""
        return self._worker.wait(timeout)

    def _refuse(self, error: PolicyError) -> None:
        """Say that the controls ask for what no policy can be; what is on show stays."""
        self._worker.drop()
        self.status.fail(error)

    def _progress(self, policy: Policy) -> Progress:
        last = time.monotonic()

        def report(share: float) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= PROGRESS_EVERY_S:
                last = now
                self._worker.hand_over(self.status.say, f"replaying {policy}: {share:.0%}")

        return report


class Explorer(Answering):
    """Controls, a figure and a table; moving a control redraws them without running a cell.

    The first view is computed at once. Errors are shown below the controls.

    Args:
        title: one line.
        controls: the policy to show.
        compute: from a policy to a view.
    """

    def __init__(self, title: str, controls: PolicyControls, compute: Compute) -> None:
        self.controls = controls
        self.text = ipywidgets.HTML()
        self.chart = Chart()
        self._compute = compute
        self._shown: Policy | None = None
        self._begin(self._view, self._show)
        reset = ipywidgets.Button(
            description="All as recorded", tooltip="leave every field as it was recorded"
        )
        reset.on_click(lambda _: controls.reset())
        heading = ipywidgets.HTML(f"<b>{html.escape(title)}</b>")
        below = (ipywidgets.HBox([reset, self.status]), self.chart, self.text)
        super().__init__([heading, SpokenNames(), controls, *below])
        self._show(self._view(controls.policy, threading.Event()))
        controls.on_change(self._change, self._refuse)

    def redraw(self) -> None:
        """Compute the view again, for something other than the policy has changed."""
        self.controls.tell()

    def _change(self, policy: Policy) -> None:
        self.status.say(f"replaying {policy} ...")
        self._worker.submit(policy)

    def _view(self, policy: Policy, cancelled: threading.Event) -> tuple[View, Policy, float]:
        start = time.perf_counter()
        view = self._compute(policy, self._progress(policy), cancelled)
        return view, policy, time.perf_counter() - start

    def _show(self, answer: tuple[View, Policy, float]) -> None:
        view, policy, seconds = answer
        note = unmoved_words(self._shown, policy, self.chart, [view.figure], view.replay)
        self.chart.show(view.figure)
        self.text.value = f"<pre>{html.escape(view.text)}</pre>" if view.text else ""
        self.status.say(f"shown: {policy} ({seconds:.1f} s)", note)
        self._shown = policy


def changed_settings(before: Policy, after: Policy) -> list[str]:
    """Names of the settings that two policies differ in."""
    old, new = before.given(), after.given()
    return [name for name in {**old, **new} if old.get(name) != new.get(name)]


def unmoved_words(
    before: Policy | None,
    after: Policy,
    chart: Chart,
    figures: Sequence[go.Figure | Drawing],
    replay: Replay | None,
) -> str:
    """Why figures stay as they are under another policy, "" if one moves or no setting does."""
    names = changed_settings(before, after) if before is not None else []
    if not names or chart.picture is None:
        return ""
    if not all(map(same_coordinates, chart.drawings, map(drawing_of, figures))):
        return ""
    reasons = dict.fromkeys(_no_effect(name, replay) for name in names)
    return f"no effect here: {'; '.join(reasons)}"


def _no_effect(name: str, replay: Replay | None) -> str:
    if replay is None:
        return f"all that is drawn is the same, whatever {name} is"
    if replay.assumptions.reclaim == "literal" and name in (*ELASTIC_SETTINGS, *BY_RECLAIM):
        return f"{name} acts through reclaim and compaction, which are replayed as recorded"
    if name.startswith("ownership.") and replay.policy.pageblock_ownership in (None, "off"):
        return "pageblock_ownership is off"
    if name.startswith("highatomic"):
        most = int(replay.samples.blocks[..., 3].max(initial=0))
        if not most:
            return "no pageblock is reserved for atomic requests in this span"
        return f"the reserve stays at {count_of(most, 'pageblock')} at most, as it was"
    return f"the predictions agree in all that is drawn, whatever {name} is"
