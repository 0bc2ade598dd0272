/* One circle per op with its shapes: FLOP/s over FLOP/byte, area = time, below the device's limits. */

const POINTS = 400; // those with most time
const NAMED = 10; // points with a label
const SMALL = 0.005; // of the points' time: what takes less does not widen the axes
const FAR = 30; // times the most intensity: a ridge farther off is not drawn

/* 0.01, 1, 100, 10 k */
const power = (value) => (value < 1000 ? String(Number(value.toPrecision(1))) : scaled(value, "").replace(/\.0+(?=\D|$)/, "").trim());

class Roofline {
  constructor(container, notes, section, cells, picked) {
    Object.assign(this, { container, cells, picked, roofs: section.roofs, measured: section.measured });
    const all = cells.sums(cells.mask, cells.group);
    const sent = all.filter((sum) => cells.phase(sum.cell) === "communication"); // its limit is the link, which has no line here
    const placed = all.filter((sum) => !sent.includes(sum) && sum.intensity > 0 && sum.rate > 0);
    const spent = placed.reduce((sum, one) => sum + one.time, 0);
    this.heavy = placed.filter((sum) => this.measured || sum.time >= SMALL * spent);
    const [xs, ys] = this.heavy.length ? this.domains() : [[], []];
    const near = placed.filter((sum) => sum.intensity >= xs[0] && sum.intensity <= xs[1] && sum.rate >= ys[0] && sum.rate <= ys[1]);
    this.points = near.slice(0, POINTS);
    const unknown = all.filter((sum) => !sent.includes(sum) && !placed.includes(sum));
    const left = (ops, why) => (ops.length ? [`no point for ${count(ops.length)} ${ops.length === 1 ? "op" : "ops"} with ${time(ops.reduce((sum, one) => sum + one.time, 0))} (${percent(ops.reduce((sum, one) => sum + one.time, 0) / (cells.total || 1))}): ${why}`] : []);
    const lines = [...left(unknown, "FLOPs or bytes are unknown or zero"), ...left(sent, "communication, which the links bound"),
      ...left(near.slice(POINTS), "only those with most time are drawn"), ...left(placed.filter((sum) => !near.includes(sum)), "outside of the axes, which are those of what takes time"), ...section.roofs.notes];
    notes.replaceChildren(...(this.points.length ? lines : section.roofs.notes).map((line) => make("li", {}, line)));
    if (!this.points.length) {
      container.closest("section").querySelectorAll(".hint, .keys").forEach((element) => element.remove());
      container.replaceChildren(make("p", { class: "empty" }, "No op has both FLOPs and bytes that are known."));
      return;
    }
    this.svg = d3.select(container).append("svg");
    this.svg.on("keydown", roving(() => this.svg.selectAll("circle").nodes(), (mine, key) => this.step(mine, key), (mine) => this.picked(mine.__data__.key)));
    drawn(container, (width) => this.draw(width));
  }

  /* Those of what takes time, and where the limits bend if that is near. */
  domains() {
    const { arithmetic, dram } = this.roofs;
    const xs = this.heavy.map((point) => point.intensity);
    const rates = this.heavy.map((point) => point.rate);
    const ridges = dram ? arithmetic.map(([, rate]) => rate / dram).filter((ridge) => ridge < FAR * Math.max(...xs)) : [];
    const x = [Math.min(...xs) / 2, Math.max(...xs.map((one) => one * 2), ...ridges.map((one) => one * 2))];
    const reached = arithmetic.map(([, rate]) => rate).filter((rate) => !dram || rate / dram < x[1]);
    return [x, [Math.min(...rates) / 2, Math.max(...rates, ...reached) * 2]];
  }

