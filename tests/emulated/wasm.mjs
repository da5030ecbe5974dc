/* wasm.mjs MODULE.gz - tests live.wasm under node with the functions of the page (cli/live/page/module.js). $MHA is the
 * native program. Results of the scalar kernels must be bitwise equal to those of `mha logits --isa scalar`, results of
 * wasm128 within bounds, and hostile files must be refused with the sentence of the program. Prints each failure and exits
 * 1 if there is one. */
import { execFileSync, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import zlib from 'node:zlib';

const ROOT = path.resolve(import.meta.dirname, '../..');
const DATA = path.join(ROOT, 'tests/golden/data');
const BUILTIN = path.join(ROOT, 'share/mha/builtin');
const source = fs.readFileSync(path.join(ROOT, 'cli/live/page/module.js'), 'utf8');
const openModule = new Function(`'use strict'; ${source}; return openModule;`)();
const LOGIT_BOUND = 5e-5, MAP_BOUND = 1e-5; /* measured: 1.9e-5 and 2.8e-6 at 102 tokens */

let failures = 0, checks = 0;
const check = (condition, sentence) => {
  checks++;
  if (condition) return;
  failures++;
  console.log(`FAIL: ${sentence}`);
};

const filesOf = (folder) => ({
  config: fs.readFileSync(path.join(folder, 'config.json')),
  tokenizer: fs.readFileSync(path.join(folder, 'tokenizer.json')),
  weights: [{ name: 'model.safetensors', bytes: fs.readFileSync(path.join(folder, 'model.safetensors')) }],
});

/* The tensors of a safetensors file of f32. */
const readTensors = (file) => {
  const bytes = fs.readFileSync(file), length = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.subarray(8, 8 + length)), tensors = {};
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    const [begin, end] = entry.data_offsets;
    tensors[name] = new Float32Array(bytes.buffer.slice(bytes.byteOffset + 8 + length + begin, bytes.byteOffset + 8 + length + end));
  }
  return tensors;
};

const native = (folder, text, work) => {
  const out = path.join(work, 'native.safetensors');
  execFileSync(process.env.MHA, ['logits', '-m', folder, '--isa', 'scalar', '-t', '1', '--attn', '--force', '-q', '-o', out, '--', text]);
  return readTensors(out);
};

const sameBits = (a, b) => a.length === b.length && Buffer.compare(Buffer.from(a.buffer, a.byteOffset, a.byteLength), Buffer.from(b.buffer, b.byteOffset, b.byteLength)) === 0;
const distance = (a, b) => a.reduce((most, x, n) => Math.max(most, Math.abs(x - b[n])), a.length === b.length ? 0 : Infinity);

/* Runs a text on the open model. Returns the maps by layer and the logits at a token. */
const run = (mha, info, text, at) => {
  const n = mha.encode(text).length, token = at < 0 ? n + at : at;
  mha.forward(0, token);
  const maps = mha.maps(0), layer = (l) => maps.slice(l * info.heads * n * n, l * info.heads * n * n + info.layerHeads[l] * n * n);
  return { n, token, maps: info.layerHeads.map((_, l) => layer(l)), logits: mha.logits(0) };
};

/* ---- results ---- */

const TEXTS = ['One', 'One day Clara went to the market.', 'Count from 2 to 6: 2 3', 'a'.repeat(20) + ' \u00e9\u4e2d\u{1f600} tab\tend '.repeat(3)];

