/* start.js - puts the page together. */
const describe = (m) => `${m.model} · ${m.heads.length} layers, ${m.heads.flat().length} heads · ${m.tokens.length} tokens` +
  (m.cut ? `; the text is longer, ${m.cut} tokens were cut off` : '');

const start = async () => {
  document.title = `Attention heads of ${models.map((m) => m.model).join(' and ')}`;
  $('summary').textContent = models.map(describe).join(' — beside ');
  $('sentence-text').textContent = data.text;
  makeHelp();
  makeOverview();
  makeHead();
  const first = heads.findIndex((h) => labelOf(h) === 'prev');
  select(Math.max(first, 0));
  whenSeen($('text'), makeText);
  whenSeen($('scores'), makeScores);
  whenSeen($('diversity'), makeDiversity);
  whenSeen($('clusters'), makeClusters);
  makeCurve();
  document.body.dataset.ready = 'yes';
  await paintCells();
  document.body.dataset.painted = 'yes';
  performance.mark('painted');
};

start();
