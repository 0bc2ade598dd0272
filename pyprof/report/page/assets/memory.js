/* Memory over time: what is in use by kind, phase, layer or line, and the lines of what is allocated and reserved; below it what is
   alive at the moment that was clicked. */

const HIGH = 260; // pixels
const bytes = (size) => (size === null ? UNKNOWN : Math.abs(size) < 1024 ? `${size} B` : `${(size / 2 ** 20).toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: Math.abs(size) < 2 ** 20 ? 3 : 1 })} MiB`);

class Memory {
  constructor(container, held) {
    Object.assign(this, { container, held, by: held.by.kind ? "kind" : null, column: held.peak });
    const names = { kind: "by kind", phase: "by phase", layer: "by layer", line: "by line" };
    const ways = Object.keys(names).filter((name) => held.by[name] && held.by[name].names.some((one) => one !== "not known"));
    this.buttons = ways.map((name) => make("button", { type: "button", class: "tool", "aria-pressed": String(name === this.by), onclick: () => this.colour(name) }, names[name]));
    this.chart = make("div", { class: "chart" });
    this.legend = make("div", { class: "keys" });
    this.told = make("p", { class: "answer", role: "status" });
    const table = make("div", { class: "table" });
    container.replaceChildren(make("div", { class: "zooms", role: "group", "aria-label": "Colours of the memory" }, ...this.buttons, make("button", { type: "button", class: "tool", onclick: () => this.pick(held.peak) }, "to the peak")),
      this.chart, this.legend, this.told, table);
    this.svg = d3.select(this.chart).append("svg").attr("tabindex", "0").attr("role", "img").attr("aria-label", "Memory over time; the arrow keys move to a moment, Home goes to the peak");
    this.svg.on("click", (event) => this.pick(this.nearest(event.offsetX))).on("mousemove", (event) => this.hover(this.nearest(event.offsetX), event.clientX, event.clientY))
      .on("mouseleave blur", () => tip.hide()).on("keydown", (event) => this.key(event));
    this.table = held.blocks.sites.length ? this.alive(table) : null;
    drawn(this.chart, (width) => this.draw(width));
    this.pick(this.column);
  }

  alive(container) {
    const text = (key, title, kind = "text") => ({ key, title, kind, value: (row) => row[key], shown: (row) => row[key] || UNKNOWN });
    const { sites } = this.held.blocks;
    const columns = [text("kind", "Kind"), text("phase", "Phase"), text("op", "Op"), text("line", "Line", "path"), text("layer", "Layer", "path")];
    const some = columns.filter(({ key }) => key === "kind" || sites.some((site) => site[["phase", "layer", "op", "line"].indexOf(key)]));
    return new Table(container, [some[0], number("bytes", "Size", (row) => row.bytes, bytes, "of the blocks together, as they were asked for where that is known"), number("number", "Blocks", (row) => row.number, (value) => (value === null ? UNKNOWN : count(value))), ...some.slice(1)],
      { sort: "bytes", caption: "What is alive then", more: "pyprof memory FILE --table blocks lists every block" });
  }

  x(at) {
    return this.edge + (at / (this.held.span || 1)) * (this.width - this.edge - 4);
  }

  nearest(x) {
    const wanted = ((x - this.edge) / (this.width - this.edge - 4)) * this.held.span;
    let best = 0;
    this.held.at.forEach((at, column) => { if (Math.abs(at - wanted) < Math.abs(this.held.at[best] - wanted)) best = column; });
    return best;
  }

  when(column) {
    const at = this.held.at[column];
    return this.held.timed ? time(at) : `event ${count(at)}`;
  }