const compareWith = (mha, folder, work) => {
  const name = path.basename(folder), files = filesOf(folder);
  for (const text of TEXTS) {
    const truth = native(folder, text, work);
    for (const at of [-1, 0]) {
      const exact = run(mha, mha.open(files, 'scalar'), text, at);
      const vocab = exact.logits.length, row = truth.logits.subarray(exact.token * vocab, (exact.token + 1) * vocab);
      const what = `${name}, ${exact.n} tokens, token ${exact.token}`;
      check(sameBits(exact.logits, row), `${what}: scalar logits must be those of the program (distance ${distance(exact.logits, row)})`);
      exact.maps.forEach((map, layer) => check(sameBits(map, truth[`attn.${layer}`]), `${what}: scalar maps of layer ${layer} must be those of the program`));
      const fast = run(mha, mha.open(files, 'wasm128'), text, at);
      const far = distance(fast.logits, exact.logits), scale = Math.max(1, ...row.map(Math.abs));
      check(far <= LOGIT_BOUND * scale, `${what}: wasm128 logits must be within ${LOGIT_BOUND} (got ${far})`);
      fast.maps.forEach((map, layer) => check(distance(map, exact.maps[layer]) <= MAP_BOUND, `${what}: wasm128 maps of layer ${layer}: ${distance(map, exact.maps[layer])}`));
    }
  }
};

/* Gates, fills, effects, steps and generation must agree with each other. */
const gatesAgree = (mha) => {
  const info = mha.open(filesOf(BUILTIN), 'scalar'), heads = info.layers * info.heads;
  const ones = new Float32Array(heads).fill(1), text = 'Count from 2 to 6: 2 3';
  const n = mha.encode(text).length;
  mha.gates(ones, false);
  mha.forward(0, n - 1, true);
  mha.forward(1, n - 1);
  check(sameBits(mha.logits(0), mha.logits(1)), 'gates of 1 must not change the logits');
  check(mha.divergence() === 0, 'gates of 1 must have a divergence of 0');
  const effects = [...ones.keys()].map((head) => mha.effect(0, head));
  for (const mean of [false, true])
    for (const head of [0, 3, info.heads, heads - 1]) {
      const off = ones.slice();
      off[head] = 0;
      mha.gates(ones, mean);
      const effect = mean ? mha.effect(0, head) : effects[head];
      mha.gates(off, mean);
      mha.forward(1, n - 1);
      check(Math.abs(mha.divergence() - effect) <= 1e-6 * Math.max(1, effect), `head ${head}, mean ${mean}: the effect must be the divergence (got ${effect} and ${mha.divergence()})`);
      const back = mha.effect(1, head);
      check(back >= 0 && Number.isFinite(back), `head ${head}: the effect of switching it on must be finite (got ${back})`);
    }
  stepsAgree(mha, info, n);
};

const stepsAgree = (mha, info, n) => {
  const maps = mha.maps(0), row = n - 2, layer = 1, head = 2;
  const { q, keys, out } = mha.steps(0, layer, head, row);
  const dot = keys.map(({ k }) => k.reduce((sum, x, d) => sum + x * q[d], 0) / Math.sqrt(info.headDim));
  check(distance(Float32Array.from(dot), keys.map(({ score }) => score)) < 1e-4, 'scores must be the scaled products of q and k');
  const kept = dot.slice(0, row + 1), most = Math.max(...kept), total = kept.reduce((sum, x) => sum + Math.exp(x - most), 0);
  const weights = kept.map((x) => Math.exp(x - most) / total), start = ((layer * info.heads + head) * n + row) * n;
  check(distance(Float32Array.from(weights), maps.slice(start, start + row + 1)) < 1e-5, 'weights must be the softmax of the scores');
  const sum = out.map((_, d) => weights.reduce((total2, w, j) => total2 + w * keys[j].v[d], 0));
  check(distance(sum, out) < 1e-5, 'the output must be the weighted sum of the values');
};

const generationAgrees = (mha) => {
  const info = mha.open(filesOf(BUILTIN), 'scalar'), text = 'Count from 2 to 6: 2 3';
  mha.encode(text);
  mha.gates(new Float32Array(info.layers * info.heads).fill(1), false);
  for (const side of [0, 1]) {
    const ids = [mha.generate(side)];
    while (ids.length < 8) ids.push(mha.next(side));
    const said = execFileSync(process.env.MHA, ['generate', '--isa', 'scalar', '-q', '-n', '8', '--no-eos', '-p', text], { encoding: 'utf8' });
    const text8 = mha.decode(ids).replace('<|endoftext|>', '').trim();
    check(said.trim() === text8, `side ${side} must generate what the program does (got "${text8}" and "${said}")`);
  }
};

