'use strict';
/* walk.js - shows one step at a time, with buttons, arrow keys, and an address for each step (#weights-3). Without this
 * script the page lists all steps; in print it shows all steps of the current tour. */
const tours = [...document.querySelectorAll('main section')].map((section) => ({ section, steps: [...section.querySelectorAll('article')] }));
const now = { tour: 0, step: 0 };

const mark = (list, link) => list.forEach((a) => { if (a === link) a.setAttribute('aria-current', 'true'); else a.removeAttribute('aria-current'); });

const draw = () => {
  const { section, steps } = tours[now.tour], last = tours.length - 1;
  tours.forEach((t, i) => t.section.classList.toggle('now', i === now.tour));
  steps.forEach((step, i) => step.classList.toggle('now', i === now.step));
  mark([...document.querySelectorAll('.tours a')], document.querySelector(`.tours a[href="#${section.id}"]`));
  document.querySelector('.tours ul').scrollLeft = document.querySelector('.tours a[aria-current]').offsetLeft - 40;
  mark([...section.querySelectorAll('.steps a')], section.querySelectorAll('.steps a')[now.step]);
  section.querySelector('.place').textContent = `Step ${now.step + 1} of ${steps.length}`;
  section.querySelector('.before').disabled = now.tour === 0 && now.step === 0;
  section.querySelector('.after').disabled = now.tour === last && now.step === steps.length - 1;
  section.querySelector('.after').textContent = now.step < steps.length - 1 || now.tour === last ? 'Next →' : `Next tour: ${tours[now.tour + 1].section.id} →`;
  section.querySelector('.all').setAttribute('aria-pressed', String(document.body.classList.contains('all')));
};

const go = (tour, step) => {
  Object.assign(now, { tour, step });
  draw();
};

/* Shows the next step (by = 1) or the previous step (by = -1), which may belong to another tour. */
const move = (by) => {
  const { steps } = tours[now.tour], step = now.step + by;
  if (step >= 0 && step < steps.length) go(now.tour, step);
  else if (tours[now.tour + by]) go(now.tour + by, by > 0 ? 0 : tours[now.tour + by].steps.length - 1);
  else return;
  history.replaceState(null, '', `#${tours[now.tour].steps[now.step].id}`); /* not while the page loads, because the browser would scroll to the step */
  const heading = tours[now.tour].steps[now.step].querySelector('h3');
  heading.focus({ preventScroll: true }); /* a screen reader continues at the heading */
  if (heading.getBoundingClientRect().top < 0 || heading.getBoundingClientRect().top > innerHeight / 2) tours[now.tour].section.scrollIntoView();
};

/* Shows the step of an address such as "#weights-3" or "#weights"; the first step for any other address. */
const follow = () => {
  const id = decodeURIComponent(location.hash.slice(1)), tour = tours.findIndex((t) => t.section.id === id || t.steps.some((step) => step.id === id));
  go(Math.max(tour, 0), tour < 0 ? 0 : Math.max(tours[tour].steps.findIndex((step) => step.id === id), 0));
};

tours.forEach(({ section, steps }) => {
  section.insertBefore(document.getElementById('controls').content.cloneNode(true), steps[0]);
  section.querySelector('.before').addEventListener('click', () => move(-1));
  section.querySelector('.after').addEventListener('click', () => move(1));
  section.querySelector('.all').addEventListener('click', () => {
    document.body.classList.toggle('all');
    draw();
  });
});
document.addEventListener('keydown', (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by || event.ctrlKey || event.altKey || event.metaKey || event.target.closest('pre')) return;
  event.preventDefault();
  move(by);
});
addEventListener('hashchange', follow);
document.body.classList.add('walk');
follow();
