/* patching.js - patches parts of the run of one text into the run of another, as `mha patch` does. */
const SITES = ['resid_pre', 'resid_mid', 'resid_post', 'attn_out', 'mlp_out', 'q', 'k', 'v', 'z', 'pattern']; /* mha_site */
const PARTS = ['position', 'head', 'head-position']; /* mha_patch_by */
const DIRECTIONS = ['denoise', 'noise'], METRICS = ['logit-diff', 'logprob', 'kl'];
const PATCH_CHOICES = { site: SITES, by: PARTS, direction: DIRECTIONS, metric: METRICS };
const WORK_MAX = 3e8; /* products per layer matrix; more work waits for a click */

const hasHeads = (site) => SITES.indexOf(site) >= SITES.indexOf('q');

/* Sets the controls to the state. A site without heads is patched by position only. */
const showPatchControls = () => {
  const { patch } = state;
  if (hasHeads(patch.site) === (patch.by === 'position')) patch.by = hasHeads(patch.site) ? 'head' : 'position';
  Object.entries(patch).forEach(([name, value]) => { $(name).value = value; });
  [...$('by').options].forEach((choice) => { choice.disabled = hasHeads(patch.site) === (choice.value === 'position'); });
};

/* ---- results ---- */

/* The token of an answer: the one that the user wrote, or the most likely token of a run, but not `other`. */
const answerOf = (name, run, other) => {
  const written = state.patch[name], guess = written ? -1 : largest(model.mha.pairLogits(run), 2).find((id) => id !== other);
  const id = written ? model.mha.answer(written) : guess;
  $(name).placeholder = readable(tokenWords(id));
  return id;
};

/* Runs both texts; a first time without answers if an answer is guessed from the logits. Returns the tokens of the answers. */
const openPair = (at) => {
  const { mha } = model;
  mha.corrupted(state.patch.corrupted);
  if (!state.patch.answer || !state.patch.wrong) mha.pair(0, 0, at);
  const answer = answerOf('answer', 0, -1), wrong = answerOf('wrong', 1, answer);
  if (answer === wrong) throw new Error(`wrong must differ from the answer (got "${tokenWords(wrong)}")`);
  mha.pair(answer, wrong, at);
  return [answer, wrong];
};

const workOf = (passes) => passes * seenNow.tokens.length * model.info.layers * model.info.hidden ** 2;

/* Patches every part. values and base are normalized: 1 as in the clean run, 0 as in the corrupted run; in nats if both runs hardly differ. */
const effectsOfParts = ([site, by, direction, metric]) => {
  const { mha } = model, shape = mha.patchShape(site, by), parts = shape[0] * shape[1] * shape[2];
  const clean = mha.pairMetric(0, metric), corrupted = mha.pairMetric(1, metric), raw = Math.abs(clean - corrupted) < 1e-3;
  const shown = (value) => (raw ? value : (value - corrupted) / (clean - corrupted));
  return { shape, raw, values: [...mha.patch(site, by, direction, metric, parts)].map(shown), base: shown(direction ? clean : corrupted) };
};

/* Digits as in the command; zero has no sign, which would depend on the kernel. */
const signed = (x) => {
  const digits = Math.abs(x).toFixed(Math.abs(x) < 9.995 ? 2 : 1);
  return Number(digits) === 0 ? digits : (x < 0 ? '−' : '+') + digits;
};

/* A table of the effects: rows are layers, or heads by position; columns tokens or heads. */
const showPatchTable = ({ shape, raw, values, base }, by) => {
  const { tokens } = seenNow, columns = by === 2 ? shape[2] : shape[1], rows = values.length / columns;
  const most = Math.max(raw ? 0 : 1, ...values.map((x) => Math.abs(x - base))), heading = (n) => (by === 1 ? String(n) : `${readable(tokens[n].text)} (${n})`);
  const head = tableRow('th', [by === 2 ? 'head' : 'layer', ...[...Array(columns).keys()].map(heading)]);
  [...head.children].forEach((e) => { e.scope = 'col'; });
  $('effects').tHead.replaceChildren(head);
  $('effects').tBodies[0].replaceChildren(...[...Array(rows).keys()].map((r) => {
    const line = element('tr'), name = element('th', by === 2 ? `${Math.floor(r / shape[1])}.${r % shape[1]}` : String(r));
    name.scope = 'row';
    line.append(name, ...values.slice(r * columns, (r + 1) * columns).map((x) => {
      const cell = element('td', signed(x));
      cell.style.background = signedColor(x - base, most);
      return cell;
    }));
    return line;
  }));
};

