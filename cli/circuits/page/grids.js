/* grids.js - shows effects as grids with tokens as headings; a click on a head shows its map in both runs. */
const tokens = data.case.clean;
const patched = Boolean(data.grids[0].direction); /* a knockout has no corrupted run */
const hasTokens = (axis) => axis === 'position' || axis === 'key';

const showPrompts = () => {
  const body = document.querySelector('#prompts tbody');
  if (!patched) $('prompts').caption.textContent = 'Tokens of the prompt';
  [['clean', data.case.clean], ['corrupted', data.case.corrupted]].slice(0, patched ? 2 : 1).forEach(([name, list]) => {
    const row = element('tr');
    row.append(element('th', name));
    list.forEach((token, t) => row.append(element('td', token, data.case.clean[t] !== data.case.corrupted[t] ? 'differs' : '')));
    body.append(row);
  });
};

const mapTable = (name, map) => {
  const table = element('table', null, 'map');
  table.append(element('caption', name));
  map.forEach((row, i) => {
    const line = element('tr');
    line.append(element('th', tokens[i]));
    row.forEach((weight, j) => {
      const cell = element('td');
      cell.style.background = `rgba(194,65,12,${Math.sqrt(weight)})`;
      cell.title = `${tokens[i]} → ${tokens[j]}: ${number(weight)}`;
      line.append(cell);
    });
    table.append(line);
  });
  return table;
};

const showHeads = (layer, heads) => {
  $('detail').hidden = false;
  $('detail-title').textContent = `Attention of head ${heads.map((head) => `${layer}.${head}`).join(', ')}`;
  $('detail-maps').replaceChildren();
  if (!data.maps) $('detail-maps').append(element('p', 'The maps of this model are too large for the page.', 'hint'));
  else heads.forEach((head) => ['clean', 'corrupted'].slice(0, patched ? 2 : 1).forEach((run) => {
    const map = data.maps[run][layer] && data.maps[run][layer][head];
    if (map) $('detail-maps').append(mapTable(heads.length > 1 ? `${run}, ${layer}.${head}` : run, map));
  }));
};

/* Returns the name of a sender (axis 0) or receiver (axis 1), which are numbered layer * heads + head. */
const indexName = (grid, axis, n) => (grid.heads && axis < 2 ? `${Math.floor(n / grid.heads[axis])}.${n % grid.heads[axis]}` : String(n));

/* Returns the rows of a grid: [name, layer, head or -1, values]. */
const rowsOf = (grid, values) => {
  if (grid.axes.length === 1) return [['', 0, -1, values]];
  if (grid.axes.length === 2) return values.map((row, n) => [indexName(grid, 0, n), n, -1, row]);
  return values.flatMap((heads, layer) => heads.map((row, head) => [`${layer}.${head}`, layer, head, row]));
};

/* Adds a cell; it is empty if the layer does not have the head. */
const addCell = (line, grid, row, column, value, share) => {
  if (!isNumber(value)) {
    line.append(element('td'));
    return;
  }
  const [name, layer, head] = row;
  const last = grid.axes[grid.axes.length - 1];
  const cell = element('td');
  const button = element('button', (value > 0 ? '+' : '') + value.toFixed(2).replace('-', '−'));
  const place = hasTokens(last) ? `${column} ${tokens[column]}` : indexName(grid, grid.axes.length - 1, column);
  button.type = 'button';
  button.style.background = signedColor(share, 1);
  button.title = `${grid.axes.slice(0, -1).join('.')} ${name}, ${last} ${place}: ${number(value)}`;
  button.addEventListener('click', () => {
    document.querySelectorAll('.chosen').forEach((other) => other.classList.remove('chosen'));
    button.classList.add('chosen');
    const chosen = head >= 0 ? head : last === 'head' ? column : -1;
    if (chosen >= 0) showHeads(layer, grid.readers[layer][chosen]);
  });
  cell.append(button);
  line.append(cell);
};

const showGrid = (grid) => {
  const values = grid.normalised || grid.raw;
  const rows = rowsOf(grid, values).filter((row) => row[3].some(isNumber));
  const base = grid.direction === 'denoise' ? data.metrics.corrupted : data.metrics.clean;
  const zero = grid.normalised ? (grid.direction === 'denoise' ? 0 : 1) : base;
  const flat = rows.flatMap((row) => row[3]).filter(isNumber);
  const most = flat.reduce((largest, value) => Math.max(largest, Math.abs(value - zero)), grid.normalised ? 1 : 0) || 1;
  const section = element('section', null, 'grid');
  const table = element('table');
  const head = element('tr');
  const last = grid.axes[grid.axes.length - 1];
  section.append(element('h2', `${grid.site} by ${grid.by}${grid.sender ? ' from ' + grid.sender : ''}${grid.direction ? ', ' + grid.direction : ''}: ${grid.metric}${grid.normalised ? '' : ' in nats'}${grid.exact ? '' : ' (estimate)'}`));
  head.append(element('th', grid.axes.slice(0, -1).join('.')));
  rows[0][3].forEach((_, column) => head.append(element('th', hasTokens(last) ? tokens[column] : indexName(grid, grid.axes.length - 1, column))));
  table.append(head);
  rows.forEach((row) => {
    const line = element('tr');
    line.append(element('th', row[0]));
    row[3].forEach((value, column) => addCell(line, grid, row, column, value, (value - zero) / most));
    table.append(line);
  });
  section.append(table);
  $('grids').append(section);
};

const summarize = () => {
  const { answer, wrong, position } = data.case, { clean, corrupted } = data.metrics;
  const against = wrong === null ? '' : ` against "${wrong}"`, other = patched ? `, corrupted ${number(corrupted)}` : '';
  return `${data.model}: "${answer}"${against} after token ${position}; ${data.grids[0].metric}: clean ${number(clean)}${other}; `
    + `${data.pairs} pair${data.pairs === 1 ? '' : 's'}; mha ${data.mha} ${data.command}.`;
};

/* How to read the grids. */
const explain = () => {
  const unit = data.grids[0].normalised ? 'Normalized values: 1 is as in the clean run, 0 as in the corrupted run.' : 'Values are in nats.';
  const click = data.grids.some((grid) => grid.edges) ? 'Point at a node or an edge of the list to see its paths.'
    : `Click a head to see its attention${patched ? ' in both runs' : ''}.`;
  return `${unit} Orange is an increase, blue a decrease. ${click}`;
};

$('summary').textContent = summarize();
$('legend').textContent = explain();
showPrompts();
data.grids.forEach((grid) => (grid.edges ? showGraph(grid) : showGrid(grid)));
makeTheme(() => {});
addEventListener('keydown', (event) => {
  if (event.key === 't' && !event.ctrlKey && !event.metaKey && !event.altKey) turnTheme();
});
document.body.dataset.ready = 'yes';
