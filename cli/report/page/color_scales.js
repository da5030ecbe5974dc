/* color_scales.js - maps numbers to colors and draws legends. */

/* Returns the color of viridis at x in 0..1, as [r, g, b]. */
const ramp = (x) => {
  const at = clamp(x, 0, 1) * (data.ramp.length - 1), i = Math.min(Math.floor(at), data.ramp.length - 2);
  return data.ramp[i].map((c, k) => Math.round(c + (data.ramp[i + 1][k] - c) * (at - i)));
};
const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

/* Returns black or white, whichever has more contrast on the color (relative luminance of WCAG). */
const inkOn = (color) => {
  const [r, g, b] = color.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? '#000' : '#fff';
};

const LABEL_COLORS = { first: '#4c6ef5', sep: '#15aabf', prev: '#e8590c', next: '#f59f00', self: '#2f9e44', punct: '#ae3ec9',
  local: '#f06595', block: '#74b816', broad: '#868e96', vertical: '#1098ad', duplicate: '#7950f2', induction: '#e03131', mixed: '#adb5bd' };

/* Colors of the lines of heads, distinguishable in both themes; they repeat in layers with more heads than colors. */
const HEAD_COLORS = ['#1f77b4', '#ff7f0e', '#2ca02c', '#d62728', '#9467bd', '#8c564b', '#e377c2', '#7f7f7f', '#bcbd22', '#17becf',
  '#4c6ef5', '#f59f00'];
const headColor = (i) => HEAD_COLORS[i % HEAD_COLORS.length];

/* Color scales. place(w) maps w, a weight divided by the largest weight of the scale, to a position 0..1. The default
 * is the square root, which assigns half of the colors to w < 1/4, so that small weights are distinguishable. The
 * logarithmic scale has four decades. */
const LOG_FLOOR = 1e-4;
const SCALES = {
  root: { name: 'square-root scale', place: (w) => Math.sqrt(Math.max(w, 0)), ticks: [0, .01, .05, .1, .25, .5, .75, 1] },
  log: { name: `logarithmic scale; weights below ${LOG_FLOOR} times the maximum are drawn as 0`, ticks: [1e-4, 1e-3, .01, .1, 1],
    place: (w) => (w <= LOG_FLOOR ? 0 : 1 + Math.log10(w) / 4) },
  linear: { name: 'linear scale', place: (w) => w, ticks: [0, .25, .5, .75, 1] },
};

/* Fills a <figure> with a color bar, its ticks [{at, text}] and a caption. */
const legend = (figure, ticks, words) => {
  const bar = element('canvas'), row = element('div', null, 'ticks'), ink = bar.getContext('2d');
  bar.width = 512;
  bar.height = 12;
  for (let x = 0; x < 512; x++) {
    ink.fillStyle = css(ramp(x / 511));
    ink.fillRect(x, 0, 1, 12);
  }
  ticks.forEach(({ at, text }) => {
    const tick = element('span', text);
    tick.style.left = `${100 * at}%`;
    if (at < 0.02) tick.style.transform = 'none';
    if (at > 0.98) tick.style.transform = 'translateX(-100%)';
    row.append(tick);
  });
  bar.setAttribute('aria-hidden', 'true');
  figure.replaceChildren(bar, row, element('figcaption', words));
};

/* Returns five ticks from low to high, evenly spaced on the bar; value(at) is the number at a position 0..1. */
const evenTicks = (low, high, value = (at) => low + (high - low) * at) => [0, .25, .5, .75, 1].map((at) => ({ at, text: fixed(value(at), decimalsOf([value(0), value(1)])) }));

const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
