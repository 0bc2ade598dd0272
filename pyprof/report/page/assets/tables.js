/* Tables that sort, and show some rows first. A column: [key, title, value(row), shown(row), kind]. */

const FIRST = 10;
const MORE = 40;
const MOST = 500; // rows of a table in the page

class Table {
  constructor(container, columns, options) {
    Object.assign(this, { container, columns, rows: [], shown: FIRST, more: "pyprof prof FILE --group-by shows all", empty: "There are none.", any: false, ...options });
    this.sort = { key: options.sort, down: true };
    this.head = make("tr");
    this.body = make("tbody");
    this.foot = make("p", { class: "more" });
    this.headers = new Map();
    for (const column of columns) {
      const button = make("button", { type: "button", title: column.help || null, onclick: () => this.sortBy(column) }, column.title);
      const header = make("th", { scope: "col", class: column.kind || "text" }, button);
      this.headers.set(column.key, header);
      this.head.append(header);
    }
    const table = make("table", {}, make("caption", { class: options.said ? "unseen" : null }, options.caption), make("thead", {}, this.head), this.body);
    container.replaceChildren(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.caption }, table), this.foot);
  }

  sortBy(column) {
    const down = this.sort.key === column.key ? !this.sort.down : column.kind === "number";
    this.sort = { key: column.key, down };
    this.update(this.rows);
  }

  update(rows) {
    this.rows = rows;
    this.any ||= rows.length > 0;
    const column = this.columns.find((one) => one.key === this.sort.key);
    const sign = this.sort.down ? -1 : 1;
    const compare = (one, other) => {
      const [a, b] = [column.value(one), column.value(other)];
      if (a === null || b === null) return (a === null) - (b === null); // unknown last, either way
      return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
    };
    this.ordered = [...rows].sort(compare);
    for (const [key, header] of this.headers) header.setAttribute("aria-sort", key !== this.sort.key ? "none" : this.sort.down ? "descending" : "ascending");
    this.draw();
  }

  draw() {
    const shown = this.ordered.slice(0, this.shown);
    this.body.replaceChildren(...shown.map((row) => this.row(row)));
    const left = this.ordered.length - shown.length;
    const parts = [];
    if (left > 0 && this.shown < MOST) {
      const next = Math.min(left, MORE, MOST - this.shown);
      parts.push(make("button", { type: "button", onclick: () => { this.shown = Math.min(this.shown + MORE, MOST); this.draw(); } }, `Show ${count(next)} more`));
    }
    if (left > 0) parts.push(` ${count(left)} ${left === 1 ? "row is" : "rows are"} not shown${this.shown >= MOST ? `: filter to see them; ${this.more}` : ""}`);
    if (!this.ordered.length) parts.push(this.any ? "No row is left by the filter." : this.empty);
    this.foot.replaceChildren(...parts);
    this.container.firstChild.hidden = !this.any;
  }

  row(row) {
    const cells = this.columns.map((column) => {
      const content = column.shown(row);
      return make("td", { class: column.kind || "text", title: column.whole ? column.whole(row) : null }, ...(Array.isArray(content) ? content : [content]));
    });
    if (!this.picked) return make("tr", {}, ...cells);
    const name = make("button", { type: "button", class: "pick", onclick: () => this.picked(row) });
    name.append(...cells[0].childNodes);
    cells[0].append(name);
    return make("tr", { "aria-selected": this.isPicked && this.isPicked(row) ? "true" : null }, ...cells);
  }
}

function shareBar(share) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "bar");
  svg.setAttribute("aria-hidden", "true");
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  rect.setAttribute("width", `${Math.min(100, 100 * share).toFixed(1)}%`);
  rect.setAttribute("height", "100%");
  svg.append(rect);
  return svg;
}

const number = (key, title, value, shown, help) => ({ key, title, value, shown: (row) => shown(value(row)), kind: "number", help });

function sumColumns(cells) {
  return [
    number("time", "Time", (sum) => sum.time, time, "sum over the kernels"),
    { key: "share", title: "Share", kind: "number share", value: (sum) => sum.time, shown: (sum) => [shareBar(sum.time / (cells.total || 1)), percent(sum.time / (cells.total || 1))], help: "of all kernels' time" },
  ];
}

