function render({ model, el }) {
  el.style.display = "none";
  const set = (part, name, words) => {
    if (part.getAttribute(name) !== words) part.setAttribute(name, words);
  };
  // a box is preceded by a label that holds a space of no width
  const textOf = (label) => label.textContent.replace(/\u200b/g, "").trim();
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
    for (const box of document.querySelectorAll(".pagealloc-as-recorded")) {
      const words = `as recorded: ${wordsOf(box.parentElement.firstElementChild)}`;
      for (const part of box.querySelectorAll("input")) set(part, "aria-label", words);
    }
    for (const button of document.querySelectorAll(".pagealloc-opener"))
      set(button, "aria-expanded", String(button.classList.contains("mod-active")));
  };
  name();
  // a figure that is drawn changes the page thousands of times: names follow when it is done
  let due = 0;
  const watcher = new MutationObserver(() => {
    due ||= setTimeout(() => { due = 0; name(); }, 250);
  });
  const changes = { childList: true, attributes: true, attributeFilter: ["class"] };
  watcher.observe(document.body, { ...changes, subtree: true });
  return () => { watcher.disconnect(); clearTimeout(due); };
}
export default { render };
