/* selection.js - stores the models, the selected text and the selected head, and notifies listeners. The scripts are
 * concatenated in the order of page.html; build_page.js, the last script, starts the page. Untrusted text reaches the
 * page only through textContent and canvas text, never as markup. */

/* The models (two with --compare), measured on the current text, and their heads by layer and original number, in
 * reading order: {layer, head, name, at}. at[m] is the index of the head in its layer of model m, or -1 if the head was
 * pruned from model m. */
const models = [], heads = [];

const listHeads = () => {
  const layers = Math.max(...models.map((m) => m.heads.length)), list = [];
  for (let layer = 0; layer < layers; layer++) {
    const numbers = new Set(models.flatMap((m) => m.heads[layer] || []));
    [...numbers].sort((a, b) => a - b).forEach((head) => list.push({ layer, head, name: `${layer}.${head}`,
      at: models.map((m) => (m.heads[layer] || []).indexOf(head)) }));
  }
  return list;
};

const useText = (t) => {
  models.splice(0, models.length, ...data.texts[t].models.map((m, i) => Object.assign(m, data.measured[i])));
  heads.splice(0, heads.length, ...listHeads());
};

/* Returns the text of a token; white space is shown as symbols if the token has no other characters. */
const readable = (token) => (token.text.trim() ? token.text : token.text.replace(/ /g, '␣').replace(/\n/g, '↵').replace(/\t/g, '⇥'));
/* Returns the tokens of the rows of maps: those of the columns, except in cross-attention. */
const queriesOf = (m) => models[m].queries || models[m].tokens;
/* Returns the tooltip of a token: its index and its spelling in the tokenizer. */
const spelled = (token, i) => `token ${i}: ${token.raw || token.text}`;
/* Returns the text of a token with its index from 0, which distinguishes repeated tokens. */
const placedToken = (token, i) => `${readable(token).trim()} (${i})`;
const placed = (m, i) => placedToken(models[m].tokens[i], i);
const placedQuery = (m, i) => placedToken(queriesOf(m)[i], i);

/* Returns the index of a head among all heads of model m, in layer order. */
const placeOf = (h, m) => models[m].heads.slice(0, h.layer).reduce((sum, list) => sum + list.length, 0) + h.at[m];

/* Returns the index of the first model that has the head. */
const modelOf = (h) => h.at.findIndex((at) => at >= 0);

const labelOf = (h, m = modelOf(h)) => models[m].labels[h.layer][h.at[m]];

/* Returns the values of all heads by name: importance or unique, if measured, or a metric of the maps. */
const tableOf = (m, name) => {
  if (name === 'importance') return m.importance && m.importance.values;
  return name === 'unique' ? m.diversity && m.diversity.unique : m.metrics[name];
};
const numberNames = () => ['importance', 'unique'].filter((name) => models.some((m) => tableOf(m, name))).concat(Object.keys(models[0].metrics));
const helpOf = (name) => data.metric_help[name] || data.diversity_help[name] || '';

const valueOf = (h, name, m = modelOf(h)) => {
  const table = h.at[m] < 0 ? null : tableOf(models[m], name);
  return table ? table[h.layer][h.at[m]] : null;
};

/* kindOf returns the number of decimals of a metric, and shownValue the value of a head as text. Metrics of maps have
 * three decimals; the decimals of importance depend on its values, which may be small. */
const kindOf = (name) => (name === 'importance' ? decimalsOf(models.flatMap((m) => (tableOf(m, name) || []).flat())) : 3);
const shownValue = (h, name, m = modelOf(h)) => fixed(valueOf(h, name, m), kindOf(name));

/* ---- selection and listeners ---- */

const selected = { head: -1 };
const listeners = { head: [], theme: [] };
const on = (what, call) => listeners[what].push(call);
const tell = (what) => listeners[what].forEach((call) => call());

const select = (index) => {
  if (index < 0 || index === selected.head) return;
  selected.head = index;
  tell('head');
};

/* ---- building and redrawing of sections ---- */

const waiting = new Set(), observers = [];

/* Runs `call` once, when `box` approaches the viewport or before the page is printed, so that distant sections do not
 * delay loading. The attribute data-built of `box` is "no" until then. */
const whenSeen = (box, call) => {
  const once = () => {
    if (waiting.delete(once)) call();
    delete box.dataset.built;
    watch.disconnect();
  };
  box.dataset.built = 'no';
  const watch = new IntersectionObserver((entries) => { if (entries.some((e) => e.isIntersecting)) once(); }, { rootMargin: '300px' });
  waiting.add(once);
  observers.push(watch);
  watch.observe(box);
};

/* Runs `call` now and whenever the width of `box` changes. */
const whenResized = (box, call) => {
  let width = -1;
  const watch = new ResizeObserver(() => {
    if (box.clientWidth === width) return;
    width = box.clientWidth;
    call();
  });
  observers.push(watch);
  watch.observe(box);
};

/* Discards the state of the previous text. */
const forget = () => {
  observers.splice(0).forEach((watch) => watch.disconnect());
  waiting.clear();
  listeners.head.length = listeners.theme.length = 0;
  selected.head = -1;
};
