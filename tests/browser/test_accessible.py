"""All studies' widgets on one page: what the eye can tell apart, where the keyboard gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Page, expect

from tests.browser.explored_page import KERNEL, WIDGET
from tests.browser.jupyter_lab import REDRAW_MS, RUN_ALL_MS, Lab, problems_of, run_all, settled

pytestmark = [pytest.mark.browser, pytest.mark.long]

WIDGETS = (
    "start_here('highatomic_gate3')",
    "widgets.highatomic('highatomic_gate3')",
    "widgets.pcp_buddy('highatomic_gate3')",
    "widgets.pcp_batching('highatomic_gate3')",
    "widgets.defrag_mode()",
    "pm.explore('highatomic_gate3')",
)
TEXT_RATIO, GRAPHICS_RATIO = 4.5, 3.0
"""WCAG 2 AA, 1.4.3 and 1.4.11."""
FOCUS_WIDTH_PX = 2
PRESSES = 1000

# colours by the page's own computed styles; text in figures stands on the figure's ground
COLOURS = """
window.colours = {
  parse(css) {
    const [r, g, b, a = 1] = css.match(/[\\d.]+/g).map(Number);
    return { r, g, b, a };
  },
  over(top, ground) {
    const mix = part => top[part] * top.a + ground[part] * (1 - top.a);
    return { r: mix('r'), g: mix('g'), b: mix('b'), a: 1 };
  },
  luminance({ r, g, b }) {
    const [x, y, z] = [r, g, b].map(part => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  },
  ground(part) {
    const plot = part.closest && part.closest('.js-plotly-plot');
    if (plot) return colours.parse(plot._fullLayout.paper_bgcolor
        .replace(/^white$|^#fff$/, 'rgb(255, 255, 255)'));
    const own = part === document.documentElement ? null : part.parentElement;
    const background = colours.parse(getComputedStyle(part).backgroundColor);
    if (background.a === 1) return background;
    return colours.over(background, own ? colours.ground(own) : colours.parse('rgb(255,255,255)'));
  },
  ratio(css, opacity, ground) {
    const top = colours.parse(css);
    const seen = colours.over({ ...top, a: top.a * opacity }, ground);
    const [low, high] = [colours.luminance(seen), colours.luminance(ground)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  },
};
"""

# every piece of text that can be seen: its words and its contrast
TEXTS = """
() => {
  const found = [];
  for (const widget of document.querySelectorAll('WIDGET')) {
    const walk = document.createTreeWalker(widget, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      const part = node.parentElement;
      const words = node.textContent.replace(/\\u200b/g, '').trim();
      if (!words || part.closest('style, script, defs, title')) continue;
      if (!part.checkVisibility({ visibilityProperty: true })) continue;
      const style = getComputedStyle(part);
      const drawn = part.namespaceURI.endsWith('svg');
      let opacity = drawn ? Number(style.fillOpacity) : 1;
      for (let at = part; at && at !== widget; at = at.parentElement)
        opacity *= Number(getComputedStyle(at).opacity);
      if (opacity === 0) continue;
      found.push([words.slice(0, 40),
        colours.ratio(drawn ? style.fill : style.color, opacity, colours.ground(part))]);
    }
  }
  return found;
}
""".replace("WIDGET", WIDGET)

# edges of what can be operated, and lines and marks of figures: what it is and its contrast
GRAPHICS = """
() => {
  const found = [];
  const edge = (part, name) => {
    const outer = part.closest('.noUi-target') || part;
    const style = getComputedStyle(part), ground = colours.ground(outer.parentElement);
    const best = Math.max(colours.ratio(style.borderTopColor, parseFloat(style.borderTopWidth) > 0,
        ground), colours.ratio(style.backgroundColor, 1, ground));
    found.push([name, best]);
  };
  for (const part of document.querySelectorAll('WIDGET .noUi-handle'))
    if (part.checkVisibility()) edge(part, 'handle');
  for (const part of document.querySelectorAll('WIDGET .noUi-target'))
    if (part.checkVisibility()) edge(part, 'track');
  for (const part of document.querySelectorAll('WIDGET select'))
    if (part.checkVisibility()) edge(part, 'menu');
  for (const plot of document.querySelectorAll('WIDGET .js-plotly-plot')) {
    if (!plot.checkVisibility()) continue;
    for (const mark of plot.querySelectorAll('.js-line, .points path, .modebar-btn .icon > path')) {
      const style = getComputedStyle(mark), ground = colours.ground(mark);
      const opacity = Number(style.opacity);
      const ratios = [[style.stroke, style.strokeOpacity], [style.fill, style.fillOpacity]]
        .filter(([css]) => css.startsWith('rgb'))
        .map(([css, share]) => colours.ratio(css, Number(share) * opacity, ground));
      if (ratios.length && parseFloat(style.strokeWidth || 0) + ratios.length > 0)
        found.push([mark.parentElement.getAttribute('class') || 'button', Math.max(...ratios)]);
    }
  }
  return found;
}
""".replace("WIDGET", WIDGET)

# what can be operated gets a number; the page then tells which of them has the focus
NUMBERED = """
() => {
  const parts = [...document.querySelectorAll(
      'WIDGET input, WIDGET select, WIDGET button, WIDGET [role=slider]')]
    .filter(part => part.checkVisibility() && !part.disabled);
  parts.forEach((part, number) => { part.dataset.number = number; });
  return parts.map(part => part.getAttribute('aria-label') || part.textContent
      || (part.labels && part.labels[0] && part.labels[0].textContent) || '');
}
""".replace("WIDGET", WIDGET)
FOCUSED = """
() => {
  const part = document.activeElement, style = getComputedStyle(part);
  const number = part.dataset.number, place = part.closest('.noUi-target') || part;
  return number === undefined ? null : { number: Number(number),
    width: style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth),
    ratio: colours.ratio(style.outlineColor, 1, colours.ground(place.parentElement)) };
}
"""


def with_widgets(page: Page, lab: Lab) -> None:
    """Run a notebook with all widgets, and open all that opens."""
    first = (
        "import pagealloc_model as pm\n"
        "from pagealloc_model.notebook.start_here import start_here\n"
        "from pagealloc_model.notebooks.studies.others import widgets"
    )
    cells = [nbformat.v4.new_code_cell(source) for source in (first, *WIDGETS)]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
    nbformat.write(notebook, lab.root / "widgets.ipynb")
    run_all(page, lab, "widgets.ipynb")
    expect(page.locator(f"{WIDGET} [role=status]")).to_have_count(len(WIDGETS))
    plots = page.locator(f"{WIDGET} .js-plotly-plot:has(.main-svg)")
    expect(plots).to_have_count(len(WIDGETS) + 1, timeout=RUN_ALL_MS)
    closed = page.locator(f"{WIDGET} button[aria-expanded=false]")
    for left in range(closed.count(), 0, -1):
        closed.first.click()
        expect(closed).to_have_count(left - 1)
    page.get_by_role("slider", name="pcp_batch (pages)", exact=True).last.focus()
    page.keyboard.press("End")
    expect(page.locator(f"{WIDGET} [role=status]").last).to_contain_text(
        "candidate pcp_batch=", timeout=REDRAW_MS
    )
    page.evaluate(COLOURS)


def too_faint(found: list[list[Any]], least: float) -> set[tuple[str, float]]:
    return {(words, round(ratio, 2)) for words, ratio in found if ratio < least}


def in_the_dark(page: Page) -> None:
    """JupyterLab's dark theme, by its menu."""
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.locator(".lm-Menu-item", has_text="Theme").first.click()
    page.get_by_role("menuitem", name="JupyterLab Dark", exact=True).click()
    expect(page.locator("body")).to_have_attribute(
        "data-jp-theme-light", "false", timeout=REDRAW_MS
    )


def test_all_stands_out_and_the_keyboard_gets_everywhere(
    page: Page, lab: Lab, artefacts: Path
) -> None:
    problems = problems_of(page)
    with_widgets(page, lab)
    stands_out(page)
    page.screenshot(path=artefacts / "widgets_light.png")
    in_the_dark(page)
    stands_out(page)
    page.screenshot(path=artefacts / "widgets_dark.png")
    assert problems == []


def stands_out(page: Page) -> None:
    """Check all colours on show, and press Tab through all that can be operated."""
    for script, least, number in ((TEXTS, TEXT_RATIO, 1000), (GRAPHICS, GRAPHICS_RATIO, 500)):
        found = settled(page, script, lambda each, least=least: not too_faint(each, least))
        assert len(found) > number
        assert too_faint(found, least) == set()
    names = page.evaluate(NUMBERED)
    assert [name for name in names if not name.strip()] == []
    reached, faint = tabbed_through(page, len(names))
    assert [names[number] for number in range(len(names)) if number not in reached] == []
    assert [names[number] for number in faint] == []


def tabbed_through(page: Page, parts: int) -> tuple[set[int], list[int]]:
    """Press Tab from the first part to the last; those reached, those whose focus is not seen."""
    page.locator("[data-number='0']").focus()
    reached, faint = set(), []
    for _ in range(PRESSES):
        held = page.evaluate(FOCUSED)
        if held is not None:
            reached.add(held["number"])
            if held["width"] < FOCUS_WIDTH_PX or held["ratio"] < GRAPHICS_RATIO:
                faint.append(held["number"])
        if len(reached) == parts:
            break
        page.keyboard.press("Tab")
    return reached, faint
