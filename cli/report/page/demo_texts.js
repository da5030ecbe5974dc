/* demo_texts.js - draws the section of `mha demo`: continuations of texts, and the probability of correct copying with
 * some heads removed. */
const makeDemo = () => {
  $('demo').hidden = !data.demo;
  if (!data.demo) return;
  $('prompts').replaceChildren(...data.demo.continuations.flatMap(({ prompt, text }) => [element('dt', prompt), element('dd', text)]));
  $('ablation').tBodies[0].replaceChildren(...data.demo.ablation.map(({ words, heads: removed, chance }) => {
    const tr = element('tr'), bar = element('td', null, 'bar-cell'), fill = element('span', null, 'fill'), what = element('td', words);
    fill.style.width = `${100 * chance}%`;
    bar.append(fill);
    removed.forEach((name) => {
      const link = element('button', name, 'head-link');
      link.type = 'button';
      link.addEventListener('click', () => select(heads.findIndex((h) => h.name === name)));
      what.append(' ', link);
    });
    tr.append(what, element('td', `${(100 * chance).toFixed(1)} %`), bar);
    return tr;
  }));
};
