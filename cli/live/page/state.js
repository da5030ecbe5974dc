/* state.js - the state of the page, its form in the address, and the command that confirms its numbers. */
const CLEAN = 0, CHANGED = 1;

/* What the user chose. gates [layers * heads]; at = a token, or null to follow the end; head = index into gates. */
const state = { text: '', gates: new Float32Array(0), mean: false, at: null, head: 0 };
const model = { name: '', info: null, mha: null };
const past = [];

const headIndex = (layer, head) => layer * model.info.heads + head;
const layerOf = (index) => Math.floor(index / model.info.heads);
const headOf = (index) => index % model.info.heads;
const numberOf = (index) => model.info.headNumbers[layerOf(index)][headOf(index)]; /* in the unpruned model */
const nameOf = (index) => `${layerOf(index)}.${numberOf(index)}`;
const headExists = (index) => index >= 0 && index < state.gates.length && headOf(index) < model.info.layerHeads[layerOf(index)];
const isChanged = () => state.gates.some((gate) => gate !== 1);
const side = () => (isChanged() ? CHANGED : CLEAN);

/* ---- changes ---- */

const HISTORY = 200;
const setGates = (gates) => {
  past.push(state.gates);
  if (past.length > HISTORY) past.shift();
  state.gates = gates;
};
const setGate = (index, value) => {
  const gates = state.gates.slice();
  gates[index] = value;
  setGates(gates);
};
const undo = () => { if (past.length) state.gates = past.pop(); };
const toggle = (index) => setGate(index, state.gates[index] === 0 ? 1 : 0);

const layerIndices = (layer) => [...Array(model.info.layerHeads[layer]).keys()].map((head) => headIndex(layer, head));
/* Leaves only one head of its layer on, or turns all heads of the layer on if that is the case already. */
const leaveAlone = (index) => {
  const gates = state.gates.slice(), others = layerIndices(layerOf(index)).filter((i) => i !== index);
  const alone = gates[index] === 1 && others.every((i) => gates[i] === 0);
  gates[index] = 1;
  others.forEach((i) => { gates[i] = alone ? 1 : 0; });
  setGates(gates);
};
const toggleLayer = (layer) => {
  const gates = state.gates.slice(), all = layerIndices(layer), off = all.every((i) => gates[i] === 0);
  all.forEach((i) => { gates[i] = off ? 1 : 0; });
  setGates(gates);
};

/* ---- the address ---- */

/* Replaces halves of surrogate pairs, which neither an address nor UTF-8 can express. */
const wellFormed = (text) => text.replace(/[\ud800-\udfff]/gu, '\ufffd');

const gateList = (separator) => [...state.gates].map((gate, i) => [gate, i]).filter(([gate, i]) => gate !== 1 && headExists(i))
  .map(([gate, i]) => `${nameOf(i)}${separator}${Number(gate.toFixed(2))}`);

/* Of a truncated text, the address contains the tokens that are shown, since its length is limited. */
const toFragment = () => {
  const parts = [`text=${encodeURIComponent(shownText())}`];
  if (isChanged()) parts.push(`gates=${gateList(':').join(',')}`);
  if (state.mean) parts.push('mean=1');
  if (state.at !== null) parts.push(`at=${state.at}`);
  parts.push(`head=${nameOf(state.head)}`);
  return `#${parts.join('&')}`;
};

const indexOfName = (name) => {
  const [layer, number] = name.split('.').map(Number), head = (model.info.headNumbers[layer] || []).indexOf(number);
  return head < 0 ? -1 : headIndex(layer, head);
};

const readGates = (list) => {
  const gates = new Float32Array(state.gates.length).fill(1);
  list.split(',').forEach((item) => {
    const [name, value] = item.split(':'), index = indexOfName(name), gate = Number(value);
    if (index >= 0 && value !== '' && gate >= 0 && gate <= 1) gates[index] = gate;
  });
  return gates;
};

/* Reads the parts of an address that are valid for the model, and ignores the others. */
const fromFragment = (fragment) => {
  const parts = new Map(fragment.replace(/^#/, '').split('&').map((part) => [part.split('=')[0], part.slice(part.indexOf('=') + 1)]));
  if (!parts.has('text')) return;
  try { state.text = decodeURIComponent(parts.get('text')); } catch { return; }
  state.gates = readGates(parts.get('gates') || '');
  state.mean = parts.get('mean') === '1';
  state.at = /^\d+$/.test(parts.get('at') || '') ? Number(parts.get('at')) : null;
  state.head = Math.max(0, indexOfName(parts.get('head') || '0.0'));
};

/* ---- the command ---- */

const quoted = (text) => `'${text.replace(/'/g, "'\\''")}'`;
const commandFor = (text, at) => {
  const words = ['mha', 'logits'];
  if (model.name !== 'builtin') words.push('-m', /^[\w./-]+$/.test(model.name) ? model.name : quoted(model.name));
  words.push('--isa', 'scalar');
  if (isChanged()) words.push('--gates', gateList('=').join(','));
  if (isChanged() && state.mean) words.push('--mean');
  if (state.at !== null) words.push('--at', String(at));
  if (!model.info.logits) words.push('--hidden', '-o', 'hidden.safetensors');
  return [...words, '--', quoted(text)].join(' ');
};
