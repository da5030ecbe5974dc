/* head_clusters.js - draws the heads as points in a plane, where nearby heads attend to similar tokens (classical
 * scaling of the Jensen-Shannon distance). Average linkage with the same distance gives the requested number of
 * clusters. */
const PLANE = { width: 720, height: 520, margin: 46 };

/* Returns the cluster of each leaf after cutting the tree of merges into `count` clusters. As in scipy, merge k creates
 * node n + k. */
const cutTree = (merges, n, count) => {
  const parent = Array.from({ length: 2 * n }, (_, i) => i);
  merges.slice(0, Math.max(0, n - count)).forEach(([a, b], k) => { parent[a] = parent[b] = n + k; });
  const root = (i) => (parent[i] === i ? i : root(parent[i])), names = new Map();
  return Array.from({ length: n }, (_, i) => {
    const r = root(i);
    if (!names.has(r)) names.set(r, names.size);
    return names.get(r);
  });
};

/* Returns the corners of the convex hull of points [x, y] (Andrew's monotone chain). */
const hull = (points) => {
  const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const turn = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
  const half = (list) => list.reduce((line, p) => {
    while (line.length > 1 && turn(line[line.length - 2], line[line.length - 1], p) <= 0) line.pop();
    line.push(p);
    return line;
  }, []);
  const lower = half(sorted), upper = half(sorted.reverse());
  return [...lower.slice(0, -1), ...upper.slice(0, -1)];
};

/* Returns the indices of the points [x, y] whose name can be drawn without covering another name or point. The selected
 * point has priority, then the others in reading order. */
const roomForNames = (points, names, chosen) => {
  const taken = [], box = (i) => [points[i][0] + 7, points[i][1] - 13, points[i][0] + 9 + 5.6 * names[i].length, points[i][1] - 3];
  const meets = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
  const dots = points.map(([x, y]) => [x - 5, y - 5, x + 5, y + 5]);
  const order = points.map((_, i) => i).sort((a, b) => (b === chosen) - (a === chosen));
  return new Set(order.filter((i) => {
    const own = box(i), free = i === chosen || !(taken.some((b) => meets(own, b)) || dots.some((d, k) => k !== i && meets(own, d)));
    if (free) taken.push(own);
    return free;
  }));
};

const drawPoints = (m, cluster, svgBox) => {
  const { xy } = models[m].diversity, own = ownHeads(m), count = Math.max(...cluster) + 1;
  const { svg, x, y } = plot(fitted(PLANE, svgBox), spread(xy.map((p) => p[0])), spread(xy.map((p) => p[1])), ['first axis', 'second axis'],
    `Map of ${own.length} heads in ${count} clusters`);
  for (let c = 0; c < count; c++) {
    const points = xy.filter((_, i) => cluster[i] === c).map(([u, v]) => [x(u), y(v)]);
    if (points.length > 1) svg.append(drawing('polygon', { points: (points.length > 2 ? hull(points) : points).map((p) => p.join()).join(' '), class: 'hull' }));
  }
  const named = roomForNames(xy.map(([u, v]) => [x(u), y(v)]), own.map((h) => h.name), own.indexOf(heads[selected.head]));
  own.forEach((h, i) => {
    const dot = drawing('g', { class: 'dot', tabindex: 0, role: 'button', 'aria-label': `${headWords(h, m)}, cluster ${cluster[i] + 1}` });
    dot.append(drawing('title', {}, `${headWords(h, m)}, cluster ${cluster[i] + 1}`),
      drawing('circle', { cx: x(xy[i][0]), cy: y(xy[i][1]), r: heads.indexOf(h) === selected.head ? 9 : 6, fill: LABEL_COLORS[labelOf(h, m)] }));
    if (named.has(i)) dot.append(drawing('text', { x: x(xy[i][0]) + 8, y: y(xy[i][1]) - 5 }, h.name));
    const choose = () => select(heads.indexOf(h));
    dot.addEventListener('click', choose);
    dot.addEventListener('keydown', (event) => { if (event.key === 'Enter') choose(); });
    if (heads.indexOf(h) === selected.head) dot.classList.add('selected');
    svg.append(dot);
  });
  svgBox.replaceChildren(svg);
};

/* Lists the heads of each cluster, the largest cluster first, with the most frequent label. */
const listClusters = (m, cluster, list) => {
  const own = ownHeads(m), groups = Array.from({ length: Math.max(...cluster) + 1 }, (_, c) => own.filter((_, i) => cluster[i] === c));
  list.replaceChildren(...groups.map((group, c) => ({ group, c })).sort((a, b) => b.group.length - a.group.length).map(({ group, c }) => {
    const item = element('li'), labels = group.map((h) => labelOf(h, m)), most = [...new Set(labels)].map((l) => [l, labels.filter((x) => x === l).length]).sort((a, b) => b[1] - a[1])[0];
    item.append(element('h3', `Cluster ${c + 1}: ${group.length === 1 ? '1 head' : `${group.length} heads`}, ${most[1] === group.length ? '' : `${most[1]} with label `}${nameOf('label', most[0])}`),
      ...group.map((h) => {
        const button = element('button', h.name, 'head-link');
        button.type = 'button';
        button.title = headWords(h, m);
        button.addEventListener('click', () => select(heads.indexOf(h)));
        return button;
      }));
    return item;
  }));
};

const clusterPanel = (m) => {
  const box = element('div'), label = element('label', 'Clusters '), field = element('input'), svgBox = element('div', null, 'plot-box');
  const pair = element('div', null, 'pair wide-left'), left = element('div'), list = element('ul', null, 'clusters');
  const labels = [...new Set(ownHeads(m).map((h) => labelOf(h, m)))], key = element('p', null, 'key');
  field.type = 'number';
  field.min = 1;
  field.max = ownHeads(m).length;
  field.value = Math.min(8, ownHeads(m).length);
  label.append(field);
  labels.forEach((name) => {
    const chip = element('span', nameOf('label', name), 'chip');
    chip.style.setProperty('--label', LABEL_COLORS[name]);
    key.append(chip);
  });
  const cut = () => cutTree(models[m].diversity.merges, ownHeads(m).length, clamp(field.valueAsNumber || 1, 1, ownHeads(m).length));
  const show = () => drawPoints(m, cut(), svgBox), showAll = () => { show(); listClusters(m, cut(), list); };
  field.addEventListener('input', showAll);
  on('head', show);
  if (models.length > 1) box.append(element('h3', models[m].model));
  left.append(svgBox, key);
  pair.append(left, list);
  const controls = element('div', null, 'controls');
  controls.append(label);
  box.append(controls, pair);
  showAll();
  whenResized(svgBox, show);
  return box;
};

const makeClusters = () => {
  const content = $('clusters').querySelector('.content');
  content.append(element('p', 'Heads near each other attend to similar tokens. Distances in the plane approximate the Jensen-Shannon distance. ' +
    'Outlines mark the clusters found by average linkage. Names that would overlap are omitted: point at a head to see its name, or click to select it.', 'hint'),
  ...withDiversity().filter((m) => models[m].diversity.xy).map(clusterPanel));
};
