// Filtered thumbnails of pseudo-labeled images, and the figures that match the filters.
const TILES = innerWidth > NARROW ? 120 : 48; // shown at first, and added by "Show more"
const SIZE = 64; // pixels of a thumbnail on the page
const SELECTION = [["all", "all"], ["selected", "selected"], ["discarded", "discarded"], ["changed", "changed since the last cycle"]];
const VOTES = [["all", "all"], ["agree", "agree"], ["differ", "disagree"]];
const TRUTHS = [["all", "all"], ["correct", "correct"], ["wrong", "wrong"], ["none", "no known class"]];
const sheetClasses = new Set();

// One rule per sheet, as a data URL on every tile would be copied a thousand times.
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

function thumbnail(run, name, index, size = SIZE) {
  const title = index < 0 ? null : sheetClass(run, name);
  if (!title) return null;
  const node = el("span", { class: `thumb ${title}` });
  const x = index % run.columns, y = Math.floor(index / run.columns), rows = Math.ceil(run.sheets[name].count / run.columns);
  node.style.width = node.style.height = `${size}px`;
  node.style.backgroundSize = `${run.columns * size}px ${rows * size}px`;
  node.style.backgroundPosition = `${-x * size}px ${-y * size}px`;
  return node;
}

function choose(label, key, options, state, change) {
  const id = `f${Math.random().toString(36).slice(2)}`;
  const select = el("select", { id, "data-filter": key, onchange: (event) => { state[key] = event.target.value; change(); } },
    options.map(([value, name]) => el("option", { value, selected: state[key] === value }, name)));
  state[key] = select.value; // an option that no longer exists falls back to the first
  return el("label", { for: id }, label, select);
}

function drawObservatory(run, id) {
  const { labels } = run, state = stateOf(run.name);
  const grid = el("ul", { class: "tiles" }), count = el("p", { class: "count", role: "status" });
  const more = el("button", { type: "button", class: "more", onclick: () => { state.most += TILES; show(); } }, "Show more");
  const figures = figureGrid(labels.figures);
  const show = () => {
    const items = labels.domains.flatMap((domain) => itemsOf(domain, state, labels.classes));
    const matches = items.filter((item) => passes(item, state));
    fill(grid, matches.slice(0, state.most).map((item) => tile(run, labels.classes, item)));
    fill(count, `${formatNumber(matches.length)} of ${formatNumber(items.length)} sampled images`);
    more.hidden = matches.length <= state.most;
    figures.show((figure) => belongs(figure.of, state));
  };
  const change = () => { state.most = TILES; cycleFilter(); show(); };
  const stages = labels.figures.map((figure) => figure.of);
  const domains = unique([...labels.domains.map((domain) => domain.name), ...stages.map((of) => of.domain)]);
  const knows = labels.domains.some((domain) => domain.truth);
  // The cycles of the chosen labeling, latest first.
  const cycleBox = el("div");
  const cycleFilter = () => {
    const all = [...labels.domains.flatMap((d) => d.stages), ...stages].filter((of) => of.title === state.labeling && of.cycle);
    const cycles = unique(all.map((of) => String(of.cycle))).sort((a, b) => b - a);
    if (!cycles.includes(state.cycle)) delete state.cycle;
    fill(cycleBox, cycles.length ? choose("Cycle", "cycle", cycles.map((cycle) => [cycle, cycle]), state, change) : null);
  };
  const filters = el("div", { class: "filters" },
    choose("Domain", "domain", [["all", "all"], ...domains.map((name) => [name, name])], state, change),
    choose("Labels", "labeling", labels.labelings.map((title) => [title, title]), state, change),
    cycleBox,
    labels.domains.length ? [
      choose("Images", "selection", SELECTION, state, change),
      choose("Class", "label", [["all", "all"], ...labels.classes.map((name, k) => [String(k), name])], state, change),
      choose("Votes", "votes", VOTES, state, change),
      knows ? choose("Truth", "truth", TRUTHS, state, change) : null] : null);
  cycleFilter();
  show();
  return panel(`${id}-labels`, "Pseudo-labels", el("p", { class: "note" }, labels.sampled),
    labels.domains.length && !knows ? el("p", { class: "note" }, "The true classes are not known, so labels cannot be checked.") : null,
    domains.length ? filters : el("p", { class: "missing" }, "No pseudo-labels."),
    labels.domains.length ? [count, legendOf(knows), grid, more] : null, figures.box);
}

