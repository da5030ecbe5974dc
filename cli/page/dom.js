'use strict';
/* dom.js - parses the data of a page and defines helper functions for the pages of `mha report` and `mha train`.
 * Untrusted text becomes text content, never markup. */
const data = JSON.parse(document.getElementById('data').textContent);

const $ = (id) => document.getElementById(id);

const element = (tag, text, className) => {
  const e = document.createElement(tag);
  if (text !== undefined && text !== null) e.textContent = text;
  if (className) e.className = className;
  return e;
};

const drawing = (tag, attributes, text) => { /* Creates an SVG element. */
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  Object.entries(attributes || {}).forEach(([name, value]) => e.setAttribute(name, value));
  if (text !== undefined) e.textContent = text;
  return e;
};

const option = (value, text) => {
  const e = element('option', text);
  e.value = value;
  return e;
};

const isNumber = (x) => x !== null && x !== undefined;

/* Formats a number with a typographic minus: one decimal from 100 up, three decimals from 0.01, otherwise in
 * significant digits. */
const number = (x) => {
  if (!isNumber(x)) return '–';
  const size = Math.abs(x);
  const text = size >= 100 ? x.toFixed(1) : size >= 0.01 || size === 0 ? x.toFixed(3) : size >= 1e-4 ? x.toPrecision(3) : x.toExponential(1);
  return text.replace(/-/g, '−');
};

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

const arrowStep = (event) => ({ ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key]);
