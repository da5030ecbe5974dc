/* build_page.js - opens the module and the model, and connects the controls. */
const DEEP = 4; /* layers whose maps are about as tall as the prediction */
const adopt = (info, name) => {
  model.info = info;
  model.name = name;
  words.clear();
  past.length = 0;
  state.edges = [];
  state.gates = new Float32Array(info.layers * info.heads).fill(1);
  state.head = 0;
  state.at = null;
  $('top').classList.toggle('deep', info.layers > DEEP);
  $('effect-meaning').textContent = info.logits ? 'by how many bits the prediction changes if the head is switched.'
    : 'one minus the cosine of the mean hidden states if the head is switched.';
};

/* Opens the files of a folder; a problem leaves the present model open. */
const openFolder = async ({ name, files }) => {
  document.body.dataset.opening = 'yes';
  $('summary').textContent = `Opening ${name} …`;
  try {
    adopt(model.mha.open(await readCheckpoint(files)), name);
    makeGrid();
    update();
  } catch (error) {
    update();
    say(`${name}: ${error.message}`);
  }
  document.body.dataset.opening = 'no';
};

const makeDrop = () => {
  addEventListener('dragover', (event) => { event.preventDefault(); document.body.classList.add('dropping'); });
  addEventListener('dragleave', (event) => { if (!event.relatedTarget) document.body.classList.remove('dropping'); });
  addEventListener('drop', async (event) => {
    event.preventDefault();
    document.body.classList.remove('dropping');
    try { await openFolder(await droppedFiles(event.dataTransfer)); } catch (error) { say(error.message); }
  });
  $('folder').addEventListener('change', () => { if ($('folder').files.length) openFolder(chosenFiles($('folder'))); });
};

const KEYS = {
  x: () => { toggle(state.head); update(); },
  a: () => { leaveAlone(state.head); update(); },
  o: () => { leaveAlone(state.head, allIndices()); update(); },
  k: () => toggleShownEdge(),
  u: () => { undo(); update(); },
  t: turnTheme,
  '?': () => $('help').showModal(),
};
const makeKeys = () => addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches('textarea, input:not([type=range])') || $('help').open) return;
  if (KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
});

/* Copies the text of an element, or selects it if the page may not write to the clipboard. */
const copyText = (box) => navigator.clipboard.writeText(box.textContent).catch(() => getSelection().selectAllChildren(box));
const copyButton = (box) => {
  const button = element('button', 'Copy');
  button.type = 'button';
  button.addEventListener('click', () => copyText(box));
  return button;
};

const readAddress = () => {
  fromFragment(host.location.hash || (embedded ? '' : data.state || ''));
  $('text').value = state.text;
  $('mean').value = state.mean ? 'mean' : 'zero';
  showPatchControls();
};

const makeControls = () => {
  $('text').addEventListener('input', () => { state.text = wellFormed($('text').value); state.at = null; update(); });
  $('mean').addEventListener('change', () => { state.mean = $('mean').value === 'mean'; update(); });
  $('undo').addEventListener('click', () => { undo(); update(); });
  $('all-on').addEventListener('click', () => { restoreAll(); update(); });
  $('continue').addEventListener('click', continueText);
  ['command', 'patch-command'].forEach((id) => $(id).after(copyButton($(id))));
  $('length').addEventListener('input', () => { if (seenNow.tokens.length) showCommands(viewCommands(shownText())); });
  $('open-help').addEventListener('click', () => $('help').showModal());
  host.addEventListener('hashchange', () => { if (host.location.hash.startsWith('#text=') && host.location.hash !== toFragment()) { readAddress(); update(); } });
};

const start = async () => {
  makeTheme(() => {});
  document.body.classList.toggle('embedded', embedded);
  makeShades();
  $('text').value = data.text;
  state.text = data.text;
  try {
    const [module, files] = await Promise.all([unpack(data.module).then(openModule), unpackFiles(data.files)]);
    model.mha = module;
    adopt(module.open(files), data.model);
    [makeCard, makeKnockout, makeLens, makePatching, makeControls, makeDrop, makeKeys, makeGrid, readAddress, update].forEach((step) => step());
    document.body.dataset.openedMs = performance.now().toFixed(1);
    document.body.dispatchEvent(new Event('opened'));
  } catch (error) {
    $('summary').textContent = 'The model cannot be opened.';
    say(error.message);
  }
};
start();
