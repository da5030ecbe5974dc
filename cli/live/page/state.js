/* state.js - the state of the page, its form in the address, and the command that confirms its numbers. */
const CLEAN = 0, CHANGED = 1;

/* What the user chose. gates [layers * heads]; edges: removed edges {layer, head, query, key}, where layer or head -1 is all;
 * at = a token, or null to follow the end; head = index into gates; patch = the controls of patching. */
const state = { text: '', gates: new Float32Array(0), edges: [], mean: false, at: null, head: 0,
  patch: { corrupted: '', answer: '', wrong: '', site: 'z', by: 'head', direction: 'denoise', metric: 'logit-diff' } };
const model = { name: '', info: null, mha: null };
const past = [];

const headIndex = (layer, head) => layer * model.info.heads + head;
const layerOf = (index) => Math.floor(index / model.info.heads);
const headOf = (index) => index % model.info.heads;
const numberOf = (index) => model.info.headNumbers[layerOf(index)][headOf(index)]; /* in the unpruned model */
const nameOf = (index) => `${layerOf(index)}.${numberOf(index)}`;
const headExists = (index) => index >= 0 && index < state.gates.length && headOf(index) < model.info.layerHeads[layerOf(index)];
const isChanged = () => state.edges.length > 0 || state.gates.some((gate) => gate !== 1);
const side = () => (isChanged() ? CHANGED : CLEAN);

/* ---- changes ---- */

const HISTORY = 200;
const change = (gates, edges) => {
  past.push([state.gates, state.edges]);
  if (past.length > HISTORY) past.shift();
  [state.gates, state.edges] = [gates, edges];
};
const setGates = (gates) => change(gates, state.edges);
const restoreAll = () => change(new Float32Array(state.gates.length).fill(1), []);
const setGate = (index, value) => {
  const gates = state.gates.slice();
  gates[index] = value;
  setGates(gates);
};
const undo = () => { if (past.length) [state.gates, state.edges] = past.pop(); };
const toggle = (index) => setGate(index, state.gates[index] === 0 ? 1 : 0);

const layerIndices = (layer) => [...Array(model.info.layerHeads[layer]).keys()].map((head) => headIndex(layer, head));
const allIndices = () => [...state.gates.keys()].filter(headExists);
/* Leaves only one head of `among` on (its layer, or the model), or turns all of them on if that is the case already. */
const leaveAlone = (index, among = layerIndices(layerOf(index))) => {
  const gates = state.gates.slice(), others = among.filter((i) => i !== index);
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

/* ---- removed edges ---- */

const EDGES_MAX = 64; /* of the module */
const edgeName = ({ layer, head, query, key }) => {
  const where = layer < 0 ? 'all' : head < 0 ? String(layer) : nameOf(headIndex(layer, head));
  return `${where}:${query}-${key}`;
};
const hasEdge = (edge) => state.edges.some((e) => edgeName(e) === edgeName(edge));
/* Removes an edge, or restores it if it is removed. */
const toggleEdge = (edge) => {
  const others = state.edges.filter((e) => edgeName(e) !== edgeName(edge));
  if (others.length === EDGES_MAX) throw new Error(`removed edges must be at most ${EDGES_MAX} (got ${EDGES_MAX + 1})`);
  change(state.gates, hasEdge(edge) ? others : [...others, edge]);
};

/* Reads an edge, or returns null if it is not one of the model. */
const readEdge = (text) => {
  const [, where, query, key] = /^(all|\d+|\d+\.\d+):(\d{1,6})-(\d{1,6})$/.exec(text) || [];
  const index = where && where.includes('.') ? indexOfName(where) : -1;
  if (!where || (where.includes('.') && index < 0) || (where !== 'all' && Number(where.split('.')[0]) >= model.info.layers)) return null;
  const layer = where === 'all' ? -1 : Number(where.split('.')[0]);
  return { layer, head: index < 0 ? -1 : headOf(index), query: Number(query), key: Number(key) };
};
const readEdges = (list) => {
  const edges = list.split(',').map(readEdge).filter(Boolean);
  return edges.filter((edge, n) => edges.findIndex((e) => edgeName(e) === edgeName(edge)) === n).slice(0, EDGES_MAX);
};

/* ---- the address ---- */

/* In a report, the page is in a frame without an address; the address of the report then contains its state. */
const embedded = window.parent !== window, host = embedded ? window.parent : window;

/* Replaces halves of surrogate pairs, which neither an address nor UTF-8 can express. */
const wellFormed = (text) => text.replace(/[\ud800-\udfff]/gu, '\ufffd');

const gateList = (separator) => [...state.gates].map((gate, i) => [gate, i]).filter(([gate, i]) => gate !== 1 && headExists(i))
  .map(([gate, i]) => `${nameOf(i)}${separator}${Number(gate.toFixed(2))}`);

/* What is open or chosen on the page without being a change of the model: [element, property]. */
const VIEWS = { lens: ['lens', 'open'], numbers: ['vectors', 'open'], every: ['every-number', 'checked'] };
const openViews = () => Object.keys(VIEWS).filter((name) => $(VIEWS[name][0])[VIEWS[name][1]]);

/* Of a truncated text, the address contains the tokens that are shown, since its length is limited. */
const toFragment = () => {
  const parts = [`text=${encodeURIComponent(shownText())}`];
  if (gateList(':').length) parts.push(`gates=${gateList(':').join(',')}`);
  if (state.edges.length) parts.push(`edges=${state.edges.map(edgeName).join(',')}`);
  if (state.mean) parts.push('mean=1');
  if (state.at !== null) parts.push(`at=${state.at}`);
  parts.push(`head=${nameOf(state.head)}`);
  if (openViews().length) parts.push(`view=${openViews().join(',')}`);
  if (state.patch.corrupted) Object.entries(state.patch).forEach(([name, value]) => { if (value) parts.push(`${name}=${encodeURIComponent(value)}`); });
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
    if (index >= 0 && value !== '' && gate >= 0 && gate <= 1) gates[index] = Number(gate.toFixed(2)); /* as in the command */
  });
  return gates;
};

