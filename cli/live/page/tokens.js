/* tokens.js - shows the tokens of the text as buttons. */

/* Changes of elements, which cost style and layout even if the value is the same. */
const setText = (e, text) => { if (e.textContent !== text) e.textContent = text; };
const setAttribute = (e, name, value) => { if (e.getAttribute(name) !== value) e.setAttribute(name, value); };
const setPart = (e, name, part) => {
  const value = `${Math.round(200 * part) / 2}%`;
  if (e.style.getPropertyValue(name) !== value) e.style.setProperty(name, value);
};

/* A token as it is shown: a text without visible characters as signs, or as code points such as U+200D. */
const SIGNS = { ' ': '␣', '\n': '↵', '\t': '⇥' };
const sign = (c) => SIGNS[c] || `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
const readable = (text) => (/[^\s\p{C}\p{M}]/u.test(text) ? text : [...text].map(sign).join('') || '∅');

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
    setText(e, readable(token.text));
    setAttribute(e, 'title', `token ${i}: ${token.raw}, id ${token.id}`);
    setAttribute(e, 'aria-pressed', String(i === at));
    setAttribute(e, 'aria-label', `token ${i}: ${readable(token.text)}, weight ${number(weight)}`);
    setPart(e, '--weight', clamp(weight, 0, 1));
  });
};