/* Removed edges and patches must have the numbers of the program, whose JSON has nine digits. */
const CLEAN = ' red cat key boat hat drum red cat key', CORRUPTED = ' red cat key ring hat drum red cat key';

const knockoutAgrees = (mha, work) => {
  const info = mha.open(filesOf(BUILTIN), 'scalar'), n = mha.encode(CLEAN).length, out = path.join(work, 'knockout.safetensors');
  execFileSync(process.env.MHA, ['logits', '--isa', 'scalar', '-t', '1', '--force', '-q', '--gates', '0.1=0.5', '--knockout', '1.0:8-3,1:7-2,all:6-0', '-o', out, '--', CLEAN]);
  const gates = new Float32Array(info.layers * info.heads).fill(1), last = readTensors(out).logits.slice(-info.vocab);
  gates[1] = 0.5;
  mha.gates(gates, false);
  mha.edges([[1, 0, 8, 3], [1, -1, 7, 2], [-1, -1, 6, 0]]);
  mha.forward(1, n - 1);
  check(sameBits(mha.logits(1), last), `knockout: scalar logits must be those of the program (distance ${distance(mha.logits(1), last)})`);
  mha.forward(1, 5);
  mha.forward(1, n - 1);
  check(mha.effect(1, 3) >= 0, 'the effect of a head must be computed without the edges');
  check(mha.generate(1) === last.reduce((best, x, id) => (x > last[best] ? id : best), 0) && mha.next(1) >= 0, 'a continuation must be computed without the edges');
  check(sentence(() => mha.edges(Array(65).fill([0, 0, 1, 0]))) === 'removed edges must be at most 64 (got 65)', '65 edges must be refused');
  mha.edges([[9, 0, 1, 0]]);
  check(/edges\[0\]: layer must be from -1 to 1/.test(sentence(() => mha.forward(1, n - 1))), 'an edge outside the model must be refused');
  mha.edges([]);
};

const patchingAgrees = (mha) => {
  mha.open(filesOf(BUILTIN), 'scalar');
  mha.encode(CLEAN);
  check(/must follow live_corrupted/.test(sentence(() => mha.pair(0, 0, 8))), 'a pair without a corrupted text must be refused');
  mha.corrupted(CORRUPTED);
  mha.pair(mha.answer(' boat'), mha.answer(' ring'), 8);
  for (const [site, by, name, part] of [[0, 0, 'resid_pre', 'position'], [8, 1, 'z', 'head'], [8, 2, 'z', 'head-position']]) {
    const said = JSON.parse(execFileSync(process.env.MHA, ['patch', '--isa', 'scalar', '-t', '1', '--json', '--site', name, '--by', part, '--corrupted', CORRUPTED, '--answer', ' boat', '--wrong', ' ring', '--', CLEAN]));
    const shape = mha.patchShape(site, by), values = mha.patch(site, by, 0, 0, shape.reduce((a, b) => a * b)), raw = said.raw.flat(2);
    check(values.length === raw.length && values.every((x, i) => Math.abs(x - raw[i]) <= 6e-9 * Math.max(1, Math.abs(x))), `${name} by ${part}: effects must be those of mha patch (distance ${distance(values, raw)})`);
  }
  check(/one of|MHA_BY_HEAD|must be/.test(sentence(() => mha.patch(8, 0, 0, 0, 1))), 'z by position must be refused');
  check(/must have as many tokens as the text, 9 \(got 1\)/.test(sentence(() => mha.corrupted('One'))), 'a shorter text must be refused');
  check(/answer must be one token/.test(sentence(() => mha.answer('red cat'))), 'an answer of several tokens must be refused');
};

/* Every error has the form NAME must be RULE (got VALUE). */
const sentencesHaveOneForm = (mha) => {
  const info = mha.open(filesOf(BUILTIN), 'scalar');
  const calls = { text: () => mha.forward(0, 0), token: () => { mha.encode('One'); mha.forward(0, 7); }, head: () => { mha.forward(0, 0); mha.effect(0, 99); }, steps: () => mha.steps(0, 5, 0, 0), lens: () => mha.lens(-1) };
  for (const [name, call] of Object.entries(calls)) check(/ must .* \(got .*\)$/.test(sentence(call)), `${name}: the sentence must name the rule and the value (got "${sentence(call)}")`);
  check(info.layers === 2 && sentence(() => mha.next(0)) === 'live_next must follow live_generate', 'a continuation must be started first');
};