  draw(width) {
    const narrow = width < 520;
    const [xs, ys] = this.domains();
    const arithmetic = this.roofs.arithmetic.filter(([, rate]) => rate <= ys[1]);
    const names = arithmetic.map(([name, rate]) => `${name} ${scaled(rate, "FLOP/s")}`);
    const edge = { left: narrow ? 46 : 64, right: narrow ? 12 : 20 + 6.7 * Math.max(0, ...names.map((name) => name.length)), top: 12, bottom: 42, narrow };
    const height = Math.round(Math.min(560, Math.max(300, width * 0.5)));
    const x = d3.scaleLog(xs, [edge.left, width - edge.right]);
    const y = d3.scaleLog(ys, [height - edge.bottom, edge.top]).clamp(true);
    Object.assign(this, { x, y, width, height });
    this.svg.attr("width", width).attr("height", height).attr("viewBox", `0 0 ${width} ${height}`).selectAll("*").remove();
    const decades = (scale, most) => {
      const [low, high] = scale.domain().map(Math.log10);
      const every = Math.max(1, Math.ceil((high - low) / most));
      const found = [];
      for (let power = Math.ceil(low); power <= high; power++) if (power % every === 0) found.push(10 ** power);
      if (found.length > 2) return found;
      const every5 = []; // of a narrow range 1, 2 and 5 of each power
      for (let power = Math.floor(low); power <= high; power++) every5.push(...[1, 2, 5].map((by) => by * 10 ** power));
      return every5.filter((value) => value >= 10 ** low && value <= 10 ** high);
    };
    this.svg.append("g").attr("class", "axis").attr("transform", `translate(0,${height - edge.bottom})`)
      .call(d3.axisBottom(x).tickValues(decades(x, narrow ? 5 : 10)).tickFormat(power).tickSizeInner(-(height - edge.top - edge.bottom)).tickPadding(8));
    this.svg.append("g").attr("class", "axis").attr("transform", `translate(${edge.left},0)`)
      .call(d3.axisLeft(y).tickValues(decades(y, 8)).tickFormat(power).tickSizeInner(-(width - edge.left - edge.right)).tickPadding(6));
    this.svg.append("text").attr("class", "axis-title").attr("x", width - edge.right).attr("y", height - 6).attr("text-anchor", "end").text(this.measured ? "FLOP per byte" : "FLOP per byte (least bytes)");
    this.svg.append("text").attr("class", "axis-title").attr("x", edge.left + 6).attr("y", edge.top + 10).text("FLOP/s");
    this.ceilings(edge);
    const size = this.points.map((point) => point.time);
    const radius = (point) => Math.max(2.5, (narrow ? 22 : 34) * Math.sqrt(point.time / Math.max(...size)));
    this.svg.append("g").selectAll("circle").data(this.points).join("circle")
      .attr("class", (point) => `ph-${this.cells.phase(point.cell)}`).attr("data-rove", "").attr("role", "button")
      .attr("tabindex", (point, at) => (at ? "-1" : "0"))
      .attr("aria-label", (point) => `${this.cells.opName(point.cell)} ${this.measured ? this.cells.phase(point.cell) : this.cells.shape(point.cell)}, ${time(point.time)}${this.measured ? "" : `, ${percent(point.peak)} of its roofline`}`)
      .attr("cx", (point) => x(point.intensity)).attr("cy", (point) => y(point.rate)).attr("r", radius)
      .on("click", (event, point) => this.picked(point.key))
      .on("mousemove", (event, point) => tip.show(this.about(point), event.clientX, event.clientY))
      .on("mouseleave blur", () => tip.hide())
      .on("focus", (event, point) => event.currentTarget.matches(":focus-visible") && tip.beside(event.currentTarget, this.about(point)));
    this.svg.select(".roofs.names").raise();
    this.names(radius, edge);
    this.update(this.mask || this.cells.mask);
  }

  ceilings(edge) {
    const { dram, l2, l1 } = this.roofs;
    const [x, y] = [this.x, this.y];
    const [[low, far], [bottom, top]] = [x.domain(), y.domain()];
    const arithmetic = this.roofs.arithmetic.filter(([, rate]) => rate <= top);
    const highest = arithmetic.length && arithmetic.length === this.roofs.arithmetic.length ? arithmetic[0][1] : top;
    const [layer, names] = ["roofs", "roofs names"].map((kind) => this.svg.append("g").attr("class", kind));
    this.taken = [];
    let above = -Infinity; // the name above, which this one must not touch
    arithmetic.forEach(([name, rate]) => {
      const begin = dram ? Math.min(Math.max(low, rate / dram), far) : low;
      layer.append("path").attr("d", `M${x(begin)},${y(rate)}H${this.width - edge.right}`);
      const text = `${name} ${scaled(rate, "FLOP/s")}`;
      above = edge.narrow ? y(rate) - 5 : Math.max(y(rate) + 4, above + 14);
      const [at, anchor] = edge.narrow ? [this.width - edge.right - 4, "end"] : [this.width - edge.right + 8, "start"];
      names.append("text").attr("x", at).attr("y", above).attr("text-anchor", anchor).text(text);
      if (edge.narrow) this.taken.push([at - 6.5 * text.length, above - 12, 6.5 * text.length, 14]);
    });
    for (const [name, rate, kind, offset] of [["DRAM", dram, "", 14], ["L2", l2, "dashed", -5], ["L1", l1, "dashed", -5]]) {
      if (!rate) continue;
      const begin = Math.max(low, bottom / rate);
      const end = Math.min(far, highest / rate);
      if (end <= begin) continue;
      const [x1, y1, x2, y2] = [x(begin), y(begin * rate), x(end), y(end * rate)];
      layer.append("path").attr("class", kind).attr("d", `M${x1},${y1}L${x2},${y2}`);
      const angle = (Math.atan2(y2 - y1, x2 - x1) * 180) / Math.PI;
      const share = x2 - x1 > 400 ? 0.2 : 0.4;
      const [atX, atY] = [x1 + share * (x2 - x1), y1 + share * (y2 - y1)];
      names.append("text").attr("transform", `translate(${atX},${atY}) rotate(${angle})`).attr("y", offset).attr("text-anchor", "middle").text(`${name} ${scaled(rate, "B/s")}`);
      for (let by = -3; by <= 3; by++) this.taken.push([atX + 15 * by * Math.cos(Math.atan2(y2 - y1, x2 - x1)) - 9, atY + 15 * by * Math.sin(Math.atan2(y2 - y1, x2 - x1)) + offset - 12, 18, 16]);
    }
  }

