/* help.js - the definitions of everything on the page, and its keys, in a panel that ? opens. */
const KEYS = [['?', 'this panel'], ['arrow keys', 'from head to head in the grid; from weight to weight in the map; from token to token in the text'],
  ['[ and ]', 'the head before and after'], ['+, - and 0', 'zoom of the map, when it has the focus; also the wheel, with ctrl'],
  ['Enter, Esc', 'hold the weight of the map, let it go'], ['s', 'the next scale of colours'], ['f', 'focus: none, row, column'], ['h', 'hide the sink column'],
  ['t', 'light or dark'], [', and .', 'the text before and after, where the page has several']];

const READING = [
  ['row and column', 'A row of a map is a token that looks (query), a column a token that is looked at (key). The weights of a row sum to 1.'],
  ['sink', `A token that receives more than ${SINK} of the weight on average over all rows (Gu et al. 2024): often a place to rest, with little effect on the output. ` +
    'Hiding its column shows the rest of the map.'],
  ['importance', 'What the model loses without a head. It says nothing about redundant heads: one by one they look useless. ' +
    'Confidence, entropy and the size of weights are not importance.'],
  ['similarity', 'Cosine overstates how alike heads are: weights are never negative, and many heads share the column of the first token. The distance of Jensen and Shannon ' +
    'and CKA of the outputs say more.'],
];

const definitionList = (title, entries) => {
  const box = element('section'), list = element('dl');
  entries.forEach(([key, text]) => list.append(element('dt', key), element('dd', text)));
  box.append(element('h3', title), list);
  return box;
};

/* Words, what they mean, and the key that the command line and the JSON have. */
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

/* ---- keys that work everywhere ---- */

const nextOption = (field) => {
  field.selectedIndex = (field.selectedIndex + 1) % field.options.length;
  field.dispatchEvent(new Event('change'));
};

const KEY_ACTIONS = { '?': openHelp, ',': () => showText(shownText - 1), '.': () => showText(shownText + 1), t: turnTheme, s: () => nextOption($('scale')), f: () => nextOption($('focus')), h: () => $('sink').click(),
  '[': () => select(Math.max(selected.head - 1, 0)), ']': () => select(Math.min(selected.head + 1, heads.length - 1)) };

const makeHelp = () => {
  $('help').querySelector('.columns').append(definitionList('Keys', KEYS), definitionList('How to read', READING),
    keyedList('Labels', 'label', data.label_help), keyedList('Numbers', 'metric', data.metric_help),
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