/* Columns of which no row has a value are left out. */
const withAny = (columns, sums) => columns.filter((column) => !column.optional || sums.some((sum) => ![null, UNKNOWN, "-"].includes(column.value(sum))));
const optional = (columns) => columns.map((column) => ({ ...column, optional: true }));

const roofColumns = () => optional([
  number("known", "Known", (sum) => sum.knownShare, percent, "share of the time whose FLOPs are known; of less than 99 % no rate is told"),
  number("rate", "FLOP/s", (sum) => sum.rate, (value) => scaled(value, "FLOP/s"), "FLOPs of the algorithm over the time"),
  number("bandwidth", "B/s", (sum) => sum.bandwidth, (value) => scaled(value, "B/s"), "least bytes over the time"),
  number("peak", "Roofline", (sum) => sum.peak, percent, "least time at the limits of the device over the time; above 100 % a limit is not what was assumed"),
  { key: "bound", title: "Bound", kind: "word", value: (sum) => sum.bound, shown: (sum) => sum.bound || UNKNOWN, help: "what limits most of it" },
  number("lost", "Lost", (sum) => sum.knownLost, time, "time above the roofline"),
]);

const tensorColumn = { optional: true, key: "tensor", title: "TC", kind: "word", value: (sum) => sum.tensor, shown: (sum) => sum.tensor, help: "whether Tensor Cores multiplied; - where nothing is to be multiplied on them" };

function opTable(container, cells, options) {
  return new Table(container, withAny([
    { key: "op", title: "Op", value: (sum) => cells.opName(sum.cell), shown: (sum) => cells.opName(sum.cell) },
    { key: "shape", optional: true, title: "Shapes", kind: "shape", value: (sum) => cells.shape(sum.cell) || null, shown: (sum) => make("span", { class: "clamped" }, cells.shape(sum.cell)), whole: (sum) => cells.shape(sum.cell) },
    { key: "phase", title: "Phase", value: (sum) => cells.phase(sum.cell), shown: (sum) => [make("span", { class: `swatch ph-${cells.phase(sum.cell)}` }), cells.phase(sum.cell)] },
    ...sumColumns(cells),
    number("calls", "Calls", (sum) => sum.calls, count, "executions of the op"),
    number("kernels", "Kernels", (sum) => sum.kernels, count),
    ...roofColumns(), tensorColumn,
  ], cells.sums(cells.mask, cells.group)), { sort: "time", caption: "Ops by shape and phase", ...options });
}

function layerTable(container, cells, options) {
  return new Table(container, withAny([
    { key: "layer", title: "Layer", kind: "path", value: (sum) => cells.paths[sum.key], shown: (sum) => cells.paths[sum.key], whole: (sum) => cells.paths[sum.key] },
    ...sumColumns(cells),
    number("own", "Own", (sum) => sum.own, time, "without the layers inside it"),
    number("calls", "Calls", (sum) => sum.calls, count, "executions of ops in it"),
    number("kernels", "Kernels", (sum) => sum.kernels, count),
    ...roofColumns(),
  ], cells.layerSums(cells.mask)), { sort: "time", caption: "Layers, each with all inside it", empty: "The capture names no layers.", ...options });
}

function kernelTable(container, cells, title, options) {
  const names = (sum) => cells.of.names[sum.key];
  return new Table(container, withAny([
    { key: "kernel", title, kind: "path", value: (sum) => names(sum)[0], shown: (sum) => [names(sum)[0], names(sum)[1] !== names(sum)[0] ? make("small", { class: "clamped" }, names(sum)[1]) : ""], whole: (sum) => names(sum)[1] },
    ...sumColumns(cells),
    number("kernels", "Kernels", (sum) => sum.kernels, count, "how often it ran"),
    number("mean", "Mean", (sum) => sum.time / sum.kernels, time, "time of one"),
    ...optional([number("lost", "Lost", (sum) => sum.knownLost, time, "time above the roofline")]),
    tensorColumn,
  ], cells.sums(cells.mask, cells.of.kernel)), { sort: "time", caption: "Kernels", said: true, ...options });
}

