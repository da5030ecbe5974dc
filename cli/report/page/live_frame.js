/* live_frame.js - shows the page of `mha live` in a frame, with the shown text and the theme of the report. */

const setFrameTheme = (page) => {
  const { theme } = document.documentElement.dataset;
  if (theme) page.documentElement.dataset.theme = theme; else delete page.documentElement.dataset.theme;
};

/* The frame opens with the first text, or with the state in the address of the report. */
const setFrameText = (page) => {
  if (shownText === 0) return;
  page.getElementById('text').value = data.texts[shownText].text;
  page.getElementById('text').dispatchEvent(new Event('input'));
};

const makeLive = () => {
  const frame = element('iframe');
  frame.title = 'The page of mha live: runs the model on a text';
  frame.addEventListener('load', () => {
    const page = frame.contentDocument;
    setFrameTheme(page);
    on('theme', () => setFrameTheme(page));
    page.body.addEventListener('opened', () => setFrameText(page));
    if (page.body.dataset.openedMs) setFrameText(page);
  });
  frame.srcdoc = data.live;
  $('live').querySelector('.content').replaceChildren(frame);
};
