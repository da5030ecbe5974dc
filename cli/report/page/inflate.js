/* inflate.js - decompresses DEFLATE (RFC 1951) synchronously. The browser's own decompression is asynchronous and would
 * be too late for a page that is printed while it loads. */

/* Returns the canonical Huffman code of the given code lengths: {count: number of codes of each length, symbols: in the
 * order of their codes}. */
const huffman = (lengths) => {
  const count = new Uint16Array(16), start = new Uint16Array(16), symbols = new Uint16Array(lengths.length);
  lengths.forEach((n) => { if (n) count[n]++; });
  for (let n = 1; n < 15; n++) start[n + 1] = start[n] + count[n];
  lengths.forEach((n, symbol) => { if (n) symbols[start[n]++] = symbol; });
  return { count, symbols };
};

/* Returns the table of match lengths or distances by symbol: [number of extra bits, smallest value]. */
const steps = (count, extra, first) => Array.from({ length: count }, (_, i) => {
  const bits = extra(i), at = [bits, first];
  first += 1 << bits;
  return at;
});
const MATCH_LENGTHS = [...steps(28, (i) => Math.max(0, (i >> 2) - 1), 3), [0, 258]], MATCH_DISTANCES = steps(30, (i) => Math.max(0, (i >> 1) - 1), 1);
const LENGTH_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const FIXED_CODES = [huffman(Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8))), huffman(new Array(30).fill(5))];

/* Decompresses a gzip stream of `size` bytes; its header must have no name, comment or extra field. */
const inflate = (input, size) => {
  const out = new Uint8Array(size);
  let at = 10, held = 0, have = 0, end = 0;
  const bits = (n) => {
    for (; have < n; have += 8) held |= input[at++] << have;
    const value = held & ((1 << n) - 1);
    held >>>= n;
    have -= n;
    return value;
  };
  const symbol = ({ count, symbols }) => {
    let code = 0, first = 0, index = 0;
    for (let n = 1; n < 16; n++) {
      code |= bits(1);
      if (code - first < count[n]) return symbols[index + code - first];
      index += count[n];
      first = (first + count[n]) << 1;
      code <<= 1;
    }
    throw new Error('a map of this page is damaged');
  };
  const readCodes = () => {
    const counts = [bits(5) + 257, bits(5) + 1], small = new Array(19).fill(0), lengths = [];
    for (let i = 0, n = bits(4) + 4; i < n; i++) small[LENGTH_ORDER[i]] = bits(3);
    const code = huffman(small);
    while (lengths.length < counts[0] + counts[1]) {
      const s = symbol(code);
      if (s < 16) lengths.push(s);
      else if (s === 16) lengths.push(...new Array(3 + bits(2)).fill(lengths[lengths.length - 1]));
      else lengths.push(...new Array(s === 17 ? 3 + bits(3) : 11 + bits(7)).fill(0));
    }
    return [huffman(lengths.slice(0, counts[0])), huffman(lengths.slice(counts[0]))];
  };
  const readBlock = ([literals, distances]) => {
    for (let s = symbol(literals); s !== 256; s = symbol(literals)) {
      if (s < 256) {
        out[end++] = s;
        continue;
      }
      const [more, length] = MATCH_LENGTHS[s - 257], stop = end + length + bits(more), [far, distance] = MATCH_DISTANCES[symbol(distances)];
      for (const back = distance + bits(far); end < stop; end++) out[end] = out[end - back];
    }
  };
  const copyBlock = () => {
    held = have = 0; /* skips the remaining bits of the byte; no byte was read ahead */
    const length = input[at] | input[at + 1] << 8;
    out.set(input.subarray(at + 4, at + 4 + length), end);
    at += 4 + length;
    end += length;
  };
  for (let last = 0; !last;) {
    last = bits(1);
    const type = bits(2);
    if (type === 0) copyBlock(); else readBlock(type === 1 ? FIXED_CODES : readCodes());
  }
  return out;
};
