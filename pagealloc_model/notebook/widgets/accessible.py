"""What notebooks' own widgets lack: spoken names, edges that stand out."""

from __future__ import annotations

import anywidget

AS_RECORDED, OPENER = "pagealloc-as-recorded", "pagealloc-opener"
"""Classes: boxes named after the control beside them, and buttons that show and hide."""

_NAME_PARTS = """
function render({ model, el }) {
  el.style.display = "none";
  const set = (part, name, words) => {
    if (part.getAttribute(name) !== words) part.setAttribute(name, words);
  };
  // a box is preceded by a label that holds a space of no width
  const textOf = (label) => label.textContent.replace(/\\u200b/g, "").trim();
  const wordsOf = (part) => [...part.querySelectorAll(".widget-label, .widget-label-basic")]
    .map(textOf).find((words) => words) || "";
  const name = () => {
    for (const label of document.querySelectorAll(".widget-label")) {
      const words = textOf(label);
      const row = label.parentElement;
      if (!words || !row) continue;
      for (const part of row.querySelectorAll(
          ".noUi-handle, .widget-readout, select, input[type=number]"))
        set(part, "aria-label", words);
    }
    for (const box of document.querySelectorAll(".AS_RECORDED")) {
      const words = `as recorded: ${wordsOf(box.parentElement.firstElementChild)}`;
      for (const part of box.querySelectorAll("input")) set(part, "aria-label", words);
    }
    for (const button of document.querySelectorAll(".OPENER"))
      set(button, "aria-expanded", String(button.classList.contains("mod-active")));
  };
  name();
  // a figure that is drawn changes the page thousands of times: names follow when it is done
  let due = 0;
  const watcher = new MutationObserver(() => {
    due ||= setTimeout(() => { due = 0; name(); }, SOON_MS);
  });
  const changes = { childList: true, attributes: true, attributeFilter: ["class"] };
  watcher.observe(document.body, { ...changes, subtree: true });
  return () => { watcher.disconnect(); clearTimeout(due); };
}
export default { render };
"""
for _word, _stands_for in (("AS_RECORDED", AS_RECORDED), ("OPENER", OPENER), ("SOON_MS", "250")):
    _NAME_PARTS = _NAME_PARTS.replace(_word, _stands_for)

_STANDS_OUT = """
/* edges by 3 to 1 from white and from JupyterLab's dark ground alike (WCAG 2, 1.4.11) */
.jupyter-widgets {
  --jp-widgets-input-border-color: EDGE;
  --jp-widgets-slider-track-color: EDGE;
  --jp-widgets-slider-handle-border-color: EDGE;
}
.jupyter-widgets .noUi-target { background: EDGE; border-color: EDGE; }
.jupyter-widgets .noUi-handle { border: 1px solid EDGE; }
.jupyter-widgets select, .jupyter-widgets .widget-readout { border-color: EDGE; }
.jupyter-widgets :focus-visible, .jupyter-widgets .noUi-handle:focus,
.jupyter-widgets .widget-text input[type="text"]:focus-visible {
  outline: 2px solid FOCUS !important;
  outline-offset: 2px;
}
[data-jp-theme-light="false"] { --pagealloc-alert: #FF8A80; --pagealloc-note: #FFCC80; }
""".replace("EDGE", "#767676").replace("FOCUS", "#2F7DE1")


class SpokenNames(anywidget.AnyWidget):
    """Invisible; names what the page's labels are not bound to, and says which groups are open.

    Slider handles, numbers and menus get the words of their label; a box "as recorded" those of the
    control beside it. Edges of controls, and what has the keyboard's focus, stand out.
    """

    _esm = _NAME_PARTS
    _css = _STANDS_OUT
