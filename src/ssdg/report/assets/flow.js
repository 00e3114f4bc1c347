// Bands from the classes of one cycle to those of the next: unchanged labels in gray, changed ones in the color of their class.
const FLOW_HEIGHT = 360, BAR = 14, GAP = 4;

function drawFlow(figure, width) {
  const count = figure.classes.length, total = sum(figure.steps[0].flat());
  const room = FLOW_HEIGHT - 34 - GAP * (count - 1);
  const unit = room / Math.max(1, total);
  const label = Math.min(110, 12 + 7 * Math.max(...figure.classes.map((name) => cut(name).length)));
  const x = (index) => label + ((width - 2 * label - BAR) * index) / figure.steps.length;
  const sizes = [sumRows(figure.steps[0]), ...figure.steps.map((step) => sumRows(turned(step)))];
  const tops = sizes.map((column) => stacked(column, unit));
  const bands = figure.steps.flatMap((step, at) => bandsOf(figure, step, { unit, from: x(at) + BAR, to: x(at + 1), starts: tops[at], ends: tops[at + 1] }));
  const bars = sizes.map((column, at) => column.map((size, k) => draw("rect", {
    x: x(at), y: 24 + tops[at][k], width: BAR, height: Math.max(0.5, size * unit), style: `fill:${ink(k)}`,
    "data-text": `${figure.names[at]}: ${formatNumber(size)} images are labeled ${figure.classes[k]}` })));
  const side = (at, end) => figure.classes.map((name, k) => sizes[at][k] * unit < 7 ? null : draw("text", {
    x: end ? x(at) + BAR + 5 : x(at) - 5, y: 28 + tops[at][k] + (sizes[at][k] * unit) / 2, "text-anchor": end ? "start" : "end" }, cut(name)));
  const node = draw("svg", { viewBox: `0 0 ${width} ${FLOW_HEIGHT}`, role: "img", tabindex: 0, "aria-label": describeFlow(figure) },
    bands, bars, side(0, false), side(figure.steps.length, true),
    figure.names.map((name, at) => draw("text", { x: x(at) + BAR / 2, y: 14, "text-anchor": "middle", class: "unit" }, name)));
  node.addEventListener("pointermove", (event) => {
    const text = event.target.dataset ? event.target.dataset.text : null;
    text ? showTip(event, el("b", {}, text)) : hideTip();
  });
  node.addEventListener("pointerleave", hideTip);
  const rows = largest(figure, 20).map(([n, at, a, b]) => [`${figure.names[at]} to ${figure.names[at + 1]}`, a, b, n]);
  return frame(figure, el("div", { class: "plot" }, node), null, numbers(["between", "from", "to", "images"], rows));
}

const sum = (values) => values.reduce((a, b) => a + b, 0);
const sumRows = (step) => step.map(sum);
const turned = (step) => step.map((_, j) => step.map((row) => row[j]));

function stacked(sizes, unit) {
  let top = 0;
  return sizes.map((size) => { const at = top; top += size * unit + GAP; return at; });
}

function bandsOf(figure, step, { unit, from, to, starts, ends }) {
  const left = [...starts], right = [...ends], middle = (from + to) / 2, bands = [];
  step.forEach((row, i) => row.forEach((size, j) => {
    if (!size) return;
    const high = size * unit, a = 24 + left[i], b = 24 + right[j];
    left[i] += high;
    right[j] += high;
    bands.push(draw("path", {
      class: i === j ? "stays" : "moves", style: i === j ? null : `fill:${ink(i)}`,
      "data-text": `${figure.classes[i]} → ${figure.classes[j]}: ${formatNumber(size)} images`,
      d: `M${from} ${a}C${middle} ${a} ${middle} ${b} ${to} ${b}V${b + high}C${middle} ${b + high} ${middle} ${a + high} ${from} ${a + high}Z` }));
  }));
  return bands;
}

function largest(figure, most) {
  return figure.steps.flatMap((step, at) => step.flatMap((row, i) => row.map((n, j) => [n, at, figure.classes[i], figure.classes[j], i === j])))
    .filter(([n, , , , same]) => n && !same).sort((a, b) => b[0] - a[0]).slice(0, most);
}

const describeFlow = (figure) => `${figure.title}. Largest changes: ${largest(figure, 5).map(([n, at, a, b]) => `${a} to ${b} ${n} after ${figure.names[at]}`).join(", ") || "none"}`;
