"""Draw README's pictures anew: explorer, highatomic study, lock study, a post in a terminal.

Usage: python docs/site/screenshots.py [NAME ...]     (make screenshots)

Widgets are drawn by JupyterLab in Chromium, the post is the command's text in a fixed-width font.
The words that a picture shows are kept beside it: a test fails where they are no longer shown.
"""

from __future__ import annotations

import argparse
import base64
import html
import io
import json
import shutil
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from ipywidgets import Widget
from pagealloc_model.notebooks.studies.others import widgets as studies
from playwright.sync_api import Browser, Page, expect, sync_playwright

import pagealloc_model as pm
from pagealloc_model.cli import main as command
from pagealloc_model.show import figures

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from slider import PLOTS, PROJECT, write_notebook

from tests.browser.jupyter_lab import REDRAW_MS, run_all, running_lab

IMAGES = PROJECT / "docs" / "images"
WORDS = IMAGES / "words.json"
WIDTH, HEIGHT = 1200, 1320
QUALITY = 0.75
SETTLED_MS = 3000

IMPORTS = (
    "import pagealloc_model as pm\n"
    "from pagealloc_model.notebooks.studies.others import widgets as studies\n"
)
WIDGETS = {
    "explore": "pm.explore('kbuild', candidate=pm.Policy(pcp_batch=1, pcp_high_max=2000))",
    "highatomic": "studies.highatomic('highatomic_stock', 'highatomic_gate3')",
    "locks": "studies.pcp_batching('xfree')",
}
POST = ("post", "xfree", "--base", "pcp_free_batched=0", "--patch", "pcp_free_batched=1")
POST_LINES = 46
FIRST_WIDTH = 1000
POST_PAGE = """
<pre style="margin: 0; padding: 14px; display: inline-block; background: #101418; color: #E6E6E6;
  font: 14px/1.3 'DejaVu Sans Mono', monospace">$ pagealloc WORDS
TEXT</pre>
"""

# the picture of an address, cut to its first lines, as WebP
AS_WEBP = """
async ([address, height, quality]) => {
  const picture = new Image();
  picture.src = address;
  await picture.decode();
  const canvas = document.createElement('canvas');
  canvas.width = picture.width;
  canvas.height = Math.min(picture.height, height);
  canvas.getContext('2d').drawImage(picture, 0, 0);
  return canvas.toDataURL('image/webp', quality);
}
"""


def words_shown(name: str) -> list[str]:
    """The words of a picture: the names of a widget's controls, or the lines of the post."""
    if name == "post":
        with io.StringIO() as text, redirect_stdout(text):
            command(list(POST))
            return text.getvalue().splitlines()[:POST_LINES]

    def names(widget: Widget) -> list[str]:
        below = [word for child in getattr(widget, "children", ()) for word in names(child)]
        return [*filter(None, [getattr(widget, "description", "")]), *below]

    return names(eval(WIDGETS[name], {"pm": pm, "studies": studies}))


def widgets(browser: Browser, names: list[str]) -> None:
    """Draw widgets in JupyterLab and keep their upper parts."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        root = home / "root"
        root.mkdir()
        with running_lab(home, root) as lab:
            for name in names:
                write_notebook(root / f"{name}.ipynb", IMPORTS + WIDGETS[name])
                page = browser.new_page(viewport={"width": WIDTH + 360, "height": 2600})
                run_all(page, lab, f"{name}.ipynb")
                page.locator(f"{PLOTS} .main-svg").last.wait_for()
                expect(page.locator("[role=status]")).to_contain_text("shown:", timeout=REDRAW_MS)
                page.wait_for_timeout(SETTLED_MS)
                widget = page.locator(".jp-OutputArea-output .jupyter-widgets").first
                keep(page, widget.screenshot(), name)
                page.close()


def post(browser: Browser) -> None:
    """The beginning of a post, as a terminal shows it."""
    page = browser.new_page()
    content = POST_PAGE.replace("WORDS", " ".join(POST))
    page.set_content(content.replace("TEXT", html.escape("\n".join(words_shown("post")))))
    keep(page, page.locator("pre").screenshot(), "post")
    page.close()


def first(browser: Browser) -> None:
    """The picture at the top of the first notebook, for who has not run it."""
    validation = pm.validate(pm.open("kbuild"))
    figure = figures.at_a_glance(validation.measured, validation.replay)
    page = browser.new_page(viewport={"width": FIRST_WIDTH + 20, "height": 900})
    page.set_content(figure.update_layout(width=FIRST_WIDTH).to_html(include_plotlyjs=True))
    page.wait_for_timeout(SETTLED_MS)
    keep(page, page.locator(".svg-container").screenshot(), "first_picture", PROJECT / "notebooks")
    page.close()


def keep(page: Page, png: bytes, name: str, folder: Path = IMAGES) -> None:
    """Write a picture as WebP, a fraction of its size as PNG."""
    address = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    found = page.evaluate(AS_WEBP, [address, HEIGHT, QUALITY])
    IMAGES.mkdir(exist_ok=True)
    (folder / f"{name}.webp").write_bytes(base64.b64decode(found.partition(",")[2]))


def main() -> None:
    """Draw all pictures, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help=f"of {', '.join(WIDGETS)}, post, first; all if none"
    )
    names = parser.parse_args().names or [*WIDGETS, "post", "first"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        if "post" in names:
            post(browser)
        if "first" in names:
            first(browser)
        widgets(browser, [name for name in names if name in WIDGETS])
        browser.close()
    kept = json.loads(WORDS.read_text()) if WORDS.exists() else {}
    kept |= {name: words_shown(name) for name in names if name != "first"}
    WORDS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
