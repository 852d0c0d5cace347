"""Parts of the explorer: the state that is saved, controls by group, what changed."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import ipywidgets
import pandas as pd
import traitlets

from pagealloc_model.base.errors import PageallocError, RecordingError, UsageError
from pagealloc_model.base.files import given, text_of
from pagealloc_model.base.text.comparison_table import measures, with_unit
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.layout import number
from pagealloc_model.notebook.controls import OPENER, PolicyControls, changed_settings
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.policy.policy_fields import Setting
from pagealloc_model.predicted.replay import literal_part
from pagealloc_model.verdict.comparison import BELIEVED, BETTER, SAME, UNKNOWN, WORSE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.verdict.comparison import Comparison


Window = tuple[float, float]
"""From and to, in seconds after the first event."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One state of the explorer.

    Attributes:
        base: policy to compare with.
        candidate: policy of the controls.
        window: part of the recording, None for all of it.
        tab: name of the tab on show.
    """

    base: Policy
    candidate: Policy
    window: Window | None
    tab: str

    def as_json(self) -> str:
        """The state as text that `from_json` reads, for a file or a link."""
        state = {
            "base": self.base.given(),
            "candidate": self.candidate.given(),
            "window": self.window,
            "tab": self.tab,
        }
        return json.dumps(state, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, tabs: Sequence[str]) -> Question:
        """The state that `as_json` wrote.

        Args:
            text: what it wrote.
            tabs: names of the tabs there are.

        Raises:
            UsageError: it is no such text, or of other fields or tabs than there are.
        """
        try:
            state = json.loads(text)
            window = state["window"]
            question = cls(
                base=Policy.from_settings(state["base"]),
                candidate=Policy.from_settings(state["candidate"]),
                window=None if window is None else (float(window[0]), float(window[1])),
                tab=str(state["tab"]),
            )
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise UsageError(f"this is no state of an explorer ({error}); save one anew") from None
        if question.tab not in tabs:
            raise UsageError(f"the explorer has no tab {question.tab!r}; it has {', '.join(tabs)}")
        return question


def read_question(path: Path, tabs: Sequence[str]) -> Question:
    """The state in a file that the explorer saved.

    Raises:
        UsageError: the file cannot be read, or holds no state.
    """
    try:
        text = text_of(given(path), "utf-8", todo="give a saved state")
    except RecordingError as error:
        raise UsageError(str(error)) from None
    try:
        return Question.from_json(text, tabs)
    except PageallocError as error:
        raise UsageError(f"{path}: {error}") from None


def as_python(recording: Recording, question: Question) -> str:
    """Code that replays both policies, compares them, and opens an explorer in this state.

    Settings that a literal replay refuses are left to the explorer, which says so.
    """
    window = "" if question.window is None else f", window={question.window!r}"
    base, candidate = _policy(question.base), _policy(question.candidate)
    replayed = [_policy(literal_part(each)) for each in (question.base, question.candidate)]
    return "\n".join(
        [
            "import pagealloc_model as pm",
            "",
            f"rec = pm.open({_name(recording)!r})",
            f"base = pm.replay(rec, {replayed[0]}{window})",
            f"candidate = pm.replay(rec, {replayed[1]}{window})",
            "print(pm.compare(base, candidate).to_text(width=72))",
            f"pm.explore(rec, base={base}, candidate={candidate}{window}, tab={question.tab!r})",
        ]
    )


def _policy(policy: Policy) -> str:
    """A policy as the expression that makes it."""
    given = policy.given()
    if any("." in name for name in given):
        return f"pm.Policy.from_settings({given!r})"
    return f"pm.Policy({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def _name(recording: Recording) -> str:
    """The short name where it leads to this recording, else its path."""
    from pagealloc_model.recording.recording import open_recording, recording_names

    if recording.name in recording_names():
        found = open_recording(recording.name)
        if found.path.resolve() == recording.path.resolve():
            return recording.name
    return str(recording.path)


OPEN_AT_FIRST = "per-CPU lists"


class GroupedControls(PolicyControls):
    """A control per policy setting, with its kernel name, in groups that open, close and are found.

    Args:
        recorded: values of the recording, where known; controls start there.
        start: settings that are not as recorded at the beginning.

    Attributes:
        search: words to find fields by; "" shows all groups as the user left them.
        openers: the button of each group.
        rows: of each field: control, "as recorded", kernel name.
    """

    def __init__(self, recorded: Mapping[str, Setting], start: Mapping[str, Setting]) -> None:
        settings = policy_settings()
        super().__init__(list(settings), recorded=recorded, start=start)
        self.rows = dict(zip(settings, self.children, strict=True))
        self._groups: dict[str, list[str]] = {}
        self._boxes: dict[str, ipywidgets.VBox] = {}
        self.search = ipywidgets.Text(
            placeholder="find a field: name, kernel name, meaning",
            description="find",
            tooltip="shows the fields whose name, kernel name, topic or meaning has these words",
            style={"description_width": "36px"},
            layout=ipywidgets.Layout(width="97%"),
        )
        for name, each in settings.items():
            _narrow(self.values[name], self.as_recorded[name])
            row = self.rows[name]
            row.layout.align_items = "flex-end"
            row.children = (*row.children, _kernel_name(each.metadata))
            self._groups.setdefault(each.metadata["group"], []).append(name)
        moved = {settings[name].metadata["group"] for name in start}
        self.openers = {}
        shown: list[ipywidgets.Widget] = []
        for group, members in self._groups.items():
            box = ipywidgets.VBox([self.rows[name] for name in members])
            self._boxes[group] = box
            self.openers[group] = self._opener(group, group == OPEN_AT_FIRST or group in moved)
            shown += [self.openers[group], box]
        self.children = (self.search, *shown)
        self.search.observe(lambda _: self._find(), "value")

    def _find(self) -> None:
        """Show the fields that have all words; groups without any go, others open."""
        words = self.search.value.lower().split()
        settings = policy_settings()
        for group, members in self._groups.items():
            found = [name for name in members if _has(name, settings[name].metadata, words)]
            for name in members:
                self.rows[name].layout.display = None if name in found else "none"
            self.openers[group].layout.display = None if found else "none"
            is_open = bool(found) if words else self.openers[group].value
            self._boxes[group].layout.display = None if is_open else "none"

    def _opener(self, group: str, is_open: bool) -> ipywidgets.ToggleButton:
        """A button that shows and hides a group."""
        box = self._boxes[group]
        button = ipywidgets.ToggleButton(
            value=is_open,
            description=f"{group} ({len(box.children)})",
            tooltip=f"show or hide the fields of: {group}",
            icon="caret-down" if is_open else "caret-right",
            layout=ipywidgets.Layout(width="97%"),
        )
        button.add_class(OPENER)

        def follow(_: object = None) -> None:
            box.layout.display = None if button.value else "none"
            button.icon = "caret-down" if button.value else "caret-right"

        follow()
        button.observe(follow, "value")
        return button


def _has(name: str, about: Mapping[str, Any], words: list[str]) -> bool:
    """Whether a field's name, kernel name, topic or meaning has all words."""
    told = " ".join([name, about["kernel_name"], about["group"], about["meaning"]]).lower()
    return all(word in told for word in words)


