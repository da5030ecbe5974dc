/* unpack_maps.js - unpacks attention maps on demand and keeps them in their stored type, a byte or a float per weight.
 *
 * The map of a head is a base64 string of a gzip stream, which stores the map column by column, since columns compress
 * better than rows. A byte stores the square root of a weight: weight = (byte / 255)^2, with an error of at most
 * 0.004. */
const EXACT = 'f32';
const ROOTS = Float32Array.from({ length: 256 }, (_, u) => (u / 255) ** 2);

const bytesOf = (base64) => {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
};

/* Stores the decompressed bytes `raw` as the map at index `place` of a model, and discards the base64 string. */
const keepMap = (model, place, raw) => {
  const n = model.tokens.length, rows = (model.queries || model.tokens).length, exact = model.maps.type === EXACT;
  const numbers = exact ? new Float32Array(raw) : new Uint8Array(raw);
  const at = exact ? (i, j) => numbers[j * rows + i] : (i, j) => ROOTS[numbers[j * rows + i]];
  model.maps.data[place] = null;
  model.ready[place] = { n, rows, numbers, at, exact };
  return model.ready[place];
};

const unpack = async (model, place) => {
  const stream = new Blob([bytesOf(model.maps.data[place])]).stream().pipeThrough(new DecompressionStream('gzip'));
  const raw = await new Response(stream).arrayBuffer();
  return model.ready[place] || keepMap(model, place, raw);
};

/* mapOf returns a promise of the map at index `place` of model m; readyMap returns the map, or undefined until it is
 * unpacked. */
const mapOf = (m, place) => {
  const model = models[m];
  model.ready = model.ready || [];
  model.wanted = model.wanted || [];
  if (!model.wanted[place]) model.wanted[place] = model.ready[place] ? Promise.resolve(model.ready[place]) : unpack(model, place);
  return model.wanted[place];
};
const readyMap = (h, m) => (h.at[m] < 0 ? undefined : (models[m].ready || [])[placeOf(h, m)]);

/* Calls `call` with the maps of a list of [head, model], immediately if all are unpacked. The map is null if the head
 * was removed from the model. */
const withMaps = (list, call) => {
  const maps = list.map(([h, m]) => (h.at[m] < 0 ? null : readyMap(h, m)));
  if (maps.every((map) => map !== undefined)) call(maps);
  else Promise.all(list.map(([h, m]) => (h.at[m] < 0 ? null : mapOf(m, placeOf(h, m))))).then(call);
};

/* Unpacks all maps synchronously, for printing. */
const unpackAll = () => models.forEach((model) => {
  const n = model.tokens.length, size = n * (model.queries || model.tokens).length * (model.maps.type === EXACT ? 4 : 1);
  model.ready = model.ready || [];
  model.maps.data.forEach((text, place) => { if (text) keepMap(model, place, inflate(bytesOf(text), size).buffer); });
});

/* Return the weights of row i, or of column j, as an array. */
const rowOf = (map, i) => Array.from({ length: map.n }, (_, j) => map.at(i, j));
const columnOf = (map, j) => Array.from({ length: map.rows }, (_, i) => map.at(i, j));

/* Returns the sink of a map: the column with the largest mean weight, if the mean exceeds 0.3 (Gu et al. 2024); -1 if
 * the map has no sink. The mean excludes rows for which a causal mask hides the column. */
const SINK = 0.3;
const sinkOf = (map, causal) => {
  if (map.sink !== undefined) return map.sink;
  let best = -1, most = SINK;
  for (let j = 0; j < map.n; j++) {
    let sum = 0;
    for (let i = 0; i < map.rows; i++) sum += map.at(i, j);
    const mean = sum / (causal ? map.n - j : map.rows);
    if (mean > most && map.n - j > 1) [best, most] = [j, mean];
  }
  map.sink = best;
  return best;
};

/* Returns an image of the map with at most `side` pixels per side. Each pixel shows the largest weight that it covers,
 * so that thin lines stay visible. */
const thumbnail = (map, side) => {
  const step = Math.ceil(Math.max(map.n, map.rows) / side), n = Math.ceil(map.n / step), rows = Math.ceil(map.rows / step), most = new Float32Array(n * rows);
  for (let j = 0, q = 0; j < map.n; j++) {
    const column = Math.floor(j / step);
    for (let i = 0; i < map.rows; i++, q++) {
      const p = Math.floor(i / step) * n + column;
      if (map.numbers[q] > most[p]) most[p] = map.numbers[q];
    }
  }
  const shade = map.exact ? (w) => Math.round(255 * SCALES.root.place(Math.min(w, 1))) : (byte) => byte;
  return paint(element('canvas'), n, rows, (p) => COLORS[shade(most[p])]);
};

const COLORS = Array.from({ length: 256 }, (_, i) => ramp(i / 255));

/* Fills a canvas of width x height pixels; color(p) is the [r, g, b] of pixel p, row by row. */
const paint = (canvas, width, height, color) => {
  Object.assign(canvas, { width, height });
  const context = canvas.getContext('2d'), pixels = context.createImageData(width, height);
  for (let p = 0; p < width * height; p++) {
    const c = color(p);
    pixels.data[4 * p] = c[0];
    pixels.data[4 * p + 1] = c[1];
    pixels.data[4 * p + 2] = c[2];
    pixels.data[4 * p + 3] = 255;
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
};
