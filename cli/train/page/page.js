/* page.js - builds the page: curves, table of held-out losses, samples, settings. */
const points = data.points, evals = data.eval, taught = Boolean(data.settings.teacher);

const thousands = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ',');

const duration = (s) => (s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`);

const atStep = (i) => (data.every > 1 ? `steps ${points.step[i] - data.every + 1 > 0 ? points.step[i] - data.every + 1 : 1} to ${points.step[i]}` : `step ${points.step[i]}`);

/* Returns the last held-out loss at or before a step as text; "" if there is none. */
const evalAt = (step) => {
  const i = evals.step.findLastIndex((s) => s <= step);
  return i < 0 ? '' : `, held out ${number(evals.loss[i])} at step ${evals.step[i]}`;
};

const drawLoss = () => {
  const over = Number($('smooth').value), values = over > 1 ? smoothed(points.loss, over) : points.loss;
  const lines = [{ values: points.loss, steps: points.step, className: over > 1 ? 'line faint' : 'line', name: 'training loss' }];
  if (over > 1) lines.push({ values, steps: points.step, className: 'line', name: `training loss, mean over ${over} steps` });
  lines.push({ values: evals.loss, steps: evals.step, className: 'line other', dots: true, name: 'held-out loss: text not used for training' });
  chart($('loss-chart'), SIZE, 'loss', lines, (i) => `${atStep(i)}: loss ${number(points.loss[i])}${over > 1 ? `, smoothed ${number(values[i])}` : ''}${evalAt(points.step[i])}`, $('log-scale').checked);
};

const drawCourse = (id, name, values) => chart($(id), SMALL, name, [{ values, steps: points.step, className: 'line' }], (i) => `${atStep(i)}: ${name} ${values[i] < 1e-4 && values[i] > 0 ? values[i].toExponential(3) : number(values[i])}`, false);

/* Returns the tokens per second between points; evaluations and checkpoints are included in the time. */
const speeds = () => points.step.map((_, i) => {
  const tokens = points.tokens[i] - (i ? points.tokens[i - 1] : data.begun.tokens), seconds = points.seconds[i] - (i ? points.seconds[i - 1] : data.begun.seconds);
  return seconds > 0 ? tokens / seconds : 0;
});

const drawAll = () => {
  drawLoss();
  drawCourse('rate-chart', 'rate', points.rate);
  drawCourse('norm-chart', 'norm', points.norm);
  drawCourse('speed-chart', 'tokens per second', speeds());
  if (points.open) drawCourse('open-chart', 'heads', points.open);
};

/* Draws all curves now and whenever the width of the page changes. */
const drawWhenResized = () => {
  const main = document.querySelector('main');
  let width = main.clientWidth;
  drawAll();
  new ResizeObserver(() => {
    if (main.clientWidth === width) return;
    width = main.clientWidth;
    drawAll();
  }).observe(main);
};

const row = (cells, tag = 'td') => {
  const tr = element('tr');
  tr.append(...cells.map((cell) => element(tag, cell)));
  return tr;
};

const makeEvals = () => {
  if (evals.step.length === 0) return;
  const cells = (step, loss, perplexity) => (taught ? [step, loss] : [step, loss, perplexity]); /* a loss that includes a teacher has no perplexity */
  $('evals').append(row(cells('step', 'held-out loss', 'perplexity'), 'th'),
    ...evals.step.map((s, i) => row(cells(String(s), evals.loss[i].toFixed(4), Math.exp(evals.loss[i]).toFixed(2)))).reverse());
};

const showSamples = () => {
  const step = Number($('sample-step').value), list = data.samples.filter((s) => s.step === step);
  $('sample-list').replaceChildren(...list.flatMap((s) => [element('dt', s.prompt || '(nothing)'), element('dd', s.text)]));
};

const makeSamples = () => {
  const steps = [...new Set(data.samples.map((s) => s.step))];
  if (steps.length === 0) {
    $('samples').replaceChildren($('samples-title'), element('p', 'No samples were requested: with mha train --sample TEXT, a decoder continues TEXT at intervals.', 'absent'));
    return;
  }
  $('sample-step').append(...steps.map((s) => option(s, s)));
  $('sample-step').value = steps[steps.length - 1];
  $('sample-step').addEventListener('change', showSamples);
  showSamples();
};

const makeSettings = () => {
  const text = (value) => (Array.isArray(value) ? value.join('\n') : String(value));
  $('setting-table').append(...Object.entries(data.settings).map(([key, value]) => row([key.replace(/_/g, '-'), text(value)])));
};

const start = () => {
  const m = data.model, last = data.last;
  document.title = $('title').textContent = `Training of ${data.name}`;
  $('summary').textContent = `Step ${last.step} of ${data.settings.steps} · ${m.family}, ${m.layers} layer${m.layers === 1 ? '' : 's'} of ${m.heads} head${m.heads === 1 ? '' : 's'}, ${thousands(m.parameters)} parameters · ` +
    `${thousands(last.tokens)} tokens in ${duration(last.seconds)} · data: ${thousands(data.data.tokens)} tokens, ${thousands(data.data.sequences)} sequences`;
  $('loss-hint').textContent = `${taught ? 'Weighted sum of the losses from labels and teacher' : 'Mean -log p per token, in nats'}${data.every > 1 ? `, over ${data.every} steps each` : ''}.`;
  $('smooth').append(...[1, 10, 50, 200, 1000].filter((n) => n === 1 || n < last.step).map((n) => option(n, n)));
  makeTheme(() => {});
  ['smooth', 'log-scale'].forEach((id) => $(id).addEventListener('change', drawLoss));
  document.addEventListener('keydown', (event) => {
    if (event.key === 't' && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest('select')) turnTheme();
  });
  $('open-part').hidden = !points.open;
  drawWhenResized();
  makeEvals();
  makeSamples();
  makeSettings();
  document.body.dataset.ready = 'yes';
};

start();
