/* map_overview.js - shows thumbnails of all maps, in layer order or sorted by a metric, filtered by label, entropy and
 * importance. */
const THUMBNAIL = 64;
const filter = { labels: new Set(), entropy: null, importance: null }; /* empty labels = all labels; ranges as [low, high], null = no limit */
let cells = [];

const cellName = (h) => `layer ${h.layer} head ${h.head}: ` +
  models.map((_, m) => (h.at[m] < 0 ? 'removed' : nameOf('label', labelOf(h, m)))).join(', compared with ');

const makeCell = (h, index) => {
  const cell = element('button', null, 'cell');
  cell.type = 'button';
  cell.setAttribute('aria-label', cellName(h));
  cell.title = cellName(h);
  cell.style.setProperty('--label', LABEL_COLORS[labelOf(h)]);
  cell.tabIndex = -1;
  h.at.forEach((at) => cell.append(element('span', '', at < 0 ? 'picture removed' : 'picture')));
  cell.append(element('span', h.name, 'name'), element('span', labelOf(h), 'label'), element('span', null, 'number'));
  cell.addEventListener('click', () => select(index));
  return cell;
};

/* Unpacks the maps and draws their thumbnails a few at a time, so that the page stays responsive. */
const AT_ONCE = 8;
const paintCell = (h, cell, m, map) => cell.querySelectorAll('.picture')[m].replaceChildren(thumbnail(map, THUMBNAIL));
const cellsOf = (m) => heads.map((h, index) => [h, cells[index]]).filter(([h]) => h.at[m] >= 0);
const paintCells = async () => {
  const own = cells; /* stops when `cells` belongs to another text */
  for (let m = 0; m < models.length; m++) {
    const list = cellsOf(m);
    for (let i = 0; i < list.length && own === cells; i += AT_ONCE)
      await Promise.all(list.slice(i, i + AT_ONCE).map(async ([h, cell]) => {
        const map = await mapOf(m, placeOf(h, m));
        if (own === cells) paintCell(h, cell, m, map);
      }));
  }
};
const paintCellsNow = () => models.forEach((_, m) => cellsOf(m).forEach(([h, cell]) => paintCell(h, cell, m, readyMap(h, m))));

/* ---- order of the cells ---- */

const byLabel = (a, b) => labelOf(heads[a]).localeCompare(labelOf(heads[b])) || a - b;
const byNumber = (name) => (a, b) => { /* the largest value first; heads without a value last */
  const x = valueOf(heads[a], name), y = valueOf(heads[b], name);
  return (isNumber(y) - isNumber(x)) || (isNumber(x) ? y - x : 0) || a - b;
};

const orderedHeads = () => {
  const by = $('sort').value, all = heads.map((_, i) => i);
  if (by === 'layer') return all;
  return all.sort(by === 'label' ? byLabel : byNumber(by));
};

const layerRow = (name, children) => { /* the style sheet shows the name of the layer if rows are wrapped */
  const e = element('div', null, 'layer');
  e.append(element('span', name, 'layer-name'), ...children);
  return e;
};

const layOut = () => {
  const by = $('sort').value, order = orderedHeads(), layered = by === 'layer', grid = $('grid');
  order.forEach((i) => {
    const name = cells[i].querySelector('.label'), figure = cells[i].querySelector('.number');
    name.textContent = layered ? labelOf(heads[i]) : `${heads[i].name} ${labelOf(heads[i])}`;
    figure.textContent = layered || by === 'label' ? '' : shownValue(heads[i], by);
  });
  grid.className = layered ? 'layers' : 'flat';
  if (!layered) {
    grid.replaceChildren(...order.map((i) => cells[i]));
    return;
  }
  const numbers = [...new Set(heads.map((h) => h.head))].sort((a, b) => a - b), layers = Math.max(...heads.map((h) => h.layer)) + 1;
  const place = (layer, head) => heads.findIndex((h) => h.layer === layer && h.head === head);
  grid.replaceChildren(layerRow('', numbers.map((h) => element('span', h, 'head-name'))));
  for (let layer = 0; layer < layers; layer++)
    grid.append(layerRow(layer, numbers.map((head) => cells[place(layer, head)] || element('span', null, 'cell none'))));
};

/* ---- filters ---- */

const passes = (h) => (filter.labels.size === 0 || filter.labels.has(labelOf(h))) &&
  ['entropy', 'importance'].every((name) => {
    const range = filter[name], x = valueOf(h, name);
    return !range || (isNumber(x) && x >= range[0] && x <= range[1]);
  });

