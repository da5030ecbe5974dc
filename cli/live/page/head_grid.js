/* head_grid.js - shows the maps of all heads, their switches and their effects. */
let cells = [];

const makeSwitch = (index) => {
  const e = element('button', null, 'switch');
  e.type = 'button';
  e.setAttribute('role', 'switch');
  e.append(element('b', nameOf(index)), element('span', '', 'amount'));
  e.addEventListener('click', () => {
    state.head = index;
    toggle(index);
    update();
  });
  return e;
};

const makeOpen = (index) => {
  const e = element('button', null, 'open'), canvas = element('canvas');
  e.type = 'button';
  canvas.setAttribute('aria-hidden', 'true');
  e.append(canvas);
  e.addEventListener('click', () => { state.head = index; update(); });
  e.addEventListener('dblclick', () => { leaveAlone(index); update(); });
  e.addEventListener('keydown', (event) => moveFocus(event, index));
  return e;
};

const makeCell = (index) => {
  const cell = element('div', null, 'cell'), effect = element('span', null, 'effect');
  effect.append(element('i'));
  effect.setAttribute('aria-hidden', 'true');
  cell.append(makeOpen(index), effect, makeSwitch(index));
  return cell;
};

const moveFocus = (event, index) => {
  const step = arrowStep(event);
  if (!step) return;
  const to = headIndex(layerOf(index) + step[0], headOf(index) + step[1]);
  event.preventDefault();
  if (headOf(index) + step[1] < 0 || headOf(index) + step[1] >= model.info.heads || !headExists(to)) return;
  state.head = to;
  update();
  cells[to].querySelector('.open').focus();
};

const makeGrid = () => {
  cells = [...state.gates.keys()].map((index) => (headExists(index) ? makeCell(index) : null));
  $('grid').replaceChildren(...[...Array(model.info.layers).keys()].map((layer) => {
    const row = element('div', null, 'layer');
    row.append(element('span', String(layer), 'layer-name'), ...layerIndices(layer).map((index) => cells[index]));
    return row;
  }));
};

const describeCell = (cell, index) => {
  const gate = state.gates[index], open = cell.querySelector('.open');
  cell.classList.toggle('off', gate === 0);
  setAttribute(open, 'aria-pressed', String(index === state.head));
  setAttribute(open, 'tabindex', index === state.head ? '0' : '-1');
  setAttribute(open, 'aria-label', `map of layer ${layerOf(index)} head ${numberOf(index)}`);
  setAttribute(cell.querySelector('.switch'), 'aria-checked', String(gate !== 0));
  setText(cell.querySelector('b'), gate === 0 || gate === 1 ? nameOf(index) : `${nameOf(index)} ×${gate.toFixed(2)}`);
};

/* The size of the canvases: most changes of the number of tokens fit in the present size, since a new size costs more than
 * all drawing. The style shows only the corner that contains the map. */
const roomOf = (n) => {
  const { width } = cells.find(Boolean).querySelector('canvas');
  return width >= n && width <= 2 * n + 32 ? width : 32 * Math.ceil(n / 32);
};

const showGrid = ({ tokens, maps }) => {
  const n = tokens.length, room = roomOf(n);
  $('grid').style.setProperty('--zoom', room / n);
  cells.forEach((cell, index) => {
    if (!cell) return;
    describeCell(cell, index);
    drawMap(cell.querySelector('canvas'), maps, index * n * n, n, room);
  });
  const list = gateList(' × ');
  const removed = state.edges.length ? `, ${state.edges.length} edge${state.edges.length > 1 ? 's' : ''} removed` : '';
  setText($('changed'), (list.length === 0 ? 'all heads on' : `${list.length} changed`) + removed);
  $('undo').disabled = past.length === 0;
  $('all-on').disabled = !isChanged();
};

/* An effect in at most six characters, for the width of a cell; its name and title have more digits. */
const brief = (x) => {
  if (!isNumber(x)) return '–';
  const text = x >= 100 ? x.toFixed(0) : x >= 1 ? x.toPrecision(3) : x >= 1e-3 || x === 0 ? x.toFixed(3) : x.toExponential(0);
  return text.replace(/-/g, '−');
};

/* Shows the effects [layers * heads]; null = not known yet. */
const showEffects = (effects) => {
  const most = Math.max(1e-9, ...effects.filter((x) => x >= 0));
  cells.forEach((cell, index) => {
    if (!cell) return;
    const effect = effects[index], change = state.gates[index] !== 0 ? 'if it is off' : 'if it is on again', button = cell.querySelector('.switch');
    setText(cell.querySelector('.amount'), brief(effect));
    setPart(cell, '--part', effect === null ? 0 : clamp(effect / most, 0, 1));
    setAttribute(button, 'aria-label', `layer ${layerOf(index)} head ${numberOf(index)}, effect ${change}: ${number(effect)}`);
    setAttribute(button, 'title', `effect ${change}: ${number(effect)}`);
  });
};
