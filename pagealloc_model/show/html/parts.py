"""The parts that results in a notebook are made of; all text is escaped here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from pagealloc_model.base.table import PLAIN, Markup, class_of

STYLE = """
.pagealloc { --pa-good: #00538a; --pa-bad: #a33c00; --pa-dim: #666666; --pa-line: #d0d0d0;
  color: var(--jp-ui-font-color1, #222222); font: 13px/1.4 "DejaVu Sans", Arial, sans-serif;
  max-width: 1080px; }
[data-jp-theme-light="false"] .pagealloc { --pa-good: #6fc3f5; --pa-bad: #ffab70;
  --pa-dim: #b0b0b0; --pa-line: #555555; }
.pagealloc p { margin: 0 0 6px; }
.pagealloc .pa-scroll { overflow-x: auto; max-height: 300px; overflow-y: auto; }
.pagealloc table { border-collapse: collapse; border: none; margin: 0; font-size: 12px;
  table-layout: auto; color: inherit; }
.pagealloc thead th { position: sticky; top: 0; background: var(--jp-layout-color0, white);
  border-bottom: 1px solid var(--pa-dim); vertical-align: bottom; z-index: 1; }
.pagealloc th, .pagealloc td { text-align: right; padding: 1px 5px; white-space: nowrap;
  overflow-wrap: normal; word-break: keep-all; hyphens: none; background: none; }
.pagealloc tbody tr { border-bottom: 1px solid var(--pa-line); background: none; }
.pagealloc th.pa-words, .pagealloc td.pa-words { text-align: left; }
.pagealloc td.pa-long { white-space: normal; text-align: left; min-width: 22em; }
.pagealloc .pa-good { color: var(--pa-good); font-weight: bold; }
.pagealloc .pa-bad { color: var(--pa-bad); font-weight: bold; }
.pagealloc .pa-dim { color: var(--pa-dim); }
.pagealloc th button { all: unset; cursor: pointer; font-weight: bold; }
.pagealloc th button:focus-visible { outline: 2px solid var(--pa-good); }
.pagealloc th[aria-sort="ascending"] button::after { content: " \\25B2"; }
.pagealloc th[aria-sort="descending"] button::after { content: " \\25BC"; }
.pagealloc label.pa-filter { display: block; margin: 2px 0 4px; }
.pagealloc label.pa-filter input { font: inherit; color: inherit; padding: 1px 4px; width: 16em;
  background: var(--jp-layout-color1, white); border: 1px solid var(--pa-dim); }
.pagealloc details { margin: 4px 0; }
.pagealloc summary { cursor: pointer; }
.pagealloc ul { margin: 2px 0 4px; padding-left: 1.6em; }
.pagealloc svg { vertical-align: middle; max-width: none; }
@media print { .pagealloc, .pagealloc * { color: black; }
  .pagealloc .pa-scroll { max-height: none; }
  .pagealloc label.pa-filter { display: none; } }
"""

SCRIPT = """
(() => {
  const root = document.currentScript && document.currentScript.closest('.pagealloc');
  if (!root || root.dataset.live) return;
  root.dataset.live = 'yes';
  const compared = (one, other) => {
    const [a, b] = [one, other].map(cell => cell.dataset.sort ?? cell.textContent);
    if (a === '' || b === '') return (a === '') - (b === '');
    return isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
  };
  for (const table of root.querySelectorAll('table')) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      if (!head.textContent) return;
      const button = document.createElement('button');
      button.type = 'button';
      button.title = 'sort by this column';
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener('click', () => {
        const down = head.getAttribute('aria-sort') === 'ascending';
        heads.forEach(each => each.removeAttribute('aria-sort'));
        head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
        const known = row => (row.cells[column].dataset.sort ?? 'x') !== '';
        const rows = [...body.rows];
        const found = rows.filter(known).sort(
          (a, b) => (down ? -1 : 1) * compared(a.cells[column], b.cells[column]));
        body.append(...found, ...rows.filter(row => !known(row)));
      });
    });
    if (body.rows.length < 8) continue;
    const label = document.createElement('label');
    const field = document.createElement('input');
    label.className = 'pa-filter';
    field.type = 'search';
    const count = document.createElement('span');
    label.append('show rows with ', field, ' ', count);
    field.addEventListener('input', () => {
      const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
      let shown = 0;
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every(word => text.includes(word));
        shown += !row.hidden;
      }
      count.textContent = words.length ? `${shown} of ${body.rows.length} rows` : '';
    });
    (table.closest('.pa-scroll') ?? table).before(label);
  }
})();
"""


def framed(*parts: Markup) -> str:
    """An output that carries its style and script."""
    body = "".join(part.html for part in parts)
    return f'<div class="pagealloc"><style>{STYLE}</style>{body}<script>{SCRIPT}</script></div>'


def line(text: str, *, lead: str = "", kind: str = PLAIN) -> Markup:
    """A paragraph."""
    bold = f"<b>{escape(lead)}</b> " if lead else ""
    return Markup(html=f"<p{class_of(kind)}>{bold}{escape(text)}</p>")


def listed(lines: Iterable[str]) -> Markup:
    """A list with a point for each line."""
    return Markup(html="<ul>" + "".join(f"<li>{escape(each)}</li>" for each in lines) + "</ul>")


def folded(title: str, *parts: Markup) -> Markup:
    """Parts behind a title that opens them."""
    body = "".join(part.html for part in parts)
    return Markup(html=f"<details><summary>{escape(title)}</summary>{body}</details>")