  /* The largest points by name, each moved to where no other name and, if it can be, no circle is; a line leads back. */
  names(radius, edge) {
    const labels = this.svg.append("g").attr("class", "labels");
    const named = new Set(); // each op once: its other points are near, or told by their tips
    const meet = (one, other) => one[0] < other[0] + other[2] && other[0] < one[0] + one[2] && one[1] < other[1] + other[3] && other[1] < one[1] + one[3];
    const circles = this.points.map((point) => [this.x(point.intensity) - radius(point), this.y(point.rate) - radius(point), 2 * radius(point), 2 * radius(point)]);
    this.points.forEach((point, number) => {
      const text = this.cells.opName(point.cell).slice(0, 28);
      if (named.size >= NAMED || named.has(text)) return;
      const [cx, cy, wide] = [this.x(point.intensity), this.y(point.rate), 6.6 * text.length];
      const places = [];
      for (const more of [4, 18, 34, 52]) {
        const off = radius(point) + more;
        for (const [dx, dy] of [[1, 0], [-1, 0], [0.7, -0.7], [0.7, 0.7], [-0.7, -0.7], [-0.7, 0.7], [0, -1], [0, 1]]) places.push([[cx + dx * off - (dx > 0 ? 0 : dx < 0 ? wide : wide / 2), cy + dy * (off + 4) - 7, wide, 14], more]);
      }
      const free = places.filter(([box]) => box[0] >= edge.left && box[0] + wide <= this.width - edge.right && box[1] >= edge.top && box[1] + 14 <= this.height - edge.bottom && !this.taken.some((other) => meet(box, other)));
      const found = free.find(([box]) => !circles.some((other, at) => at !== number && meet(box, other))) || free[0];
      if (!found) return;
      const [box, more] = found;
      named.add(text);
      this.taken.push(box);
      const nearX = Math.max(box[0], Math.min(cx, box[0] + wide));
      if (more > 4) labels.append("path").attr("d", `M${cx},${cy}L${nearX},${box[1] + 7}`);
      labels.append("text").attr("x", box[0]).attr("y", box[1] + 11).text(text);
    });
  }

  about(point) {
    const cells = this.cells;
    const source = cells.of.sources[cells.of.source[point.cell]];
    const { math, reason } = { math: cells.of.verdicts[cells.of.verdict[point.cell]][1], reason: cells.of.verdicts[cells.of.verdict[point.cell]][2] };
    return [cells.opName(point.cell), ["shapes", this.measured ? null : cells.shape(point.cell) || UNKNOWN], [this.measured ? "bytes of" : "phase", cells.phase(point.cell)],
      ["layer", cells.paths[cells.node[point.cell]] || null], ["source", source], ["time", `${time(point.time)}, ${percent(point.time / cells.total)}`],
      this.measured ? ["launches", count(point.kernels)] : ["calls, kernels", `${count(point.calls)}, ${count(point.kernels)}`], ["FLOPs", scaled(point.knownFlops, "FLOP")], ["bytes", scaled(point.knownBytes, "B")],
      ["intensity", scaled(point.intensity, "FLOP/B")], ["rate", `${scaled(point.rate, "FLOP/s")}, ${scaled(point.bandwidth, "B/s")}`],
      ["of the roofline", this.measured ? null : `${percent(point.peak)}, bound by ${point.bound || UNKNOWN}`], ["lost", this.measured ? null : time(point.knownLost)],
      ["Tensor Cores", point.tensor === "-" ? null : `${point.tensor}${math ? `, ${math}` : ""}${point.tensor !== "yes" && reason ? `: ${reason}` : ""}`]];
  }

  step(mine, key) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
    const circles = this.svg.selectAll("circle").nodes();
    return by ? circles[circles.indexOf(mine) + by] || null : null;
  }

  /* Points of which no cell is left are pale. */
  update(mask) {
    this.mask = mask;
    if (!this.svg) return;
    const left = new Set();
    for (let at = 0; at < this.cells.size; at++) if (mask[at]) left.add(this.cells.group[at]);
    this.svg.selectAll("circle").classed("pale", (point) => !left.has(point.key))
      .attr("aria-pressed", (point) => String(this.cells.filter.group === point.key));
  }
}
