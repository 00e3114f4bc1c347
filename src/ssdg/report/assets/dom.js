"use strict";
// Strings from data become text nodes and attributes only, never markup.
const SVG = "http://www.w3.org/2000/svg";
const INKS = 7; // colors of Okabe and Ito, --ink0 to --ink6

function make(space, tag, attributes, children) {
  const node = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

const el = (tag, attributes, ...children) => make(null, tag, attributes, children);
const draw = (tag, attributes, ...children) => make(SVG, tag, attributes, children);

// Replace the children of a node; null is left out.
const fill = (node, ...children) => node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));

const formatNumber = (value, digits = 2) =>
  value === null || value === undefined ? "-" : Number(value.toFixed(digits)).toLocaleString("en");
const percent = (value) => (value === null || value === undefined ? "-" : value.toFixed(2));

const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const tip = () => document.getElementById("tip");

function showTip(event, ...children) {
  const box = tip();
  fill(box, children);
  box.hidden = false;
  const at = event.clientX === undefined ? positionOf(event.target) : { x: event.clientX, y: event.clientY };
  const size = box.getBoundingClientRect();
  const left = at.x + 16 + size.width > innerWidth ? at.x - size.width - 12 : at.x + 14;
  const top = at.y + 16 + size.height > innerHeight ? at.y - size.height - 12 : at.y + 14;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, top)}px`;
}

function positionOf(node) {
  const box = node.getBoundingClientRect();
  return { x: box.left + Math.min(box.width, 240) / 2, y: box.top + Math.min(box.height, 80) };
}

// Where an event is in the units of a drawing's viewBox, whatever its size and margins on the screen.
const pointIn = (drawing, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());

const hideTip = () => { tip().hidden = true; };

function numbers(columns, rows) {
  return el("details", { class: "numbers" }, el("summary", {}, "Numbers"),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers of this figure" },
      el("table", {},
        el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, rows.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row" }, name),
          cells.map((cell) => el("td", {}, typeof cell === "number" ? formatNumber(cell, 4) : cell ?? "-"))))))));
}

function frame(figure, picture, ...more) {
  return el("figure", { class: figure.kind }, el("figcaption", {}, figure.title), more[0] || null, picture,
    figure.note ? el("p", { class: "note" }, figure.note) : null, more.slice(1));
}
