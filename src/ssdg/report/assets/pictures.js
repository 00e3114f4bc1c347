// Domain pictures. All dots of a color are one path of points with round or square caps.
const REACH = 12; // pixels: largest distance from the pointer to a dot

function drawPictures(run, id) {
  const { pictures } = run, state = stateOf(run.name);
  if (!pictures.panels.length) return panel(`${id}-pictures`, "Domains", el("p", { class: "missing" }, pictures.note));
  const body = el("div", { class: "figures" });
  const show = () => {
    const visible = pictures.panels.filter((picture) => state.only === "all" || picture.names.includes(state.only));
    const views = visible.length === 1 ? bothColors(visible[0], state.color) : visible.map((picture) => ({ picture, color: state.color }));
    const spans = squareSpansOf(views.length);
    fill(body, views.map((view, at) => cloud(run, view, state.only, SPAN_CLASSES[spans[at]])));
  };
  const names = unique(pictures.panels.flatMap((picture) => picture.names));
  const filters = el("div", { class: "filters" },
    choose("Color by", "color", [["class", "class"], ["domain", "domain"]], state, show),
    choose("Domain", "only", [["all", "all"], ...names.map((name) => [name, name])], state, show));
  show();
  return panel(`${id}-pictures`, "Domains", el("p", { class: "note" }, pictures.note), filters, body);
}

// A lone picture is drawn twice, which fills its row.
function bothColors(picture, color) {
  return [color, color === "class" ? "domain" : "class"].map((by) => ({ picture: { ...picture, title: `${picture.title}, by ${by}` }, color: by }));
}

function cloud(run, { picture, color }, only, span) {
  const { classes } = run.labels, side = 1000, edge = 30;
  const owner = picture.counts.flatMap((count, k) => Array(count).fill(k));
  const group = (index) => (color === "domain" ? owner[index] : picture.classes[index]);
  const name = (k) => (color === "domain" ? picture.names[k] : k === -2 ? "no known class" : k < 0 ? "not known" : classes[k] ?? "unknown");
  const groups = new Map();
  const indices = picture.x.map((_, index) => index).filter((index) => only === "all" || picture.names[owner[index]] === only);
  for (const index of indices) groups.has(group(index)) ? groups.get(group(index)).push(index) : groups.set(group(index), [index]);
  const keys = [...groups.keys()].sort((a, b) => a - b);
  const dots = keys.map((k) => draw("path", { class: `dots ${Math.floor(k / INKS) % 2 ? "square" : ""}`, style: `stroke:${k < 0 ? "var(--soft)" : ink(k)}`,
    d: groups.get(k).map((index) => `M${picture.x[index]} ${picture.y[index]}h.01`).join("") }));
  const ring = draw("circle", { r: 16, class: "ring", visibility: "hidden" });
  const node = draw("svg", { viewBox: `${-edge} ${-edge} ${side + 2 * edge} ${side + 2 * edge}`, role: "img", tabindex: 0,
    "aria-label": `${picture.method} of ${picture.title}: ${picture.names.map((title, k) => `${picture.counts[k]} images of ${title}`).join(", ")}` }, dots, ring);
  const point = (event, index) => {
    ring.setAttribute("cx", picture.x[index]);
    ring.setAttribute("cy", picture.y[index]);
    ring.setAttribute("visibility", "visible");
    const domain = picture.names[owner[index]], k = picture.classes[index];
    showTip(event, thumbnail(run, domain, picture.positions[index], 96), el("p", {}, el("b", {}, domain)),
      el("p", {}, k === -2 ? "no known class" : k < 0 ? "class not known" : classes[k] ?? "unknown"));
  };
  const leave = () => { ring.setAttribute("visibility", "hidden"); hideTip(); };
  node.addEventListener("pointermove", (event) => {
    const at = pointIn(node, event), near = nearest(picture, indices, at.x, at.y);
    near.far <= REACH / node.getScreenCTM().a ? point(event, near.index) : leave();
  });
  node.addEventListener("pointerleave", leave);
  node.addEventListener("blur", leave);
  let at = -1;
  node.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") leave();
    if (!step || !indices.length) return;
    event.preventDefault();
    at = (Math.max(at, step > 0 ? -1 : 0) + step + indices.length) % indices.length;
    point({ target: node }, indices[at]);
  });
  const legend = el("ul", { class: "keys" }, keys.slice(0, 24).map((k) => el("li", {},
    el("i", { class: Math.floor(k / INKS) % 2 ? "square" : "", style: `background:${k < 0 ? "var(--soft)" : ink(k)}` }), name(k))),
  keys.length > 24 ? el("li", {}, `and ${keys.length - 24} more`) : null);
  return el("figure", { class: `cloud ${span}` }, el("figcaption", {}, capitalized(picture.title)), node, legend);
}

function nearest(picture, indices, x, y) {
  let index = -1, far = Infinity;
  for (const k of indices) {
    const distance = Math.hypot(picture.x[k] - x, picture.y[k] - y);
    if (distance < far) { far = distance; index = k; }
  }
  return { index, far };
}
