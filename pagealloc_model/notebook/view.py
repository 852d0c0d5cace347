"""The frame of the interactive views: controls, what is going on, a table, figures."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ipywidgets

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.notebook.controls import (
    LatestOnly,
    PolicyControls,
    SpokenNames,
    Status,
    changed_settings,
    no_effect_words,
    same_coordinates,
)
from pagealloc_model.notebook.picture import Chart
from pagealloc_model.policy.policy import Policy
from pagealloc_model.show.figures.faceted import Drawing, drawing_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from pagealloc_model.predicted.replay import Replay


PROGRESS_EVERY_S = 0.2


@dataclass(frozen=True, kw_only=True)
class View:
    """What an explorer shows for one policy.

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


class Explorer(ipywidgets.VBox):
    """Controls, a figure and a table; moving a control redraws them without running a cell.

    The first view is computed at once, later ones on a worker thread, where a newer policy
    overtakes the one being computed. Errors are shown below the controls.

    Args:
        title: one line.
        controls: the policy to show.
        compute: from a policy to a view.
    """

    def __init__(
        self,
        title: str,
        controls: PolicyControls,
        compute: Compute,
    ) -> None:
        self.controls = controls
        self.status = Status()
        self.text = ipywidgets.HTML()
        self.chart = Chart()
        self._compute = compute
        self._shown: Policy | None = None
        self._worker = LatestOnly(self._view, self._show, self.status.fail)
        reset = ipywidgets.Button(
            description="All as recorded", tooltip="leave every field as it was recorded"
        )
        reset.on_click(lambda _: controls.reset())
        super().__init__(
            [
                ipywidgets.HTML(f"<b>{html.escape(title)}</b>"),
                SpokenNames(),
                controls,
                ipywidgets.HBox([reset, self.status]),
                self.chart,
                self.text,
            ]
        )
        self._show(self._view(controls.policy, threading.Event()))
        controls.on_change(self._change)
        controls.on_refusal(self._refuse)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the figures' computation is done; False if that took too long."""
        return self._worker.wait(timeout)

    def redraw(self) -> None:
        """Compute the view again, for something other than the policy has changed."""
        self.controls.tell()

    def _change(self, policy: Policy) -> None:
        self.status.say(f"replaying {policy} ...")
        self._worker.submit(policy)

    def _refuse(self, error: PolicyError) -> None:
        """Say that the controls ask for what no policy can be; what is on show stays."""
        self._worker.drop()
        self.status.fail(error)

    def _view(self, policy: Policy, cancelled: threading.Event) -> tuple[View, Policy, float]:
        start = time.perf_counter()
        view = self._compute(policy, self._progress(policy), cancelled)
        return view, policy, time.perf_counter() - start

    def _progress(self, policy: Policy) -> Progress:
        last = time.monotonic()

        def report(share: float) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= PROGRESS_EVERY_S:
                last = now
                self._worker.hand_over(lambda: self.status.say(f"replaying {policy}: {share:.0%}"))

        return report

    def _show(self, answer: tuple[View, Policy, float]) -> None:
        view, policy, seconds = answer
        note = self._note(view, policy)
        self.chart.show(view.figure)
        self.text.value = f"<pre>{html.escape(view.text)}</pre>" if view.text else ""
        self.status.say(f"shown: {policy} ({seconds:.1f} s)", note)
        self._shown = policy

    def _note(self, view: View, policy: Policy) -> str:
        """Why the figure stays as it was under another policy, "" if it does not."""
        changed = changed_settings(self._shown, policy) if self._shown is not None else []
        picture = self.chart.picture
        if not changed or picture is None:
            return ""
        if not same_coordinates(picture.drawing, drawing_of(view.figure)):
            return ""
        return no_effect_words(changed, view.replay)