/* Reads the parts of an address that are valid for the model, and ignores the others. */
const fromFragment = (fragment) => {
  const parts = new Map(fragment.replace(/^#/, '').split('&').map((part) => [part.split('=')[0], part.slice(part.indexOf('=') + 1)]));
  if (!parts.has('text')) return;
  const texts = new Map();
  try {
    ['text', ...Object.keys(state.patch)].forEach((name) => texts.set(name, decodeURIComponent(parts.get(name) || '')));
  } catch { return; }
  state.text = texts.get('text');
  Object.keys(state.patch).forEach((name) => { if (!PATCH_CHOICES[name] || PATCH_CHOICES[name].includes(texts.get(name))) state.patch[name] = texts.get(name); });
  state.edges = readEdges(parts.get('edges') || '');
  state.gates = readGates(parts.get('gates') || '');
  state.mean = parts.get('mean') === '1';
  state.at = /^\d+$/.test(parts.get('at') || '') ? Number(parts.get('at')) : null;
  state.head = Math.max(0, indexOfName(parts.get('head') || '0.0'));
  const views = (parts.get('view') || '').split(',');
  Object.entries(VIEWS).forEach(([name, [id, property]]) => { $(id)[property] = views.includes(name); });
};

/* ---- the commands ---- */

const quoted = (text) => `'${text.replace(/'/g, "'\\''")}'`;
/* The first words of a command: its name, the model and the kernel. */
const commandStart = (name) => {
  const words = ['mha', name];
  if (model.name !== 'builtin') words.push('-m', /^[\w./-]+$/.test(model.name) ? model.name : quoted(model.name));
  return [...words, '--isa', 'scalar'];
};
/* The words of a command that runs the model with the changes, and switches heads if `switches`. */
const changedStart = (switches = false) => {
  const words = commandStart('logits'), gated = gateList('=').length > 0;
  if (gated) words.push('--gates', gateList('=').join(','));
  if ((gated || switches) && state.mean) words.push('--mean');
  if (state.edges.length) words.push('--knockout', state.edges.map(edgeName).join(','));
  return words;
};
const commandFor = (text) => {
  const words = changedStart();
  if (state.at !== null && model.info.logits) words.push('--at', String(seenNow.at));
  if (!model.info.logits) words.push('--hidden', '-o', 'hidden.safetensors');
  return [...words, '--', quoted(text)].join(' ');
};

/* The commands of the other views: [view, command]. Patching has its own. */
const viewCommands = (text) => {
  const { logits, causal } = model.info, last = ['--', quoted(text)], name = nameOf(state.head), at = String(seenNow.at);
  const commands = [[`The map of head ${name}, with your changes`, [...changedStart(), '--heads', name, '-o', `head-${name}.safetensors`, ...last]],
    ['The effects of all heads, with your changes', [...changedStart(true), '--effects', ...(logits ? ['--at', at] : []), ...last]],
    [`The steps of head ${name}, with your changes`, [...changedStart(), '--steps', name, '--at', at, ...last]]];
  if (logits) commands.push(['Logit lens', [...commandStart('lens'), '--position', at, ...last]]);
  if (logits && causal) commands.push(['Continuation of the model as it is', [...commandStart('generate'), '-n', $('length').value, ...last]]);
  if (logits && causal && gateList('=').length && !state.mean && !state.edges.length) {
    commands.push(['Continuation with your changes', [...commandStart('generate'), '--gates', gateList('=').join(','), '-n', $('length').value, ...last]]);
  }
  return commands.map(([view, words]) => [view, words.join(' ')]);
};
