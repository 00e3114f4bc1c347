// Curves and bars, drawn at their actual width and readable by pointer, by keyboard and as a table.
const LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 40;
const heightOf = (figure) => (figure.of ? FLOW_HEIGHT : 250); // as high as the flow in the same row
const DASHES = ["", "6 4", "2 3", "9 3 2 3"];

function drawCurves(figure, width) {
  const hidden = new Set();
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Curves to show" });
  const picture = el("div", { class: "plot" });
  const paint = () => picture.replaceChildren(plot(figure, width, hidden));
  figure.series.forEach((series, index) => {
    const mark = draw("svg", { width: 26, height: 12, "aria-hidden": true }, sample(figure, index));
    legend.append(el("button", {
      type: "button", "aria-pressed": "true",
      onclick: (event) => {
        hidden.has(index) ? hidden.delete(index) : hidden.add(index);
        event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(index)));
        paint();
      },
    }, mark, series.name));
  });
  paint();
  const rows = figure.names.map((name, x) => [name, ...figure.series.map((series) => series.values[x])]);
  return frame(figure, picture, legend, numbers([figure.x, ...figure.series.map((s) => s.name)], rows));
}

const ink = (index) => `var(--ink${index % INKS})`;
const dash = (index) => DASHES[Math.floor(index / INKS) % DASHES.length];

function sample(figure, index) {
  return figure.kind === "bars"
    ? draw("rect", { x: 6, y: 0, width: 12, height: 12, style: `fill:${ink(index)}` })
    : draw("g", {}, draw("path", { d: "M1 6H25", class: "curve", style: `stroke:${ink(index)}`,
      "stroke-dasharray": dash(index) }), marker(13, 6, index));
}

// Shapes distinguish curves that share a color.
function marker(x, y, index) {
  const r = 3.4, style = `fill:${ink(index)}`;
  const shapes = [
    () => draw("circle", { cx: x, cy: y, r, style }),
    () => draw("rect", { x: x - r + 0.4, y: y - r + 0.4, width: 2 * r - 0.8, height: 2 * r - 0.8, style }),
    () => draw("path", { d: `M${x} ${y - r - 0.6}L${x + r + 0.4} ${y + r}H${x - r - 0.4}Z`, style }),
    () => draw("path", { d: `M${x} ${y - r - 0.8}L${x + r + 0.8} ${y}L${x} ${y + r + 0.8}L${x - r - 0.8} ${y}Z`, style }),
  ];
  return shapes[index % shapes.length]();
}

function ticks(low, high) {
  const raw = (high - low) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw - 1e-12);
  const marks = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) marks.push(at);
  return marks;
}

function scaleOf(figure) {
  const values = figure.series.flatMap((series) => series.values).filter((value) => value !== null);
  if (figure.kind === "bars") return [0, Math.max(...values) || 1];
  const low = Math.min(...values), high = Math.max(...values);
  const room = Math.max((high - low) * 0.08, figure.least / 2, Math.abs(high) * 0.01, 1e-6);
  const [floor, roof] = figure.bounds || [-Infinity, Infinity];
  return [Math.max(floor, low - room), Math.min(roof, high + room)];
}

function plot(figure, width, hidden) {
  const [low, high] = scaleOf(figure);
  const count = figure.names.length, isBars = figure.kind === "bars";
  const inner = width - LEFT - RIGHT, height = heightOf(figure), tall = height - TOP - BOTTOM;
  const slot = inner / (isBars ? count : Math.max(1, count - 1));
  const x = (index) => LEFT + (isBars ? (index + 0.5) * slot : count > 1 ? index * slot : inner / 2);
  const y = (value) => TOP + tall - ((value - low) / (high - low)) * tall;
  const visible = figure.series.map((series, index) => ({ series, index })).filter((entry) => !hidden.has(entry.index));
  const cross = draw("path", { class: "cross", visibility: "hidden" });
  const node = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": describeCurves(figure) },
    axes(figure, { low, high, x, y, width, slot, isBars }),
    isBars ? groups(visible, { x, y, slot, low }) : visible.map((entry) => curve(entry, x, y, breaksOf(figure))), cross);
  const point = (event, index) => {
    const at = Math.min(count - 1, Math.max(0, index));
    node.dataset.at = at;
    cross.setAttribute("d", `M${x(at)} ${TOP}V${TOP + tall}`);
    cross.setAttribute("visibility", "visible");
    showTip(event, el("b", {}, figure.names[at]), el("ul", {}, visible.map((entry) => el("li", {},
      el("i", { style: `background:${ink(entry.index)}` }), `${entry.series.name}: ${formatNumber(entry.series.values[at], 4)}`))));
  };
  const leave = () => { cross.setAttribute("visibility", "hidden"); hideTip(); };
  node.addEventListener("pointermove", (event) => {
    const at = pointIn(node, event).x - LEFT;
    point(event, isBars ? Math.floor(at / slot) : Math.round(at / slot));
  });
  node.addEventListener("pointerleave", leave);
  node.addEventListener("blur", leave);
  node.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") leave();
    if (!step) return;
    event.preventDefault();
    point({ target: node }, Number(node.dataset.at ?? (step > 0 ? -1 : count)) + step);
  });
  return node;
}

