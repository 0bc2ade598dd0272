/* Layer > op > kernel, the width of each its time. One part can be zoomed to; what is around it stays above as the way back. */

const ROW = 24;
const DEEPEST = 18; // rows below the part that is zoomed to
const LEAST_WIDTH = 1.2; // pixels of what is drawn

function icicleTree(cells) {
  const { parent, name } = cells.of.layers;
  const nodes = name.map((text, at) => ({ name: at ? text.slice(1) : "all", place: { layer: at }, children: [], index: new Map() }));
  for (let at = 1; at < nodes.length; at++) nodes[parent[at]].children.push(nodes[at]);
  const inside = (node, key, fresh) => {
    if (!node.index.has(key)) {
      const child = { children: [], index: new Map(), own: 0, ...fresh };
      node.index.set(key, child);
      node.children.push(child);
    }
    return node.index.get(key);
  };
  for (let at = 0; at < cells.size; at++) {
    const layer = cells.node[at];
    const [op, phase, kernel] = [cells.opName(at), cells.of.phase[at], cells.of.kernel[at]];
    const ofOp = inside(nodes[layer], `${phase}/${op}`, { name: op, phase, place: { layer, op, phase } });
    const leaf = inside(ofOp, kernel, { name: cells.of.names[kernel][0], full: cells.of.names[kernel][1], phase, place: { layer, op, phase, kernel } });
    leaf.own += cells.of.time_ns[at];
    leaf.count = (leaf.count || 0) + cells.of.kernels[at];
  }
  return nodes[0];
}

class Icicle {
  constructor(container, cells, zoomed) {
    this.container = container;
    this.cells = cells;
    this.zoomed = zoomed; // called with the place, null for all
    this.root = d3.hierarchy(icicleTree(cells)).sum((node) => node.own || 0).sort((one, other) => other.value - one.value);
    d3.partition().size([1, this.root.height + 1])(this.root);
    this.root.descendants().forEach((node, number) => { node.number = number; });
    this.focus = this.root;
    this.svg = d3.select(container).append("svg");
    this.svg.on("keydown", roving(() => this.svg.selectAll("g.part").nodes(), (mine, key) => this.step(mine, key), (mine) => this.zoom(mine.__data__)));
    this.svg.on("keydown.escape", (event) => {
      if (event.key === "Escape" && this.focus.parent) this.zoom(this.focus.parent);
    });
    drawn(container, (width) => this.draw(width));
  }

  zoom(node) {
    this.focus = node === this.focus && node.parent ? node.parent : node;
    const focused = this.container.contains(document.activeElement);
    this.zoomed(this.focus === this.root ? null : this.focus.data.place, this.path(this.focus));
    if (focused) this.svg.selectAll("g.part").filter((one) => one === this.focus).node().focus(); // parts were moved
    tip.hide();
  }

  /* As the filter has it: to the place, or to all. */
  show(place) {
    if (place === null) this.focus = this.root;
    if (this.width && this.focus !== this.drawn) this.draw(this.width);
  }

  path(node) {
    return node.ancestors().reverse().slice(1).map((one) => one.data.name).join(" > ");
  }

  draw(width) {
    this.width = width;
    this.drawn = this.focus;
    const { x0, x1, depth } = this.focus;
    const scale = d3.scaleLinear([x0, x1], [0, width]);
    const above = new Set(this.focus.ancestors());
    const shown = this.focus.ancestors().reverse();
    const add = (node) => {
      for (const child of node.children || []) {
        if (child.value <= 0 || child.depth > depth + DEEPEST || scale(child.x1) - scale(child.x0) < LEAST_WIDTH) continue;
        shown.push(child);
        add(child);
      }
    };
    add(this.focus);
    const rows = d3.max(shown, (node) => node.depth) + 1;
    const left = (node) => Math.max(0, scale(node.x0));
    const wide = (node) => Math.min(width, scale(node.x1)) - left(node);
    this.svg.attr("width", width).attr("height", rows * ROW).attr("viewBox", `0 0 ${width} ${rows * ROW}`);
    const parts = this.svg.selectAll("g.part").data(shown, (node) => node.number)
      .join((enter) => {
        const part = enter.append("g").attr("data-rove", "").attr("role", "button");
        part.append("rect").attr("height", ROW - 2).attr("rx", 2);
        part.append("text").attr("y", ROW / 2 + 3);
        part.on("click", (event, node) => this.zoom(node))
          .on("mousemove", (event, node) => tip.show(this.about(node), event.clientX, event.clientY))
          .on("mouseleave blur", () => tip.hide())
          .on("focus", (event, node) => event.currentTarget.matches(":focus-visible") && tip.beside(event.currentTarget, this.about(node)));
        return part;
      });
    parts.attr("class", (node) => `part ${node.data.phase === undefined ? "layer" : `ph-${this.cells.of.phases[node.data.phase]}`}${above.has(node) && node !== this.focus ? " above" : ""}`)
      .attr("tabindex", (node) => (node === this.focus ? "0" : "-1"))
      .attr("aria-label", (node) => `${node.data.name}, ${time(node.value)}, ${percent(node.value / this.root.value)}`)
      .attr("transform", (node) => `translate(${left(node)},${node.depth * ROW})`);
    parts.order();
    parts.select("rect").attr("width", (node) => Math.max(wide(node) - 1, 0.5));
    parts.select("text").attr("x", 5).text((node) => this.label(node, wide(node)));
  }

  label(node, width) {
    const room = Math.floor((width - 10) / 7);
    if (room < 3) return "";
    const full = `${node.data.name}  ${time(node.value)}, ${percent(node.value / this.root.value)}`;
    if (full.length <= room) return full;
    return node.data.name.length <= room ? node.data.name : `${node.data.name.slice(0, room - 1)}…`;
  }

  about(node) {
    const kind = node.data.place.kernel !== undefined ? "kernel" : node.data.place.op !== undefined ? "op" : "layer";
    return [node.data.name, ["in", node.parent ? this.path(node.parent) || "all" : null],
      ["phase", node.data.phase === undefined ? null : this.cells.of.phases[node.data.phase]],
      ["time", time(node.value)], ["share", percent(node.value / this.root.value)],
      ["kernels", node.data.count === undefined ? null : count(node.data.count)],
      ["name", kind === "kernel" && node.data.full !== node.data.name ? node.data.full : null]];
  }

  step(mine, key) {
    const node = mine.__data__;
    const among = new Map(this.svg.selectAll("g.part").nodes().map((part) => [part.__data__, part]));
    const beside = (by) => {
      const siblings = (node.parent ? node.parent.children : [node]).filter((one) => among.has(one));
      return siblings[siblings.indexOf(node) + by];
    };
    const next = { ArrowUp: () => node.parent, ArrowDown: () => (node.children || []).find((one) => among.has(one)),
      ArrowLeft: () => beside(-1), ArrowRight: () => beside(1) }[key];
    return next ? among.get(next()) || null : null;
  }
}
