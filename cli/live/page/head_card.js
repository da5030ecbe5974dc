/* head_card.js - shows the chosen head: its gate, its map, and the steps of attention for the chosen token. */
const STRONGEST = 8, COMPONENTS = 8;
const pointed = { row: 0, column: 0, shown: false, held: false }; /* the weight below the map; a click holds it */

const rowNumbers = (maps, from, at, n) => {
  const row = maps.subarray(from + at * n, from + (at + 1) * n);
  const entropy = row.reduce((sum, p) => (p > 0 ? sum - p * Math.log2(p) : sum), 0);
  const before = at > 0 ? number(row[at - 1]) : '–';
  return `Token ${at}: entropy ${number(entropy)} bits; weight of the first token ${number(row[0])}, of the token before ${before}, of itself ${number(row[at])}.`;
};

const tableRow = (tag, values) => {
  const row = element('tr');
  row.append(...values.map((value) => element(tag, value)));
  return row;
};
const norm = (v) => Math.sqrt(v.reduce((sum, x) => sum + x * x, 0));

/* The steps: score of the query with each key, softmax, and the weighted values. */
const showSteps = ({ tokens, at, maps }) => {
  const n = tokens.length, from = (state.head * n + at) * n, row = maps.subarray(from, from + n);
  const { q, keys, out } = model.mha.steps(side(), layerOf(state.head), headOf(state.head), at);
  const whole = $('every-number').checked, order = whole ? [...row.keys()] : largest(row, Math.min(STRONGEST, n)), table = $('steps');
  table.caption.textContent = `Steps for token ${at}: score = q·k × scale; weight = softmax of the scores after masks, caps and position terms; output = gate × Σ weight × v, of length ${number(norm(out))}`;
  table.tHead.replaceChildren(tableRow('th', ['key', 'score', 'weight', '|v|', 'weight × |v|']));
  table.tBodies[0].replaceChildren(...order.map((j) => {
    const length = norm(keys[j].v), line = tableRow('td', [`${readable(tokens[j].text)} (${j})`, number(keys[j].score), number(row[j]), number(length), number(row[j] * length)]);
    line.dataset.key = j;
    return line;
  }));
  showVectors(q, keys, out, order, tokens);
};

const showVectors = (q, keys, out, order, tokens) => {
  const count = $('every-number').checked ? q.length : Math.min(COMPONENTS, q.length);
  const table = $('vectors').querySelector('table'), shown = (v) => [...v.slice(0, count)].map(number);
  table.tHead.replaceChildren(tableRow('th', [`first ${count} of ${q.length}`, ...[...Array(count).keys()].map(String)]));
  const rows = [['q', q], ...($('every-number').checked ? order : order.slice(0, 3)).flatMap((j) => [[`k ${readable(tokens[j].text)} (${j})`, keys[j].k], [`v ${readable(tokens[j].text)} (${j})`, keys[j].v]]), ['output', out]];
  table.tBodies[0].replaceChildren(...rows.map(([name, v]) => tableRow('td', [name, ...shown(v)])));
};

const showCard = (seen) => {
  const { tokens, at, maps } = seen, n = tokens.length, from = state.head * n * n, gate = state.gates[state.head];
  const condition = gate === 1 ? 'on' : gate === 0 ? 'off' : `scaled by ${gate.toFixed(2)}`;
  $('card-title').textContent = `Layer ${layerOf(state.head)}, head ${numberOf(state.head)}: ${condition}`;
  $('gate').value = gate;
  $('gate-value').textContent = gate.toFixed(2);
  $('card-numbers').textContent = rowNumbers(maps, from, at, n);
  drawMap($('map'), maps, from, n);
  $('map').setAttribute('aria-label', `attention map of layer ${layerOf(state.head)} head ${numberOf(state.head)}; ${n} tokens`);
  if (pointed.shown) tellWeight(pointed.row, pointed.column);
  showKnockout(seen);
  showSteps(seen);
};

/* ---- reading the map ---- */

const tellWeight = (row, column) => {
  const { tokens, maps } = seenNow, n = tokens.length;
  pointed.row = clamp(row, 0, n - 1);
  pointed.column = clamp(column, 0, n - 1);
  pointed.shown = true;
  const weight = maps[state.head * n * n + pointed.row * n + pointed.column], name = (i) => `${readable(tokens[i].text)} (${i})`;
  $('map-tip').textContent = `${name(pointed.row)} → ${name(pointed.column)}: ${number(weight)}`;
  showKnockout(seenNow);
};

/* Shows the weight below the pointer. */
const tellPointed = (event) => {
  const box = $('map').getBoundingClientRect(), n = seenNow.tokens.length;
  tellWeight(Math.floor(((event.clientY - box.top) / box.height) * n), Math.floor(((event.clientX - box.left) / box.width) * n));
};

const makeCard = () => {
  const map = $('map');
  map.addEventListener('pointermove', (event) => { if (!pointed.held) tellPointed(event); });
  map.addEventListener('click', (event) => {
    const { row, column, held } = pointed;
    tellPointed(event);
    pointed.held = !held || row !== pointed.row || column !== pointed.column;
  });
  $('every-number').addEventListener('change', () => { showSteps(seenNow); writeAddress(); });
  $('vectors').addEventListener('toggle', () => writeAddress());
  map.addEventListener('keydown', (event) => {
    const step = arrowStep(event);
    if (!step) return;
    event.preventDefault();
    tellWeight(pointed.row + step[0], pointed.column + step[1]);
  });
  $('gate').addEventListener('input', () => { setGate(state.head, Number($('gate').value)); update(); });
  $('alone').addEventListener('click', () => { leaveAlone(state.head); update(); });
  $('alone-model').addEventListener('click', () => { leaveAlone(state.head, allIndices()); update(); });
  $('layer-off').addEventListener('click', () => { toggleLayer(layerOf(state.head)); update(); });
};
