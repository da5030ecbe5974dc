/* knockout.js - removes attention edges: the chosen query no longer attends to the chosen key in a head, a layer or all layers. */

/* The edge of the weight below the map, in the chosen scope; at first that of the chosen token and its strongest key. */
const shownEdge = ({ tokens, at, maps }) => {
  const n = tokens.length, from = (state.head * n + at) * n, scope = $('edge-scope').value;
  const query = pointed.shown ? pointed.row : at, key = pointed.shown ? pointed.column : largest(maps.subarray(from, from + n), 1)[0];
  return { layer: scope === 'all' ? -1 : layerOf(state.head), head: scope === 'head' ? headOf(state.head) : -1, query, key };
};

const toggleShownEdge = () => {
  if (seenNow.tokens.length === 0 || $('remove-edge').disabled) return;
  try { toggleEdge(shownEdge(seenNow)); } catch (error) { say(error.message); return; }
  update();
};

const edgeWords = ({ layer, head, query, key }, tokens) => {
  const where = layer < 0 ? 'all layers' : head < 0 ? `layer ${layer}` : `head ${nameOf(headIndex(layer, head))}`;
  const name = (i) => `${readable(tokens[i].text)} (${i})`;
  return `${where}: ${name(query)} → ${name(key)}`;
};

const restoreButton = (edge, tokens) => {
  const item = element('li'), button = element('button', `${edgeWords(edge, tokens)} ×`);
  button.type = 'button';
  button.setAttribute('aria-label', `restore the edge in ${edgeWords(edge, tokens)}`);
  button.addEventListener('click', () => { toggleEdge(edge); update(); $('remove-edge').focus(); });
  item.append(button);
  return item;
};

let listedEdges = ''; /* of the shown list, which keeps the focus of its buttons */
const showKnockout = ({ tokens }) => {
  const edge = shownEdge(seenNow), button = $('remove-edge');
  button.textContent = `${hasEdge(edge) ? 'Restore' : 'Remove'} ${edge.query} → ${edge.key}`;
  button.disabled = Boolean(model.info.causal) && edge.key > edge.query;
  const names = JSON.stringify(state.edges.map((e) => edgeWords(e, tokens)));
  if (names === listedEdges) return;
  listedEdges = names;
  $('edges').replaceChildren(...state.edges.map((e) => restoreButton(e, tokens)));
  $('edges').hidden = state.edges.length === 0;
};

const makeKnockout = () => {
  $('remove-edge').addEventListener('click', toggleShownEdge);
  $('edge-scope').addEventListener('change', () => showKnockout(seenNow));
  $('map').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' && event.key !== 'Delete') return;
    event.preventDefault();
    toggleShownEdge();
  });
};
