/* build_page.js - builds the page of the selected text, and prepares it for printing. */
const describe = (m) => `${m.model} · ${m.heads.length} layers, ${m.heads.flat().length} heads · ${m.queries ? `${m.queries.length} queries, ${m.tokens.length} keys` : `${m.tokens.length} tokens`}` +
  (m.cut ? `; the text was truncated by ${m.cut} tokens` : '');

/* Returns the head to show first: an induction head if there is one, else a previous-token head, else the first head.
 * */
const firstHead = () => {
  const best = (label, name) => heads.map((h, i) => [i, labelOf(h) === label ? valueOf(h, name) : null]).filter(([, x]) => isNumber(x))
    .sort((a, b) => b[1] - a[1]).map(([i]) => i)[0];
  return [best('induction', 'induction_probe'), best('prev', 'prev'), 0].find(isNumber);
};

let shownText = -1;
const blank = document.querySelector('main').cloneNode(true); /* the page before any text is shown */

const showText = async (t) => {
  if (t < 0 || t >= data.texts.length || t === shownText) return;
  const kept = selected.head >= 0 ? heads[selected.head].name : null;
  shownText = t;
  forget();
  look.point = null;
  look.held = false;
  document.body.dataset.ready = document.body.dataset.painted = 'no';
  document.querySelector('main').replaceWith(blank.cloneNode(true));
  useText(t);
  $('summary').textContent = models.map(describe).join(' — compared with ');
  $('sentence-text').textContent = data.texts[t].text;
  $('text-choice').value = String(t);
  makeDemo();
  makeOverview();
  makeHead();
  const again = heads.findIndex((h) => h.name === kept);
  select(again >= 0 ? again : firstHead());
  whenSeen($('text'), makeText);
  whenSeen($('scores'), makeScores);
  makeParts();
  document.body.dataset.ready = 'yes';
  await paintCells();
  if (shownText !== t) return;
  document.body.dataset.painted = 'yes';
  performance.mark('painted');
};

/* Builds the selector of texts, with one entry per text, such as "3. The nurse told ...". */
const makeChooser = () => {
  const name = (text, i) => `${i + 1}. ${text.length > 60 ? `${text.slice(0, 59)}…` : text}`;
  $('texts').hidden = data.texts.length < 2;
  $('text-choice').append(...data.texts.map(({ text }, i) => option(i, name(text, i))));
  $('text-choice').addEventListener('change', (event) => showText(Number(event.target.value)));
  $('text-before').addEventListener('click', () => showText(shownText - 1));
  $('text-after').addEventListener('click', () => showText(shownText + 1));
};

/* Prepares the page for printing: unpacks every map synchronously, because the browser does not wait, builds every
 * section, and sets the light theme. */
const paper = { theme: undefined };
const forPaper = () => {
  paper.theme = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = 'light';
  look.printing = true;
  unpackAll();
  paintCellsNow();
  [...waiting].forEach((make) => make());
  tell('head');
  tell('theme');
};
const forScreen = () => {
  look.printing = false;
  if (paper.theme) document.documentElement.dataset.theme = paper.theme; else delete document.documentElement.dataset.theme;
  tell('theme');
};

const start = () => {
  document.title = `Attention heads of ${data.texts[0].models.map((m) => m.model).join(' and ')}`;
  makeHelp();
  makeChooser();
  addEventListener('beforeprint', forPaper);
  addEventListener('afterprint', forScreen);
  showText(0);
};

start();