const applyFilter = () => {
  let count = 0;
  heads.forEach((h, i) => {
    const pass = passes(h);
    count += pass;
    cells[i].classList.toggle('out', !pass);
  });
  $('shown').textContent = `${count} of ${heads.length} heads`;
  markTabStop();
};

/* Adds two number fields for the range of a metric to `box`; the placeholders are the minimum and maximum over all
 * heads. */
const rangeFilter = (box, name) => {
  const values = heads.map((h) => valueOf(h, name)).filter(isNumber);
  if (values.length === 0) {
    box.hidden = true;
    return;
  }
  const fields = ['at least', 'at most'].map((words) => {
    const field = element('input'), title = element('label', `${words} `);
    field.type = 'number';
    field.step = 'any';
    field.placeholder = fixed(words === 'at least' ? Math.min(...values) : Math.max(...values), kindOf(name)).replace('−', '-');
    title.append(field);
    box.append(title);
    return field;
  });
  const read = (field, none) => (field.value === '' || Number.isNaN(field.valueAsNumber) ? none : field.valueAsNumber);
  box.addEventListener('input', () => {
    const range = [read(fields[0], -Infinity), read(fields[1], Infinity)];
    filter[name] = range.some(Number.isFinite) ? range : null;
    applyFilter();
  });
};

const labelChips = () => {
  const counts = new Map();
  heads.forEach((h) => counts.set(labelOf(h), (counts.get(labelOf(h)) || 0) + 1));
  [...counts].sort((a, b) => b[1] - a[1]).forEach(([label, count]) => {
    const item = element('li'), chip = element('button', `${nameOf('label', label)} ${count}`, 'chip');
    chip.type = 'button';
    chip.title = data.label_help[label];
    chip.dataset.label = label;
    chip.setAttribute('aria-pressed', 'false');
    chip.style.setProperty('--label', LABEL_COLORS[label]);
    chip.addEventListener('click', () => {
      const chosen = !filter.labels.delete(label);
      if (chosen) filter.labels.add(label);
      chip.setAttribute('aria-pressed', String(chosen));
      applyFilter();
    });
    item.append(chip);
    $('labels').append(item);
  });
};

const clearFilters = () => {
  filter.labels.clear();
  filter.entropy = filter.importance = null;
  $('filters').querySelectorAll('input').forEach((field) => { field.value = ''; });
  $('labels').querySelectorAll('button').forEach((chip) => chip.setAttribute('aria-pressed', 'false'));
  applyFilter();
};

/* ---- keyboard navigation ---- */

/* Makes one cell of the grid the tab stop: the selected cell, or the first cell that passes the filter. */
const markTabStop = () => {
  const first = cells[selected.head] && !cells[selected.head].classList.contains('out') ? selected.head
    : orderedHeads().find((i) => !cells[i].classList.contains('out'));
  cells.forEach((cell, i) => {
    cell.tabIndex = i === first ? 0 : -1;
    cell.setAttribute('aria-pressed', String(i === selected.head));
  });
};

/* Returns the index of the nearest visible cell in the direction of an arrow key; -1 if there is none. */
const neighbor = (from, [down, right]) => {
  const center = (cell) => {
    const box = cell.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  const [x, y] = center(cells[from]);
  let best = -1, least = Infinity;
  cells.forEach((cell, i) => {
    if (i === from || cell.classList.contains('out') || !cell.isConnected) return;
    const [u, v] = center(cell), along = (u - x) * right + (v - y) * down, aside = Math.abs((u - x) * down) + Math.abs((v - y) * right);
    if (along > 2 && along + 4 * aside < least) [best, least] = [i, along + 4 * aside];
  });
  return best;
};

const makeOverview = () => {
  filter.labels.clear();
  filter.entropy = filter.importance = null;
  cells = heads.map(makeCell);
  const sort = $('sort');
  sort.append(option('layer', 'layer and head'), option('label', 'label'), ...numberNames().map((name) => option(name, nameOf('metric', name))));
  sort.addEventListener('change', () => { layOut(); applyFilter(); });
  rangeFilter($('entropy-filter'), 'entropy');
  rangeFilter($('importance-filter'), 'importance');
  $('unfilter').addEventListener('click', clearFilters);
  labelChips();
  layOut();
  applyFilter();
  $('grid').addEventListener('keydown', (event) => {
    const step = arrowStep(event), from = cells.indexOf(document.activeElement);
    if (!step || from < 0) return;
    event.preventDefault();
    const next = neighbor(from, step);
    if (next < 0) return;
    select(next);
    cells[next].focus();
  });
  on('head', markTabStop);
};
