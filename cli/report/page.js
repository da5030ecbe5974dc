/* page.js - the models, what is selected, and who wants to know. The files of this folder are joined in the order that page.html
 * gives; start.js is the last and begins. Text from outside reaches the page only through textContent and canvas text, never
 * as markup. */
const models = data.models; /* one; two with --compare */

/* A token and its number, from 0: words that repeat are told apart. */
const placed = (m, i) => `${models[m].tokens[i].text} (${i})`;

/* The heads of all models by layer and original number, in reading order: {layer, head, name, at}, at[m] being the place of
 * the head in its layer of model m, -1 where that model does not have it (pruned models lack some). */
const heads = [];
{
  const layers = Math.max(...models.map((m) => m.heads.length));
  for (let layer = 0; layer < layers; layer++) {
    const numbers = new Set(models.flatMap((m) => m.heads[layer] || []));
    [...numbers].sort((a, b) => a - b).forEach((head) => heads.push({ layer, head, name: `${layer}.${head}`,
      at: models.map((m) => (m.heads[layer] || []).indexOf(head)) }));
  }
}

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

/* Runs `call` when `box` comes near the screen for the first time, before printing at the latest: what lies far down costs
 * nothing while the page opens. */
const whenSeen = (box, call) => {
  let done = false;
  const once = () => {
    if (!done) call();
    done = true;
    watch.disconnect();
  };
  const watch = new IntersectionObserver((entries) => { if (entries.some((e) => e.isIntersecting)) once(); }, { rootMargin: '300px' });
  watch.observe(box);
  addEventListener('beforeprint', once);
};
