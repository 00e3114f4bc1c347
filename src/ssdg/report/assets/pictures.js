// Domain pictures. All dots of a colour are one path of points with round or square ends.
const REACH = 12; // pixels: how near to a dot the pointer must be

function drawPictures(run, id) {
  const { pictures } = run, state = stateOf(run.name);
  if (!pictures.panels.length) return panel(`${id}-pictures`, "Domains", el("p", { class: "missing" }, pictures.note));
  const body = el("div", { class: "clouds" });
  const show = () => fill(body, pictures.panels.filter((one) => state.only === "all" || one.names.includes(state.only)).map((one) => cloud(run, one, state)));
  const names = unique(pictures.panels.flatMap((one) => one.names));
  const filters = el("div", { class: "filters" },
    choose("Colour by", "colour", [["class", "class"], ["domain", "domain"]], state, show),
    choose("Domain", "only", [["all", "all"], ...names.map((name) => [name, name])], state, show));
  show();
  return panel(`${id}-pictures`, "Domains", el("p", { class: "note" }, pictures.note), filters, body);
}

function cloud(run, one, { colour, only }) {
  const { classes } = run.labels, side = 1000, edge = 30;
  const owner = one.counts.flatMap((count, k) => Array(count).fill(k));
  const group = (place) => (colour === "domain" ? owner[place] : one.classes[place]);
  const name = (k) => (colour === "domain" ? one.names[k] : k === -2 ? "of no class" : k < 0 ? "not known" : classes[k] ?? "unknown");
  const groups = new Map();
  const places = one.x.map((_, place) => place).filter((place) => only === "all" || one.names[owner[place]] === only);
  for (const place of places) groups.has(group(place)) ? groups.get(group(place)).push(place) : groups.set(group(place), [place]);
  const keys = [...groups.keys()].sort((a, b) => a - b);
  const dots = keys.map((k) => draw("path", { class: `dots ${Math.floor(k / INKS) % 2 ? "square" : ""}`, style: `stroke:${k < 0 ? "var(--soft)" : ink(k)}`,
    d: groups.get(k).map((place) => `M${one.x[place]} ${one.y[place]}h.01`).join("") }));
  const ring = draw("circle", { r: 16, class: "ring", visibility: "hidden" });
  const node = draw("svg", { viewBox: `${-edge} ${-edge} ${side + 2 * edge} ${side + 2 * edge}`, role: "img", tabindex: 0,
    "aria-label": `${one.method} of ${one.title}: ${one.names.map((title, k) => `${one.counts[k]} images of ${title}`).join(", ")}` }, dots, ring);
  const tell = (event, place) => {
    ring.setAttribute("cx", one.x[place]);
    ring.setAttribute("cy", one.y[place]);
    ring.setAttribute("visibility", "visible");
    const domain = one.names[owner[place]], k = one.classes[place];
    showTip(event, thumbnail(run, domain, one.places[place], 96), el("p", {}, el("b", {}, domain)),
      el("p", {}, k === -2 ? "of no class" : k < 0 ? "class not known" : classes[k] ?? "unknown"));
  };
  const leave = () => { ring.setAttribute("visibility", "hidden"); hideTip(); };
  node.addEventListener("pointermove", (event) => {
    const box = node.getBoundingClientRect(), scale = (side + 2 * edge) / box.width;
    const near = nearest(one, places, (event.clientX - box.left) * scale - edge, (event.clientY - box.top) * scale - edge);
    near.far <= REACH * scale ? tell(event, near.place) : leave();
  });
  node.addEventListener("pointerleave", leave);
  node.addEventListener("blur", leave);
  let at = -1;
  node.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") leave();
    if (!step || !places.length) return;
    event.preventDefault();
    at = (Math.max(at, step > 0 ? -1 : 0) + step + places.length) % places.length;
    tell({ target: node }, places[at]);
  });
  const legend = el("ul", { class: "keys" }, keys.slice(0, 24).map((k) => el("li", {},
    el("i", { class: Math.floor(k / INKS) % 2 ? "square" : "", style: `background:${k < 0 ? "var(--soft)" : ink(k)}` }), name(k))),
  keys.length > 24 ? el("li", {}, `and ${keys.length - 24} more`) : null);
  return el("figure", { class: "cloud" }, el("figcaption", {}, one.title), node, legend);
}

function nearest(one, places, x, y) {
  let place = -1, far = Infinity;
  for (const k of places) {
    const here = Math.hypot(one.x[k] - x, one.y[k] - y);
    if (here < far) { far = here; place = k; }
  }
  return { place, far };
}
