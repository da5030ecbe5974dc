/* score_heat_map.js - shows a metric of every head as a heat map with one row per layer. The initial metric is
 * importance if it was measured. */

/* Returns a sentence such as "Importance by Jacobian (...), on 128 texts; rank correlation between the halves of the
 * texts 0.93." */
const describeImportance = (m) => {
  const { by, texts, halves, loss } = m.importance;
  return `Importance by ${nameOf('score', by)} (${data.score_help[by] || ''}), on ${texts} text${texts === 1 ? '' : 's'}` +
    (isNumber(loss) ? `; loss ${fixed(loss)}` : '') +
    (isNumber(halves) ? `; rank correlation between the halves of the texts ${halves.toFixed(2)}` : '') + '.';
};

const meaning = (name) => {
  if (name !== 'importance') return helpOf(name);
  return models.filter((m) => m.importance).map((m) => (models.length > 1 ? `${m.model}: ` : '') + describeImportance(m)).join(' ');
};

/* Returns the color scale of a metric: square root for importance, which spans at least two decades; otherwise linear.
 * */
const placeOn = (name, low, high) => {
  const line = (x) => (high > low ? (x - low) / (high - low) : 0);
  return name === 'importance' ? (x) => Math.sqrt(Math.max(line(x), 0)) : line;
};

const scoreCell = (h, m, name, place) => {
  const x = valueOf(h, name, m), td = element('td', shownValue(h, name, m));
  if (!isNumber(x)) return td;
  const color = ramp(place(x)), at = [h.layer, h.at[m]];
  td.style.background = css(color);
  td.style.color = inkOn(color);
  td.dataset.head = h.name;
  td.title = `${headWords(h, m)}: ${x}`;
  const { importance } = models[m];
  if (name === 'importance' && isNumber(importance.low[at[0]][at[1]]))
    td.title += `, 95 % confidence interval ${importance.low[at[0]][at[1]]} to ${importance.high[at[0]][at[1]]}`;
  td.addEventListener('click', () => select(heads.indexOf(h)));
  return td;
};

const scoreTable = (m, name, place) => {
  const box = element('div', null, 'scroll'), table = element('table', null, 'heat'), top = element('tr');
  const numbers = [...new Set(heads.map((h) => h.head))].sort((a, b) => a - b);
  table.append(element('caption', nameOf('metric', name) + (models.length > 1 ? `, ${models[m].model}` : '')));
  top.append(element('th', 'layer'), ...numbers.map((head) => element('th', head)));
  top.querySelectorAll('th').forEach((th) => { th.scope = 'col'; });
  table.append(top);
  models[m].heads.forEach((_, layer) => {
    const tr = element('tr'), th = element('th', layer);
    th.scope = 'row';
    tr.append(th, ...numbers.map((head) => {
      const h = heads.find((x) => x.layer === layer && x.head === head);
      return h && h.at[m] >= 0 ? scoreCell(h, m, name, place) : element('td', 'removed', 'soft');
    }));
    table.append(tr);
  });
  box.append(table);
  return box;
};

/* Returns a table of the heads with the largest values, with bars. */
const scoreRanking = (m, name, low, high) => {
  const table = element('table', null, 'ranking'), own = ownHeads(m).filter((h) => isNumber(valueOf(h, name, m)));
  own.sort((a, b) => valueOf(b, name, m) - valueOf(a, name, m));
  table.append(element('caption', `Heads with the largest ${nameOf('metric', name)}`), ...own.slice(0, 10).map((h) => {
    const tr = element('tr'), bar = element('td', null, 'bar-cell'), fill = element('span', null, 'fill'), link = element('button', h.name, 'head-link'), first = element('td');
    link.type = 'button';
    link.addEventListener('click', () => select(heads.indexOf(h)));
    first.append(link);
    fill.style.width = `${100 * (high > low ? (valueOf(h, name, m) - low) / (high - low) : 0)}%`;
    bar.append(fill);
    tr.append(first, element('td', nameOf('label', labelOf(h, m))), element('td', shownValue(h, name, m)), bar);
    return tr;
  }));
  return table;
};

const scorePanel = (m, name, place, low, high) => {
  const pair = element('div', null, 'pair score-pair');
  pair.append(scoreTable(m, name, place), scoreRanking(m, name, low, high));
  return pair;
};

const showScore = () => {
  const name = $('score').value, having = models.map((_, m) => m).filter((m) => tableOf(models[m], name));
  const values = having.flatMap((m) => heads.map((h) => (h.at[m] < 0 ? null : valueOf(h, name, m)))).filter(isNumber);
  const low = Math.min(0, ...values), high = values.length ? Math.max(...values) : 1; /* the scale starts at 0, so colors are proportional to values */
  const place = placeOn(name, low, high);
  $('score-meaning').textContent = meaning(name);
  $('score-tables').replaceChildren(...having.map((m) => scorePanel(m, name, place, low, high)));
  const ticks = name === 'importance' ? evenTicks(low, high, (at) => low + (high - low) * at * at) : evenTicks(low, high);
  legend($('score-legend'), ticks, `${nameOf('metric', name)}, ${name === 'importance' ? 'square-root' : 'linear'} scale`);
};

const makeScores = () => {
  $('score').append(...numberNames().map((name) => option(name, nameOf('metric', name))));
  $('score').addEventListener('change', showScore);
  showScore();
};
