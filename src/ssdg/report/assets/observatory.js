// Thumbnails of pseudo-labeled images behind filters, and the figures that belong to the same choice.
const TILES = 120; // shown at first, and added by "more"
const SIZE = 64; // pixels of a thumbnail on the page
const SHOWN = [["all", "all"], ["kept", "kept"], ["rejected", "rejected"], ["changed", "changed since the last cycle"]];
const VOTES = [["all", "all"], ["agree", "agree"], ["differ", "differ"]];
const TRUTHS = [["all", "all"], ["right", "right"], ["wrong", "wrong"], ["none", "of no class"]];
const sheetClasses = new Set();

// One rule per sheet: a data address on every tile would be copied a thousand times.
function sheetClass(run, name) {
  const title = run.sheets[name] ? `sheet-${run.sheets[name].sheet}` : null;
  if (title && !sheetClasses.has(title)) {
    const rule = new CSSStyleSheet();
    rule.replaceSync(`.${title} { background-image: url("${page.sheets[run.sheets[name].sheet]}"); }`);
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, rule];
    sheetClasses.add(title);
  }
  return title;
}

function thumbnail(run, name, place, size = SIZE) {
  const title = place < 0 ? null : sheetClass(run, name);
  if (!title) return null;
  const node = el("span", { class: `thumb ${title}` });
  const x = place % run.columns, y = Math.floor(place / run.columns), rows = Math.ceil(run.sheets[name].count / run.columns);
  node.style.width = node.style.height = `${size}px`;
  node.style.backgroundSize = `${run.columns * size}px ${rows * size}px`;
  node.style.backgroundPosition = `${-x * size}px ${-y * size}px`;
  return node;
}

function choose(label, key, options, state, change) {
  const id = `f${Math.random().toString(36).slice(2)}`;
  const select = el("select", { id, "data-filter": key, onchange: (event) => { state[key] = event.target.value; change(); } },
    options.map(([value, name]) => el("option", { value, selected: state[key] === value }, name)));
  state[key] = select.value; // what is no longer there falls back to the first
  return el("label", { for: id }, label, select);
}

function drawObservatory(run, id) {
  const { labels } = run, state = stateOf(run.name);
  const grid = el("ul", { class: "tiles" }), told = el("p", { class: "count", role: "status" });
  const more = el("button", { type: "button", class: "more", onclick: () => { state.most += TILES; show(); } }, "Show more");
  const figures = drawAll(labels.figures);
  const show = () => {
    const items = labels.domains.flatMap((domain) => itemsOf(domain, state, labels.classes));
    const found = items.filter((item) => passes(item, state));
    fill(grid, found.slice(0, state.most).map((item) => tile(run, labels.classes, item)));
    fill(told, `${shown(found.length)} of ${shown(items.length)} sampled images`);
    more.hidden = found.length <= state.most;
    labels.figures.forEach((figure, place) => figures.children[place].classList.toggle("off", !belongs(figure.of, state)));
  };
  const change = () => { state.most = TILES; show(); };
  const stages = labels.figures.map((figure) => figure.of);
  const domains = unique([...labels.domains.map((domain) => domain.name), ...stages.map((of) => of.domain)]);
  const kinds = unique(["eid", "apl", ...stages.map((of) => of.kind)].filter((kind) => stages.some((of) => of.kind === kind) || labels.domains.some((d) => d.stages.some((s) => s.kind === kind))));
  const cycles = unique([...labels.domains.flatMap((d) => d.stages.map((s) => s.cycle)), ...stages.map((of) => of.cycle)].filter(Boolean)).sort((a, b) => b - a);
  const knows = labels.domains.some((domain) => domain.truth);
  const filters = el("div", { class: "filters" },
    choose("Domain", "domain", [["all", "all"], ...domains.map((name) => [name, name])], state, change),
    choose("Labels of", "kind", kinds.map((kind) => [kind, KINDS[kind] || kind]), state, change),
    cycles.length ? choose("Cycle", "cycle", cycles.map((cycle) => [String(cycle), String(cycle)]), state, change) : null,
    labels.domains.length ? [
      choose("Images", "shown", SHOWN, state, change),
      choose("Label", "label", [["all", "all"], ...labels.classes.map((name, k) => [String(k), name])], state, change),
      choose("Networks", "votes", VOTES, state, change),
      knows ? choose("Truth", "truth", TRUTHS, state, change) : null] : null);
  show();
  return panel(`${id}-labels`, "Pseudo-labels", el("p", { class: "note" }, labels.sampled),
    labels.domains.length && !knows ? el("p", { class: "note" }, "The true classes are not known: right and wrong cannot be told.") : null,
    domains.length ? filters : el("p", { class: "missing" }, "There are no pseudo-labels to show."),
    labels.domains.length ? [told, legendOf(knows), grid, more] : null, figures);
}

