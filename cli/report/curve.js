/* curve.js - what it costs to remove heads: the loss (for encoders 1 - cosine) on text that was not used for choosing, over the
 * heads that are kept. Points within the limit of the search are filled. */
const CURVE = { width: 720, height: 360, margin: 56 };
const CURVE_NAMES = { heads: 'heads kept', loss: 'loss', mean_cosine: 'mean cosine', parameters: 'parameters', bytes: 'bytes',
  kv_bytes_per_token: 'cache bytes per token', tokens_per_second: 'tokens per second' };

const curvePlot = (points) => {
  const losses = points.map((p) => p.loss), counts = points.map((p) => p.heads);
  const { svg, x, y } = plot(CURVE, [Math.min(...counts), Math.max(...counts)], spread(losses), ['heads kept', 'loss on held-out text'], 'Loss over heads kept; the numbers stand in the table below');
  const sorted = [...points].sort((a, b) => a.heads - b.heads);
  svg.append(drawing('polyline', { points: sorted.map((p) => `${x(p.heads)},${y(p.loss)}`).join(' '), class: 'line' }));
  sorted.forEach((p) => {
    const dot = drawing('circle', { cx: x(p.heads), cy: y(p.loss), r: 4, class: p.within === false ? 'outside' : 'point' });
    dot.append(drawing('title', {}, `${p.heads} heads: loss ${number(p.loss)}`));
    svg.append(dot);
  });
  return svg;
};

const curveTable = (points) => {
  const table = element('table', null, 'plain'), keys = Object.keys(CURVE_NAMES).filter((key) => points.some((p) => isNumber(p[key])));
  const top = element('tr');
  keys.forEach((key) => top.append(element('th', CURVE_NAMES[key])));
  table.append(top, ...points.map((p) => tableRow(keys.map((key) => (Number.isInteger(p[key]) ? String(p[key]) : number(p[key]))))));
  return table;
};

const makeCurve = () => {
  const having = models.filter((m) => m.curve && m.curve.length > 1);
  if (having.length === 0) {
    absent('curve', 'No curve was given: mha prune --search --json measures one, and mha report --curve FILE shows it.');
    return;
  }
  const content = $('curve').querySelector('.content');
  having.forEach((m) => {
    const box = element('div', null, 'plot-box');
    box.append(curvePlot(m.curve));
    if (models.length > 1) content.append(element('h3', m.model));
    content.append(box, curveTable(m.curve));
  });
};
