"""What differs from the recording, on top of all controls: each field, its way back, and undo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from pagealloc_model.notebook.widgets.controls import PolicyControls
from pagealloc_model.notebook.widgets.no_effect import changed_settings
from pagealloc_model.policy.policy import Policy

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
_STYLE = """
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
    _css = _STYLE
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
