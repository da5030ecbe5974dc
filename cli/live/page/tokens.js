/* tokens.js - shows the tokens of the text as buttons. */
const readable = (text) => (text.trim() ? text : text.replace(/ /g, '␣').replace(/\n/g, '↵').replace(/\t/g, '⇥') || '∅');

/* The text of a token of the vocabulary. */
const words = new Map();
const tokenWords = (id) => {
  if (!words.has(id)) {
    const text = model.mha.decode([id]);
    words.set(id, text && !text.includes('\ufffd') ? text : model.mha.token(id) || String(id));
  }
  return words.get(id);
};

const makeToken = (n) => {
  const e = element('button');
  e.type = 'button';
  e.addEventListener('click', () => {
    state.at = state.at === n ? null : n;
    update();
  });
  return e;
};

/* Shows the tokens; the chosen one is pressed, and all are shaded by the weights that it gives them in the chosen head. */
const showTokens = ({ tokens, at, maps }) => {
  const box = $('tokens'), n = tokens.length, row = (state.head * n + at) * n;
  while (box.children.length > n) box.lastChild.remove();
  while (box.children.length < n) box.append(makeToken(box.children.length));
  tokens.forEach((token, i) => {
    const e = box.children[i], weight = maps[row + i];
    if (e.textContent !== readable(token.text)) e.textContent = readable(token.text); /* saves layout */
    e.title = `token ${i}: ${token.raw}, id ${token.id}`;
    e.setAttribute('aria-pressed', String(i === at));
    e.setAttribute('aria-label', `token ${i}: ${readable(token.text)}, weight ${number(weight)}`);
    e.style.setProperty('--weight', `${Math.round(clamp(weight, 0, 1) * 100)}%`);
  });
};
