/* module.js - runs live.wasm: the functions that WASI requires, and calls with texts and arrays. Errors of the library
 * are thrown with its sentence. Also used by tests/emulated/wasm.mjs. */

/* The module opens no files and reads no environment. wasi-libc looks for open folders until it gets 8 (EBADF). */
const wasiOf = (module, memory) => {
  const view = () => new DataView(memory().buffer);
  const known = {
    environ_sizes_get: (count, bytes) => { view().setUint32(count, 0, true); view().setUint32(bytes, 0, true); return 0; },
    environ_get: () => 0,
    clock_time_get: (clock, precision, to) => { view().setBigUint64(to, BigInt(Math.round(performance.now() * 1e6)), true); return 0; },
    proc_exit: (code) => { throw new Error(`the module ended with status ${code}`); },
  };
  const imports = {};
  WebAssembly.Module.imports(module).forEach(({ module: from, name }) => {
    imports[from] = imports[from] || {};
    imports[from][name] = known[name] || (() => 8);
  });
  return imports;
};

/* Copies between JavaScript and the memory of the module. Views are made at each use, because they end when it grows. */
const memoryOf = (calls) => {
  const bytes = () => new Uint8Array(calls.memory.buffer);
  const address = (at) => at >>> 0; /* calls return addresses as signed numbers; those from 2 GiB on are negative */
  const put = (data, end) => {
    const at = address(calls.live_alloc(data.length + end));
    if (!at) throw new Error(`out of memory: ${data.length} bytes for the page`);
    bytes().set(data, at);
    bytes().fill(0, at + data.length, at + data.length + end);
    return at;
  };
  const text = (at) => {
    if (!at) return null;
    const all = bytes(), from = address(at);
    return new TextDecoder().decode(all.slice(from, all.indexOf(0, from)));
  };
  return {
    put,
    text,
    floats: (at, count) => new Float32Array(calls.memory.buffer, address(at), count).slice(),
    doubles: (at, count) => new Float64Array(calls.memory.buffer, address(at), count).slice(),
    ints: (at, count) => new Int32Array(calls.memory.buffer, address(at), count).slice(),
    write: (at, values) => new Float32Array(calls.memory.buffer, address(at), values.length).set(values),
    check: (failed) => { if (failed) throw new Error(text(calls.live_error())); },
    /* Calls `use` with a NUL-terminated copy of a string or of bytes. */
    lend: (given, use) => {
      const data = typeof given === 'string' ? new TextEncoder().encode(given) : given;
      const at = put(data, 1);
      try { return use(at, data.length); } finally { calls.live_free(at); }
    },
  };
};

/* Opens the model of `files`: {config, tokenizer, weights: [{name, bytes}]}, each a Uint8Array. The previous model stays
 * open if this fails. Returns its description. */
const openFiles = (calls, memory, files, isa) => {
  memory.check(memory.lend(isa, calls.live_begin));
  files.weights.forEach(({ name, bytes }) => {
    const data = memory.put(bytes, 0);
    memory.check(memory.lend(name, (at) => calls.live_file(at, data, bytes.length)));
  });
  memory.check(memory.lend(files.config, (config) => memory.lend(files.tokenizer, (tokenizer) => calls.live_open(config, tokenizer))));
  const names = ['layers', 'heads', 'hidden', 'vocab', 'headDim', 'causal', 'logits', 'positions'];
  const info = Object.fromEntries(names.map((name, n) => [name, calls.live_info(n)]));
  const layerHeads = [...Array(info.layers).keys()].map((layer) => calls.live_layer_heads(layer));
  /* The numbers of the heads in the unpruned model, by which the commands of mha name them */
  const headNumbers = layerHeads.map((count, layer) => [...Array(count).keys()].map((head) => calls.live_head_number(layer, head)));
  return { ...info, family: memory.text(calls.live_family()), isa: memory.text(calls.live_isa()), layerHeads, headNumbers };
};

/* The tokens of a text: {id, raw, text, begin, end}, with offsets in bytes of UTF-8. */
const encodeText = (calls, memory, text, most) => {
  const data = new TextEncoder().encode(text);
  const count = memory.lend(data, (at, bytes) => calls.live_encode(at, bytes, most));
  memory.check(count < 0);
  return Array.from(memory.ints(calls.live_ids(), count), (id, n) => {
    const begin = calls.live_offset(n, 0), end = calls.live_offset(n, 1), raw = memory.text(calls.live_token(id));
    return { id, raw, begin, end, text: end > begin ? new TextDecoder().decode(data.slice(begin, end)) : raw };
  });
};

