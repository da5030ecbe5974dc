/* lens.js - shows the logit lens: the most likely tokens after each layer. It is computed only while it is open. */
const lensRow = ({ ids, probabilities: p, nats }, entry, last) => {
  const guesses = ids.map((id, n) => `${readable(tokenWords(id))} ${percent(p[n])}`).join('   ');
  return tableRow('td', [entry === 0 ? 'embedding' : entry === last ? 'output' : `layer ${entry - 1}`, guesses, number(nats)]);
};

const showLens = ({ at }) => {
  const { mha, info } = model, table = $('lens').querySelector('table');
  $('lens').hidden = !info.logits;
  if (!info.logits || !$('lens').open) return;
  $('lens-problem').textContent = '';
  table.tHead.replaceChildren(tableRow('th', ['after', 'most likely tokens', 'KL (nats)']));
  table.tBodies[0].replaceChildren();
  try {
    table.tBodies[0].replaceChildren(...mha.lens(at).map((row, n, all) => lensRow(row, n, all.length - 1)));
  } catch (error) { $('lens-problem').textContent = error.message; }
};

const makeLens = () => $('lens').addEventListener('toggle', () => { if (seenNow.tokens.length) showLens(seenNow); writeAddress(); });
