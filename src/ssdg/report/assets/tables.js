// Tables that a click on a column header sorts.
const NARROW = 600; // pixels of a phone

function plainTable(columns, rows, caption) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption || columns.join(", ") },
    el("table", {}, caption ? el("caption", {}, caption) : null,
      el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, rows.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row" }, name),
        cells.map((cell) => el("td", {}, typeof cell === "number" ? percent(cell) : cell ?? "-")))))));
}

// A cell is text, a number, or {text, sort, mark, title}; missing values sort last in either direction.
function sortedTable(columns, rows, caption) {
  const body = el("tbody", {});
  const order = { column: -1, sign: 1 };
  const value = (cell) => (cell && typeof cell === "object" ? cell.sort : cell);
  const put = (list) => fill(body, list.map(([name, ...cells]) => el("tr", {},
    el("th", { scope: "row" }, cellText(name)), cells.map((cell) => el("td", {
      class: cell && cell.mark ? cell.mark : typeof cell === "string" ? "text" : null, title: cell && cell.title ? cell.title : null }, cellText(cell))))));
  const isText = (index) => rows.length > 0 && rows.every((row) => typeof row[index] === "string");
  const heads = columns.map((name, index) => el("th", { scope: "col", "aria-sort": "none", class: isText(index) ? "text" : null },
    el("button", { type: "button", onclick: () => sort(index) }, name)));
  function sort(index) {
    order.sign = order.column === index ? -order.sign : index ? -1 : 1;
    order.column = index;
    heads.forEach((head, at) => head.setAttribute("aria-sort", at !== index ? "none" : order.sign > 0 ? "ascending" : "descending"));
    put([...rows].sort((a, b) => compare(value(a[index]), value(b[index]), order.sign)));
  }
  put(rows);
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", { class: "sorted" }, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), body));
}

// On a narrow screen the most important columns come next to the names.
function narrowed({ columns, rows, first = [] }) {
  if (innerWidth > NARROW || !first.length) return [columns, rows];
  const order = [0, ...first, ...columns.keys()].filter((at, place, all) => all.indexOf(at) === place);
  const put = (row) => order.map((at) => row[at]);
  return [put(columns), rows.map(put)];
}

function compare(a, b, sign) {
  const none = (value) => value === null || value === undefined || value === "";
  if (none(a) || none(b)) return none(a) - none(b);
  return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
}

function cellText(cell) {
  if (cell === null || cell === undefined) return "-";
  if (typeof cell === "number") return percent(cell);
  if (typeof cell !== "object") return String(cell);
  return cell.small ? el("span", {}, el("b", {}, cell.text), el("small", {}, cell.small)) : cell.text;
}