const stepsOf = (calls, memory, info, count, at) => {
  const D = info.headDim, all = memory.floats(at, 2 * D + count * (1 + 2 * D));
  calls.live_free(at);
  const keys = [...Array(count).keys()].map((j) => {
    const from = D + j * (1 + 2 * D);
    return { score: all[from], k: all.slice(from + 1, from + 1 + D), v: all.slice(from + 1 + D, from + 1 + 2 * D) };
  });
  return { q: all.slice(0, D), keys, out: all.slice(D + count * (1 + 2 * D)) };
};

/* The logit lens at a token, an entry per layer and one before: {ids, probabilities, nats}, where nats are KL(output, entry), as in mha lens. */
const lensOf = (calls, memory, info, at) => {
  memory.check(calls.live_lens(at));
  return [...Array(info.layers + 1).keys()].map((entry) => {
    const ids = [...memory.ints(calls.live_lens_ids(entry), Math.min(3, info.vocab))];
    return { ids, probabilities: ids.map((_, n) => calls.live_lens_probability(entry, n)), nats: calls.live_lens_divergence(entry) };
  });
};

/* Activation patching between the text and a corrupted text. Runs are 0 (clean) and 1 (corrupted). */
const patchingOf = (calls, memory, vocab) => ({
  corrupted: (text) => memory.check(memory.lend(text, calls.live_corrupted)),
  corruptedIds: (count) => [...memory.ints(calls.live_corrupted_ids(), count)],
  answer: (text) => {
    const id = memory.lend(text, calls.live_answer);
    memory.check(id < 0);
    return id;
  },
  pair: (answer, wrong, at) => memory.check(calls.live_pair(answer, wrong, at)),
  pairLogits: (run) => memory.floats(calls.live_pair_logits(run), vocab()),
  pairMetric: (run, metric) => calls.live_pair_metric(run, metric),
  patchShape: (site, by) => [0, 1, 2].map((n) => calls.live_patch_shape(site, by, n)),
  patchPasses: (site, by, direction) => calls.live_patch_passes(site, by, direction),
  /* The values of one metric for every part of a site, in the order of patchShape */
  patch: (site, by, direction, metric, parts) => {
    const at = calls.live_patch(site, by, direction);
    memory.check(!at);
    return memory.doubles(at + 8 * metric * parts, parts);
  },
});

/* Compiles the module. Returns an object with one function per call; sides are 0 (the model as it is) and 1 (changed). */
const openModule = async (code) => {
  const module = await WebAssembly.compile(code);
  let calls = null;
  calls = (await WebAssembly.instantiate(module, wasiOf(module, () => calls.memory))).exports;
  const memory = memoryOf(calls);
  let info = null, count = 0;
  calls._initialize();
  const decode = (ids) => {
    const at = memory.lend(new Uint8Array(Int32Array.from(ids).buffer), (list) => calls.live_decode(list, ids.length));
    memory.check(!at);
    const text = memory.text(at);
    calls.live_text_free(at);
    return text;
  };
  const token = (id) => { memory.check(id < 0); return id; };
  return {
    version: memory.text(calls.live_version()),
    open: (files, isa = 'wasm128') => { info = openFiles(calls, memory, files, isa); count = 0; return info; },
    encode: (text, most = 0) => { const tokens = encodeText(calls, memory, text, most); count = tokens.length; return tokens; },
    truncated: () => calls.live_truncated(),
    gates: (values, mean) => { memory.write(calls.live_gates(), values); calls.live_apply(mean ? 1 : 0); },
    /* Removes edges [layer, head, query, key] on side 1; -1 = all layers or heads */
    edges: (rows) => memory.check(memory.lend(new Uint8Array(Int32Array.from(rows.flat()).buffer), (at) => calls.live_remove_edges(at, rows.length))),
    /* `outputs`: keeps the outputs of the heads, which their means need */
    forward: (side, at, outputs) => memory.check(calls.live_forward(side, at, outputs ? 1 : 0)),
    maps: (side) => memory.floats(calls.live_maps(side), info.layers * info.heads * count * count),
    logits: (side) => memory.floats(calls.live_logits(side), info.vocab),
    hidden: (side) => memory.floats(calls.live_hidden(side), count * info.hidden),
    divergence: () => calls.live_divergence(),
    effect: (side, head) => {
      const effect = calls.live_effect(side, head);
      memory.check(effect < 0);
      return effect;
    },
    steps: (side, layer, head, row) => {
      const at = calls.live_steps(side, layer, head, row);
      memory.check(!at);
      return stepsOf(calls, memory, info, count, at);
    },
    lens: (at) => lensOf(calls, memory, info, at),
    ...patchingOf(calls, memory, () => info.vocab),
    token: (id) => memory.text(calls.live_token(id)),
    decode,
    generate: (side) => token(calls.live_generate(side)),
    next: (side) => token(calls.live_next(side)),
    bytes: () => calls.memory.buffer.byteLength,
  };
};