/* ---- hostile files ---- */

const sentence = (action) => {
  try { action(); return null; } catch (error) { return error instanceof WebAssembly.RuntimeError ? `TRAP ${error.message}` : error.message; }
};

const hostileCases = (mha, work) => {
  const corpus = path.join(DATA, 'hostile'), { cases } = JSON.parse(fs.readFileSync(path.join(corpus, 'index.json')));
  for (const item of cases.filter(({ kind }) => ['config', 'tokenizer', 'safetensors'].includes(kind))) {
    const folder = path.join(work, item.id);
    fs.cpSync(path.join(corpus, 'base', item.base || 'llama'), folder, { recursive: true });
    fs.copyFileSync(path.join(corpus, item.path), path.join(folder, item.install_as || 'model.safetensors'));
    const said = sentence(() => mha.open(filesOf(folder), 'scalar'));
    const program = spawnSync(process.env.MHA, ['logits', '-q', '-m', folder, '-t', '1', 'One'], { encoding: 'utf8' });
    check(!said || !said.startsWith('TRAP'), `${item.id}: the module must not trap (got ${said})`);
    /* An id beyond the vocabulary is refused when a text has it. A size beyond 32 bits has a sentence of its own. */
    if (item.expect === 'refuse' && item.id !== 'tok-09-id-past-model') check(said, `${item.id}: must be refused`);
    if (said && program.status !== 0 && item.id !== 'st-20-dim-2pow32-plus3') check(program.stderr.replace('64 bits', '32 bits').includes(said), `${item.id}: must be refused with the sentence of the program (got "${said}" and "${program.stderr.trim()}")`);
    fs.rmSync(folder, { recursive: true });
  }
};

const hostileContents = (mha) => {
  const files = filesOf(BUILTIN), whole = files.weights[0].bytes;
  mha.open(files, 'scalar');
  const name = 'model.safetensors';
  for (const bytes of [0, 7, 8, 100, 5000, whole.length - 1]) {
    const said = sentence(() => mha.open({ ...files, weights: [{ name, bytes: whole.subarray(0, bytes) }] }, 'scalar'));
    check(said && said.startsWith(`${name}: `), `${bytes} bytes of the weights must be refused (got ${said})`);
  }
  check(sentence(() => mha.open({ ...files, weights: [] }, 'scalar')), 'a model without weights must be refused');
  check(sentence(() => mha.open({ ...files, weights: [...files.weights, ...files.weights] }, 'scalar')), 'weights given twice must be refused');
  const many = Array(65).fill({ name, bytes: whole });
  check(/at most 64/.test(sentence(() => mha.open({ ...files, weights: many }, 'scalar'))), '65 files must be refused');
  check(sentence(() => mha.open(files, 'avx2')).includes('must be one of scalar, wasm128 (got "avx2"'), 'an unknown ISA must be refused');
  check(mha.encode('still open').length > 0, 'a refused model must leave the previous one open');
};

const work = process.argv[3];
const mha = await openModule(zlib.gunzipSync(fs.readFileSync(process.argv[2])));
for (const folder of [BUILTIN, path.join(DATA, 'models/gpt2-tiny'), path.join(DATA, 'models/gemma2-tiny'), path.join(DATA, 'models/bert-mlm-tiny')]) compareWith(mha, folder, work);
gatesAgree(mha);
generationAgrees(mha);
knockoutAgrees(mha, work);
patchingAgrees(mha);
sentencesHaveOneForm(mha);
hostileCases(mha, work);
hostileContents(mha);
console.log(`${checks} checks, ${failures} failures, ${(mha.bytes() / 1e6).toFixed(1)} MB of memory`);
process.exit(failures ? 1 : 0);
