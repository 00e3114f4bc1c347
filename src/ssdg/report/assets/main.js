// Draw the page from its data block; a live page fetches fresh data from its server.
const DRAWERS = { line: drawCurves, bars: drawCurves, matrix: drawMatrix, flow: drawFlow };
const REFRESH = 2000; // milliseconds
const choices = new Map(); // filter values by run, kept across refreshes
let page = JSON.parse(document.getElementById("data").textContent);

function panel(id, title, ...children) {
  return el("section", { id, class: "panel", "aria-labelledby": `${id}-title` }, el("h3", { id: `${id}-title` }, title), children);
}

function drawSummary(summary) {
  const { scores, facts, details } = summary;
  const pairs = (rows) => el("dl", {}, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  return el("div", { class: "summary" },
    summary.headline.length ? el("ul", { class: "headline" }, summary.headline.map(([name, value]) => el("li", { class: "card" },
      el("span", {}, name), el("b", {}, value)))) : null,
    el("div", { class: "card" },
      scores.rows.length ? plainTable(["Test accuracy (%)", ...scores.columns], scores.rows) : el("p", { class: "missing" }, "No scores yet."),
      scores.note ? el("p", { class: "note" }, scores.note) : null),
    el("div", { class: "card" }, pairs(facts), el("details", { class: "details" }, el("summary", {}, "Machine, versions and hashes"), pairs(details))),
    summary.command ? el("div", { class: "card" }, el("b", {}, "Command"), el("pre", { tabindex: 0 }, summary.command)) : null,
    summary.leak ? el("p", { class: "card" }, el("b", {}, "Hidden labels. "), summary.leak) : null);
}

function drawFindings(findings) {
  if (!findings.length) return el("p", {}, "No issues found.");
  return el("ul", { class: "findings" }, findings.map((finding) => el("li", { class: finding.level },
    el("b", {}, finding.text), el("span", { class: "number" }, finding.number), finding.advice ? el("p", {}, withSettings(finding.advice)) : null)));
}

// Options and settings do not break between lines.
const withSettings = (text) => text.split(/(--[a-z][\w-]*(?: [a-z][\w-]*(?=[),]))?|[a-z][\w.]*=[\w.-]*\w)/).map((part, at) => (at % 2 ? el("code", {}, part) : part));

function drawRun(run, index) {
  const id = `run${index}`;
  return el("section", { id, class: "run", "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, run.summary.title, el("span", { class: `state ${run.summary.state}` }, run.summary.state)),
    el("p", { class: "folder" }, run.name),
    drawSummary(run.summary),
    run.findings ? panel(`${id}-findings`, "Findings", drawFindings(run.findings)) : null,
    panel(`${id}-curves`, "Curves", drawAll(run.curves)),
    run.labels ? drawObservatory(run, id) : null,
    run.pictures ? drawPictures(run, id) : null,
    run.open ? panel(`${id}-open`, "Open set", run.open.note ? el("p", {}, run.open.note) : null, drawAll(run.open.figures)) : null);
}

function render() {
  const head = document.getElementById("head");
  const links = [...page.compared.map((comparison, index) => [`compared${index}`, comparison.title]), ...page.runs.map((run, index) => [`run${index}`, run.name])];
  const parts = page.runs.length === 1 && !page.compared.length
    ? [["findings", "Findings"], ["curves", "Curves"], ["labels", "Pseudo-labels"], ["pictures", "Domains"], ["open", "Open set"]]
      .map(([key, name]) => [`run0-${key}`, name]) : links;
  fill(head, el("h1", {}, page.title), page.live ? el("p", { id: "live", role: "status" }, "live") : null,
    el("nav", { "aria-label": "Sections" }, el("ul", {})));
  fill(document.getElementById("content"), page.compared.map(drawComparison), page.runs.map(drawRun));
  fill(head.querySelector("nav ul"), parts.filter(([id]) => document.getElementById(id))
    .map(([id, name]) => el("li", {}, el("a", { href: `#${id}` }, name))));
}

async function refresh(tag) {
  const live = () => document.getElementById("live");
  let next = tag;
  try {
    const answer = await fetch("data.json", { headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 200) {
      page = await answer.json();
      next = answer.headers.get("ETag");
      const at = scrollY;
      render();
      scrollTo(0, at);
    }
    live().textContent = answer.ok || answer.status === 304 ? "live" : "the server cannot read the run folder";
  } catch {
    live().textContent = "the server has stopped; this page is no longer updated";
  }
  setTimeout(() => refresh(next), REFRESH);
}

function drawTable(table) {
  const body = [sortedTable(...narrowed(table), table.caption), table.notes.map((note) => el("p", { class: "note" }, note))];
  return el("div", { class: "card table" }, table.closed ? el("details", {}, el("summary", {}, table.caption), body) : body);
}

function drawComparison(comparison, index) {
  const id = `compared${index}`;
  return el("section", { id, class: "run", "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, comparison.title),
    drawTable(comparison.table), drawAll(comparison.curves), comparison.settings.map(drawTable));
}

let width = innerWidth, waiting = 0;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(render, 150);
});
render();
document.documentElement.dataset.ready = "true";
if (page.live) refresh(null);
