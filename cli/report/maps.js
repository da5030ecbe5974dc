/* maps.js - the attention maps: unpacked when they are wanted, kept as they came (a byte or a float for each weight).
 *
 * A head's map is a gzip stream in base64: for each key one after the other the weights that the queries give it, since a
 * column is smoother than a row. Bytes hold the square root: weight = (byte / 255)^2, largest error 0.004. */
const EXACT = 'f32';
const ROOTS = Float32Array.from({ length: 256 }, (_, u) => (u / 255) ** 2);

const bytesOf = (base64) => {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
};

const unpack = async (model, place) => {
  const stream = new Blob([bytesOf(model.maps.data[place])]).stream().pipeThrough(new DecompressionStream('gzip'));
  const raw = await new Response(stream).arrayBuffer();
  model.maps.data[place] = null; /* the text is needed no more */
  const n = model.tokens.length;
  const numbers = model.maps.type === EXACT ? new Float32Array(raw) : new Uint8Array(raw);
  const at = model.maps.type === EXACT ? (i, j) => numbers[j * n + i] : (i, j) => ROOTS[numbers[j * n + i]];
  return { n, numbers, at, exact: model.maps.type === EXACT };
};

/* The map of the head at `place` of model m: a promise, and the map itself once it is there. */
const wanted = models.map(() => new Map()), ready = models.map(() => []);
const mapOf = (m, place) => {
  if (!wanted[m].has(place))
    wanted[m].set(place, unpack(models[m], place).then((map) => (ready[m][place] = map)));
  return wanted[m].get(place);
};
const readyMap = (h, m) => (h.at[m] < 0 ? undefined : ready[m][placeOf(h, m)]);

/* The weights of row i, or of column j, as an array. */
const rowOf = (map, i) => Array.from({ length: map.n }, (_, j) => map.at(i, j));
const columnOf = (map, j) => Array.from({ length: map.n }, (_, i) => map.at(i, j));

/* The sink of a map: the column that receives the most, if the mean over the rows that can see it is above 0.3 (Gu et al.
 * 2024); -1 if there is none. Rows above the diagonal of a causal map give nothing, and do not count. */
const SINK = 0.3;
const sinkOf = (map, causal) => {
  if (map.sink !== undefined) return map.sink;
  let best = -1, most = SINK;
  for (let j = 0; j < map.n; j++) {
    let sum = 0;
    for (let i = 0; i < map.n; i++) sum += map.at(i, j);
    const mean = sum / (causal ? map.n - j : map.n);
    if (mean > most && map.n - j > 1) [best, most] = [j, mean];
  }
  map.sink = best;
  return best;
};

/* A picture of the map of at most `side` pixels a side: a pixel shows the greatest of the weights that fall on it, so that
 * thin lines stay. */
const thumbnail = (map, side) => {
  const step = Math.ceil(map.n / side), n = Math.ceil(map.n / step), most = new Float32Array(n * n);
  for (let j = 0, q = 0; j < map.n; j++) {
    const column = Math.floor(j / step);
    for (let i = 0; i < map.n; i++, q++) {
      const p = Math.floor(i / step) * n + column;
      if (map.numbers[q] > most[p]) most[p] = map.numbers[q];
    }
  }
  const shade = map.exact ? (w) => Math.round(255 * SCALES.root.place(Math.min(w, 1))) : (byte) => byte;
  return paint(element('canvas'), n, (p) => COLOURS[shade(most[p])]);
};

const COLOURS = Array.from({ length: 256 }, (_, i) => ramp(i / 255));

/* Fills a canvas of n x n pixels; colour(p) is the [r, g, b] of pixel p, row by row. */
const paint = (canvas, n, colour) => {
  canvas.width = canvas.height = n;
  const context = canvas.getContext('2d'), pixels = context.createImageData(n, n);
  for (let p = 0; p < n * n; p++) {
    const c = colour(p);
    pixels.data[4 * p] = c[0];
    pixels.data[4 * p + 1] = c[1];
    pixels.data[4 * p + 2] = c[2];
    pixels.data[4 * p + 3] = 255;
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
};
