/* attended_text.js - draws the text in two columns, with lines in the colors of the heads from each token to the tokens
 * that it attends to, and a table of the key token to which the selected token attends most in every head. */
const LINE_HEIGHT = 20, WEIGHT_MIN = 0.05, LINES_MAX = 4000;
const from = { m: 0, layer: 0, drawn: new Set(), token: -1, held: false }; /* drawn: heads whose lines are drawn, as indices into `heads` */

const layerHeads = () => heads.map((h, i) => i).filter((i) => heads[i].layer === from.layer && heads[i].at[from.m] >= 0);

/* Returns the weights of the drawn heads that are large enough for a line, as [head, query, key, weight], the largest
 * last. */
const strongLines = (maps) => {
  const lines = [], rows = (n) => (from.token >= 0 ? [from.token] : Array.from({ length: n }, (_, i) => i));
  maps.forEach(({ index, map }) => rows(map.rows).forEach((i) => {
    for (let j = 0; j < map.n; j++) {
      const w = map.at(i, j);
      if (w >= (from.token >= 0 ? 0.005 : WEIGHT_MIN)) lines.push([index, i, j, w]);
    }
  }));
  return lines.sort((a, b) => a[3] - b[3]).slice(-LINES_MAX);
};

const drawLines = () => {
  const indices = [...from.drawn], token = from.token;
  withMaps(indices.map((index) => [heads[index], from.m]), (maps) => {
    if (token === from.token) paintLines(indices.map((index, i) => ({ index, map: maps[i] })));
  });
};

/* Draws the lines on a canvas, which the style sheet stretches between the two lists, also in print. */
const paintLines = (maps) => {
  const canvas = $('line-canvas'), height = Math.max(models[from.m].tokens.length, queriesOf(from.m).length) * LINE_HEIGHT, width = canvas.clientWidth;
  const scale = Math.min(window.devicePixelRatio || 1, 16000 / height), ink = canvas.getContext('2d');
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  ink.setTransform(scale, 0, 0, scale, 0, 0);
  ink.lineWidth = 2;
  strongLines(maps).forEach(([index, i, j, w]) => {
    ink.globalAlpha = clamp(w, 0.02, 1);
    ink.strokeStyle = headColor(heads[index].head);
    ink.beginPath();
    ink.moveTo(4, (i + .5) * LINE_HEIGHT);
    ink.lineTo(width - 4, (j + .5) * LINE_HEIGHT);
    ink.stroke();
  });
  shadeTokens(maps);
};

/* Shades the tokens on the right by the largest weight that they receive from the selected token. */
const shadeTokens = (maps) => {
  [...$('to-tokens').children].forEach((li, j) => {
    const w = from.token < 0 ? 0 : Math.max(0, ...maps.map(({ map }) => map.at(from.token, j)));
    li.style.setProperty('--weight', `${(100 * Math.sqrt(clamp(w, 0, 1))).toFixed(1)}%`);
  });
  [...$('from-tokens').children].forEach((li, i) => li.classList.toggle('query', i === from.token));
};

/* ---- table of the most attended keys ---- */

const strongest = (map, row) => {
  let best = 0;
  for (let j = 1; j < map.n; j++) if (map.at(row, j) > map.at(row, best)) best = j;
  return best;
};

const lookCell = (h, i) => {
  const td = element('td'), map = readyMap(h, from.m);
  if (!map) return td;
  const j = strongest(map, i), w = map.at(i, j), color = ramp(Math.sqrt(w)), tokens = models[from.m].tokens;
  td.textContent = shorten(readable(tokens[j]));
  td.title = `head ${h.name}: ${placedQuery(from.m, i)} → ${placed(from.m, j)}: ${fixed(w)}`;
  td.dataset.weight = w;
  td.style.background = css(color);
  td.style.color = inkOn(color);
  return td;
};

/* Lists, for every head, the key with the largest weight for the selected token. Without a selected token, uses the
 * last token, which attends to all tokens in a decoder. */
