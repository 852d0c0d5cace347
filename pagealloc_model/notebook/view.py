"""The frame of the interactive views: a worker that follows the last move, a figure, a text."""

from __future__ import annotations

import asyncio
import html
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import ipywidgets

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.base.text import count_of
from pagealloc_model.notebook.controls import PolicyControls, SpokenNames, next_values
from pagealloc_model.notebook.page_widget import FoldedHTML
from pagealloc_model.notebook.picture import Chart, same_coordinates
from pagealloc_model.policy.policy import ELASTIC_SETTINGS, Policy
from pagealloc_model.policy.policy_fields import Setting
from pagealloc_model.predicted.reclaim_mode import BY_RECLAIM
from pagealloc_model.show.figures.faceted import Drawing, drawing_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from pagealloc_model.predicted.replay import Replay

PROGRESS_EVERY_S = 0.2
Request = TypeVar("Request")
Result = TypeVar("Result")


class LatestOnly(Generic[Request, Result]):
    """Computes one request at a time; a newer one cancels and replaces all before it.

    `compute(request, cancelled)` is to return early, with anything, once `cancelled` is set.

    Results and failures are handed to the event loop that created this object, so that widgets
    change on one thread only; without a running loop they are handed over on the worker.
    """

    def __init__(
        self,
        compute: Callable[[Request, threading.Event], Result],
        deliver: Callable[[Result], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._compute, self._deliver, self._fail = compute, deliver, fail
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None
        self._owner = threading.get_ident()
        self._one_at_a_time = threading.Lock()
        self._cancelled = threading.Event()
        self._newest = threading.Thread()

    def submit(self, request: Request) -> None:
        """Compute this request next, instead of any other."""
        self.drop()
        self._cancelled = threading.Event()
        work = (request, self._cancelled)
        self._newest = threading.Thread(target=self._work, args=work, daemon=True)
        self._newest.start()

    def drop(self) -> None:
        """Deliver nothing of what was asked for so far."""
        self._cancelled.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is being computed; False if that took too long."""
        if self._newest.ident is not None:
            self._newest.join(timeout)
        return not self._newest.is_alive()

    def hand_over(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run something where widgets may be changed; callable from any thread.

        At once on the thread that created this object: what waited for its event loop would come
        after whatever that thread does next.
        """
        is_elsewhere = threading.get_ident() != self._owner
        if is_elsewhere and self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(action, *arguments)
        else:
            action(*arguments)

    def _work(self, request: Request, cancelled: threading.Event) -> None:
        with self._one_at_a_time:
            if cancelled.is_set():
                return
            action: Callable[..., None] = self._deliver
            try:
                answer: Any = self._compute(request, cancelled)
            except Exception as error:  # shown in the widget, whatever it is
                action, answer = self._fail, error
            if not cancelled.is_set():
                self.hand_over(action, answer)


ALERT, NOTE = "var(--pagealloc-alert, #B00020)", "var(--pagealloc-note, #5C3A00)"
"""Colours on white; `SpokenNames` has those on a dark ground."""


class Status(ipywidgets.HTML):
    """Progress, what is shown, errors; screen readers are told of changes."""

    def say(self, words: str, note: str = "") -> None:
        """Say what is going on in one line; and a note, such as that a change has no effect."""
        line = f'<span role="status">{html.escape(words)}</span>'
        if note:
            line += f'<br><span role="note" style="color:{NOTE}">{html.escape(note)}</span>'
        self.value = line

    def fail(self, error: Exception) -> None:
        """Say what went wrong, in the place where progress was."""
        kind = "" if type(error).__module__.startswith("pagealloc_model") else type(error).__name__
        words = ": ".join(part for part in ("error", kind, str(error)) if part)
        self.value = f'<span role="alert" style="color:{ALERT}">{html.escape(words)}</span>'


@dataclass(frozen=True, kw_only=True)
class View:
    """The content of an explorer for one policy.

    Attributes:
        figure: with all its panels.
        words: makes the HTML below the figure, once that is on show.
        replay: of the policy, to tell why a change has no effect; None where it is not a replay.
    """

    figure: go.Figure | Drawing
    words: Callable[[], str] = str
    replay: Replay | None = None


Progress = Callable[[float], None]
"""Called with the share done, 0 to 1."""
Compute = Callable[..., View]
"""From a policy, a `Progress`, an event and the values of sliders of its own to a view; may stop
early, with anything, once the event is set."""


class Answering(ipywidgets.VBox):
    """A widget that answers its controls on a worker thread; newer requests overtake older ones."""

    def _begin(
        self, compute: Callable[[Any, threading.Event], Any], deliver: Callable[[Any], None]
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


KEPT = 64
"""Views that an explorer keeps, without their replays."""


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """A view without its replay."""

    figure: Drawing
    words: str | Callable[[], str]
    asked: Policy
    in_effect: Mapping[str, Setting]
    why: Callable[[str], str]
    seconds: float


Asked = tuple[Policy, tuple[Any, ...]]
"""A policy, and the values of an explorer's own sliders."""


class Explorer(Answering):
    """Controls, a figure and words; moving a control redraws them without running a cell.

    The first view is computed at once. Errors are shown below the controls. The figure is shown
    first, and words follow. While the page is looked at, the next steps of the controls are
    computed ahead.

    Args:
        title: one line.
        controls: the policy to show.
        compute: from a policy to a view.
        own: controls of what is no policy field; `compute` gets their values.
    """

    def __init__(
        self,
        title: str,
        controls: PolicyControls,
        compute: Compute,
        own: Sequence[ipywidgets.ValueWidget] = (),
    ) -> None:
        self.controls, self.own = controls, tuple(own)
        self.text, self.chart = FoldedHTML(), Chart()
        self._compute = compute
        self._kept: dict[Asked, _Shown] = {}
        self._last: Asked | None = None
        self._begin(self._view, self._show_and_tell)
        self._telling = LatestOnly(self._in_words, self._tell, self.status.fail)
        self._ahead = LatestOnly(self._look_ahead, lambda _: None, lambda _: None)
        tip = "leave every field as it was recorded"
        reset = ipywidgets.Button(description="All as recorded", tooltip=tip)
        reset.on_click(lambda _: controls.reset())
        words = ipywidgets.HTML(f"<b>{html.escape(title)}</b>")
        heading = ipywidgets.HBox([words, reset, self.status])
        heading.add_class("pagealloc-heading")
        super().__init__([heading, SpokenNames(), *self.own, controls, self.chart, self.text])
        self.text.add_class("pagealloc-words")
        first, now = self._asked(controls.policy), threading.Event()
        shown = self._view(first, now)
        self._show(shown)
        self._tell(self._in_words(shown, now))
        self.chart.picture.observe(lambda _: self._begin_ahead(), "is_on_page")
        controls.on_change(self._change, self._refuse)
        for control in self.own:
            control.observe(lambda _: controls.tell(), "value")

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is being computed; False if that took too long."""
        return super().wait(timeout) and self._telling.wait(timeout)

    def _asked(self, policy: Policy) -> Asked:
        return policy, tuple(control.value for control in self.own)

    def _change(self, policy: Policy) -> None:
        self._ahead.drop()
        self._telling.drop()
        asked = self._asked(policy)
        if asked not in self._kept:
            self.status.say(f"replaying {policy} ...")
        self._worker.submit(asked)

    def _view(self, asked: Asked, cancelled: threading.Event) -> tuple[Asked, _Shown]:
        progress = self._progress(asked[0])
        return asked, self._kept.get(asked) or self._computed(asked, progress, cancelled)

    def _computed(self, asked: Asked, progress: Progress, cancelled: threading.Event) -> _Shown:
        start = time.perf_counter()
        policy, values = asked
        view = self._compute(policy, progress, cancelled, *values)
        shown = _Shown(
            figure=drawing_of(view.figure),
            words=view.words,
            asked=policy if view.replay is None else view.replay.asked_policy,
            in_effect={} if view.replay is None else view.replay.policy.given(),
            why=why_still(view.replay),
            seconds=time.perf_counter() - start,
        )
        if not cancelled.is_set():
            self._keep(asked, shown)
        return shown

    def _keep(self, asked: Asked, shown: _Shown) -> None:
        self._kept[asked] = shown
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]

    def _show_and_tell(self, answer: tuple[Asked, _Shown]) -> None:
        self._show(answer)
        self._telling.submit(answer)

    def _show(self, answer: tuple[Asked, _Shown]) -> None:
        (policy, values), shown = answer
        # a slider of its own changes what is replayed; then nothing is said of settings
        before = self._last[0] if self._last and self._last[1] == values else None
        note = unmoved_words(before, policy, self.chart, [shown.figure], shown.why)
        self.chart.show(shown.figure)
        self.controls.follow(shown.in_effect)
        self.status.say(f"shown: {shown.asked} ({shown.seconds:.1f} s)", note)
        self._last = answer[0]

    def _in_words(
        self, answer: tuple[Asked, _Shown], _: threading.Event
    ) -> tuple[tuple[Asked, _Shown], str]:
        shown = answer[1]
        words = shown.words if isinstance(shown.words, str) else shown.words()
        self._keep(answer[0], replace(shown, words=words))
        return answer, words

    def _tell(self, told: tuple[tuple[Asked, _Shown], str]) -> None:
        answer, self.text.value = told
        if answer[0] == self._last and self.chart.picture.is_on_page:
            self._begin_ahead()

    def _begin_ahead(self) -> None:
        """Compute the views that are one step away, unless something is asked for."""
        steps = [(policy, self._asked(policy)[1]) for policy in self.controls.next_policies()]
        for place, control in enumerate(self.own):
            policy, values = self._asked(self.controls.policy)
            steps += [
                (policy, (*values[:place], value, *values[place + 1 :]))
                for value in next_values(control)
            ]
        wanted = [asked for asked in steps if asked not in self._kept]
        if wanted:
            self._ahead.submit(wanted)

    def _look_ahead(self, wanted: Sequence[Asked], cancelled: threading.Event) -> None:
        for asked in wanted:
            if cancelled.is_set():
                return
            shown = self._computed(asked, lambda _: None, cancelled)
            if not cancelled.is_set():
                self._in_words((asked, shown), cancelled)


def changed_settings(before: Policy, after: Policy) -> list[str]:
    """Names of the settings that two policies differ in."""
    old, new = before.given(), after.given()
    return [name for name in {**old, **new} if old.get(name) != new.get(name)]


def why_still(replay: Replay | None) -> Callable[[str], str]:
    """A function that says of a setting why it moves nothing; it holds nothing of the replay."""
    if replay is None:
        return lambda name: f"all that is drawn is the same, whatever {name} is"
    is_literal = replay.assumptions.reclaim == "literal"
    is_owned = replay.policy.pageblock_ownership not in (None, "off")
    most = int(replay.samples.blocks[..., 3].max(initial=0))

    def why(name: str) -> str:
        if is_literal and name in (*ELASTIC_SETTINGS, *BY_RECLAIM):
            return f"{name} acts through reclaim and compaction, which are replayed as recorded"
        if name.startswith("ownership.") and not is_owned:
            return "pageblock_ownership is off"
        if name.startswith("highatomic"):
            if most:
                return f"the reserve stays at {count_of(most, 'pageblock')} at most, as it was"
            return "no pageblock is reserved for atomic requests in this span"
        return f"the predictions agree in all that is drawn, whatever {name} is"

    return why


def unmoved_words(
    before: Policy | None,
    after: Policy,
    chart: Chart,
    figures: Sequence[go.Figure | Drawing],
    why: Callable[[str], str],
) -> str:
    """Why figures stay as they are under another policy, "" if one moves or no setting does."""
    names = changed_settings(before, after) if before is not None else []
    is_same = names and chart.picture is not None
    if not is_same or not all(map(same_coordinates, chart.drawings, map(drawing_of, figures))):
        return ""
    return f"no effect here: {'; '.join(dict.fromkeys(map(why, names)))}"
