/* draw_maps.js - draws attention maps in the colors of all pages, by the square root of the weight. */
const SHADES = 256;
const shades = new Uint32Array(SHADES); /* RGBA of weight (i / 255)^2, in the byte order of ImageData */

const makeShades = () => {
  const bytes = new Uint8Array(shades.buffer), ramp = data.ramp;
  for (let i = 0; i < SHADES; i++) {
    const place = (i / (SHADES - 1)) * (ramp.length - 1), low = Math.min(Math.floor(place), ramp.length - 2), part = place - low;
    for (let c = 0; c < 3; c++) bytes[4 * i + c] = Math.round(ramp[low][c] + (ramp[low + 1][c] - ramp[low][c]) * part);
    bytes[4 * i + 3] = 255;
  }
};

let drawn = null; /* the pixels of the last map, reused for maps of the same size */

/* Draws the map [n, n] that begins at `from` of `maps`, one pixel per weight, in the corner of a canvas of size [room, room]. */
const drawMap = (canvas, maps, from, n, room = n) => {
  if (canvas.width !== room || canvas.height !== room) canvas.width = canvas.height = Math.max(room, 1);
  const context = canvas.getContext('2d');
  if (n === 0) return;
  if (!drawn || drawn.width !== n) drawn = context.createImageData(n, n);
  const pixels = new Uint32Array(drawn.data.buffer);
  for (let i = 0; i < n * n; i++) {
    const weight = maps[from + i]; /* half of the weights of a causal model are 0 */
    pixels[i] = shades[weight > 0 ? Math.round(Math.sqrt(weight < 1 ? weight : 1) * (SHADES - 1)) : 0];
  }
  context.putImageData(drawn, 0, 0);
};
