/* pruning_curve.js - draws the pruning curve: loss (for encoders 1 - cosine) on held-out text as a function of the
 * number of kept heads. Points within the limit of the search are filled. */
const CURVE = { width: 720, height: 360, margin: 56 };
const CURVE_NAMES = { heads: 'heads kept', loss: 'loss', mean_cosine: 'mean cosine', parameters: 'parameters', bytes: 'bytes',
  kv_bytes_per_token: 'cache bytes per token', tokens_per_second: 'tokens per second' };

const curvePlot = (points, box) => {
  const losses = points.map((p) => p.loss), counts = points.map((p) => p.heads);
  const { svg, x, y } = plot(fitted(CURVE, box), [Math.min(...counts), Math.max(...counts)], spread(losses), ['heads kept', 'loss on held-out text'], 'Loss by number of heads kept; the adjacent table lists the values');
  const sorted = [...points].sort((a, b) => a.heads - b.heads);
  svg.append(drawing('polyline', { points: sorted.map((p) => `${x(p.heads)},${y(p.loss)}`).join(' '), class: 'line' }));
  sorted.forEach((p) => {
    const dot = drawing('circle', { cx: x(p.heads), cy: y(p.loss), r: 4, class: p.within === false ? 'outside' : 'point' });
    dot.append(drawing('title', {}, `${p.heads} heads: loss ${fixed(p.loss, decimalsOf(losses))}`));
    svg.append(dot);
  });
  box.replaceChildren(svg);
};

const curveTable = (points) => {
  const table = element('table', null, 'plain'), keys = Object.keys(CURVE_NAMES).filter((key) => points.some((p) => isNumber(p[key])));
  const top = element('tr');
  keys.forEach((key) => top.append(element('th', CURVE_NAMES[key])));
  table.append(top, ...points.map((p) => tableRow(keys.map((key) => {
    const values = points.map((q) => q[key]).filter(isNumber);
    return values.every(Number.isInteger) && isNumber(p[key]) ? String(p[key]) : fixed(p[key], decimalsOf(values));
  }))));
  return table;
};

const withCurve = () => models.filter((m) => m.curve && m.curve.length > 1);

const makeCurve = () => {
  const content = $('curve').querySelector('.content');
  withCurve().forEach((m) => {
    const box = element('div', null, 'plot-box'), pair = element('div', null, 'pair wide-left'), scroll = element('div', null, 'scroll');
    scroll.append(curveTable(m.curve));
    pair.append(box, scroll);
    if (models.length > 1) content.append(element('h3', m.model));
    content.append(pair);
    curvePlot(m.curve, box);
    whenResized(box, () => curvePlot(m.curve, box));
  });
};
