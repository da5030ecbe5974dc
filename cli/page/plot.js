/* plot.js - draws plots with numeric axes as SVG. */
/* Returns {ticks, text}: about `most` round numbers between low and high, and a function that formats a tick. */
const roundTicks = (low, high, most = 6) => {
  const raw = (high - low || 1) / most, size = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find((k) => k * size >= raw) * size;
  const ticks = [];
  for (let x = Math.ceil(low / step) * step; x <= high + step / 1e6; x += step) ticks.push(Math.abs(x) < step / 1e6 ? 0 : x);
  return { ticks, text: (x) => String(Number(x.toPrecision(6))) };
};

/* Returns `size` scaled down to the width of `box`, so that text keeps its size on a phone; `size` itself if `box` has
 * no width. */
const fitted = (size, box) => {
  const width = Math.min(Math.max(box.clientWidth || size.width, 260), size.width);
  return { width, height: Math.max(size.height * width / size.width, 200), margin: Math.min(size.margin, 46 + width / 90) };
};

/* Returns {svg, x, y}: an empty plot with axes, and functions that map data values to SVG coordinates. */
const plot = ({ width, height, margin }, [xLow, xHigh], [yLow, yHigh], [xName, yName], title) => {
  const svg = drawing('svg', { viewBox: `0 0 ${width} ${height}`, class: 'plot', role: 'img', 'aria-label': title });
  const x = (v) => margin + (v - xLow) / (xHigh - xLow || 1) * (width - 1.5 * margin), y = (v) => height - margin - (v - yLow) / (yHigh - yLow || 1) * (height - 1.5 * margin);
  const across = roundTicks(xLow, xHigh, width / 90), up = roundTicks(yLow, yHigh);
  across.ticks.forEach((v) => svg.append(drawing('line', { x1: x(v), x2: x(v), y1: y(yLow), y2: y(yHigh), class: 'rule' }),
    drawing('text', { x: x(v), y: height - margin + 16, 'text-anchor': 'middle' }, across.text(v))));
  up.ticks.forEach((v) => svg.append(drawing('line', { x1: x(xLow), x2: x(xHigh), y1: y(v), y2: y(v), class: 'rule' }),
    drawing('text', { x: margin - 6, y: y(v) + 4, 'text-anchor': 'end' }, up.text(v))));
  svg.append(drawing('text', { x: (margin + width) / 2, y: height - 8, 'text-anchor': 'middle', class: 'axis' }, xName),
    drawing('text', { x: 4, y: 14, class: 'axis' }, yName));
  return { svg, x, y };
};

const spread = (values) => {
  const low = Math.min(...values), high = Math.max(...values), more = (high - low || 1) * 0.06;
  return [low - more, high + more];
};
