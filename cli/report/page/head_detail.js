/* head_detail.js - shows the selected head: its map (two maps with --compare), the text shaded by its weights, its
 * largest weights and its metrics. */
const STRONGEST = 8;
let views = [], sentence = []; /* the map view of each model, and the span of each token */

const viewOf = (m) => views.find((v) => v.m === m);
/* Returns the model shown in the tables: the model under the pointer if there is one, else the first that has the head.
 * */
const shownModel = () => (look.point && viewOf(look.point.m).map ? look.point.m : modelOf(heads[selected.head]));

/* Returns the weights of the selected row, or of the selected column if the focus is on columns; null without a
 * selected point. */
const profile = () => {
  const m = shownModel(), map = viewOf(m).map, point = look.point;
  if (!point || !map) return null;
  return look.focus === 'column' ? columnOf(map, point.column) : rowOf(map, point.row);
};

const shadeSentence = (weights) => {
  const own = look.focus === 'column' ? 'column' : 'row';
  const shown = weights && weights.length === sentence.length ? weights : null; /* a column of cross-attention is in the other text */
  sentence.forEach((s, i) => {
    s.style.setProperty('--weight', shown ? `${(100 * Math.sqrt(clamp(shown[i], 0, 1))).toFixed(1)}%` : '0%');
    s.classList.toggle('query', Boolean(shown) && !models[0].queries && look.point[own] === i);
  });
};

const tableRow = (texts) => {
  const tr = element('tr');
  texts.forEach((text) => tr.append(element('td', text)));
  return tr;
};

const listStrongest = (weights) => {
  const table = $('strongest'), m = shownModel(), { tokens } = models[m];
  table.hidden = !weights;
  if (!weights) return;
  const column = look.focus === 'column', at = column ? look.point.column : look.point.row;
  table.caption.textContent = `${column ? placed(m, at) : placedQuery(m, at)} ${column ? 'is attended to most by' : 'attends most to'}`;
  const order = weights.map((_, i) => i).sort((a, b) => weights[b] - weights[a]).slice(0, STRONGEST);
  table.tBodies[0].replaceChildren(...order.map((i) => tableRow([readable((column ? queriesOf(m) : tokens)[i]), i, fixed(weights[i])])));
};

const redraw = () => {
  views.forEach((v) => v.draw());
  const weights = profile();
  shadeSentence(weights);
  listStrongest(weights);
};

/* Lists the metrics of the head, for both models with --compare. */
const listNumbers = (h) => {
  $('metrics').tBodies[0].replaceChildren(...numberNames().map((name) => {
    const tr = tableRow([nameOf('metric', name), ...models.map((_, m) => shownValue(h, name, m))]);
    tr.title = `${name}: ${helpOf(name)}`;
    tr.dataset.name = name;
    return tr;
  }));
};

const drawLegend = () => {
  const scale = SCALES[look.scale], top = Math.max(...views.filter((v) => v.map).map((v) => v.top)), exact = models.every((m) => m.maps.type === EXACT);
  const ticks = scale.ticks.map((x) => ({ at: scale.place(x), text: top === 1 ? String(x) : fixed(x * top) }));
  legend($('map-legend'), ticks, `Attention weight, ${scale.name}${exact ? '' : '; stored in 8 bits as its square root, largest error 0.004'}`);
};

/* Explains the effect of hiding the sink for this head. */
const explainSink = (h) => {
  const note = $('sink-note'), view = views.find((v) => v.map);
  note.hidden = !look.hideSink;
  if (!look.hideSink || !view) return;
  note.textContent = view.hidden < 0 ? `Layer ${h.layer} head ${h.head} has no sink: no token receives more than ${SINK} of the weight on average.`
    : `Hidden: the column of ${placed(view.m, view.hidden)}. The color scale ends at the largest remaining weight, ${fixed(view.top)}.`;
};

const recolor = () => {
  views.forEach((v) => { if (v.map) v.color(); });
  explainSink(heads[selected.head]);
  drawLegend();
  redraw();
};

const showHead = () => {
  const h = heads[selected.head];
  $('head-title').textContent = `Layer ${h.layer}, head ${h.head}: ${nameOf('label', labelOf(h))}`;
  $('numbers-title').textContent = `Layer ${h.layer}, head ${h.head} in numbers`;
  $('head-meaning').textContent = data.label_help[labelOf(h)];
  listNumbers(h);
  withMaps(models.map((_, m) => [h, m]), (maps) => {
    if (h !== heads[selected.head]) return; /* another head was selected while the maps were unpacked */
    views.forEach((v) => {
      v.show(maps[v.m]);
      v.canvas.setAttribute('aria-label', `Attention map of layer ${h.layer} head ${h.head}, ${v.rows} by ${v.n} tokens; the arrow keys read weights`);
    });
    recolor();
  });
};

const makeSentence = () => {
  const m = 0, best = (row) => {
    const { map } = viewOf(shownModel()), weights = models[m].queries ? columnOf(map, row) : rowOf(map, row);
    return weights.indexOf(Math.max(...weights));
  };
  const whole = models[m].tokens.some((token) => token.raw); /* true if the tokens include their spaces */
  $('sentence').classList.toggle('whole', whole);
  models[m].tokens.forEach((token, i) => {
    const span = element('span', whole && token.text.trim() ? token.text : readable(token), token.special ? 'special' : '');
    span.title = spelled(token, i);
    span.addEventListener('pointerenter', () => {
      if (look.held) return;
      look.point = models[m].queries ? { m, row: best(i), column: i } : look.focus === 'column' ? { m, row: i, column: i } : { m, row: i, column: best(i) };
      redraw();
    });
    sentence.push(span);
    $('sentence').append(span, ...(whole ? [] : [' ']));
  });
  $('sentence').addEventListener('pointerleave', () => {
    if (look.held) return;
    look.point = null;
    redraw();
  });
};

const makeHead = () => {
  views = models.map((_, m) => new MapView(m, redraw));
  sentence = [];
  $('scale').value = look.scale;
  $('focus').value = look.focus;
  $('sink').checked = look.hideSink;
  $('maps').append(...views.map((v) => v.box));
  $('maps').classList.toggle('two', models.length > 1);
  if (models.length > 1) {
    const head = element('thead'), tr = element('tr');
    ['', ...models.map((m) => m.model)].forEach((text) => tr.append(element('th', text)));
    head.append(tr);
    $('metrics').prepend($('metrics').caption, head);
    $('metrics').classList.add('compared');
  }
  makeSentence();
  $('scale').addEventListener('change', (event) => { look.scale = event.target.value; recolor(); });
  $('focus').addEventListener('change', (event) => { look.focus = event.target.value; redraw(); });
  $('sink').addEventListener('change', (event) => { look.hideSink = event.target.checked; recolor(); });
  $('zoom-in').addEventListener('click', () => views[0].zoom(0.7));
  $('zoom-out').addEventListener('click', () => views[0].zoom(1 / 0.7));
  $('zoom-all').addEventListener('click', () => views[0].zoom(Infinity));
  on('head', showHead);
  on('theme', recolor);
};
