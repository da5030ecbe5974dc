/* signed_color.js - Returns the background of a value: orange for positive values, blue for negative ones, relative to the
 * largest magnitude `most`. */
const signedColor = (value, most) => {
  const part = most > 0 && isNumber(value) ? Math.min(Math.abs(value) / most, 1) : 0;
  return `color-mix(in srgb, var(${value < 0 ? '--other' : '--shade'}) ${Math.round(part * 65)}%, transparent)`;
};
