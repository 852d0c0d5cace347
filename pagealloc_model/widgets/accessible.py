"""What notebooks' own widgets lack: names that a screen reader can say, and a way to copy text."""

from __future__ import annotations

import anywidget
import traitlets

_NAME_HANDLES = """
function render({ model, el }) {
  el.style.display = "none";
  const name = () => {
    for (const label of document.querySelectorAll(".widget-label")) {
      const words = label.textContent.trim();
      const row = label.parentElement;
      if (!words || !row) continue;
      for (const part of row.querySelectorAll(
          ".noUi-handle, .widget-readout, select, input[type=number]"))
        if (part.getAttribute("aria-label") !== words) part.setAttribute("aria-label", words);
    }
  };
  name();
  const watcher = new MutationObserver(name);
  watcher.observe(document.body, { childList: true, subtree: true });
  return () => watcher.disconnect();
}
export default { render };
"""

_COPY = """
function render({ model, el }) {
  const button = document.createElement("button");
  button.className = "jupyter-button lm-Widget";
  button.textContent = model.get("description");
  button.title = "copy the text beside this button";
  button.style.width = "auto";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(model.get("text"));
    button.textContent = "copied";
    setTimeout(() => { button.textContent = model.get("description"); }, 1500);
  });
  el.appendChild(button);
}
export default { render };
"""


class SpokenNames(anywidget.AnyWidget):
    """Invisible; gives every slider handle and number of the page the words of its label."""

    _esm = _NAME_HANDLES


class CopyButton(anywidget.AnyWidget):
    """A button that puts its text on the clipboard.

    Attributes:
        description: the button's words.
        text: what is copied.
    """

    _esm = _COPY
    description = traitlets.Unicode("Copy").tag(sync=True)
    text = traitlets.Unicode("").tag(sync=True)
