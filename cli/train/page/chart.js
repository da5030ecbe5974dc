/* chart.js - draws curves as functions of the step. The pointer and the arrow keys select a point and show its value. */
const SIZE = { width: 900, height: 360, margin: 60 }, SMALL = { width: 520, height: 240, margin: 60 };

const STEPS = data.points.step;

/* Returns, for each point, the mean of the values of the last `steps` steps. */
const smoothed = (values, steps) => {
  let first = 0, sum = 0;
  return values.map((v, i) => {
    sum += v;
    while (STEPS[i] - STEPS[first] >= steps) sum -= values[first++];
    return sum / (i + 1 - first);
  });
};

const path = (points) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(' ');

/* Returns the index of the element of `steps`, in ascending order, that is nearest to x. */
const nearest = (steps, x) => {
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] > x) high = middle; else low = middle;
  }
  return x - steps[low] < steps[high] - x ? low : high;
};

/* Marks the point at the pointer, or the point selected with the arrow keys, and shows its values: show(i) returns the
 * description of point i. */
const makeReader = (box, svg, size, x, steps, show) => {
  const rule = drawing('line', { class: 'reader', y1: size.margin / 2, y2: size.height - size.margin, visibility: 'hidden' });
  const words = element('output', null, 'read');
  let at = -1;
  const move = (i) => {
    at = clamp(i, 0, steps.length - 1);
    rule.setAttribute('x1', x(steps[at]));
    rule.setAttribute('x2', x(steps[at]));
    rule.setAttribute('visibility', 'visible');
    words.textContent = show(at);
    words.dataset.at = at;
  };
  svg.append(rule);
  svg.setAttribute('tabindex', '0');
  svg.addEventListener('pointermove', (event) => {
    const bounds = svg.getBoundingClientRect(), wide = (event.clientX - bounds.left) / bounds.width * size.width;
    const low = x(steps[0]), high = x(steps[steps.length - 1]);
    move(nearest(steps, steps[0] + (wide - low) / (high - low || 1) * (steps[steps.length - 1] - steps[0])));
  });
  svg.addEventListener('keydown', (event) => {
    const step = arrowStep(event);
    if (!step || !step[1]) return;
    event.preventDefault();
    move(at < 0 ? 0 : at + step[1] * (event.shiftKey ? 10 : 1));
  });
  box.append(words);
};

/* Returns a legend with a sample and the name of each line. */
const makeLegend = (lines) => {
  const list = element('p', null, 'key');
  lines.forEach((l) => {
    const item = element('span', l.name), sample = drawing('svg', { viewBox: '0 0 26 10', width: 26, height: 10, 'aria-hidden': 'true' });
    sample.append(drawing('line', { x1: 0, x2: 26, y1: 5, y2: 5, class: l.className.replace('line', 'sample') }));
    if (l.dots) sample.append(drawing('circle', { cx: 13, cy: 5, r: 3, class: 'sample-dot' }));
    item.prepend(sample);
    list.append(item);
  });
  return list;
};

/* Draws lines [{values, steps, className, name}] in one plot as wide as its box, with a legend if there are several
 * lines. show(i) returns the description of point i of the first line. A logarithmic plot omits values that are not
 * above 0. */
const chart = (box, most, name, lines, show, logarithmic) => {
  const place = logarithmic ? Math.log10 : (v) => v, drawn = lines.filter((l) => l.values.length > 0);
  box.replaceChildren();
  if (drawn.length === 0 || drawn[0].values.length < 2) {
    box.append(element('p', 'The curve begins after the second step.', 'absent'));
    return;
  }
  const shown = (l) => l.steps.map((s, i) => [s, l.values[i]]).filter(([, v]) => !logarithmic || v > 0).map(([s, v]) => [s, place(v)]);
  const all = drawn.flatMap(shown).map(([, v]) => v);
  if (all.length === 0) {
    box.append(element('p', 'A logarithmic curve requires values above 0.', 'absent'));
    return;
  }
  const low = all.reduce((a, b) => Math.min(a, b)), high = all.reduce((a, b) => Math.max(a, b));
  const size = fitted(most, box), { svg, x, y } = plot(size, [0, STEPS[STEPS.length - 1]], spread([low, high]), ['step', logarithmic ? `log10 of ${name}` : name], `${name} by step; the arrow keys select a step`);
  drawn.forEach((l) => svg.append(drawing('polyline', { class: l.className, points: path(shown(l).map(([s, v]) => [x(s), y(v)])) })));
  drawn.filter((l) => l.dots).forEach((l) => shown(l).forEach(([s, v]) => svg.append(drawing('circle', { class: 'dot', r: 3, cx: x(s), cy: y(v) }))));
  box.append(svg);
  if (drawn.length > 1) box.append(makeLegend(drawn)); /* the style sheet moves the legend above the plot */
  makeReader(box, svg, size, x, drawn[0].steps, show);
};
