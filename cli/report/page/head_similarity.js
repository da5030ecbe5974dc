/* head_similarity.js - draws the selected similarity measure of all pairs of heads as a matrix. */
const withDiversity = () => models.map((_, m) => m).filter((m) => models[m].diversity);

/* Returns the value of a measure for two heads, given by their indices among all heads of a model; null if the measure
 * does not compare them. The data are upper triangles of matrices: one per layer if the measure compares only heads of
 * the same layer, otherwise one for all heads. */
const pairValue = (m, key, a, b) => {
  const { blocks } = models[m].diversity.measures[key], counts = models[m].heads.map((list) => list.length);
  let [x, y] = a < b ? [a, b] : [b, a], block = 0;
  if (blocks.length > 1) {
    while (x >= counts[block]) [x, y, block] = [x - counts[block], y - counts[block], block + 1];
    if (y >= counts[block]) return null;
  }
  const n = blocks.length > 1 ? counts[block] : counts.reduce((s, c) => s + c, 0);
  return blocks[block][x * n - x * (x - 1) / 2 + y - x];
};

const ownHeads = (m) => heads.filter((h) => h.at[m] >= 0); /* the heads of model m, in reading order */

const drawPairs = (m, key, canvas, figure) => {
  const own = ownHeads(m), n = own.length, all = models[m].diversity.measures[key].blocks.flat().filter(isNumber);
  const low = Math.min(0, ...all), high = Math.max(...all), gray = styleOf('--line'), none = document.createElement('canvas').getContext('2d');
  none.fillStyle = gray;
  const hex = none.fillStyle, empty = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  paint(canvas, n, n, (p) => {
    const x = pairValue(m, key, Math.floor(p / n), p % n);
    return isNumber(x) ? ramp((x - low) / (high - low || 1)) : empty;
  });
  legend(figure, evenTicks(low, high), `${nameOf('diversity', key)}. ${data.diversity_help[key]}; linear scale.${models[m].diversity.measures[key].blocks.length > 1 ? ' Gray: heads of different layers are not compared.' : ''}`);
};

/* Lists the heads most similar to the selected head. */
const likest = (m, key, table) => {
  const h = heads[selected.head], own = ownHeads(m), at = own.indexOf(h);
  const far = data.diversity_distance.includes(key);
  table.hidden = at < 0;
  if (at < 0) return;
  table.caption.textContent = `Heads most similar to ${h.name} by ${nameOf('diversity', key)} (${far ? 'a distance: smaller is more similar' : 'larger is more similar'})`;
  const values = own.map((other, b) => [other, pairValue(m, key, at, b)]).filter(([other, x]) => other !== h && isNumber(x));
  values.sort((a, b) => (far ? a[1] - b[1] : b[1] - a[1]));
  const decimals = decimalsOf(values.map(([, x]) => x));
  table.tBodies[0].replaceChildren(...values.slice(0, STRONGEST).map(([other, x]) => tableRow([other.name, nameOf('label', labelOf(other, m)), fixed(x, decimals)])));
};

/* Returns the labels of the rows, one per layer: "layer 0", "1", "2", ... */
const layerNames = (m) => {
  const box = element('div', null, 'pair-layers'), n = ownHeads(m).length;
  let start = 0;
  models[m].heads.forEach((list, layer) => {
    const name = element('span', layer === 0 ? 'layer 0' : layer);
    name.style.top = `${100 * (start + list.length / 2) / n}%`;
    box.append(name);
    start += list.length;
  });
  box.setAttribute('aria-hidden', 'true');
  return box;
};

/* The initial measure: the divergence compares all heads and does not overstate similarity. */
const FIRST_MEASURE = 'js';

const pairPanel = (m) => {
  const box = element('div', null, 'pairs'), choice = element('select'), label = element('label', 'Measure '), tip = element('div', null, 'tip');
  const canvas = element('canvas', null, 'pair-map'), figure = element('figure', null, 'legend'), frame = element('div', null, 'map-frame pair-frame');
  const table = element('table', null, 'alike');
  choice.append(...Object.keys(models[m].diversity.measures).map((key) => option(key, nameOf('diversity', key))));
  choice.className = 'measure';
  if (FIRST_MEASURE in models[m].diversity.measures) choice.value = FIRST_MEASURE;
  label.append(choice);
  if (models.length > 1) box.append(element('h3', models[m].model));
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', 'All heads against all heads, in layer order; the adjacent table lists the heads most similar to the selected head');
  tip.hidden = true;
  frame.append(layerNames(m), canvas, tip);
  table.append(element('caption'), element('tbody'));
  const side = element('div');
  side.append(frame, figure);
  const pair = element('div', null, 'pair');
  pair.append(side, table);
  const controls = element('div', null, 'controls');
  controls.append(label);
  box.append(controls, pair);
  const show = () => { drawPairs(m, choice.value, canvas, figure); likest(m, choice.value, table); };
  choice.addEventListener('change', show);
  listenToPairs(m, choice, canvas, tip);
  on('head', () => likest(m, choice.value, table));
  on('theme', show);
  show();
  return box;
};

const listenToPairs = (m, choice, canvas, tip) => {
  const own = ownHeads(m), under = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientY - box.top, event.clientX - box.left].map((x) => clamp(Math.floor(x / box.width * own.length), 0, own.length - 1));
  };
  canvas.addEventListener('pointermove', (event) => {
    const [a, b] = under(event), box = canvas.getBoundingClientRect(), x = pairValue(m, choice.value, a, b);
    tip.textContent = `${own[a].name} and ${own[b].name}: ${isNumber(x) ? fixed(x) : 'different layers, not compared'}`;
    tip.hidden = false;
    tip.style.left = `${canvas.offsetLeft + Math.min(event.clientX - box.left + 12, Math.max(0, box.width - tip.offsetWidth))}px`;
    tip.style.top = `${event.clientY - box.top + 14}px`;
  });
  canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
  canvas.addEventListener('click', (event) => select(heads.indexOf(own[under(event)[0]])));
};

const makeDiversity = () => $('diversity').querySelector('.content').append(...withDiversity().map(pairPanel));
