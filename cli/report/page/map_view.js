/* map_view.js - draws the large map of one model, with token axes, zoom, and the weight under the pointer. */
const look = { scale: 'root', focus: 'none', hideSink: false, printing: false,
  point: null, /* {m, row, column}: the weight under the pointer, or selected with the arrow keys */
  held: false, /* true if a click pinned the point */
  corner: [0, 0], part: 1 }; /* visible part of the map: upper left corner and side, as fractions of the map */

const FONT = 12, TOKENS_MIN = 4, ROOM_MAX = 110;
const shorten = (t) => (t.length > 14 ? `${t.slice(0, 13)}…` : t);
const sameTokens = () => models.length < 2 || (models[0].tokens.length === models[1].tokens.length &&
  models[0].tokens.every((t, i) => t.text === models[1].tokens[i].text));
const ROOM_BESIDE = 250, SIDE_MIN = 320; /* CSS pixels of the window reserved above and below a map, and the minimum side of a map */

class MapView {
  constructor(m, changed) {
    this.m = m;
    this.n = models[m].tokens.length; /* columns: keys */
    this.rows = queriesOf(m).length;
    this.changed = changed; /* called after the point or the zoom changes */
    this.map = null;
    this.top = 1; /* the weight at the end of the color scale */
    this.box = element('div', null, 'map-view');
    this.frame = element('div', null, 'map-frame');
    this.canvas = element('canvas', null, 'map');
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'img');
    this.tip = element('div', null, 'tip');
    this.tip.setAttribute('role', 'status');
    this.tip.hidden = true;
    this.frame.append(this.canvas, this.tip);
    if (models.length > 1) this.box.append(element('h3', models[m].model));
    this.box.append(this.frame);
    this.listen();
    whenResized(this.frame, () => this.draw());
  }

  /* ---- map and colors ---- */

  show(map) {
    this.map = map;
    this.frame.classList.toggle('removed', !map);
    if (map) this.color();
  }

  /* Paints the image of the whole map, one pixel per weight. */
  color() {
    const { n, rows, map } = this, place = SCALES[look.scale].place, gray = styleOf('--line');
    const hidden = look.hideSink ? sinkOf(map, models[this.m].causal) : -1;
    this.top = 1;
    if (hidden >= 0) {
      this.top = 0;
      for (let j = 0; j < n; j++)
        for (let i = 0; i < rows && j !== hidden; i++) this.top = Math.max(this.top, map.at(i, j));
      this.top = this.top || 1;
    }
    this.hidden = hidden;
    this.picture = paint(this.picture || element('canvas'), n, rows,
      (p) => COLORS[clamp(Math.round(255 * place(map.at(Math.floor(p / n), p % n) / this.top)), 0, 255)]);
    if (hidden < 0) return;
    const ink = this.picture.getContext('2d');
    ink.fillStyle = gray;
    ink.fillRect(hidden, 0, 1, rows);
  }

  /* ---- geometry, in CSS pixels and tokens ---- */

  layout() {
    const width = look.printing ? Math.min(this.frame.clientWidth, 620) : this.frame.clientWidth, context = this.canvas.getContext('2d');
    context.font = `${FONT}px system-ui, sans-serif`;
    this.longest = this.longest || Math.max(...[...models[this.m].tokens, ...queriesOf(this.m)].map((t) => context.measureText(shorten(readable(t))).width));
    const room = Math.min(this.longest + 8, ROOM_MAX), high = Math.max((window.innerHeight - ROOM_BESIDE) / models.length - room, SIDE_MIN);
    const side = Math.max(Math.min(width - room - 6, 640, high), 100);
    const visible = (n) => Math.max(look.part * n, Math.min(n, TOKENS_MIN)), size = visible(this.n), rows = visible(this.rows);
    return { room, side, size, rows, step: side / size, row: side / rows, width, height: side + room,
      i: clamp(look.corner[0] * this.rows, 0, this.rows - rows), j: clamp(look.corner[1] * this.n, 0, this.n - size) };
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect(), at = this.layout();
    const x = event.clientX - box.left - at.room, y = event.clientY - box.top - at.room;
    if (x < 0 || y < 0 || x >= at.side || y >= at.side) return null;
    return { m: this.m, row: Math.min(Math.floor(at.i + y / at.row), this.rows - 1),
      column: Math.min(Math.floor(at.j + x / at.step), this.n - 1) };
  }

  point() { return look.point && (look.point.m === this.m || sameTokens()) ? look.point : null; }

  /* ---- drawing ---- */

  draw() {
    if (!this.map) {
      this.tip.hidden = true;
      return;
    }
    const at = this.layout(), scale = window.devicePixelRatio || 1, context = this.canvas.getContext('2d');
    this.canvas.style.width = `${at.width}px`;
    this.canvas.style.height = `${at.height}px`;
    this.canvas.width = Math.round(at.width * scale);
    this.canvas.height = Math.round(at.height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.imageSmoothingEnabled = Math.min(at.step, at.row) < 1;
    context.imageSmoothingQuality = 'high';
    context.drawImage(this.picture, at.j, at.i, at.size, at.rows, at.room, at.room, at.side, at.side);
    const point = this.point();
    if (point) this.drawFocus(context, at, point);
    this.drawTokens(context, at, point);
    this.drawTip(at, point);
  }

  drawFocus(context, at, { row, column }) {
    const y = clamp(at.room + (row - at.i) * at.row, at.room, at.room + at.side), x = clamp(at.room + (column - at.j) * at.step, at.room, at.room + at.side);
    const below = clamp(y + at.row, at.room, at.room + at.side), right = clamp(x + at.step, at.room, at.room + at.side);
    const end = at.room + at.side;
    context.save();
    context.fillStyle = styleOf('--card');
    context.globalAlpha = 0.75;
    if (look.focus === 'row') {
      context.fillRect(at.room, at.room, at.side, y - at.room);
      context.fillRect(at.room, below, at.side, end - below);
    } else if (look.focus === 'column') {
      context.fillRect(at.room, at.room, x - at.room, at.side);
      context.fillRect(right, at.room, end - right, at.side);
    }
    context.restore();
    context.strokeStyle = styleOf('--mark');
    context.lineWidth = look.held ? 2.5 : 1.5;
    if (look.focus !== 'column') context.strokeRect(at.room, y, at.side, below - y);
    if (look.focus !== 'row') context.strokeRect(x, at.room, right - x, at.side);
  }

  drawTokens(context, at, point) {
    const { tokens } = models[this.m];
    context.font = `${FONT}px system-ui, sans-serif`;
    context.textBaseline = 'middle';
    const put = (token, i, from, step, marked, apart, write) => {
      const middle = (i + .5 - from) * step, every = Math.max(1, Math.ceil((FONT + 1) / step));
      if (middle < 0 || middle > at.side || (!marked && (i % every || apart < every))) return;
      context.fillStyle = styleOf(marked ? '--mark' : '--ink');
      write(shorten(readable(token)), at.room + middle);
    };
    const left = (text, middle) => {
      context.textAlign = 'right';
      context.fillText(text, at.room - 5, middle);
    };
    const above = (text, middle) => {
      context.save();
      context.translate(middle, at.room - 5);
      context.rotate(-Math.PI / 2);
      context.textAlign = 'left';
      context.fillText(text, 0, 0);
      context.restore();
    };
    queriesOf(this.m).forEach((token, i) => put(token, i, at.i, at.row, point && point.row === i, point ? Math.abs(i - point.row) : Infinity, left));
    tokens.forEach((token, j) => put(token, j, at.j, at.step, point && point.column === j, point ? Math.abs(j - point.column) : Infinity, above));
  }

  drawTip(at, point) {
    const { tip } = this;
    tip.hidden = !point;
    if (!point) return;
    const { row, column } = point, weight = this.map.at(row, column);
    tip.replaceChildren(element('span', `${placedQuery(this.m, row)} → ${placed(this.m, column)}: `), element('b', fixed(weight)));
    const pair = [queriesOf(this.m)[row], models[this.m].tokens[column]], raw = pair.map((token) => token.raw || token.text);
    if (pair.some((token) => token.raw)) tip.append(element('small', raw.join(' → ')));
    Object.assign(tip.dataset, { row, column, weight });
    const x = at.room + (column + 1 - at.j) * at.step + 8, y = at.room + (row + 1 - at.i) * at.row + 8;
    tip.style.left = `${clamp(x, 0, Math.max(0, at.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${clamp(y, 0, at.height)}px`;
  }

  /* ---- pointer, wheel and keys ---- */

  move(point) {
    look.point = point;
    this.changed();
  }

  /* Scales the visible part of the map by `factor`, keeping the position of the weight `around` or of the center. */
  zoom(factor, around) {
    const at = this.layout(), part = clamp(look.part * factor, Math.min(1, TOKENS_MIN / Math.max(this.n, this.rows)), 1);
    const mid = around ? [around.row + .5, around.column + .5] : [at.i + at.rows / 2, at.j + at.size / 2];
    const share = around ? [(mid[0] - at.i) / at.rows, (mid[1] - at.j) / at.size] : [.5, .5], whole = [this.rows, this.n];
    look.part = part;
    look.corner = mid.map((x, k) => clamp(x / whole[k] - share[k] * part, 0, 1 - part));
    this.changed();
  }

  pan(down, right) {
    look.corner = [down / this.rows, right / this.n].map((x, k) => clamp(look.corner[k] + x, 0, 1 - look.part));
    this.changed();
  }

  listen() {
    let drag = null;
    this.canvas.addEventListener('pointerdown', (event) => { drag = { x: event.clientX, y: event.clientY, far: false }; });
    this.canvas.addEventListener('pointermove', (event) => {
      if (drag && event.buttons && look.part < 1) {
        const x = event.clientX - drag.x, y = event.clientY - drag.y, { step, row } = this.layout();
        if (!drag.far && Math.hypot(x, y) < 4) return;
        drag = { x: event.clientX, y: event.clientY, far: true };
        this.pan(-y / row, -x / step);
      } else if (!look.held) this.move(this.under(event));
    });
    this.canvas.addEventListener('pointerleave', () => { if (!look.held) this.move(null); });
    this.canvas.addEventListener('click', (event) => {
      const point = this.under(event), far = drag && drag.far;
      drag = null;
      if (far) return;
      const again = look.held && point && look.point && point.row === look.point.row && point.column === look.point.column;
      look.held = Boolean(point) && !again;
      this.move(point);
    });
    this.canvas.addEventListener('wheel', (event) => { /* the page scrolls unless the map has the keyboard focus */
      if (!event.ctrlKey && document.activeElement !== this.canvas) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.under(event));
    }, { passive: false });
    this.canvas.addEventListener('keydown', (event) => this.key(event));
  }

  key(event) {
    const step = arrowStep(event), act = { '+': () => this.zoom(0.8, look.point), '=': () => this.zoom(0.8, look.point),
      '-': () => this.zoom(1.25, look.point), 0: () => this.zoom(Infinity), Enter: () => { look.held = Boolean(look.point); this.changed(); },
      Escape: () => { look.held = false; this.move(null); } }[event.key];
    if (!step && !act) return;
    event.preventDefault();
    if (act) {
      act();
      return;
    }
    const from = look.point || { row: 0, column: -step[1] }, keep = (x, n) => clamp(x, 0, n - 1);
    this.move({ m: this.m, row: keep(from.row + step[0], this.rows), column: keep(from.column + step[1], this.n) });
    this.follow();
  }

  /* Scrolls the selected weight into view. */
  follow() {
    const at = this.layout(), { row, column } = look.point;
    const into = (x, from, size) => (x < from ? x - from : x + 1 > from + size ? x + 1 - from - size : 0);
    const down = into(row, at.i, at.rows), right = into(column, at.j, at.size);
    if (down || right) this.pan(down, right);
  }
}