const unique = (values) => [...new Set(values)];

function stateOf(name) {
  if (!choices.has(name)) choices.set(name, { most: TILES });
  return choices.get(name);
}

const belongs = (of, state) => (state.domain === "all" || of.domain === state.domain) && of.title === state.labeling &&
  (of.cycle === null || String(of.cycle) === state.cycle);

function itemsOf(domain, state) {
  const at = (cycle) => domain.stages.find((stage) => stage.title === state.labeling && stage.cycle === cycle);
  const now = at(Number(state.cycle));
  // In the first cycle of a labeling, the labels of another kind of labeler precede it.
  const before = now && (at(now.cycle - 1) || domain.stages.findLast((stage) => stage.kind === now.kind && stage.cycle === now.cycle - 1));
  if (!now || (state.domain !== "all" && state.domain !== domain.name)) return [];
  return domain.paths.map((path, index) => ({
    domain: domain.name, index, path, label: now.y[index], keep: now.keep[index] === 1, confidence: now.confidence[index],
    votes: now.votes.map((row) => row[index]), before: before ? before.y[index] : null,
    truth: domain.truth ? domain.truth[index] : -1, web: domain.web ? domain.web[index] : -1 }));
}

const agrees = (item) => item.votes.every((vote) => vote === item.votes[0]);
const changed = (item) => item.before !== null && item.before !== item.label;
const verdict = (item) => (item.truth === -2 ? "none" : item.truth < 0 ? "unknown" : item.truth === item.label ? "correct" : "wrong");

function passes(item, state) {
  return (state.selection === "all" || state.selection === undefined || { selected: item.keep, discarded: !item.keep, changed: changed(item) }[state.selection]) &&
    (state.label === "all" || String(item.label) === state.label) &&
    (state.votes === "all" || agrees(item) === (state.votes === "agree")) &&
    (!state.truth || state.truth === "all" || verdict(item) === state.truth);
}

const SIGNS = { correct: "✓", wrong: "✗", none: "∅", unknown: "" };

function tile(run, classes, item) {
  const name = (k) => (k < 0 ? "-" : classes[k] ?? "unknown"), how = verdict(item);
  const lines = [
    `${name(item.label)}, confidence ${formatNumber(item.confidence, 1)} %`, `${item.keep ? "selected" : "discarded"} · ${item.domain}`,
    item.votes.length > 1 ? `votes: ${item.votes.map(name).join(", ")}` : null,
    changed(item) ? `previous cycle: ${name(item.before)}` : null,
    how === "unknown" ? null : how === "none" ? "truth: no known class" : `truth: ${name(item.truth)} (${how})`,
    item.web >= 0 ? `keyword: ${name(item.web)}` : null, item.path].filter(Boolean);
  const show = (event) => showTip(event, thumbnail(run, item.domain, item.index, 96), lines.map((line, at) => el("p", {}, at ? line : el("b", {}, line))));
  return el("li", {}, el("button", { type: "button", class: `tile ${item.keep ? "selected" : "discarded"} ${how}`, "aria-label": lines.join(", "),
    onpointerenter: show, onpointerleave: hideTip, onfocus: show, onblur: hideTip },
  thumbnail(run, item.domain, item.index) || el("span", { class: "thumb blank" }),
  el("span", { class: "label" }, name(item.label)),
  el("span", { class: "sign" }, `${changed(item) ? "↻" : ""}${SIGNS[how]}`)));
}

const legendOf = (knows) => el("p", { class: "note" },
  `Solid frame: selected. Dashed and faded: discarded. ↻ label changed since the last cycle.${knows ? " ✓ correct, ✗ wrong, ∅ no known class." : ""}`);