  colour(by) {
    this.by = by;
    this.buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === `by ${by}`)));
    this.draw(this.width);
  }

  draw(width) {
    const { held, svg } = this;
    Object.assign(this, { width, edge: 76 });
    const most = Math.max(...held.total, ...held.reserved.filter((one) => one !== null), ...held.allocated.filter((one) => one !== null), 1);
    const y = (size) => HIGH - 22 - (Math.max(size, 0) / most) * (HIGH - 34);
    svg.attr("width", width).attr("height", HIGH).attr("viewBox", `0 0 ${width} ${HIGH}`).selectAll("*").remove();
    const axis = svg.append("g").attr("class", "axis");
    for (const size of d3.scaleLinear([0, most / 2 ** 20], [0, 1]).ticks(5).map((one) => one * 2 ** 20)) {
      axis.append("path").attr("d", `M${this.edge},${y(size)}H${width}`);
      axis.append("text").attr("x", this.edge - 6).attr("y", y(size) + 4).attr("text-anchor", "end").text(bytes(size).replace(".0 ", " "));
    }
    for (const at of d3.scaleLinear([0, held.span || 1], [0, 1]).ticks(Math.max(2, Math.floor(width / 140)))) axis.append("text").attr("x", this.x(at)).attr("y", HIGH - 6).attr("text-anchor", "middle").text(held.timed ? time(at) : count(at));
    const steps = (sizes, from = null) => sizes.map((size, at) => `${at ? `H${this.x(held.at[at]).toFixed(1)}V` : `M${this.x(held.at[0]).toFixed(1)},`}${y(size).toFixed(1)}`).join("") + (from === null ? `H${width - 4}` : "");
    const stack = this.by ? held.by[this.by] : { names: [], bytes: [] };
    const below = new Array(held.at.length).fill(0);
    stack.bytes.forEach((sizes, number) => {
      const top = sizes.map((size, at) => below[at] + size);
      const back = below.map((size, at) => `${y(size).toFixed(1)}H${this.x(held.at[at]).toFixed(1)}`).reverse().join("V");
      svg.append("path").attr("class", `held ${this.tone(number)}`).attr("d", `${steps(top)}V${back}Z`);
      top.forEach((size, at) => { below[at] = size; });
    });
    const lines = [["reserved", held.reserved], ["allocated", held.allocated], ["requested", held.by.kind ? [null] : held.requested]].filter(([, sizes]) => sizes.every((one) => one !== null));
    for (const [name, sizes] of lines) svg.append("path").attr("class", `line ${name}`).attr("d", steps(sizes));
    for (const at of held.oom) svg.append("path").attr("class", "oom").attr("d", `M${this.x(at)},8V${HIGH - 22}`);
    this.cursor = svg.append("path").attr("class", "cursor").attr("d", `M${this.x(held.at[this.column])},8V${HIGH - 22}`);
    keys(this.legend, [...stack.names.map((name, number) => [this.tone(number), name]), ...lines.map(([name]) => [`line-${name}`, name]), ...(held.oom.length ? [["line-oom", "out of memory"]] : [])]);
  }

  tone(number) {
    const name = this.held.by[this.by].names[number];
    const known = { kind: { older: "ph-unknown", unknown: "layer", parameters: "hue-0", gradients: "hue-1", "optimizer state": "hue-2", activations: "hue-3", temporaries: "hue-4", inputs: "hue-5" }, phase: { forward: "ph-forward", backward: "ph-backward", optimizer: "ph-optimizer" } }[this.by];
    return (known && known[name]) || (name === "not known" ? "layer" : `hue-${number % 8}`);
  }

  hover(column, x, y) {
    const { held } = this;
    const stack = this.by ? held.by[this.by] : { names: [], bytes: [] };
    tip.show([this.when(column), ["requested", held.requested[column] === null ? null : bytes(held.requested[column])], ["allocated", held.allocated[column] === null ? null : bytes(held.allocated[column])], ["reserved", held.reserved[column] === null ? null : bytes(held.reserved[column])],
      ...stack.names.map((name, at) => [name, stack.bytes[at][column] ? bytes(stack.bytes[at][column]) : null])], x, y);
  }

  /* What is alive at a moment: equal places together; what is too small to be listed, or older and not known, in one row. */
  pick(column) {
    const { held } = this;
    const { blocks } = held;
    this.column = column;
    if (this.cursor) this.cursor.attr("d", `M${this.x(held.at[column])},8V${HIGH - 22}`);
    const where = [held.step[column] === null ? null : `step ${held.step[column]}`, held.phase[column] && `in ${held.phase[column] === "optimizer" ? "the optimizer" : held.phase[column]}`].filter(Boolean).join(", ");
    const sizes = ["requested", "allocated", "reserved"].filter((name) => held[name][column] !== null).map((name) => `${bytes(held[name][column])} ${name}`);
    this.told.textContent = `${column === held.peak ? "At the peak, " : "At "}${this.when(column)}${where ? `, ${where}` : ""}: ${sizes.join(", ")}${held.relative ? " above the begin" : ""}.`;
    if (!this.table) return;
    const rows = new Map();
    let left = held.total[column];
    for (let at = 0; at < blocks.first.length; at++) {
      if (blocks.first[at] > column || blocks.last[at] < column) continue;
      const key = `${blocks.kind[at]}/${blocks.site[at]}`;
      const [phase, layer, op, line] = blocks.sites[blocks.site[at]];
      if (!rows.has(key)) rows.set(key, { kind: blocks.kinds[blocks.kind[at]], phase, layer, op, line, bytes: 0, number: 0 });
      rows.get(key).bytes += blocks.bytes[at];
      rows.get(key).number += blocks.number[at];
      left -= blocks.bytes[at];
    }
    if (left > 0) rows.set("left", { kind: blocks.first.length < 5000 ? "older" : "smaller, or older", phase: null, layer: null, op: null, line: null, bytes: left, number: null });
    this.table.update([...rows.values()]);
  }

  key(event) {
    const last = this.held.at.length - 1;
    const to = { ArrowLeft: this.column - 1, ArrowRight: this.column + 1, PageUp: this.column - 20, PageDown: this.column + 20, Home: this.held.peak, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.pick(Math.max(0, Math.min(last, to)));
  }
}

/* The memory of a section, a chart for each device. */
function holds(article, section) {
  for (const place of article.querySelectorAll(".memory")) new Memory(place, section.memory[place.dataset.device]);
}