const listLooks = () => {
  const title = $('looks-title'), table = $('looks-table'), i = from.token < 0 ? queriesOf(from.m).length - 1 : from.token;
  table.replaceChildren();
  title.textContent = `From ${placedQuery(from.m, i)}: the token that each head attends to most; brighter means a larger weight.` +
    (from.token < 0 ? ' Point at a token on the left to select another token.' : '');
  const numbers = [...new Set(heads.map((h) => h.head))].sort((a, b) => a - b), top = element('tr');
  top.append(element('th', 'layer'), ...numbers.map((head) => element('th', head)));
  table.append(top);
  models[from.m].heads.forEach((_, layer) => {
    const tr = element('tr');
    tr.append(element('th', layer), ...numbers.map((head) => {
      const h = heads.find((x) => x.layer === layer && x.head === head);
      return h ? lookCell(h, i) : element('td');
    }));
    table.append(tr);
  });
};

/* ---- selection ---- */

const chooseToken = (i) => {
  if (i === from.token) return;
  from.token = i;
  drawLines();
  listLooks();
};

const headSwitches = () => {
  $('text-heads').replaceChildren(...layerHeads().map((index) => {
    const button = element('button', String(heads[index].head), 'chip');
    button.type = 'button';
    button.style.setProperty('--label', headColor(heads[index].head));
    button.setAttribute('aria-pressed', String(from.drawn.has(index)));
    button.setAttribute('aria-label', `head ${heads[index].name}`);
    button.addEventListener('click', () => {
      const chosen = !from.drawn.delete(index);
      if (chosen) from.drawn.add(index);
      button.setAttribute('aria-pressed', String(chosen));
      drawLines();
    });
    return button;
  }));
};

/* Shows the head that was selected elsewhere on the page. */
const followHead = () => {
  const h = heads[selected.head];
  if (h.at[from.m] < 0) return;
  from.layer = h.layer;
  from.drawn = new Set([selected.head]);
  $('text-layer').value = String(h.layer);
  headSwitches();
  drawLines();
};

const tokenItem = (token, i) => {
  const li = element('li', readable(token), token.special ? 'special' : '');
  li.title = spelled(token, i);
  return li;
};

const showModel = (m) => {
  Object.assign(from, { m, token: -1, held: false });
  $('from-tokens').replaceChildren(...queriesOf(m).map(tokenItem));
  $('to-tokens').replaceChildren(...models[m].tokens.map(tokenItem));
  $('text-layer').replaceChildren(...models[m].heads.map((_, layer) => option(layer, layer)));
  withMaps(heads.map((h) => [h, m]), () => { if (from.m === m) listLooks(); });
};

const listenToTokens = () => {
  const list = $('from-tokens'), at = (event) => [...list.children].indexOf(event.target.closest('li'));
  list.addEventListener('pointerover', (event) => { if (!from.held) chooseToken(at(event)); });
  list.addEventListener('pointerleave', () => { if (!from.held) chooseToken(-1); });
  list.addEventListener('click', (event) => {
    const i = at(event);
    from.held = !(from.held && i === from.token);
    chooseToken(i);
  });
  $('lines').addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === 'Escape') {
      from.held = false;
      chooseToken(-1);
    }
    if (!step) return;
    event.preventDefault();
    from.held = true;
    chooseToken(clamp(from.token + step, 0, list.children.length - 1));
    list.children[from.token].scrollIntoView({ block: 'nearest' });
  });
};

const makeText = () => {
  if (models.length > 1) {
    const label = element('label', 'Model '), choice = element('select');
    choice.append(...models.map((m, i) => option(i, m.model)));
    choice.addEventListener('change', () => { showModel(Number(choice.value)); followHead(); });
    label.append(choice);
    $('text-controls').prepend(label);
  }
  showModel(0);
  listenToTokens();
  $('text-layer').addEventListener('change', (event) => {
    from.layer = Number(event.target.value);
    from.drawn = new Set(layerHeads());
    headSwitches();
    drawLines();
  });
  followHead();
  on('head', followHead);
  on('theme', () => { drawLines(); listLooks(); });
  whenResized($('line-canvas'), drawLines);
};
