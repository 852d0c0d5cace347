"""Parts of the explorer: controls by group, what changed, columns, buttons that keep its state."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import ipywidgets
import traitlets

from pagealloc_model.notebook.controls import OPENER, PolicyControls
from pagealloc_model.notebook.view import changed_settings
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.policy.policy_fields import Setting

OPEN_AT_FIRST = "per-CPU lists"


class GroupedControls(PolicyControls):
    """A control per setting, with its kernel name, in groups that open, close and are found."""

    def __init__(self, recorded: Mapping[str, Setting], start: Mapping[str, Setting]) -> None:
        settings = policy_settings()
        super().__init__(list(settings), recorded=recorded, start=start)
        self.rows = dict(zip(settings, self.children, strict=True))
        self.openers: dict[str, ipywidgets.ToggleButton] = {}
        self._boxes: dict[str, ipywidgets.VBox] = {}
        self._words: dict[str, str] = {}
        self.search = ipywidgets.Text(
            placeholder="find a field: name, kernel name, meaning",
            description="find",
            tooltip="shows the fields whose name, kernel name, topic or meaning has these words",
            style={"description_width": "36px"},
            layout=ipywidgets.Layout(width="97%"),
        )
        groups: dict[str, list[str]] = {}
        for name, field in settings.items():
            about = field.metadata
            self._words[name] = " ".join(
                [name, *(about[part] for part in ("kernel_name", "group", "meaning"))]
            ).lower()
            groups.setdefault(about["group"], []).append(name)
            control, box = self.values[name], self.as_recorded[name]
            # the label stands above the control, and "as recorded" beside it
            control.layout.width, control.layout.flex = "auto", "1 1 180px"
            control.layout.height, control.layout.min_width = "auto", "0"
            control.style.description_width = "100%"
            if isinstance(control, ipywidgets.Checkbox):
                control.indent = False
            else:
                control.layout.flex_flow = "row wrap"
            box.layout.width, box.layout.flex = "104px", "0 0 auto"
            words, meaning = (html.escape(about[part]) for part in ("kernel_name", "meaning"))
            kernel_name = ipywidgets.HTML(
                f'<code title="{meaning}" style="font-size:11px">{words}</code>',
                layout=ipywidgets.Layout(flex="1 0 100%", min_width="0", height="auto"),
            )
            self.rows[name].layout.align_items = "flex-end"
            self.rows[name].children = (control, box, kernel_name)
        moved = {settings[name].metadata["group"] for name in start}
        for group, members in groups.items():
            self._boxes[group] = ipywidgets.VBox([self.rows[name] for name in members])
            self.openers[group] = ipywidgets.ToggleButton(
                value=group == OPEN_AT_FIRST or group in moved,
                description=f"{group} ({len(members)})",
                tooltip=f"show or hide the fields of: {group}",
                layout=ipywidgets.Layout(width="97%"),
            )
            self.openers[group].add_class(OPENER)
            self._follow(group)
            self.openers[group].observe(lambda _, group=group: self._follow(group), "value")
        shown = (each for group in groups for each in (self.openers[group], self._boxes[group]))
        self.children = (self.search, *shown)
        self.search.observe(lambda _: self._find(), "value")

    def _follow(self, group: str) -> None:
        """Show a group's fields, or hide them, as its button says."""
        is_open = self.openers[group].value
        self._boxes[group].layout.display = None if is_open else "none"
        self.openers[group].icon = "caret-down" if is_open else "caret-right"

    def _find(self) -> None:
        """Show the fields that have all words; groups without any go, others open."""
        words = self.search.value.lower().split()
        for name, row in self.rows.items():
            is_found = all(word in self._words[name] for word in words)
            row.layout.display = None if is_found else "none"
        for group, box in self._boxes.items():
            is_found = any(row.layout.display is None for row in box.children)
            self.openers[group].layout.display = None if is_found else "none"
            is_open = is_found if words else self.openers[group].value
            box.layout.display = None if is_open else "none"


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
        self.on_msg(lambda _, content, __: self._obey(content))

    def undo(self) -> None:
        """Take the last change back."""
        if self._earlier:
            self._policy, self._last_moved = self._earlier.pop(), []
            self._controls.take(self._policy)

    def _obey(self, content: Mapping[str, Any]) -> None:
        if content.get("undo"):
            self.undo()
        elif content.get("give_back") in self._controls.as_recorded:
            self._controls.as_recorded[content["give_back"]].value = True

    def _follow(self, policy: Policy) -> None:
        moved = changed_settings(self._policy, policy)
        if moved and not (len(moved) == 1 and moved == self._last_moved):
            self._earlier.append(self._policy)
        self._last_moved = moved or self._last_moved
        self._policy = policy
        self.rows, self.undoable = _rows(policy), bool(self._earlier)


def _rows(policy: Policy) -> list[dict[str, str]]:
    words = {name: str(value) for name, value in policy.given().items()}
    switches = {"True": "on", "False": "off"}
    return [{"name": name, "value": switches.get(each, each)} for name, each in words.items()]


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
    """HTML that is replaced in place; parts that the user opened stay open."""

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
    """Two columns where there is room, one where there is not."""
    scrolled, left = ipywidgets.VBox(list(figures)), ipywidgets.VBox(list(side))
    right = ipywidgets.VBox([*above, scrolled])
    both = ipywidgets.HBox([left, right])
    for box, name in ((scrolled, "figures"), (left, "side"), (right, "main"), (both, "columns")):
        box.add_class(f"pagealloc-{name}")
    return [_Style(), both]


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
    """

    _esm = _BUTTONS
    name = traitlets.Unicode("").tag(sync=True)
    python = traitlets.Unicode("").tag(sync=True)
    state = traitlets.Unicode("").tag(sync=True)
    served = traitlets.Bool(False).tag(sync=True)
