/* help.js - builds the help panel, opened with ?, which defines all terms and keys of the page. */
const KEYS = [['?', 'show this panel'], ['arrow keys', 'move between heads in the grid, weights in the map, or tokens in the text'],
  ['[ and ]', 'previous and next head'], ['+, - and 0', 'zoom the map while it has the keyboard focus; also Ctrl with the mouse wheel'],
  ['Enter, Esc', 'pin or unpin the weight in the map'], ['s', 'next color scale'], ['f', 'next focus: none, row, column'], ['h', 'hide or show the sink column'],
  ['t', 'light or dark theme'], [', and .', 'previous and next text, if the page has several texts']];

const READING = [
  ['row and column', 'Each row of a map is a query token, each column a key token that queries attend to. The weights of a row sum to 1.'],
  ['sink', `A token that receives more than ${SINK} of the weight on average over all rows (Gu et al. 2024). Idle heads often attend to it, with little effect on the output. ` +
    'Hiding the column of the sink makes the other weights of the map visible.'],
  ['importance', 'The loss increase or output change when a head is removed. Importance underestimates redundant heads, since removing only one of them changes little. ' +
    'Confidence, entropy and the size of weights do not measure importance.'],
  ['similarity', 'Cosine overstates how similar heads are: weights are never negative, and many heads attend to the first token. The Jensen-Shannon distance ' +
    'and CKA of the outputs are more informative.'],
];

const definitionList = (title, entries) => {
  const box = element('section'), list = element('dl');
  entries.forEach(([key, text]) => list.append(element('dt', key), element('dd', text)));
  box.append(element('h3', title), list);
  return box;
};

/* Returns a list of terms with their definitions and their keys on the command line and in JSON. */
const keyedList = (title, kind, help) => {
  const box = element('section'), list = element('dl');
  Object.entries(help).forEach(([key, text]) => {
    const meaning = element('dd', `${text} `);
    meaning.append(element('code', key));
    list.append(element('dt', nameOf(kind, key)), meaning);
  });
  box.append(element('h3', title), list);
  return box;
};

const openHelp = () => { if (!$('help').open) $('help').showModal(); };

/* ---- keys of the whole page ---- */

const nextOption = (field) => {
  field.selectedIndex = (field.selectedIndex + 1) % field.options.length;
  field.dispatchEvent(new Event('change'));
};

const KEY_ACTIONS = { '?': openHelp, ',': () => showText(shownText - 1), '.': () => showText(shownText + 1), t: turnTheme, s: () => nextOption($('scale')), f: () => nextOption($('focus')), h: () => $('sink').click(),
  '[': () => select(Math.max(selected.head - 1, 0)), ']': () => select(Math.min(selected.head + 1, heads.length - 1)) };

const makeHelp = () => {
  $('help').querySelector('.columns').append(definitionList('Keys', KEYS), definitionList('How to read', READING),
    keyedList('Labels', 'label', data.label_help), keyedList('Metrics', 'metric', data.metric_help),
    keyedList('Importance', 'score', data.score_help), keyedList('Similarity', 'diversity', data.diversity_help));
  $('open-help').addEventListener('click', openHelp);
  makeTheme(() => tell('theme'));
  document.addEventListener('keydown', (event) => {
    const act = KEY_ACTIONS[event.key], typing = event.target.closest('input[type=number], select');
    if (!act || event.ctrlKey || event.metaKey || event.altKey || typing || $('help').open) return;
    event.preventDefault();
    act();
  });
};