def _narrow(control: ipywidgets.ValueWidget, box: ipywidgets.Checkbox) -> None:
    """Put the label above the control, and "as recorded" beside it."""
    control.layout.width, control.layout.flex = "auto", "1 1 180px"
    control.layout.height, control.layout.min_width = "auto", "0"
    control.style.description_width = "100%"
    if isinstance(control, ipywidgets.Checkbox):
        control.indent = False
    else:
        control.layout.flex_flow = "row wrap"
    box.layout.width, box.layout.flex = "104px", "0 0 auto"


def _kernel_name(about: Mapping[str, Any]) -> ipywidgets.HTML:
    name, meaning = html.escape(about["kernel_name"]), html.escape(about["meaning"])
    return ipywidgets.HTML(
        f'<code title="{meaning}" style="font-size:11px">{name}</code>',
        layout=ipywidgets.Layout(flex="1 0 100%", min_width="0", height="auto"),
    )


MOST_IN_VIEW = 6
"""Believed rows that are not folded."""
NOTHING_ASKED = (
    "<p>The candidate is the base: move a control, and what it changes is told here first.</p>"
)
_STYLE = """<style>
.pagealloc-difference { max-height: 190px; overflow: auto; }
.pagealloc-difference table { border-collapse: collapse; font-size: 12px; }
.pagealloc-difference th { text-align: left; font-weight: normal; padding: 0 10px 0 0; }
.pagealloc-difference td { text-align: right; padding: 0 10px 0 0; white-space: nowrap; }
.pagealloc-difference td:first-child, .pagealloc-difference td:last-child { text-align: left; }
.pagealloc-difference p { margin: 0 0 4px 0; }
.pagealloc-difference summary { cursor: pointer; }
</style>"""
_TITLES = ("changes", "base", "candidate", "change", "believed range", "", "")
_ARROWS = {BETTER: "\u25b2 better", WORSE: "\u25bc worse"}
_WIDTH, _HEIGHT = 120, 12
"""Of a bar, in pixels."""


