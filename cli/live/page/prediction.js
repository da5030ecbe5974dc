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

const barRow = (id, clean, now) => {
  const row = element('tr'), bars = element('td', null, 'bar-cell');
  [[clean, 'fill'], [now, 'fill now']].forEach(([p, name]) => {
    if (!p) return;
    const bar = element('span', '', name);
    bar.style.setProperty('--part', `${100 * p[id]}%`);
    bars.append(bar);
  });
  row.dataset.id = id;
  row.append(element('td', readable(tokenWords(id))), bars, element('td', percent(clean[id]), 'share'));
  if (now) row.append(element('td', percent(now[id]), 'share'));
  return row;
};

const showBars = (clean, now) => {
  const ids = largest(now || clean, SHOWN), head = element('tr');
  const first = largest(clean, 1)[0];
  if (!ids.includes(first)) ids.push(first);
  ['token', '', now ? 'as it is' : 'probability', ...(now ? ['changed'] : [])].forEach((name) => {
    const e = element('th', name, name.length > 5 ? 'share' : '');
    e.scope = 'col';
    head.append(e);
  });
  $('bars').tHead.replaceChildren(head);
  $('bars').tBodies[0].replaceChildren(...ids.map((id) => barRow(id, clean, now)));
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
  showBars(probabilities(mha.logits(CLEAN)), changed ? probabilities(mha.logits(CHANGED)) : null);
};
