/* page.js - draws maps as tables of colored cells. The pointer and the arrow keys select a cell; its value and note are
 * shown below the map. */

const largest = (map) => (map.scale === 'signed' ? map.values.flat().filter(isNumber).reduce((most, v) => Math.max(most, Math.abs(v)), 0) : 1);

const describe = (map, r, c) => {
  const parts = [`${map.row} ${map.rows[r]}, ${map.column} ${map.columns[c]}`];
  if (map.texts[r][c] !== null) parts.push(`“${map.texts[r][c]}”`);
  if (isNumber(map.values[r][c])) parts.push(number(map.values[r][c]));
  if (map.notes[r][c] !== null) parts.push(map.notes[r][c]);
  return parts.join(': ');
};

/* Formats a value for a cell: fewer digits than below the map, so that columns are narrow. */
const short = (value, most) => {
  if (!isNumber(value)) return '';
  const text = value.toFixed(most >= 2 ? 2 : 3);
  return Number(text) === 0 ? text.replace('-', '') : text.replace('-', '−');
};

const makeCell = (map, r, c, most) => {
  const value = map.values[r][c], text = map.texts[r][c];
  const td = element('td', text !== null ? text : short(value, most));
  td.style.background = signedColor(value, most);
  td.tabIndex = r === 0 && c === 0 ? 0 : -1;
  td.setAttribute('aria-label', describe(map, r, c));
  return td;
};

/* Moves the focus to a cell; only the focused cell can be reached with Tab. */
const select = (cells, r, c) => {
  cells.flat().forEach((td) => { td.tabIndex = -1; });
  cells[r][c].tabIndex = 0;
  cells[r][c].focus();
};

const makeTable = (map, read) => {
  const table = element('table', null, 'map'), head = element('thead'), body = element('tbody'), most = largest(map);
  const top = element('tr');
  top.append(element('th', `${map.row} \\ ${map.column}`), ...map.columns.map((name) => element('th', name)));
  head.append(top);
  const cells = map.rows.map((_, r) => map.columns.map((__, c) => makeCell(map, r, c, most)));
  cells.forEach((line, r) => {
    const tr = element('tr');
    tr.append(element('th', map.rows[r]), ...line);
    body.append(tr);
    line.forEach((td, c) => {
      const show = () => { read.textContent = describe(map, r, c); };
      td.addEventListener('pointerenter', show);
      td.addEventListener('focus', show);
      td.addEventListener('keydown', (event) => {
        const by = arrowStep(event);
        if (!by) return;
        event.preventDefault();
        select(cells, clamp(r + by[0], 0, cells.length - 1), clamp(c + by[1], 0, line.length - 1));
      });
    });
  });
  table.append(head, body);
  return table;
};

const makeMap = (map, n) => {
  const section = element('section'), title = element('h2', map.title), scroll = element('div', null, 'scroll'), read = element('output', '', 'read');
  title.id = `map-${n}`;
  section.setAttribute('aria-labelledby', title.id);
  scroll.append(makeTable(map, read));
  section.append(title, element('p', map.hint, 'hint'), scroll, read);
  return section;
};

const start = () => {
  document.title = $('title').textContent = data.title;
  $('summary').append(...[`${data.model}; mha ${data.mha}. Point at a cell to see its numbers below the map.`, ...data.lines].map((line) => element('p', line)));
  $('maps').append(...data.maps.map(makeMap));
  makeTheme(() => {});
  document.addEventListener('keydown', (event) => {
    if (event.key === 't' && !event.ctrlKey && !event.metaKey && !event.altKey) turnTheme();
  });
  document.body.dataset.ready = 'yes';
};

start();
