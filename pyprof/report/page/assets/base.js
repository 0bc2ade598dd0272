/* What every chart and table uses: numbers in units, elements, the tip. Names of captures become text nodes, never markup. */
"use strict";

const SCALES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const UNKNOWN = "na";

function digits(number) {
  if (number === 0) return "0";
  const exponent = Math.floor(Math.log10(Math.abs(Number(number.toPrecision(3)))));
  return number.toFixed(Math.max(0, Math.min(4, 2 - exponent)));
}

function scaled(number, unit) {
  if (number === null || !Number.isFinite(number)) return UNKNOWN;
  const rounded = Math.abs(Number(number.toPrecision(3)));
  const [scale, prefix] = SCALES.find(([least]) => rounded >= least) || [1, ""];
  return `${digits(number / scale)} ${prefix}${unit}`;
}

function time(ns) {
  if (ns === null || !Number.isFinite(ns)) return UNKNOWN;
  const rounded = Math.abs(Number(ns.toPrecision(3)));
  if (rounded < 1e3) return `${Math.round(ns)} ns`;
  const [scale, unit] = rounded < 1e6 ? [1e3, "us"] : rounded < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  return `${digits(ns / scale)} ${unit}`;
}

const count = (number) => number.toLocaleString("en-US");

function percent(share) {
  if (share === null || !Number.isFinite(share)) return UNKNOWN;
  const value = 100 * share;
  return `${value >= 9.95 || value === 0 ? value.toFixed(0) : value >= 0.095 ? value.toFixed(1) : "<0.1"} %`;
}

/* An element with attributes, texts and other elements inside. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/* The things under the key of each. */
function grouped(things, keyOf) {
  const found = new Map();
  for (const one of things) {
    const key = keyOf(one);
    if (found.has(key)) found.get(key).push(one);
    else found.set(key, [one]);
  }
  return found;
}

const words = (name) => name.replaceAll("_", " ");

/* The colours of what is shown, named beside them: [class, text]. */
function keys(container, entries) {
  container.replaceChildren(...entries.map(([kind, text]) => make("span", { class: "key" }, make("span", { class: `swatch ${kind}` }), text)));
}

/* One box for all charts. lines: the first is the title, the others [name, value]. */
const tip = {
  box: document.getElementById("tip"),
  show(lines, x, y) {
    const [title, ...rest] = lines;
    const rows = rest.filter(([, value]) => value !== null).map(([name, value]) => make("tr", {}, make("th", {}, name), make("td", {}, value)));
    this.box.replaceChildren(make("strong", {}, title), make("table", {}, ...rows));
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    const room = document.documentElement.clientWidth;
    this.box.style.left = `${Math.max(4, Math.min(x + 14, room - width - 8))}px`;
    this.box.style.top = `${y + 16 + height > window.innerHeight ? Math.max(4, y - height - 12) : y + 16}px`;
  },
  beside(element, lines) {
    const box = element.getBoundingClientRect();
    this.show(lines, box.left + Math.min(box.width / 2, 200), box.bottom - 8);
  },
  hide() {
    this.box.hidden = true;
  },
};
document.addEventListener("scroll", () => tip.hide(), { passive: true });

/* Draw now, and again whenever the width changes. */
function drawn(container, draw) {
  let width = 0;
  const redraw = () => {
    const now = Math.floor(container.clientWidth);
    if (now && now !== width) draw((width = now));
  };
  new ResizeObserver(redraw).observe(container);
  redraw();
}

/* Elements of which one is in the order of Tab, and the others are reached from it. step: (element, key) -> element or null. */
function roving(elements, step, picked) {
  const focus = (element) => {
    for (const one of elements()) one.setAttribute("tabindex", one === element ? "0" : "-1");
    element.focus({ preventScroll: false });
  };
  return (event) => {
    const mine = event.target.closest("[data-rove]");
    if (!mine) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      picked(mine);
      return;
    }
    const next = step(mine, event.key);
    if (next) {
      event.preventDefault();
      focus(next);
    }
  };
}