const KINDS = { eid: "the clean set (EID)", apl: "the labelers (APL)" };
const unique = (values) => [...new Set(values)];

function stateOf(name) {
  if (!kept.has(name)) kept.set(name, { most: TILES });
  return kept.get(name);
}

const belongs = (of, state) => (state.domain === "all" || of.domain === state.domain) && of.kind === state.kind &&
  (of.cycle === null || String(of.cycle) === state.cycle);

function itemsOf(domain, state) {
  const at = (cycle) => domain.stages.find((stage) => stage.kind === state.kind && stage.cycle === cycle);
  const now = at(Number(state.cycle)), before = at(Number(state.cycle) - 1);
  if (!now || (state.domain !== "all" && state.domain !== domain.name)) return [];
  return domain.paths.map((path, place) => ({
    domain: domain.name, place, path, label: now.y[place], keep: now.keep[place] === 1, confidence: now.confidence[place],
    votes: now.votes.map((row) => row[place]), before: before ? before.y[place] : null,
    truth: domain.truth ? domain.truth[place] : -1, web: domain.web ? domain.web[place] : -1 }));
}

const agrees = (item) => item.votes.every((vote) => vote === item.votes[0]);
const changed = (item) => item.before !== null && item.before !== item.label;
const verdict = (item) => (item.truth === -2 ? "none" : item.truth < 0 ? "unknown" : item.truth === item.label ? "right" : "wrong");

function passes(item, state) {
  return (state.shown === "all" || state.shown === undefined || { kept: item.keep, rejected: !item.keep, changed: changed(item) }[state.shown]) &&
    (state.label === "all" || String(item.label) === state.label) &&
    (state.votes === "all" || agrees(item) === (state.votes === "agree")) &&
    (!state.truth || state.truth === "all" || verdict(item) === state.truth);
}

const SIGNS = { right: "✓", wrong: "✗", none: "∅", unknown: "" };
const WORDS = { right: "right", wrong: "wrong", none: "of no class", unknown: "not known" };

function tile(run, classes, item) {
  const name = (k) => (k < 0 ? "-" : classes[k] ?? "unknown"), how = verdict(item);
  const lines = [
    `${name(item.label)}, ${shown(item.confidence, 1)} % sure`, `${item.keep ? "kept" : "rejected"} · ${item.domain}`,
    item.votes.length > 1 ? `networks say ${item.votes.map(name).join(" and ")}` : null,
    changed(item) ? `was ${name(item.before)} a cycle before` : null,
    how === "unknown" ? null : how === "none" ? "truly of no class" : `truly ${name(item.truth)}: ${WORDS[how]}`,
    item.web >= 0 ? `keyword ${name(item.web)}` : null, item.path].filter(Boolean);
  const tell = (event) => showTip(event, thumbnail(run, item.domain, item.place, 96), lines.map((line, at) => el("p", {}, at ? line : el("b", {}, line))));
  const untell = hideTip;
  return el("li", {}, el("button", { type: "button", class: `tile ${item.keep ? "kept" : "rejected"} ${how}`, "aria-label": lines.join(", "),
    onpointerenter: tell, onpointerleave: untell, onfocus: tell, onblur: untell },
  thumbnail(run, item.domain, item.place) || el("span", { class: "thumb blank" }),
  el("span", { class: "label" }, name(item.label)),
  el("span", { class: "sign" }, `${changed(item) ? "↻" : ""}${SIGNS[how]}`)));
}

const legendOf = (knows) => el("p", { class: "note" },
  `Full frame: kept. Faded, dashed: rejected. ↻ the label changed since the last cycle.${knows ? " ✓ right, ✗ wrong, ∅ of no class." : ""}`);
