/* continuation.js - continues the text greedily, token by token, on both sides at once. */
const END = /^<(\|.*\||\/s|eos)>$/; /* tokens that end a text */
let writing = 0; /* number of the present continuation; a change ends it */

/* The text that ids add to the tokens of the text. Decoded alone, they would lose the space of a first SentencePiece token. */
const addedText = (ids) => {
  const given = seenNow.tokens.map((token) => token.id), before = model.mha.decode(given), all = model.mha.decode([...given, ...ids]);
  return all.startsWith(before) ? all.slice(before.length) : model.mha.decode(ids);
};

const showWritten = (box, ids, other) => {
  const first = ids.findIndex((id, n) => other && id !== other[n]), cut = first < 0 ? ids.length : first;
  const all = addedText(ids), start = addedText(ids.slice(0, cut)), length = all.startsWith(start) ? start.length : 0;
  const same = element('span', all.slice(0, length)), rest = element('span', all.slice(length), 'differs');
  box.replaceChildren(element('span', shownText(), 'given'), same, rest);
};

const stopWriting = () => {
  writing++;
  $('written').hidden = true;
  [0, 1].forEach((n) => $(`text-${n}`).replaceChildren());
};

/* Appends the next token of a side, until the text ends. Returns false if it has ended. */
const writeToken = (which, written, most) => {
  const ids = written[which];
  if (ids.length >= most || (ids.length && END.test(model.mha.token(ids[ids.length - 1]) || ''))) return false;
  ids.push(ids.length ? model.mha.next(which) : model.mha.generate(which));
  return true;
};

const continueText = async () => {
  const own = ++writing, { positions } = model.info, room = positions > 0 ? positions - seenNow.tokens.length : Infinity;
  const most = Math.min(clamp(Math.round(Number($('length').value)) || 1, 1, 200), room), written = [[], []];
  if (!model.info.causal || !model.info.logits) { say('the model must be a decoder to continue a text'); return; }
  if (most < 1) { say(`the text must have fewer than ${positions} tokens to be continued`); return; }
  $('written').hidden = false;
  try {
    for (let more = true; more && own === writing;) {
      more = [CLEAN, CHANGED].map((which) => writeToken(which, written, most)).some(Boolean);
      written.forEach((ids, n) => showWritten($(`text-${n}`), ids, n ? written[0] : null));
      await new Promise((resolve) => { setTimeout(resolve, 0); });
    }
    if (own === writing) document.body.dataset.written = String(own);
  } catch (error) { say(error.message); }
};
