/* graph.js - shows the strongest direct paths between the embedding, heads, feed-forward parts and the logits as a graph and
 * a list. The program places the nodes (edge_graph.h). A node or a row of the list marks its edges. */
const edgePath = (graph, edge) => {
  const [from, to] = [graph.nodes[edge.from], graph.nodes[edge.to]];
  const [start, end] = [from.y - graph.node_height / 2, to.y + graph.node_height / 2];
  const middle = (start + end) / 2;
  return `M${from.x} ${start}C${from.x} ${middle} ${edge.x} ${middle} ${edge.x} ${end}`;
};

const edgeText = (edge) => `${edge.name.replace('->', '→')} ${number(edge.value)}${'half' in edge ? ` ±${number(edge.half)}` : ''}`;

const drawNode = (graph, node, used, mark) => {
  const group = drawing('g', { class: used ? 'node' : 'node unused' });
  group.append(drawing('rect', { x: node.x - node.width / 2, y: node.y - graph.node_height / 2, width: node.width, height: graph.node_height, rx: 3 }));
  if (used || node.width >= 30) group.append(drawing('text', { x: node.x, y: node.y + 3.5 }, node.name));
  group.addEventListener('pointerenter', () => mark(true));
  group.addEventListener('pointerleave', () => mark(false));
  return group;
};

/* Draws `count` edges; the weakest first, so that strong edges are in front. */
const drawGraph = (graph, count, svg, list) => {
  const edges = graph.edges.slice(0, count);
  const most = edges.length ? Math.abs(edges[0].change) : 1;
  const lines = edges.map((edge) => {
    const line = drawing('path', { d: edgePath(graph, edge), class: edge.change > 0 ? 'edge up' : 'edge down', 'stroke-width': Math.max(1, (5 * Math.abs(edge.change)) / most) });
    line.append(drawing('title', {}, edgeText(edge)));
    return line;
  });
  const mark = (chosen) => lines.forEach((line, n) => line.classList.toggle('faded', chosen !== null && !chosen(edges[n], n)));
  svg.replaceChildren(...[...lines].reverse());
  graph.nodes.forEach((node, n) => {
    if (!node.name) return;
    const touches = (edge) => edge.from === n || edge.to === n;
    svg.append(drawNode(graph, node, edges.some(touches), (on) => mark(on ? touches : null)));
  });
  list.replaceChildren(...edges.map((edge, n) => {
    const row = element('li');
    const button = element('button', edgeText(edge), edge.change > 0 ? 'up' : 'down');
    button.type = 'button';
    ['focus', 'pointerenter'].forEach((event) => button.addEventListener(event, () => mark((_, k) => k === n)));
    ['blur', 'pointerleave'].forEach((event) => button.addEventListener(event, () => mark(null)));
    row.append(button);
    return row;
  }));
};

const showGraph = (grid) => {
  const graph = grid.graph;
  const section = element('section', null, 'graph');
  section.append(element('h2', `The strongest direct paths, ${grid.direction}: ${grid.metric}${grid.normalised ? '' : ' in nats'}${data.pairs > 1 ? `, mean of ${data.pairs}` : ''}`));
  if (!graph || !graph.edges.length) {
    section.append(element('p', 'No path has an effect.', 'hint'));
    $('grids').append(section);
    return;
  }
  const svg = drawing('svg', { viewBox: `0 0 ${graph.width} ${graph.height}`, role: 'img', 'aria-label': 'Graph of the strongest direct paths; the list contains their effects' });
  const controls = element('label', 'Edges: ', 'controls');
  const [slider, shown, list, pair] = [element('input'), element('output'), element('ol'), element('div', null, 'pair')];
  Object.assign(slider, { type: 'range', min: 1, max: graph.edges.length, value: clamp(graph.shown, 1, graph.edges.length) });
  const draw = () => {
    shown.textContent = `${slider.value} of ${grid.edges.length}`;
    drawGraph(graph, Number(slider.value), svg, list);
  };
  slider.addEventListener('input', draw);
  draw();
  controls.append(slider, shown);
  pair.append(svg, list);
  section.append(controls, pair);
  $('grids').append(section);
};