def difference_html(comparison: Comparison) -> str:
    """Return the rows that change: those to believe, the others folded, the same ones counted."""
    rows = comparison.rows
    moved = changing_rows(comparison)
    believed = moved[moved["verdict"].isin(BELIEVED)]
    first, more = believed[:MOST_IN_VIEW], believed[MOST_IN_VIEW:]
    others = moved[~moved["verdict"].isin(BELIEVED)]
    parts = [f"<p>{escape(_summary(comparison, believed))}</p>", _table(first)]
    for words, folded in (
        (f"{len(more)} more to believe", more),
        (f"{len(others)} that nothing bears out, or within the model's error", others),
    ):
        if len(folded):
            parts.append(f"<details><summary>{escape(words)}</summary>{_table(folded)}</details>")
    still = int((rows["verdict"] != UNKNOWN).sum()) - len(moved)
    if still:
        parts.append(
            f"<p>{count_of(still, 'quantity stays as it is', 'quantities stay as they are')}.</p>"
        )
    return f'{_STYLE}<div class="pagealloc-difference">{"".join(parts)}</div>'


def changing_rows(comparison: Comparison) -> pd.DataFrame:
    """Return the judged rows whose value is not that of the base."""
    rows = comparison.rows
    return rows[(rows["verdict"] != UNKNOWN) & (rows["base"] != rows["patch"])]


def _summary(comparison: Comparison, believed: pd.DataFrame) -> str:
    if comparison.errors.refused:
        return comparison.believable
    if believed.empty:
        return "Nothing changes by more than the model's error on this recording."
    return (
        f"{count_of(len(believed), 'change')} larger than the model's error on this recording "
        "(range: 95 % over windows of the recording, widened by that error)"
    )


def _table(rows: pd.DataFrame) -> str:
    if rows.empty:
        return ""
    head = "".join(f"<th>{escape(title)}</th>" for title in _TITLES)
    body = "".join(_row(row) for row in rows.itertuples())
    return f"<table><tr>{head}</tr>{body}</table>"


def _row(row: Any) -> str:
    scope = "" if row.scope == "all" else f", {row.scope}"
    change, _, low, high = (escape(each.strip()) for each in measures(row))
    cells = (
        escape(f"{with_unit(row)}{scope}"),
        number(row.base),
        number(row.patch),
        f"<b>{change}</b>" if row.verdict in BELIEVED else change,
        f"{low} to {high}",
        _bar(row.patch - row.base, row.change_low, row.change_high, f"from {low} to {high}"),
        _ARROWS.get(row.verdict, "" if row.verdict == SAME else escape(row.verdict)),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _bar(change: float, low: float, high: float, words: str) -> str:
    """The range about zero, a tick at zero, a dot at the change; on the row's own scale."""
    reach = max(abs(change), abs(low), abs(high))
    if not reach < float("inf") or not reach:
        return ""

    def at(value: float) -> float:
        return round(_WIDTH / 2 * (1 + 0.95 * value / reach), 1)

    begin, end, middle = at(low), at(high), _HEIGHT / 2
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{words}">'
        f'<rect x="{begin}" y="3" width="{max(end - begin, 1.0):.1f}" height="6" fill="#767676"/>'
        f'<line x1="{_WIDTH / 2}" x2="{_WIDTH / 2}" y1="0" y2="{_HEIGHT}" stroke="currentColor"/>'
        f'<circle cx="{at(change)}" cy="{middle}" r="3.5" fill="currentColor"/></svg>'
    )


