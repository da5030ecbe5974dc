/* prediction.js - shows the most likely next tokens, of the model as it is and with the changes. */
const SHOWN = 10;

const probabilities = (logits) => {
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity), p = Float64Array.from(logits, (x) => Math.exp(x - most));
  const total = p.reduce((a, b) => a + b, 0);
  return p.map((x) => x / total);
};

/* The ids with the largest values, in order. */
const largest = (values, count) => {
  const best = [];
  values.forEach((value, id) => {
    if (best.length === count && value <= values[best[count - 1]]) return;
    let at = best.length;
    while (at > 0 && values[best[at - 1]] < value) at--;
    best.splice(at, 0, id);
    if (best.length > count) best.pop();
  });
  return best;
};

const percent = (p) => `${(100 * p).toFixed(p >= 0.0995 ? 1 : 2)} %`;

/* A row of bars without values: a bar and a number per side. */
const makeBar = (sides) => {
  const row = element('tr'), bars = element('td', null, 'bar-cell');
  bars.append(...sides.map((_, n) => element('span', '', n ? 'fill now' : 'fill')));
  row.append(element('td', ''), bars, ...sides.map(() => element('td', '', 'share')));
  return row;
};

const makeBars = (sides, rows) => {
  const head = element('tr');
  ['token', '', ...(sides.length > 1 ? ['as it is', 'changed'] : ['probability'])].forEach((name) => {
    const e = element('th', name, name.length > 5 ? 'share' : '');
    e.scope = 'col';
    head.append(e);
  });
  $('bars').tHead.replaceChildren(head);
  $('bars').tBodies[0].replaceChildren(...[...Array(rows).keys()].map(() => makeBar(sides)));
};

/* Shows the largest probabilities of the sides; the rows of the last table are used again if it has the same size. */
const showBars = (...sides) => {
  const ids = largest(sides[sides.length - 1], SHOWN), first = largest(sides[0], 1)[0], { rows } = $('bars').tBodies[0];
  if (!ids.includes(first)) ids.push(first);
  if (rows.length !== ids.length || rows[0].children.length !== 2 + sides.length) makeBars(sides, ids.length);
  ids.forEach((id, n) => {
    const [name, bars, ...shares] = rows[n].children;
    rows[n].dataset.id = id;
    setText(name, readable(tokenWords(id)));
    sides.forEach((p, k) => {
      setPart(bars.children[k], '--part', p[id]);
      setText(shares[k], percent(p[id]));
    });
  });
};

const meanState = (hidden, n) => {
  const width = hidden.length / n, mean = new Float64Array(width);
  hidden.forEach((x, i) => { mean[i % width] += x / n; });
  return mean;
};
const cosine = (a, b) => {
  const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
};

const showPrediction = ({ tokens, at }) => {
  const { mha, info } = model, changed = isChanged();
  $('prediction-title').textContent = !info.logits ? 'Sentence vector' : info.causal ? 'Next token' : 'Token in this place';
  if (!info.logits) {
    const far = changed ? 1 - cosine(meanState(mha.hidden(CLEAN), tokens.length), meanState(mha.hidden(CHANGED), tokens.length)) : 0;
    $('prediction-hint').textContent = `This model has no logits. The changes turn the mean hidden state: 1 − cosine = ${number(far)}.`;
    $('bars').tHead.replaceChildren();
    $('bars').tBodies[0].replaceChildren();
    return;
  }
  const place = `${info.causal ? 'After' : 'For'} token ${at}, “${readable(tokens[at].text)}”`;
  $('prediction-hint').textContent = changed ? `${place}. KL(as it is ‖ changed) = ${number(mha.divergence())} bits.` : `${place}.`;
  showBars(...(changed ? [CLEAN, CHANGED] : [CLEAN]).map((which) => probabilities(mha.logits(which))));
};
