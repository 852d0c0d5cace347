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
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
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
