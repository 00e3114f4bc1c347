// Rows of two or three figures of a six-column grid, so that no row has an empty place.
const WIDE = 900; // pixels from which figures share rows
const GUTTER = 16, FRAME = 26; // pixels between figures, and of their padding and border
const FULL = 6, HALF = 3, THIRD = 2;
const SPAN_CLASSES = { [FULL]: "full", [HALF]: "half", [THIRD]: "third" };

const roomOf = () => Math.min(document.documentElement.clientWidth, 1280) - 32;

// Halves, and an odd one out makes the last three thirds.
function spansOf(count) {
  if (roomOf() < WIDE || count < 2) return Array(count).fill(FULL);
  return Array.from({ length: count }, (_, at) => (count % 2 && at >= count - 3 ? THIRD : HALF));
}

// Thirds, and one or two left over make the last four or two halves.
function squareSpansOf(count) {
  if (roomOf() < WIDE || count < 2) return Array(count).fill(FULL);
  const halves = [0, 4, 2][count % 3];
  return Array.from({ length: count }, (_, at) => (at >= count - halves ? HALF : THIRD));
}

function widthOf(span) {
  const inRow = FULL / span;
  return Math.max(240, Math.floor((roomOf() - GUTTER * (inRow - 1)) / inRow) - FRAME);
}

const drawFigure = (figure, span) => DRAWERS[figure.kind](figure, widthOf(span));

// A grid of figures; `show` takes whether a figure is visible, and redraws those whose width changes.
function figureGrid(figures) {
  const cells = figures.map((figure) => ({ figure, node: null, span: 0 }));
  const box = el("div", { class: "figures" });
  const show = (isVisible) => {
    const visible = cells.filter((cell) => isVisible(cell.figure)), spans = spansOf(visible.length);
    for (const cell of cells) {
      const at = visible.indexOf(cell), span = at < 0 ? cell.span || HALF : spans[at];
      if (cell.span !== span) cell.node = drawFigure(cell.figure, span);
      cell.span = span;
      cell.node.className = `${cell.figure.kind} ${SPAN_CLASSES[span]} ${at < 0 ? "off" : ""}`;
    }
    fill(box, cells.map((cell) => cell.node));
  };
  return { box, show };
}

// All figures, and below them the sentences on those that cannot be drawn.
function drawAll(figures) {
  const grid = figureGrid(figures.filter((figure) => figure.kind !== "sentence"));
  grid.show(() => true);
  return [grid.box.children.length ? grid.box : null,
    figures.filter((figure) => figure.kind === "sentence").map((figure) => el("p", { class: "missing" }, figure.note))];
}
