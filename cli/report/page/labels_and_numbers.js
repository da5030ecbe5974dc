/* labels_and_numbers.js - display names of JSON keys, and number formats. The help panel also shows the keys, because
 * the command line uses them. */
const NAMES = {
  metric: { importance: 'importance', unique: 'uniqueness', entropy: 'entropy', entropy_norm: 'normalized entropy', entropy_content: 'entropy, content tokens',
    distance: 'mean distance', distance_content: 'mean distance, content tokens', offset: 'mean offset', confidence: 'largest weight',
    confidence_content: 'largest weight, content tokens', confidence_nospecial: 'largest weight, no special tokens', sink: 'weight on the sink',
    first: 'weight on the first token', sep: 'weight on separators', prev: 'weight on the previous token', next: 'weight on the next token',
    self: 'weight on the token itself', punct: 'weight on punctuation', first_argmax: 'rows with maximum on the first token', prev_argmax: 'rows with maximum on the previous token',
    next_argmax: 'rows with maximum on the next token', self_argmax: 'rows with maximum on the token itself', window2: 'weight within two tokens', block: 'weight within the segment',
    broad: 'breadth', vertical: 'vertical stripes', toeplitz: 'diagonal stripes', dup_probe: 'duplicate probe', induction_probe: 'induction probe' },
  label: { induction: 'induction', duplicate: 'duplicate token', prev: 'previous token', next: 'next token', self: 'token itself', first: 'first token',
    sep: 'separator', punct: 'punctuation', local: 'nearby tokens', block: 'own segment', broad: 'broad', vertical: 'vertical stripes', mixed: 'mixed' },
  score: { gate: 'gate gradient', gate_batch: 'gate gradient of the batch', gate_layer_l2: 'gate gradient, normalized per layer', taylor_token: 'Taylor expansion, per token',
    taylor_elem: 'Taylor expansion, per weight', gradmag: 'gradient of the projections', jacobian: 'Jacobian', jacobian_probe: 'Jacobian, estimated', loo: 'leave-one-out distance',
    loo_loss: 'leave-one-out loss', loo_mean: 'mean ablation, distance', loo_mean_loss: 'mean ablation, loss', confidence: 'largest weight',
    confidence_nospecial: 'largest weight, no special tokens', ov_norm: 'norm of output and value', qk_norm: 'norm of query and key' },
  diversity: { cosine: 'cosine of the maps', cosine_centred: 'centered cosine of the maps', js: 'Jensen-Shannon divergence',
    js_clark_sum: 'Jensen-Shannon divergence, summed', output_cka: 'CKA of the outputs', output_subspace: 'shared output dimensions', unique: 'uniqueness' },
};
const nameOf = (kind, key) => NAMES[kind][key] || key;

/* Returns the number of decimals for a list of values: one or three, or for small values enough to show three
 * significant digits of the largest value. */
const decimalsOf = (values) => {
  const most = values.filter(isNumber).reduce((a, x) => Math.max(a, Math.abs(x)), 0);
  return most >= 100 ? 1 : most >= 0.01 || most === 0 ? 3 : Math.min(2 - Math.floor(Math.log10(most)), 9);
};

/* Formats a number with the given decimals and a typographic minus; zero has no sign. */
const fixed = (x, decimals = 3) => (isNumber(x) ? x.toFixed(decimals).replace(/^-(?=[0.]*$)/, '').replace('-', '−') : '–');

/* Returns, for example, "head 2.5, previous token". */
const headWords = (h, m) => `head ${h.name}, ${nameOf('label', labelOf(h, m))}`;