_ROWS = """
function button(words, title, act) {
  const made = document.createElement("button");
  made.className = "jupyter-button lm-Widget";
  made.textContent = words;
  made.title = title;
  made.addEventListener("click", act);
  return made;
}
function render({ model, el }) {
  const draw = () => {
    const rows = model.get("rows").map(({ name, value }) => {
      const row = document.createElement("div");
      row.className = "pagealloc-changed";
      const words = document.createElement("span");
      words.textContent = `${name} = ${value}`;
      row.append(words, button("as recorded", `give ${name} back`,
          () => model.send({ give_back: name })));
      row.lastChild.setAttribute("aria-label", `give back ${name}`);
      return row;
    });
    const head = document.createElement("div");
    head.className = "pagealloc-changed";
    const words = document.createElement("b");
    words.textContent = rows.length ? "changed" : "all as recorded";
    const undo = button("undo", "take the last change back", () => model.send({ undo: true }));
    undo.disabled = !model.get("undoable");
    head.append(words, undo);
    el.replaceChildren(head, ...rows);
  };
  draw();
  model.on("change:rows", draw);
  model.on("change:undoable", draw);
  return () => { model.off("change:rows", draw); model.off("change:undoable", draw); };
}
export default { render };
"""
_CHANGED_FIELDS_STYLE = """
.pagealloc-changed { display: flex; gap: 8px; align-items: center; line-height: 1.6; }
.pagealloc-changed > :first-child { flex: 1 1 auto; }
.pagealloc-changed .jupyter-button { width: auto; height: 24px; line-height: 24px; }
"""


class ChangedFields(anywidget.AnyWidget):
    """A line for each field that is not as recorded, and a button that takes the last change back.

    Steps of one field right after each other, such as those of a slider under a key, are one
    change.

    Args:
        controls: whose policy is shown and changed.

    Attributes:
        rows: name and value of each changed field.
        undoable: whether there is something to take back.
    """

    _esm = _ROWS
    _css = _CHANGED_FIELDS_STYLE
    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    undoable = traitlets.Bool(False).tag(sync=True)

    def __init__(self, controls: PolicyControls) -> None:
        self._controls = controls
        self._policy = controls.policy
        self._earlier: list[Policy] = []
        self._last_moved: list[str] = []
        super().__init__(rows=_rows(controls.policy))
        controls.on_change(self._follow)
        self.on_msg(lambda _, told, __: self._obey(told))

    def undo(self) -> None:
        """Take the last change back."""
        if not self._earlier:
            return
        self._policy, self._last_moved = self._earlier.pop(), []
        self._controls.take(self._policy)

    def _obey(self, told: Mapping[str, Any]) -> None:
        if told.get("undo"):
            self.undo()
        elif told.get("give_back") in self._controls.as_recorded:
            self._controls.as_recorded[told["give_back"]].value = True

    def _follow(self, policy: Policy) -> None:
        moved = changed_settings(self._policy, policy)
        if moved and not (len(moved) == 1 and moved == self._last_moved):
            self._earlier.append(self._policy)
        self._last_moved = moved or self._last_moved
        self._policy = policy
        self.rows, self.undoable = _rows(policy), bool(self._earlier)


def _rows(policy: Policy) -> list[dict[str, str]]:
    return [{"name": name, "value": _words(value)} for name, value in policy.given().items()]


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


_COLUMNS_STYLE = """
.pagealloc-explorer { container-type: inline-size; overflow: visible; }
.pagealloc-explorer, .pagealloc-explorer * {
  overflow-wrap: normal; word-break: normal; hyphens: none; }
.pagealloc-columns { height: 84vh; min-height: 480px; overflow: hidden; gap: 12px; }
.pagealloc-side { flex: 0 0 340px; height: 100%; overflow-x: hidden; overflow-y: auto;
  border-right: 1px solid #767676; padding-right: 6px; }
.pagealloc-side > * { flex: 0 0 auto; }
.pagealloc-side .widget-label { text-align: left; flex: 0 0 auto; height: 22px; line-height: 22px;
  overflow: visible; }
.pagealloc-side .slider-container { flex: 1 1 40px; min-width: 0; }
.pagealloc-side .widget-html, .pagealloc-side .widget-html-content { line-height: 1.2;
  min-height: 0; }
.pagealloc-side .widget-checkbox { height: 24px; }
.pagealloc-side .widget-text .widget-label { flex: 0 0 36px; }
.pagealloc-side .widget-readout { min-width: 64px; }
.pagealloc-main { flex: 1 1 0; min-width: 0; height: 100%; overflow: hidden; }
.pagealloc-main > * { flex: 0 0 auto; }
.pagealloc-main > .pagealloc-figures { flex: 1 1 0; overflow-x: hidden; overflow-y: auto; }
.pagealloc-figures > * { flex: 0 0 auto; }
@container (max-width: 900px) {
  .pagealloc-columns { flex-direction: column; height: 92vh; }
  .pagealloc-side { flex: 0 0 34%; width: auto; height: auto;
    border-right: none; border-bottom: 1px solid #767676; }
  .pagealloc-main { display: block; width: 100%; height: auto; overflow-y: auto; }
  .pagealloc-main > .pagealloc-figures { overflow-x: auto; overflow-y: visible; }
  .pagealloc-figures .js-plotly-plot { min-width: 600px; }
  .pagealloc-difference { max-height: none; }
}
"""
_FOLDED = """
function render({ model, el }) {
  const draw = () => {
    const open = [...el.querySelectorAll("details")].map(each => each.open);
    el.innerHTML = model.get("value");
    el.querySelectorAll("details").forEach((each, at) => { each.open = open[at] ?? each.open; });
  };
  draw();
  model.on("change:value", draw);
  return () => model.off("change:value", draw);
}
export default { render };
"""


