/* Layer > op > kernel, the width of each its time. Equal layers side by side are one part ("24 x EncoderLayer") that a click
   unfolds, layers with a single one inside are one line (a > b > c). What is around the zoomed part is the way back above it. */

const ROW = 24;
const DEEPEST = 18; // rows
const LEAST_WIDTH = 1.2; // pixels of what is drawn
const FOLDED = 3; // equal layers that become one part

/* The parts inside one another. A part: name, place (layers, op, phase, kernel: as the filter has it), value in ns, cells of ops
   and kernels, members of a fold. */
class Parts {
  constructor(cells) {
    this.cells = cells;
    const { parent, name } = cells.of.layers;
    this.names = name.map((text, at) => (at ? text.slice(1) : "all"));
    this.patterns = this.names.map((text) => text.replace(/(^|[._\-[ :])\d+/g, "$1#"));
    this.inside = name.map(() => []);
    for (let at = 1; at < name.length; at++) this.inside[parent[at]].push(at);
    this.own = name.map(() => []); // cells of each layer
    for (let at = 0; at < cells.size; at++) this.own[cells.node[at]].push(at);
    this.total = this.sums();
    // Equal are layers whose names differ by their number, with the same layers (the innermost: ops) in them.
    this.alike = name.map((_, at) => JSON.stringify([this.patterns[at], [...new Set(this.inside[at].length ? this.inside[at].map((one) => this.patterns[one]) : this.own[at].map((one) => cells.opName(one)))].sort()]));
    this.root = this.line({ name: "all", place: { layers: [0] }, value: this.total[0], parent: null });
    [this.root.id, this.next] = [0, 1];
  }

  /* Time of each layer with all inside it, of the cells of a mask. */
  sums(mask = null) {
    const { parent } = this.cells.of.layers;
    const total = parent.map(() => 0);
    for (let at = 0; at < this.cells.size; at++) if (!mask || mask[at]) total[this.cells.node[at]] += this.cells.of.time_ns[at];
    for (let at = total.length - 1; at > 0; at--) total[parent[at]] += total[at]; // parents come first
    return total;
  }

  layer(layers, name, more = {}) {
    return { name, place: { layers }, value: layers.reduce((sum, one) => sum + this.total[one], 0), ...more };
  }

  label(at) {
    return this.patterns[at].replace(/#/g, "").replace(/[._\-[\]: ]+$/, "");
  }

  /* What is inside; of an unfolded fold its members. */
  kids(part, unfolded = false) {
    const key = unfolded ? "members" : "merged";
    if (!part[key]) part[key] = (unfolded ? part.fold.map((one) => this.layer([one], this.names[one], { brief: this.names[one].slice(this.label(one).length).replace(/^[._\-[: ]+/, "") })) : this.made(part).sort((one, other) => other.value - one.value))
      .map((kid) => ({ ...this.line({ ...kid, parent: part }), id: this.next++ }));
    return part[key];
  }

  made(part) {
    const { layers, op, kernel } = part.place;
    if (kernel !== undefined) return [];
    if (op !== undefined) return this.summed(part.cells, (at) => this.cells.of.kernel[at], (cells, kernel) => ({ name: this.cells.of.names[kernel][0], full: this.cells.of.names[kernel][1], place: { ...part.place, kernel }, count: cells.reduce((sum, at) => sum + this.cells.of.kernels[at], 0) }));
    const ops = this.summed(layers.flatMap((one) => this.own[one]), (at) => `${this.cells.of.phase[at]}/${this.cells.opName(at)}`, ([first]) => ({ name: this.cells.opName(first), place: { layers, op: this.cells.opName(first), phase: this.cells.of.phase[first] } }));
    const found = [];
    for (const some of grouped(layers.flatMap((one) => this.inside[one]), (one) => (layers.length > 1 ? this.patterns : this.alike)[one]).values()) {
      some.sort((one, other) => this.names[one].localeCompare(this.names[other], "en", { numeric: true }));
      const [first] = some;
      const numbered = this.names[first] !== this.patterns[first];
      const name = this.label(first) || `${this.names[first]}..${this.names[some[some.length - 1]]}`;
      if (layers.length > 1) { // each of several equal layers has it, or so many of it
        const each = some.length / layers.length;
        found.push(this.layer(some, some.length === 1 ? this.names[first] : each > 1 ? `${Number.isInteger(each) ? each : some.length} x ${name}` : name));
      } else if (numbered && some.length >= FOLDED) found.push(this.layer(some, `${count(some.length)} x ${name}`, { fold: some }));
      else found.push(...some.map((one) => this.layer([one], this.names[one])));
    }
    return [...found, ...ops].filter((one) => one.value > 0);
  }

  summed(cells, keyOf, fields) {
    return [...grouped(cells, keyOf)].map(([key, some]) => ({ ...fields(some, key), cells: some, phase: this.cells.of.phase[some[0]], value: some.reduce((sum, at) => sum + this.cells.of.time_ns[at], 0) }));
  }

  /* A layer with a single part inside, and so on: one part with all the names. */
  line(part) {
    for (;;) {
      if (part.fold || part.place.op !== undefined) return part;
      const kids = this.made(part);
      if (kids.length !== 1 || kids[0].fold) return part;
      part = { ...kids[0], name: `${part.name} > ${kids[0].name}`, parent: part.parent, brief: part.brief };
    }
  }

  /* Time of a part that a mask leaves; totals: of the layers. */
  left(part, mask, totals) {
    if (part.cells) return part.cells.reduce((sum, at) => sum + (mask[at] ? this.cells.of.time_ns[at] : 0), 0);
    return part.place.layers.reduce((sum, one) => sum + totals[one], 0);
  }

  /* How the members of a fold differ: their times, and ops that only some have. */
  differences(part) {
    if (part.differ) return part.differ;
    const times = part.fold.map((one) => this.total[one]);
    const [least, most] = [Math.min(...times), Math.max(...times)];
    const has = new Map(); // op -> members
    const mark = (layer, member) => {
      for (const at of this.own[layer]) has.set(this.cells.opName(at), (has.get(this.cells.opName(at)) || new Set()).add(member));
      for (const one of this.inside[layer]) mark(one, member);
    };
    for (const one of part.fold) mark(one, one);
    const some = [...has].filter(([, members]) => members.size < part.fold.length).map(([op, members]) => `${op} in ${members.size}`);
    return part.differ = { each: least === most ? time(most) : `${time(least)} to ${time(most)}`, longest: this.names[part.fold[times.indexOf(most)]], some };
  }
}

class Icicle {
  constructor(container, cells, zoomed) {
    this.parts = new Parts(cells);
    Object.assign(this, { cells, zoomed, root: this.parts.root, focus: this.parts.root, mask: null }); // zoomed: called with the place, null for all
    this.way = make("nav", { class: "way", "aria-label": "What is around the part that is shown" });
    this.chart = make("div");
    container.replaceChildren(this.way, this.chart);
    this.svg = d3.select(this.chart).append("svg");
    const nodes = () => this.svg.selectAll("g.part").nodes();
    this.svg.on("keydown", roving(nodes, (mine, key) => this.step(mine, key), (mine) => this.zoom(mine.__data__.part)));
    this.svg.on("keydown.escape", (event) => {
      if (event.key === "Escape" && this.focus.parent) this.zoom(this.focus.parent);
    });
    drawn(this.chart, (width) => this.draw(width));
  }

  zoom(part) {
    this.focus = part === this.focus && part.parent ? part.parent : part;
    const focused = this.chart.contains(document.activeElement) || this.way.contains(document.activeElement);
    this.zoomed(this.focus === this.root ? null : this.focus.place, this.path(this.focus));
    if (focused) this.svg.selectAll("g.part").filter((one) => one.part === this.focus).node().focus(); // parts were moved
    tip.hide();
  }

  /* As the filter has it: to the place, or to all; mask: the cells that it leaves, null if all. */
  show(place, mask) {
    if (place === null) this.focus = this.root;
    this.mask = mask;
    this.totals = mask && this.parts.sums(mask);
    if (this.width) this.draw(this.width);
  }

  path(part) {
    return part.parent ? `${part.parent.parent ? `${this.path(part.parent)} > ` : ""}${part.name}` : part.name;
  }

  /* The zoomed part and what is inside it: part, x0 and x1 in pixels, row. */
  layout(width) {
    const shown = [];
    const add = (part, x0, x1, row, above) => {
      const mine = { part, x0, x1, row, above, kids: [] };
      shown.push(mine);
      if (above) above.kids.push(mine);
      if (row + 1 >= DEEPEST) return;
      let at = x0;
      for (const kid of this.parts.kids(part, Boolean(part.fold) && part === this.focus)) {
        const wide = ((x1 - x0) * kid.value) / (part.value || 1);
        if (wide >= LEAST_WIDTH) add(kid, at, at + wide, row + 1, mine);
        at += wide;
      }
    };
    add(this.focus, 0, width, 0, null);
    return shown;
  }

  draw(width) {
    this.width = width;
    const shown = this.layout(width);
    const around = [];
    for (let part = this.focus.parent; part; part = part.parent) around.unshift(part);
    this.way.replaceChildren(...around.flatMap((part) => [make("button", { type: "button", class: "pick", onclick: () => this.zoom(part) }, part.name), " > "]), ...(around.length ? [make("strong", {}, this.focus.name)] : []));
    const height = (Math.max(...shown.map((one) => one.row)) + 1) * ROW;
    const phase = ({ part }) => (part.phase === undefined ? "layer" : `ph-${this.cells.of.phases[part.phase]}`);
    const state = (one) => (!this.mask ? "" : this.left(one.part) > 0 ? " match" : " pale");
    this.svg.attr("width", width).attr("height", height).attr("viewBox", `0 0 ${width} ${height}`);
    const parts = this.svg.selectAll("g.part").data(shown, (one) => one.part.id)
      .join((enter) => {
        const part = enter.append("g").attr("data-rove", "").attr("role", "button");
        part.append("rect").attr("height", ROW - 2).attr("rx", 2);
        part.append("text").attr("y", ROW / 2 + 3);
        part.on("click", (event, one) => this.zoom(one.part))
          .on("mousemove", (event, one) => tip.show(this.about(one.part), event.clientX, event.clientY))
          .on("mouseleave blur", () => tip.hide())
          .on("focus", (event, one) => event.currentTarget.matches(":focus-visible") && tip.beside(event.currentTarget, this.about(one.part)));
        return part;
      });
    parts.attr("class", (one) => `part ${phase(one)}${one.part.fold ? " fold" : ""}${state(one)}`)
      .attr("tabindex", (one) => (one.row ? "-1" : "0"))
      .attr("aria-label", (one) => this.text(one.part))
      .attr("aria-expanded", (one) => (one.part.fold ? String(one.part === this.focus) : null))
      .attr("transform", (one) => `translate(${one.x0},${one.row * ROW})`);
    parts.order();
    parts.select("rect").attr("width", (one) => Math.max(one.x1 - one.x0 - 1, 0.5));
    parts.select("text").attr("x", 5).text((one) => this.label(one.part, one.x1 - one.x0));
  }

  left(part) {
    return this.parts.left(part, this.mask, this.totals);
  }

  text(part) {
    const differ = part.fold && this.parts.differences(part);
    return `${part.name}, ${time(part.value)}, ${percent(part.value / this.root.value)}${differ ? `; ${differ.each} each${differ.some.length ? `; ${differ.some[0]} of them` : ""}` : ""}`;
  }

  label(part, width) {
    const room = Math.floor((width - 10) / 7);
    if (room < 2) return "";
    const full = this.text(part).replace(", ", "  ");
    if (full.length <= room) return full;
    if (part.name.length > room && part.brief) return part.brief.slice(0, room); // its number among its like
    return part.name.length <= room ? part.name : `${part.name.slice(0, room - 1)}…`;
  }

  about(part) {
    const { op, kernel } = part.place;
    const kind = kernel !== undefined ? "kernel" : op !== undefined ? "op" : "layer";
    const differ = part.fold && this.parts.differences(part);
    const left = this.mask && this.left(part);
    return [part.name, ["in", part.parent ? this.path(part.parent) : null],
      ["phase", part.phase === undefined ? null : this.cells.of.phases[part.phase]],
      ["time", time(part.value)], ["share", percent(part.value / this.root.value)],
      ["of it matches", left === null ? null : `${time(left)}, ${percent(left / (part.value || 1))}`],
      ["each", differ ? `${differ.each}; longest: ${differ.longest}` : null],
      ["only in some", differ && differ.some.length ? `${differ.some.slice(0, 6).join(", ")} of ${part.fold.length}` : null],
      ["kernels", part.count === undefined ? null : count(part.count)],
      ["name", kind === "kernel" && part.full !== part.name ? part.full : null],
      [differ ? "click" : null, differ ? "each of them" : null]].filter(([name]) => name !== null);
  }

  step(mine, key) {
    const one = mine.__data__;
    const nodes = new Map(this.svg.selectAll("g.part").nodes().map((node) => [node.__data__, node]));
    const beside = (by) => one.above && one.above.kids[one.above.kids.indexOf(one) + by];
    const next = { ArrowUp: () => one.above, ArrowDown: () => one.kids[0], ArrowLeft: () => beside(-1), ArrowRight: () => beside(1) }[key];
    return next ? nodes.get(next()) || null : null;
  }
}