function axes(figure, { low, high, x, y, width, slot, isBars }) {
  const height = heightOf(figure), floor = height - BOTTOM, short = (name, index) => (/^(epoch|labeling)/.test(figure.x) ? String(index + 1) : cut(name.replace(/^cycle /, "")));
  const longest = Math.max(...figure.names.map((name, index) => short(name, index).length));
  const every = Math.max(1, Math.ceil((7 * longest + 12) / slot));
  const lines = ticks(low, high).map((at) => draw("g", {},
    draw("path", { class: "grid", d: `M${LEFT} ${y(at)}H${width - RIGHT}` }),
    draw("text", { x: LEFT - 6, y: y(at) + 4, "text-anchor": "end" }, formatNumber(at, 3))));
  const cycles = (figure.marks || []).map((at) =>
    draw("path", { class: "cycle", d: `M${(x(at - 1) + x(at)) / 2} ${TOP}V${floor}` }));
  const names = figure.names.map((name, index) => index % every ? null :
    draw("text", { x: x(index), y: floor + 16, "text-anchor": "middle" }, short(name, index)));
  return [lines, cycles, names,
    draw("path", { class: "axis", d: `M${LEFT} ${floor}H${width - RIGHT}` }),
    draw("text", { x: width - RIGHT, y: height - 6, "text-anchor": "end", class: "unit" }, figure.x),
    draw("text", { x: 12, y: TOP + (floor - TOP) / 2, "text-anchor": "middle", class: "unit",
      transform: `rotate(-90 12 ${TOP + (floor - TOP) / 2})` }, figure.y)].flat();
}

// If cycles have several epochs, curves break between cycles.
const breaksOf = (figure) => new Set(figure.names.length >= 2 * (figure.marks.length + 1) ? figure.marks : []);

function curve({ series, index }, x, y, breaks) {
  let path = "", isOn = false;
  series.values.forEach((value, at) => {
    if (value !== null) path += `${isOn && !breaks.has(at) ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    isOn = value !== null;
  });
  const few = series.values.length <= 60;
  return draw("g", {},
    draw("path", { d: path || "M0 0", class: "curve", style: `stroke:${ink(index)}`, "stroke-dasharray": dash(index) }),
    series.values.map((value, at) => (value === null || !few ? null : marker(x(at), y(value), index))));
}

function groups(visible, { x, y, slot, low }) {
  const wide = (slot * 0.84) / Math.max(1, visible.length);
  return visible.map(({ series, index }, order) => draw("g", { style: `fill:${ink(index)}` },
    series.values.map((value, at) => draw("rect", { x: x(at) - slot * 0.42 + order * wide, width: Math.max(0.5, wide - 1),
      y: y(value ?? low), height: Math.max(0, y(low) - y(value ?? low)) }))));
}

function describeCurves(figure) {
  const parts = figure.series.slice(0, 8).map((series) => {
    const known = series.values.filter((value) => value !== null);
    return known.length ? `${series.name} from ${formatNumber(known[0])} to ${formatNumber(known[known.length - 1])}` : `${series.name} not known`;
  });
  return `${figure.title}, ${figure.y} by ${figure.x}: ${parts.join("; ")}`;
}
