/* update.js - runs the model after each change, and shows the results; the effects follow after the page is painted. */
const TOKENS_MAX = 256;
let seenNow = { tokens: [], at: 0, maps: new Float32Array(0) }; /* the results on the page */
let turn = 0; /* number of the last update; later work of an earlier one stops */

/* Shows a sentence about a problem; without one, hides it. */
const say = (sentence) => {
  $('problem').textContent = sentence || '';
  $('problem').hidden = !sentence;
};

const mostTokens = () => (model.info.positions > 0 ? Math.min(model.info.positions, TOKENS_MAX) : TOKENS_MAX);

const runModel = () => {
  const { mha } = model, tokens = mha.encode(state.text, mostTokens());
  if (tokens.length === 0) return { tokens, at: 0, maps: new Float32Array(0) };
  const at = state.at !== null && state.at < tokens.length ? state.at : tokens.length - 1;
  mha.forward(CLEAN, at, state.mean);
  mha.gates(state.gates, state.mean);
  state.edges = state.edges.filter(({ query, key }) => query < tokens.length && key < tokens.length);
  mha.edges(state.edges.map(({ layer, head, query, key }) => [layer, head, query, key]));
  if (isChanged()) mha.forward(CHANGED, at);
  return { tokens, at, maps: mha.maps(side()) };
};

const summarize = (ms) => {
  const { info } = model, cut = model.mha.truncated(), count = seenNow.tokens.length;
  const size = `${info.layers} layers of ${info.heads} heads`;
  $('summary').textContent = `Model ${model.name} (${info.family}, ${size}), ${count} token${count === 1 ? '' : 's'} in ${ms.toFixed(1)} ms with libmha ${model.mha.version}, ${info.isa}.`
    + (cut ? ` The text is longer: its last ${cut} tokens are not shown.` : '');
};

/* The text up to its last shown token, for the command. */
const shownText = () => {
  if (!model.mha.truncated()) return state.text;
  const bytes = new TextEncoder().encode(state.text), end = Math.max(...seenNow.tokens.map((token) => token.end));
  return new TextDecoder().decode(bytes.slice(0, end));
};

/* ---- effects ---- */

/* One minus the cosine of the mean hidden states with and without a head, for models without logits. */
const stateEffect = (index, base) => {
  const { mha } = model, gates = state.gates.slice();
  gates[index] = gates[index] === 0 ? 1 : 0;
  mha.gates(gates, state.mean);
  mha.forward(CHANGED, seenNow.at);
  mha.gates(state.gates, state.mean);
  return 1 - cosine(base, meanState(mha.hidden(CHANGED), seenNow.tokens.length));
};

/* Computes the effect of every head. A slow model shows the effects so far and yields to the user after some heads; an
 * update ends the work. */
const SLICE = 40; /* ms */
const effectsOf = async (own) => {
  const { mha, info } = model, effects = Array(state.gates.length).fill(null);
  const base = info.logits ? null : meanState(mha.hidden(side()), seenNow.tokens.length);
  let began = performance.now();
  for (const index of [...state.gates.keys()].filter(headExists)) {
    effects[index] = info.logits ? mha.effect(side(), index) : stateEffect(index, base);
    if (performance.now() - began < SLICE) continue;
    showEffects(effects);
    await new Promise((resolve) => { setTimeout(resolve, 0); });
    if (own !== turn) return effects;
    began = performance.now();
  }
  if (!info.logits && isChanged()) mha.forward(CHANGED, seenNow.at);
  return effects;
};

const updateEffects = async (own) => {
  const began = performance.now();
  try {
    const effects = await effectsOf(own);
    if (own !== turn) return;
    showEffects(effects);
    document.body.dataset.effectsMs = (performance.now() - began).toFixed(2);
  } catch (error) { say(error.message); }
};

/* ---- one update ---- */

const writeAddress = (() => { /* browsers limit how often an address may change */
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => { if (host.location.hash !== toFragment()) host.history.replaceState(null, '', toFragment()); }, 250);
  };
})();

/* Shows the commands of the other views; only their text changes while their number is the same. */
const showCommands = (commands) => {
  const list = $('commands');
  if (list.children.length !== 2 * commands.length) {
    list.replaceChildren(...commands.flatMap(() => {
      const [command, line] = [element('dd', null, 'copied'), element('pre', null, 'command')];
      line.tabIndex = 0;
      command.append(line, copyButton(line));
      return [element('dt'), command];
    }));
  }
  commands.forEach(([view, command], n) => {
    list.children[2 * n].textContent = view;
    list.children[2 * n + 1].firstChild.textContent = command;
  });
};

const showAll = () => {
  const some = seenNow.tokens.length > 0;
  $('tokens').hidden = $('top').hidden = $('check').hidden = $('patching').hidden = !some;
  if (some) [showTokens, showGrid, showPrediction].forEach((show) => show(seenNow));
  else $('command').textContent = '';
};

/* Calls `work` after the next frame is painted. A hidden page paints none, so it waits for a limited time. */
const afterPaint = (work) => {
  let done = false;
  const once = () => { if (!done) { done = true; work(); } };
  requestAnimationFrame(() => setTimeout(once, 0));
  setTimeout(once, 200);
};

/* The card and the effects need further passes, and the commands more layout, so they follow after the page is painted. */
const showLater = (own) => {
  if (own !== turn) return;
  try {
    $('command').textContent = commandFor(shownText());
    showCommands(viewCommands(shownText()));
    [showCard, showLens].forEach((show) => show(seenNow));
  } catch (error) { say(error.message); }
  setTimeout(async () => {
    if (own !== turn) return;
    await updateEffects(own);
    if (own === turn) updatePatching(own);
  }, 0);
};

const update = () => {
  const own = ++turn, began = performance.now();
  stopWriting();
  try {
    seenNow = runModel();
    say('');
    showAll();
    summarize(performance.now() - began);
    document.body.dataset.updateMs = (performance.now() - began).toFixed(2);
    if (seenNow.tokens.length) afterPaint(() => showLater(own));
  } catch (error) { say(error.message); }
  writeAddress();
  document.body.dataset.updated = String(own);
};