function measuredTable(container, cells, options) {
  return new Table(container, [
    { key: "kernel", title: "Kernel", kind: "path", value: (sum) => cells.opName(sum.cell), shown: (sum) => cells.opName(sum.cell), whole: (sum) => cells.of.names[cells.of.kernel[sum.cell]][1] },
    { key: "level", title: "Bytes of", value: (sum) => cells.phase(sum.cell), shown: (sum) => [make("span", { class: `swatch ph-${cells.phase(sum.cell)}` }), cells.phase(sum.cell)] },
    ...sumColumns(cells),
    number("launches", "Launches", (sum) => sum.kernels, count),
    number("intensity", "FLOP/B", (sum) => sum.intensity, (value) => scaled(value, ""), "FLOPs over bytes"),
    number("rate", "FLOP/s", (sum) => sum.rate, (value) => scaled(value, "FLOP/s"), "FLOPs over the time"),
    number("bandwidth", "B/s", (sum) => sum.bandwidth, (value) => scaled(value, "B/s"), "bytes over the time"),
  ], { sort: "time", caption: "Kernels by level of memory", said: true, more: "pyprof counters FILE shows all", ...options });
}

function tensorTable(container, cells, options) {
  const verdict = (sum) => cells.of.verdicts[cells.of.verdict[sum.cell]];
  const used = (sum) => ({ 1: "used", 0: "not used" })[verdict(sum)[0]] || UNKNOWN;
  return new Table(container, [
    { key: "tc", title: "Tensor Cores", value: used, shown: used },
    { key: "math", title: "Precision", value: (sum) => verdict(sum)[1] || UNKNOWN, shown: (sum) => verdict(sum)[1] || UNKNOWN },
    { key: "reason", title: "Why", value: (sum) => verdict(sum)[2], shown: (sum) => verdict(sum)[2] },
    { key: "op", title: "Op", value: (sum) => cells.opName(sum.cell), shown: (sum) => cells.opName(sum.cell) },
    ...sumColumns(cells),
    number("kernels", "Kernels", (sum) => sum.kernels, count),
  ], { sort: "time", caption: "Kernels that multiply matrices, or may", ...options });
}

const causes = (gap) => gap.causes.map(([cause, ns]) => (gap.causes.length > 1 ? `${words(cause)} ${time(ns)}` : words(cause))).join(", ");
const causeColumn = { key: "cause", title: "Cause", value: causes, shown: (gap) => [make("span", { class: `swatch cause-${gap.causes[0] ? gap.causes[0][0] : "unknown"}` }), causes(gap)] };

function placeTable(container, places) {
  if (!places.length) return;
  const table = new Table(container, [
    { key: "op", title: "Before", value: (place) => place.op, shown: (place) => place.op },
    { key: "layer", title: "Layer", kind: "path", value: (place) => place.layer, shown: (place) => place.layer },
    number("time", "Idle", (place) => place.time_ns, time, "idle time of all devices together"),
    number("gaps", "Gaps", (place) => place.gaps, count),
    causeColumn,
  ].filter((column) => column.key !== "layer" || places.some((place) => place.layer)), { sort: "time", shown: 5, caption: "Where it idles: before which op", more: "pyprof gaps FILE shows all" });
  table.update(places);
}

function gapTable(container, timeline, picked) {
  if (!timeline || !timeline.gaps.length) return;
  const table = new Table(container, [
    number("start", "Begins at", (gap) => gap.start_ns, time, "since the window's begin"),
    number("time", "Lasts", (gap) => gap.time_ns, time),
    causeColumn,
    { key: "before", title: "After", value: (gap) => gap.before || "", shown: (gap) => gap.before || "the window's begin" },
    { key: "after", title: "Before", value: (gap) => gap.after || "", shown: (gap) => gap.after || "the window's end" },
    ...(timeline.devices.length > 1 ? [number("device", "Device", (gap) => timeline.devices[gap.device] ? timeline.devices[gap.device].number : gap.device, String)] : []),
  ], { sort: "time", shown: 5, caption: `The ${count(timeline.gaps.length)} longest of ${count(timeline.gaps_all)} gaps`, picked });
  table.update(timeline.gaps);
}