class FoldedHTML(anywidget.AnyWidget):
    """HTML that is replaced in place; parts that the user opened stay open.

    Attributes:
        value: the HTML; what is not ours in it is escaped.
    """

    _esm = _FOLDED
    value = traitlets.Unicode("").tag(sync=True)


class _Style(anywidget.AnyWidget):
    """Invisible; brings the page's style."""

    _esm = "export default { render({ el }) { el.style.display = 'none'; } };"
    _css = _COLUMNS_STYLE


def columns(
    side: Sequence[ipywidgets.Widget],
    above: Sequence[ipywidgets.Widget],
    figures: Sequence[ipywidgets.Widget],
) -> list[ipywidgets.Widget]:
    """Two columns where there is room, one where there is not.

    Args:
        side: what is operated.
        above: what stays in view above the figures.
        figures: what is scrolled.
    """
    scrolled = _named(ipywidgets.VBox(list(figures)), "pagealloc-figures")
    left = _named(ipywidgets.VBox(list(side)), "pagealloc-side")
    right = _named(ipywidgets.VBox([*above, scrolled]), "pagealloc-main")
    return [_Style(), _named(ipywidgets.HBox([left, right]), "pagealloc-columns")]


def _named(box: ipywidgets.Box, name: str) -> ipywidgets.Box:
    box.add_class(name)
    return box


STATE = "state"
"""Name of the state in a page's address."""

_BUTTONS = """
function render({ model, el }) {
  el.style.display = "flex"; el.style.flexWrap = "wrap"; el.style.gap = "4px";
  const add = (words, title, act) => {
    const made = document.createElement("button");
    made.className = "jupyter-button lm-Widget";
    made.textContent = words; made.title = title; made.style.width = "auto";
    made.addEventListener("click", async () => {
      const told = await act();
      if (!told) return;
      made.textContent = told;
      setTimeout(() => { made.textContent = words; }, 1500);
    });
    el.append(made);
  };
  const copy = async text => { await navigator.clipboard.writeText(text); return "copied"; };
  add("Copy as Python", "code that asks for what is shown", () => copy(model.get("python")));
  add("Save state", "a file that restores what is shown", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([model.get("state")], { type: "application/json" }));
    link.download = `${model.get("name")}.explored.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  const file = document.createElement("input");
  file.type = "file"; file.accept = ".json"; file.hidden = true;
  file.setAttribute("aria-label", "a saved state");
  file.addEventListener("change", async () => {
    model.send({ restore: await file.files[0].text() });
    file.value = "";
  });
  el.append(file);
  add("Open state", "restore what was saved", () => { file.click(); });
  if (model.get("served")) add("Copy link", "an address that restores what is shown", () => {
    const here = new URL(location.href);
    here.searchParams.set("STATE", model.get("state"));
    here.searchParams.delete("token");
    return copy(here.href);
  });
}
export default { render };
""".replace("STATE", STATE)


class StateButtons(anywidget.AnyWidget):
    """Copy as Python, save and open a state, and on a served page copy a link to it.

    A link has no token: who follows it needs that of the server.

    Attributes:
        name: of the recording, for the file.
        python: code that asks for what is shown.
        state: what is shown, as text.
        served: whether the page's address can carry a state.
    """

    _esm = _BUTTONS
    name = traitlets.Unicode("").tag(sync=True)
    python = traitlets.Unicode("").tag(sync=True)
    state = traitlets.Unicode("").tag(sync=True)
    served = traitlets.Bool(False).tag(sync=True)
