"""From a slider's key press to the redrawn picture, in a browser.

Usage: python benchmarks/slider.py [RECORDING]

JupyterLab runs `pm.explore` of the recording (one of a million events, where PAGEALLOC_RECORDINGS
has it), Chromium presses keys on its sliders, tab by tab. Time runs in the page: from the key event
to the frame after plotly has drawn the new prediction. It is made up of what it takes until the
kernel is asked, of the replay and the making of the figure there, of the way of the message to the
page, and of the drawing. Replays alone of the same policies, in this process and between the key
presses, stand beside.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import nbformat
import pandas as pd
from playwright.sync_api import Page, expect, sync_playwright

import pagealloc_model as pm
from pagealloc_model.notebook.explore_tabs import TABS
from pagealloc_model.recording.recording import Recording

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.slider_parts import NOTES  # noqa: E402
from benchmarks.waits import default_recording  # noqa: E402
from tests.browser.jupyter_lab import REDRAW_MS, run_all, running_lab  # noqa: E402

PRESSES = (
    ("pcp_batch", "PageDown"),
    ("pcp_batch_scale_max", "ArrowLeft"),
    ("pcp_batch", "PageDown"),
    ("pcp_batch", "ArrowLeft"),
)
"""What is done on every tab, beginning where the tab before ended."""
SETTLED_MS = 400
"""A picture is the last one when so much time went by after it."""

PLOTS = ".jupyter-widgets .js-plotly-plot"

# notes when a key goes down, and the frame after each picture that plotly draws from then on
WATCH = """
selector => {
  const watch = window.sliderWatch ??= { plots: new WeakSet(), pressed: 0, drawn: 0 };
  const frame = () => requestAnimationFrame(
      () => setTimeout(() => { watch.drawn = performance.now(); }));
  watch.look = () => {
    for (const plot of document.querySelectorAll(selector))
      if (plot.on && !watch.plots.has(plot)) {
        watch.plots.add(plot);
        plot.on('plotly_afterplot', frame);
        plot.on('plotly_transitioned', frame);
        if (watch.pressed) frame();
      }
  };
  watch.pressed = watch.drawn = 0;
  watch.look();
  const press = event => { watch.pressed = event.timeStamp; };
  document.addEventListener('keydown', press, { capture: true, once: true });
}
"""
SETTLED = """
wait => {
  const watch = window.sliderWatch;
  watch.look();
  const { pressed, drawn } = watch;
  return pressed && drawn > pressed && performance.now() - drawn > wait;
}
"""
# seconds since 1970 of a key press, of the message that answers it, and of the picture
SEEN = """
() => {
  const { pressed, drawn } = window.sliderWatch;
  const received = performance.getEntriesByName('pagealloc-picture-received')
      .map(mark => mark.startTime).filter(time => time > pressed).at(-1) ?? drawn;
  return [pressed, received, drawn].map(time => (performance.timeOrigin + time) / 1e3);
}
"""
PARTS = {
    "picture": "to the picture, median ms",
    "to_kernel": "to the kernel",
    "replay": "replay",
    "figure": "figure",
    "to_page": "to the page",
    "drawing": "drawing",
    "replay_alone": "replay alone",
}
"""Columns of a key press, in ms, and their words in the table."""
MOVING_TABS = [tab for tab in TABS if tab.name != "outcomes"]
"""What requests get is not known under another policy, so that nothing there moves."""


def pictures(recording: Recording) -> pd.DataFrame:
    """tab, and PARTS, of which the last is the same policy's replay in this process.

    One row per key press.
    """
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder)
        root = home / "root"
        root.mkdir()
        code = (
            "from benchmarks.slider_parts import timed_explore\n"
            f"timed_explore({str(recording.path)!r})"
        )
        write_notebook(root / "slider.ipynb", code)
        with running_lab(home, root) as lab:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": 1500, "height": 2400})
            run_all(page, lab, "slider.ipynb")
            page.locator(f"{PLOTS} .main-svg").first.wait_for()
            rows = list(_presses(page, recording))
            browser.close()
    return pd.DataFrame(rows, columns=["tab", *PARTS])


def write_notebook(path: Path, code: str) -> None:
    """A notebook of one cell."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, path)


def _presses(page: Page, recording: Recording) -> Iterator[tuple[str | float, ...]]:
    for tab in MOVING_TABS:
        page.get_by_role("button", name=tab.label, exact=True).click()
        expect(page.locator(".jupyter-widgets pre").last).to_contain_text(
            f"tab='{tab.name}'", timeout=REDRAW_MS
        )
        page.wait_for_timeout(SETTLED_MS)
        for name, key in PRESSES:
            page.evaluate(WATCH, PLOTS)
            page.get_by_role("slider", name=name).first.focus()
            page.keyboard.press(key)
            page.wait_for_function(
                SETTLED, arg=SETTLED_MS, timeout=REDRAW_MS, polling=SETTLED_MS / 4
            )
            yield tab.label, *_parts(page), _replay_ms(recording, _policy(page))


def _parts(page: Page) -> list[float]:
    """What a key press took in all, and the parts of that, in ms."""
    pressed, received, drawn = page.evaluate(SEEN)
    noted = json.loads(page.locator(f".{NOTES}").inner_text())
    times = [pressed, noted["asked"], noted["replayed"], noted["drawn"], received, drawn]
    between = [later - earlier for earlier, later in pairwise(times)]
    return [1e3 * each for each in (drawn - pressed, *between)]


def _policy(page: Page) -> pm.Policy:
    """What the two sliders stand at."""
    values = {}
    for name in dict(PRESSES):
        handle = page.get_by_role("slider", name=name).first
        values[name] = int(float(handle.get_attribute("aria-valuenow") or 0))
    return pm.Policy(**values)


def _replay_ms(recording: Recording, policy: pm.Policy) -> float:
    begun = time.perf_counter()
    pm.replay(recording, policy)
    return (time.perf_counter() - begun) * 1e3


def redraws(recording: Recording) -> pd.DataFrame:
    """Medians of all and of its parts by tab and over all, and the 95th percentile, in ms."""
    pm.replay(recording)
    timed = pictures(recording)
    parts = [*timed.groupby("tab", sort=False), ("all", timed)]
    return pd.DataFrame(
        {
            "tab": name,
            "key presses": len(rows),
            **{words: round(rows[part].median()) for part, words in PARTS.items()},
            "95th percentile": round(rows["picture"].quantile(0.95)),
        }
        for name, rows in parts
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", nargs="?", help="instead of the one of a million events")
    given = parser.parse_args().recording
    recording = pm.open(given or default_recording())
    print(f"{recording.name}, {len(recording.trace):,} events")
    print(redraws(recording).to_string(index=False))


if __name__ == "__main__":
    main()
