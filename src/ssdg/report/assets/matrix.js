// Counts by row and column: label changes and confusion matrices.
const WIDEST_CELL = 46, LEAST_NAMED = 11; // pixels of a cell; narrower ones have no names
const LONGEST = 14; // characters of a name

const cut = (name) => (name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name);

function wholeOf(figure) {
  const counts = figure.rows.map(() => Array(figure.columns.length).fill(0));
  for (const [i, j, count] of figure.cells) counts[i][j] = count;
  return counts;
}

function drawMatrix(sparse, width) {
  const figure = { ...sparse, counts: wholeOf(sparse) };
  const across = figure.columns.length, down = figure.rows.length;
  const margin = 30 + 7 * Math.max(...figure.rows.map((name) => cut(name).length));
  const names = (width - margin - 8) / across >= LEAST_NAMED;
  const left = names ? margin : 8;
  const cell = Math.min(WIDEST_CELL, (width - left - 8) / across);
  const top = 26, foot = 14 + (names ? 7 * Math.max(...figure.columns.map((name) => cut(name).length)) : 0);
  const tall = top + cell * down + foot + 10, wide = Math.min(width, Math.max(left + cell * across + 8, left + 170));
  const most = Math.max(1, ...figure.cells.filter(([i, j]) => figure.rows[i] !== figure.columns[j]).map(([, , count]) => count));
  const body = figure.cells.map(([i, j]) => square(figure, i, j, { cell, left, top, most }));
  const labels = !names ? [] : [
    ...figure.rows.map((name, i) => draw("text", { x: left - 6, y: top + (i + 0.5) * cell + 4, "text-anchor": "end" }, cut(name))),
    ...figure.columns.map((name, j) => {
      const x = left + (j + 0.5) * cell + 4, y = top + down * cell + 8;
      return draw("text", { x, y, "text-anchor": "end", transform: `rotate(-90 ${x} ${y})` }, cut(name));
    })];
  const node = draw("svg", { viewBox: `0 0 ${wide} ${tall}`, style: `max-width:${wide}px`, role: "img", tabindex: 0, "aria-label": describeMatrix(figure) },
    draw("rect", { x: left, y: top, width: cell * across, height: cell * down, class: "field" }), body, labels,
    draw("text", { x: left, y: 14, class: "unit" }, `${figure.y} ↓   ${figure.x} →`));
  node.addEventListener("pointermove", (event) => {
    const at = pointIn(node, event), j = Math.floor((at.x - left) / cell), i = Math.floor((at.y - top) / cell);
    if (i < 0 || j < 0 || i >= down || j >= across) return hideTip();
    return showTip(event, el("b", {}, `${figure.rows[i]} → ${figure.columns[j]}`), el("p", {}, `${formatNumber(figure.counts[i][j])} images`));
  });
  node.addEventListener("pointerleave", hideTip);
  return frame(figure, el("div", { class: "plot" }, node), null, matrixNumbers(figure));
}

// All counts, or for many classes the largest off the diagonal.
function matrixNumbers(figure) {
  if (figure.columns.length <= 20) {
    return numbers([`${figure.y} \\ ${figure.x}`, ...figure.columns], figure.counts.map((row, i) => [figure.rows[i], ...row]));
  }
  const rows = offDiagonal(figure).slice(0, 30).map(([count, a, b]) => [a, b, count]);
  return numbers([figure.y, figure.x, "images"], rows);
}

const offDiagonal = (figure) => figure.cells.map(([i, j, count]) => [count, figure.rows[i], figure.columns[j]])
  .filter(([, a, b]) => a !== b).sort((a, b) => b[0] - a[0]);

function square(figure, i, j, { cell, left, top, most }) {
  const count = figure.counts[i][j], same = figure.rows[i] === figure.columns[j];
  const sum = figure.counts[i].reduce((a, b) => a + b, 0);
  const share = same ? count / sum : count / most;
  const strong = share > 0.55, seam = cell > 5 ? 1 : 0, least = cell > 5 ? 0.1 : 0.35;
  return draw("g", {},
    draw("rect", { x: left + j * cell, y: top + i * cell, width: cell - seam, height: cell - seam,
      style: `fill:${ink(same ? 0 : 1)};fill-opacity:${(least + (1 - least) * share).toFixed(3)}` }),
    cell >= 24 ? draw("text", { x: left + (j + 0.5) * cell, y: top + (i + 0.5) * cell + 4, "text-anchor": "middle",
      class: strong ? "on" : "" }, count > 9999 ? `${Math.round(count / 1000)}k` : count) : null);
}

function describeMatrix(figure) {
  const moves = offDiagonal(figure).slice(0, 5);
  return `${figure.title}, ${figure.y} by ${figure.x}. Largest off the diagonal: ${moves.map(([n, a, b]) => `${a} to ${b} ${n}`).join(", ") || "none"}`;
}