/* What was measured, in words: the probability of the answers in both runs. */
const patchWords = ([answer, wrong], metric, raw) => {
  const { mha } = model, name = (id) => `“${readable(tokenWords(id))}”`, last = seenNow.at;
  const run = (n) => {
    const p = probabilities(mha.pairLogits(n));
    return `${percent(p[answer])} and ${percent(p[wrong])}, ${METRICS[metric]} ${number(mha.pairMetric(n, metric))}`;
  };
  const unit = raw ? 'Both runs hardly differ in this metric; values are in nats.' : 'Values are normalized: 1 = the run of the text, 0 = the run of the corrupted text.';
  return `${name(answer)} and ${name(wrong)} ${model.info.causal ? 'after' : 'for'} token ${last}. Text: ${run(0)}. Corrupted text: ${run(1)}. ${unit}`;
};

/* ---- the command ---- */

const patchCommand = (ids) => {
  const { patch } = state, { mha } = model, words = commandStart('patch'), texts = ids.map(tokenWords);
  const spelled = texts.every((text, n) => { try { return mha.answer(text) === ids[n]; } catch { return false; } }) && !mha.truncated();
  const list = (all) => all.join(','), given = seenNow.tokens.map((token) => token.id);
  if (!spelled) words.push('--ids');
  words.push('--corrupted', spelled ? quoted(patch.corrupted) : list(mha.corruptedIds(given.length)));
  ['answer', 'wrong'].forEach((name, n) => words.push(`--${name}`, spelled ? quoted(texts[n]) : String(ids[n])));
  if (state.at !== null || !model.info.causal) words.push('--position', String(seenNow.at));
  words.push('--site', patch.site, '--by', patch.by);
  if (patch.direction !== 'denoise') words.push('--direction', patch.direction);
  if (patch.metric !== 'logit-diff') words.push('--metric', patch.metric);
  return [...words, '--', spelled ? quoted(state.text) : list(given)].join(' ');
};

/* ---- one update ---- */

const showPatching = (clicked) => {
  const { patch } = state, numbers = [SITES.indexOf(patch.site), PARTS.indexOf(patch.by), DIRECTIONS.indexOf(patch.direction), METRICS.indexOf(patch.metric)];
  const ids = openPair(seenNow.at), passes = model.mha.patchPasses(...numbers), waits = !clicked && workOf(passes) > WORK_MAX;
  $('patch-result').hidden = waits;
  $('patch-run').hidden = !waits;
  $('patch-run').textContent = `Compute ${passes} passes`;
  if (waits) return;
  const result = effectsOfParts(numbers);
  $('patch-words').textContent = patchWords(ids, numbers[3], result.raw);
  $('effects').caption.textContent = `${patch.site} by ${patch.by}, ${patch.direction}: ${patch.metric}`;
  showPatchTable(result, numbers[1]);
  $('patch-command').textContent = patchCommand(ids);
};

/* Computes the effects, unless there is no corrupted text; `own` is the number of the update. */
const updatePatching = (own, clicked = false) => {
  const began = performance.now(), none = state.patch.corrupted === '' || !model.info.logits;
  $('patch-problem').textContent = model.info.logits ? '' : 'This model has no logits.';
  $('patch-run').hidden = true;
  $('patch-result').hidden = none;
  try {
    if (!none) showPatching(clicked);
  } catch (error) {
    $('patch-result').hidden = true;
    $('patch-problem').textContent = error.message;
  }
  document.body.dataset.patchMs = (performance.now() - began).toFixed(2);
  document.body.dataset.measured = String(own);
};

const makePatching = () => {
  Object.entries(PATCH_CHOICES).forEach(([name, choices]) => $(name).replaceChildren(...choices.map((choice) => option(choice, choice))));
  Object.keys(state.patch).forEach((name) => $(name).addEventListener(PATCH_CHOICES[name] ? 'change' : 'input', () => {
    state.patch[name] = wellFormed($(name).value);
    showPatchControls();
    update();
  }));
  $('patch-copy').addEventListener('click', () => {
    state.patch.corrupted = state.text;
    showPatchControls();
    update();
    $('corrupted').focus();
  });
  $('patch-run').addEventListener('click', () => updatePatching(turn, true));
  showPatchControls();
};
