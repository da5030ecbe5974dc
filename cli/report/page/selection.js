/* selection.js - the texts and models, what is selected, and who wants to know. The files of this folder are joined in the order that
 * page.html gives; build_page.js is the last and begins. Text from outside reaches the page only through textContent and canvas text,
 * never as markup. */

/* What is shown now: the models on one of the texts, one model or two with --compare; and their heads by layer and original number,
 * in reading order: {layer, head, name, at}, at[m] being the place of the head in its layer of model m, -1 where that model does
 * not have it (pruned models lack some). */
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

/* A token as it is read: blanks alone become signs. */
const readable = (token) => (token.text.trim() ? token.text : token.text.replace(/ /g, '␣').replace(/\n/g, '↵').replace(/\t/g, '⇥'));
/* As the tokenizer spells it, for the pointer to show. */
const spelled = (m, i) => `token ${i}: ${models[m].tokens[i].raw || models[m].tokens[i].text}`;
/* A token and its number, from 0: words that repeat are told apart. */
const placed = (m, i) => `${readable(models[m].tokens[i]).trim()} (${i})`;

/* The place of a head among all heads of model m, layer behind layer. */
const placeOf = (h, m) => models[m].heads.slice(0, h.layer).reduce((sum, list) => sum + list.length, 0) + h.at[m];

/* The first model that has this head. */
const modelOf = (h) => h.at.findIndex((at) => at >= 0);

const labelOf = (h, m = modelOf(h)) => models[m].labels[h.layer][h.at[m]];

/* The numbers that heads have, by name: what was measured of each map, before it importance and unique where they were
 * asked for. */
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

/* A number of heads as text. All that is measured of maps has three decimals; importance has the unit of its loss, which may be
 * small. */
const kindOf = (name) => (name === 'importance' ? decimalsOf(models.flatMap((m) => (tableOf(m, name) || []).flat())) : 3);
const shownValue = (h, name, m = modelOf(h)) => fixed(valueOf(h, name, m), kindOf(name));

/* ---- what is selected, and who wants to know ---- */

const selected = { head: -1 };
const listeners = { head: [], theme: [] };
const on = (what, call) => listeners[what].push(call);
const tell = (what) => listeners[what].forEach((call) => call());

const select = (index) => {
  if (index < 0 || index === selected.head) return;
  selected.head = index;
  tell('head');
};

/* ---- boxes: what is made when it is seen, and drawn again when its size changes ---- */

const waiting = new Set(), observers = [];

/* Runs `call` when `box` comes near the screen for the first time, before printing at the latest: what lies far down costs
 * nothing while the page opens. */
const whenSeen = (box, call) => {
  const once = () => {
    if (waiting.delete(once)) call();
    watch.disconnect();
  };
  const watch = new IntersectionObserver((entries) => { if (entries.some((e) => e.isIntersecting)) once(); }, { rootMargin: '300px' });
  waiting.add(once);
  observers.push(watch);
  watch.observe(box);
};

/* Runs `call` now, and when the width of `box` has changed. */
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

/* Everything that belongs to the text shown so far is forgotten. */
const forget = () => {
  observers.splice(0).forEach((watch) => watch.disconnect());
  waiting.clear();
  listeners.head.length = listeners.theme.length = 0;
  selected.head = -1;
};
