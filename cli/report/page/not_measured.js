/* not_measured.js - lists missing measurements with the options that provide them, and hides their sections and links.
 * */
const PARTS = [
  { part: 'importance', has: () => models.some((m) => m.importance), how: 'mha report --by SCORE measures the effect of removing each head.' },
  { part: 'diversity', section: 'diversity', has: () => withDiversity().length > 0, make: () => makeDiversity(), how: 'mha report --diversity measures how similar two heads are.' },
  { part: 'clusters', section: 'clusters', has: () => withDiversity().some((m) => models[m].diversity.xy), make: () => makeClusters(), how: 'mha report --diversity draws a map of the heads from their distances.' },
  { part: 'pruning curve', section: 'curve', has: () => withCurve().length > 0, make: () => makeCurve(), how: 'mha prune --search --json measures the curve, and mha report --curve FILE shows it.' },
  { part: 'live page', section: 'live', has: () => Boolean(data.live), make: () => makeLive() },
];

const makeParts = () => {
  const absent = PARTS.filter((p) => !p.has());
  PARTS.filter((p) => p.section).forEach((p) => {
    $(p.section).hidden = absent.includes(p);
    document.querySelector(`nav a[href="#${p.section}"]`).hidden = absent.includes(p);
    if (!absent.includes(p)) whenSeen($(p.section), p.make);
  });
  const listed = models[0].kind ? [] : absent.filter((p) => p.how); /* the measurements; an encoder-decoder has fewer */
  $('absent').hidden = listed.length === 0;
  $('absent').querySelector('summary').textContent = `Not measured: ${listed.map((p) => p.part).join(', ')}`;
  $('absent').querySelector('dl').replaceChildren(...listed.flatMap((p) => [element('dt', p.part), element('dd', p.how)]));
};
