"""Colours of figures on a dark page: JupyterLab's dark theme, or a served page that has one."""

from __future__ import annotations

import json

from pagealloc_model.show.figures.palette import GRID, INK, MODEBAR, ORDER_COLOURS

GROUND = "#111111"
"""Of JupyterLab's dark theme."""
_ORDERS_ON_DARK = (
    "#FEE838",
    "#F2DD44",
    "#E7D24F",
    "#DBC759",
    "#CFBD61",
    "#C3B369",
    "#B7AA6E",
    "#ABA072",
    "#9F9775",
    "#948E76",
    "#8A8678",
    "#7F7D76",
    "#757574",
    "#6E7175",
)
"""The light half of the scale (cividis) whose dark half is that of orders on white; order 0 stands
out most on either ground."""
ON_DARK: dict[str, str] = {
    "white": GROUND,
    MODEBAR["bgcolor"]: "rgba(17,17,17,0.85)",
    INK: "#E6E6E6",
    GRID: "#3D3D3D",
    "#D55E00": "#F08030",
    "#0072B2": "#4DA6E0",
    "#009E73": "#35C89A",
    "#A0487E": "#D98ABB",
    "#8A6D00": "#C9A227",
    "#595959": "#A6A6A6",
    "#B00020": "#FF6B7F",
    "#3E83A8": "#6FB7DC",
    "#5B8C5A": "#8FC48E",
    **dict(zip(ORDER_COLOURS, _ORDERS_ON_DARK, strict=True)),
}
"""Colours of the palette, and what they are on a dark ground; hues stay."""

IN_THEME = """
const ON_DARK = PAIRS_OF_COLOURS;
// values, and scales of maps, which stay as they are with the marks on them
const NO_COLOURS = new Set(["x", "y", "z", "customdata", "text", "ticktext", "colorscale"]);
const OF_A_MAP = /^(map|marks)\\//;
let is_printed = false;

function recoloured(value) {
  if (typeof value === "string") return ON_DARK[value] ?? value;
  if (Array.isArray(value)) return value.map(recoloured);
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(Object.entries(value).map(
      ([name, each]) => [name, NO_COLOURS.has(name) ? each : recoloured(each)]));
}

// a figure in the colours of the page's theme; paper is white
function inTheme({ data, layout }) {
  if (is_printed || document.body.dataset.jpThemeLight !== "false") return { data, layout };
  const traces = data.map(each => OF_A_MAP.test(each.meta) ? each : recoloured(each));
  return { data: traces, layout: recoloured(layout) };
}

// calls back when the theme changes, and before and after the page is printed
function onTheme(redraw) {
  const theme = new MutationObserver(redraw);
  theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  const before = () => { is_printed = true; redraw(); };
  const after = () => { is_printed = false; redraw(); };
  window.addEventListener("beforeprint", before);
  window.addEventListener("afterprint", after);
  return () => {
    theme.disconnect();
    window.removeEventListener("beforeprint", before);
    window.removeEventListener("afterprint", after);
  };
}
""".replace("PAIRS_OF_COLOURS", json.dumps(ON_DARK))
"""`inTheme` and `onTheme`, for pictures."""
