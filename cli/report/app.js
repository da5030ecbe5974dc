'use strict';
/* The report: draws every head's map from the data block, shows one head large. Text from the model reaches the page only
 * through textContent and canvas text, never as markup. */
(async () => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const $ = (id) => document.getElementById(id);
  const n = data.tokens.length;

  /* ---- colours ---- */
  const ramp = (x) => { /* x in 0..1 */
    const at = Math.min(Math.max(x, 0), 1) * (data.ramp.length - 1), i = Math.min(Math.floor(at), data.ramp.length - 2);
    return data.ramp[i].map((c, k) => Math.round(c + (data.ramp[i + 1][k] - c) * (at - i)));
  };
  const shade = Math.sqrt; /* as colour_of_weight: small weights matter: half of the colours go to the lowest quarter */
  const LABEL_COLOURS = { first: '#4c6ef5', sep: '#15aabf', prev: '#e8590c', next: '#f59f00', self: '#2f9e44', punct: '#ae3ec9',
    local: '#f06595', broad: '#868e96', vertical: '#1098ad', duplicate: '#7950f2', induction: '#e03131', mixed: '#adb5bd' };

  /* ---- maps ---- */
  const unpack = async () => {
    const packed = Uint8Array.from(atob(data.maps.data), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
    const bytes = await new Response(stream).arrayBuffer();
    if (data.maps.type === 'f32') return new Float32Array(bytes);
    return Float32Array.from(new Uint8Array(bytes), (u) => (u / 255) ** 2);
  };
  const weights = await unpack();
  const heads = []; /* {layer, head, label, map} in reading order */
  data.heads.forEach((count, layer) => {
    for (let head = 0; head < count; head++) {
      const start = heads.length * n * n;
      heads.push({ layer, head, label: data.labels[layer][head], map: weights.subarray(start, start + n * n) });
    }
  });

  const image = (map) => {
    const canvas = document.createElement('canvas');
    canvas.width = canvas.height = n;
    const context = canvas.getContext('2d'), pixels = context.createImageData(n, n);
    map.forEach((w, i) => {
      const [r, g, b] = ramp(shade(w));
      pixels.data.set([r, g, b, 255], 4 * i);
    });
    context.putImageData(pixels, 0, 0);
    return canvas;
  };

  /* ---- header ---- */
  const element = (tag, text, className) => {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    if (className) e.className = className;
    return e;
  };
  const chip = (label, text) => {
    const e = element('li', text, 'chip');
    e.style.setProperty('--label', LABEL_COLOURS[label]);
    return e;
  };
  document.title = `Attention heads of ${data.model}`;
  $('summary').textContent = `${data.model} · ${data.heads.length} layers, ${heads.length} heads · ${n} tokens` +
    (data.cut ? `; the text is longer, ${data.cut} tokens were cut off` : '');
  $('text').textContent = data.text;
  const counts = new Map();
  heads.forEach((h) => counts.set(h.label, (counts.get(h.label) || 0) + 1));
  [...counts].sort((a, b) => b[1] - a[1]).forEach(([label, count]) => $('labels').append(chip(label, `${label} ${count}`)));

  /* ---- overview ---- */
  const cells = heads.map((h, index) => {
    const cell = element('button', undefined, 'cell');
    cell.type = 'button';
    cell.setAttribute('role', 'gridcell');
    cell.setAttribute('aria-label', `layer ${h.layer} head ${h.head}: ${h.label}`);
    cell.title = `layer ${h.layer} head ${h.head}: ${h.label}`;
    cell.style.setProperty('--label', LABEL_COLOURS[h.label]);
    cell.append(image(h.map), element('span', h.label));
    cell.addEventListener('click', () => select(index));
    return cell;
  });
  const row = (name, children) => {
    const e = element('div', undefined, 'layer');
    e.setAttribute('role', 'row');
    e.append(element('span', name, 'layer-name'), ...children);
    return e;
  };
  const widest = Math.max(...data.heads);
  $('grid').append(row('', Array.from({ length: widest }, (_, head) => element('span', String(head), 'head-name'))));
  data.heads.forEach((count, layer) => $('grid').append(row(String(layer), cells.filter((c, i) => heads[i].layer === layer))));
  $('grid').addEventListener('keydown', (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    const { layer, head } = heads[selected];
    const next = heads.findIndex((h) => h.layer === layer + step[0] &&
      h.head === Math.min(head + step[1], (data.heads[layer + step[0]] || 0) - 1));
    if (next >= 0) { select(next); cells[next].focus(); }
  });

  /* ---- one head ---- */
  let selected = -1, picture = null, focus = null; /* focus: [row, column] under the pointer */
  const canvas = $('map'), context = canvas.getContext('2d');
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const shorten = (t) => (t.length > 14 ? t.slice(0, 13) + '…' : t);
  const layout = () => { /* in CSS pixels */
    const width = canvas.parentElement.clientWidth, font = 11;
    context.font = `${font}px system-ui, sans-serif`;
    const longest = Math.max(...data.tokens.map((t) => context.measureText(shorten(t.text)).width));
    const room = Math.min(longest + 8, 110), side = Math.max(Math.min(width - room - 6, 640), 100);
    return { font, room, side, step: side / n, width, height: side + room };
  };
  const draw = () => {
    const at = layout(), scale = window.devicePixelRatio || 1;
    canvas.style.height = `${at.height}px`;
    canvas.width = Math.round(at.width * scale);
    canvas.height = Math.round(at.height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, at.width, at.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, at.room, at.room, at.side, at.side);
    const every = Math.max(1, Math.ceil((at.font + 1) / at.step));
    context.font = `${at.font}px system-ui, sans-serif`;
    context.textBaseline = 'middle';
    data.tokens.forEach((token, i) => {
      const near = focus && (focus[0] === i || focus[1] === i);
      if (i % every && !near) return;
      const middle = at.room + (i + .5) * at.step;
      context.fillStyle = style(focus && focus[0] === i ? '--mark' : '--ink');
      context.textAlign = 'right';
      context.fillText(shorten(token.text), at.room - 5, middle);
      context.save();
      context.translate(middle, at.room - 5);
      context.rotate(-Math.PI / 2);
      context.fillStyle = style(focus && focus[1] === i ? '--mark' : '--ink');
      context.textAlign = 'left';
      context.fillText(shorten(token.text), 0, 0);
      context.restore();
    });
    if (focus) {
      context.strokeStyle = style('--mark');
      context.lineWidth = 1.5;
      context.strokeRect(at.room, at.room + focus[0] * at.step, at.side, at.step);
      context.strokeRect(at.room + focus[1] * at.step, at.room, at.step, at.side);
    }
  };
  $('sentence').addEventListener('pointerleave', () => point(null));
  const sentence = data.tokens.map((token) => element('span', token.text, token.special ? 'special' : ''));
  sentence.forEach((s, i) => {
    s.addEventListener('pointerenter', () => point([i, best(i)]));
    $('sentence').append(s, ' ');
  });
  const best = (row) => {
    const line = heads[selected].map.subarray(row * n, row * n + n);
    return line.indexOf(Math.max(...line));
  };
  const point = (where) => { /* [row, column], or null for none */
    focus = where;
    draw();
    const tip = $('tip');
    tip.hidden = !where;
    const line = where && heads[selected].map.subarray(where[0] * n, where[0] * n + n);
    sentence.forEach((s, i) => {
      s.style.setProperty('--weight', where ? `${100 * shade(line[i])}%` : '0%');
      s.classList.toggle('query', Boolean(where) && i === where[0]);
    });
    if (!where) return;
    const [i, j] = where, at = layout();
    tip.replaceChildren(element('span', `${data.tokens[i].text} → ${data.tokens[j].text}: `),
      element('b', line[j].toFixed(4)));
    tip.dataset.row = i;
    tip.dataset.column = j;
    tip.dataset.weight = line[j];
    const x = at.room + (j + 1) * at.step + 8, y = at.room + (i + 1) * at.step + 8;
    tip.style.left = `${Math.max(0, Math.min(x, at.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y}px`;
  };
  const under = (event) => {
    const box = canvas.getBoundingClientRect(), at = layout();
    const j = Math.floor((event.clientX - box.left - at.room) / at.step), i = Math.floor((event.clientY - box.top - at.room) / at.step);
    return i >= 0 && j >= 0 && i < n && j < n ? [i, j] : null;
  };
  canvas.addEventListener('pointermove', (event) => point(under(event)));
  canvas.addEventListener('pointerleave', () => point(null));
  canvas.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    const [i, j] = focus || [0, -step[1]], keep = (v) => Math.min(Math.max(v, 0), n - 1);
    point([keep(i + step[0]), keep(j + step[1])]);
  });

  const number = (x) => (x === null || x === undefined ? '–' : Math.abs(x) >= 100 ? x.toFixed(1) : x.toFixed(3));
  const select = (index) => {
    if (selected >= 0) cells[selected].setAttribute('aria-selected', 'false');
    selected = index;
    cells.forEach((cell, i) => { cell.tabIndex = i === index ? 0 : -1; });
    cells[index].setAttribute('aria-selected', 'true');
    const { layer, head, label, map } = heads[index];
    picture = image(map);
    $('head-title').textContent = `Layer ${layer}, head ${head}: ${label}`;
    $('head-meaning').textContent = data.label_help[label];
    canvas.setAttribute('aria-label', `Attention map of layer ${layer} head ${head}, ${n} by ${n} tokens; use the arrow keys to read weights`);
    const body = $('metrics').tBodies[0];
    body.replaceChildren();
    const names = Object.keys(data.metrics);
    for (let i = 0; i < names.length; i += 2) {
      const tr = element('tr');
      names.slice(i, i + 2).forEach((name) => {
        const key = element('td', name);
        key.title = data.metric_help[name];
        tr.append(key, element('td', number(data.metrics[name][layer][head])));
      });
      body.append(tr);
    }
    point(null);
  };

  /* ---- legend and help ---- */
  const legend = () => {
    const bar = $('ramp');
    bar.width = 512;
    const ink = bar.getContext('2d');
    for (let x = 0; x < 512; x++) {
      const [r, g, b] = ramp(x / 511);
      ink.fillStyle = `rgb(${r} ${g} ${b})`;
      ink.fillRect(x, 0, 1, 12);
    }
    [0, .01, .05, .1, .25, .5, .75, 1].forEach((w) => {
      const tick = element('span', String(w));
      tick.style.left = `${100 * shade(w)}%`;
      $('ticks').append(tick);
    });
    $('scale-note').textContent = '(square-root scale)' + (data.maps.type === 'f32' ? '' : '; stored in 8 bits, largest error 0.004');
  };
  const explain = (list, entries, used) => Object.entries(entries).forEach(([key, text]) => {
    if (used(key)) list.append(element('dt', key), element('dd', text));
  });
  legend();
  explain($('label-help'), data.label_help, () => true);
  explain($('metric-help'), data.metric_help, (key) => key in data.metrics);
  const start = heads.findIndex((h) => h.label === 'prev');
  select(start >= 0 ? start : 0);
  new ResizeObserver(() => point(focus)).observe(canvas.parentElement);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => point(focus));
  document.body.dataset.ready = 'yes';
})();
