/* model_files.js - the files of a model: those in the page, and those of a folder that is dropped or chosen. */
const WEIGHTS_MAX = 2 ** 31; /* bytes; the memory of the module is limited to 4 GiB */

const bytesOf = (base64) => {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
};

const unpack = async (base64) => {
  const stream = new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

const unpackFiles = async ({ config, tokenizer, weights }) => {
  const [c, t, ...w] = await Promise.all([config, tokenizer, ...weights.map((file) => file.data)].map(unpack));
  return { config: c, tokenizer: t, weights: weights.map(({ name }, n) => ({ name, bytes: w[n] })) };
};

/* ---- a folder of the user ---- */

const readEntries = (folder) => new Promise((resolve, reject) => {
  const reader = folder.createReader(), all = [];
  const more = () => reader.readEntries((some) => { all.push(...some); if (some.length) more(); else resolve(all); }, reject);
  more();
});
const fileOf = (entry) => new Promise((resolve, reject) => { entry.file(resolve, reject); });

/* The files of a drop: those of the first folder in it, or the files themselves. */
const droppedFiles = async (transfer) => {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry && item.webkitGetAsEntry()).filter(Boolean);
  const folder = entries.find((entry) => entry.isDirectory);
  const list = folder ? await readEntries(folder) : entries;
  const files = await Promise.all(list.filter((entry) => entry.isFile).map(fileOf));
  return { name: folder ? folder.name : 'files', files };
};

/* The files of a chosen folder, without those of its subfolders. */
const chosenFiles = (input) => {
  const files = [...input.files].filter((file) => file.webkitRelativePath.split('/').length <= 2);
  return { name: files.length ? files[0].webkitRelativePath.split('/')[0] || 'files' : 'files', files };
};

const indexedNames = async (index) => {
  const map = JSON.parse(await index.text()).weight_map;
  if (!map || typeof map !== 'object') throw new Error(`${index.name}: weight_map must be an object`);
  return [...new Set(Object.values(map))];
};

const weightFiles = async (find, files) => {
  const index = find('model.safetensors.index.json');
  if (find('model.safetensors')) return [find('model.safetensors')];
  if (!index) return files.filter(({ name }) => name.endsWith('.safetensors'));
  return (await indexedNames(index)).map((name) => {
    if (!find(name)) throw new Error(`${index.name}: the folder must contain the file ${name}`);
    return find(name);
  });
};

/* Reads a checkpoint from a list of files. */
const readCheckpoint = async (files) => {
  const find = (name) => files.find((file) => file.name === name);
  for (const name of ['config.json', 'tokenizer.json']) if (!find(name)) throw new Error(`the folder must contain ${name}`);
  const weights = await weightFiles(find, files), total = weights.reduce((sum, file) => sum + file.size, 0);
  if (weights.length === 0) throw new Error('the folder must contain weights in safetensors files');
  if (total > WEIGHTS_MAX) throw new Error(`the weights must have at most ${WEIGHTS_MAX} bytes on this page (got ${total})`);
  const read = async (file) => new Uint8Array(await file.arrayBuffer());
  return { config: await read(find('config.json')), tokenizer: await read(find('tokenizer.json')),
    weights: await Promise.all(weights.map(async (file) => ({ name: file.name, bytes: await read(file) }))) };
};
