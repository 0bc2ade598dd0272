/* The window from left to right: of each stream the busy time by phase and its ops, of each device the idle time by cause. */

const LANE = 24;
const IDLE = 16;
const LABEL = 22;
const TOP = 22;
const LEAST_SPAN = 3; // pixels of an op that is drawn by itself
const NEAREST_NS = 200; // the least that can be seen at once

class Timeline {
  constructor(container, legend, timeline, onGpu) {
    Object.assign(this, { container, timeline, onGpu });
    if (!timeline) {
      container.replaceChildren(make("p", { class: "empty" }, "The records do not say when they ran."));
      return;
    }
    const used = new Set(timeline.devices.flatMap((device) => device.streams.flatMap((stream) => Object.keys(stream.busy))));
    keys(legend, [...timeline.phases.filter((one) => used.has(one)).map((one) => [`ph-${one}`, one]),
      ...(timeline.steps.length ? [["step-mark", "begin or end of a step"]] : [])]);
    this.lanes = [...this.laneList()];
    this.view = [0, timeline.wall_ns];
    const button = (text, name, act) => make("button", { type: "button", class: "tool", "aria-label": name, title: name, onclick: act }, text);
    this.shown = make("span", { role: "status" });
    const chart = make("div");
    container.replaceChildren(make("div", { class: "zooms", role: "group", "aria-label": "Zoom of the timeline" }, button("+", "Zoom in", () => this.zoom(0.5)), button("−", "Zoom out", () => this.zoom(2)),
      button("‹", "Earlier", () => this.move(-0.5)), button("›", "Later", () => this.move(0.5)), button("whole window", "Whole window", () => this.look(0, timeline.wall_ns)), this.shown), chart);
    this.svg = d3.select(chart).append("svg").attr("tabindex", "0").attr("role", "img")
      .attr("aria-label", "Timeline; the arrow keys move a cursor that tells what runs there, plus and minus zoom, Shift with an arrow key moves the view, Escape shows the whole window");
    this.svg.on("pointerdown", (event) => this.press(event)).on("pointermove", (event) => this.drag(event)).on("pointerup", (event) => this.release(event))
      .on("pointerleave blur", () => this.leave()).on("pointercancel", () => { this.pressed = null; this.leave(); }).on("dblclick", () => this.look(0, timeline.wall_ns)).on("keydown", (event) => this.key(event));
    this.svg.node().addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    document.addEventListener("scroll", () => { this.scrolled = performance.now(); }, { passive: true });
    drawn(chart, (width) => this.draw(width));
  }

  *laneList() {
    const { timeline } = this;
    const several = timeline.devices.length > 1;
    const ops = grouped(timeline.spans.lane.keys(), (at) => timeline.spans.lane[at]);
    let number = 0;
    for (const device of timeline.devices) {
      const name = this.onGpu ? `GPU ${device.number}${several ? `, process ${device.pid}` : ""}` : "CPU";
      for (const stream of device.streams) {
        const which = !this.onGpu ? "" : stream.stream === null ? ", other streams" : `, stream ${stream.stream}`;
        yield { name: name + which, parts: stream.busy, kinds: timeline.phases, css: "ph", height: LANE, spans: ops.get(number++) || [] };
      }
      yield { name: `${name} idle`, parts: device.idle, kinds: timeline.causes, css: "cause", height: IDLE, spans: [] };
    }
  }

  share(lane) {
    const sum = Object.values(lane.parts).reduce((total, part) => total + part.reduce((all, one) => all + one, 0), 0);
    return sum / 1000 / this.timeline.columns;
  }

  x(ns) {
    return ((ns - this.view[0]) / (this.view[1] - this.view[0])) * this.width;
  }

  ns(x) {
    return this.view[0] + (x / this.width) * (this.view[1] - this.view[0]);
  }

  /* Show a part of the window. */
  look(begin, end) {
    const whole = this.timeline.wall_ns;
    const long = Math.min(whole, Math.max(end - begin, Math.min(NEAREST_NS, whole)));
    const from = Math.max(0, Math.min(begin - (long - (end - begin)) / 2, whole - long));
    this.view = [from, from + long];
    this.draw(this.width);
  }

  zoom(by, around = this.cursorNs()) {
    const [begin, end] = this.view;
    this.look(around - (around - begin) * by, around + (end - around) * by);
  }

  move(by) {
    const [begin, end] = this.view;
    this.look(begin + by * (end - begin), end + by * (end - begin));
  }

  cursorNs() {
    const [begin, end] = this.view;
    return this.at >= begin && this.at <= end ? this.at : (begin + end) / 2;
  }

  draw(width) {
    const { timeline, svg } = this;
    this.width = width;
    const height = TOP + this.lanes.reduce((sum, lane) => sum + lane.height + LABEL, 0);
    this.height = height;
    svg.attr("width", width).attr("height", height).attr("viewBox", `0 0 ${width} ${height}`).selectAll("*").remove();
    const [begin, end] = this.view;
    const ticks = d3.scaleLinear(this.view, [0, width]).ticks(Math.max(2, Math.floor(width / 120))).filter((ns) => this.x(ns) < width - 40 && this.x(ns) > 20);
    const axis = svg.append("g").attr("class", "axis");
    const every = ticks.length > 1 ? ticks[1] - ticks[0] : end - begin;
    const [scale, unit] = end >= 1e9 ? [1e9, "s"] : end >= 1e6 ? [1e6, "ms"] : end >= 1e3 ? [1e3, "us"] : [1, "ns"];
    const places = Math.max(0, Math.min(9, -Math.floor(Math.log10(every / scale) + 1e-9)));
    axis.selectAll("text").data(ticks).join("text").attr("x", (ns) => this.x(ns)).attr("y", 12).attr("text-anchor", "middle").text((ns) => `${(ns / scale).toFixed(places)} ${unit}`);
    axis.selectAll("path").data(ticks).join("path").attr("d", (ns) => `M${this.x(ns)},16V${height}`);
    let y = TOP;
    for (const lane of this.lanes) {
      svg.append("text").attr("class", "lane").attr("y", y + 17).text(`${lane.name}: ${percent(this.share(lane))}`);
      svg.append("rect").attr("class", "floor").attr("y", y + LABEL).attr("width", width).attr("height", lane.height);
      // Where every op is known by itself and a column would be wide, only ops are drawn.
      if (lane.css !== "ph" || !timeline.spans.all || width * timeline.wall_ns < 1.5 * timeline.columns * (end - begin)) this.stack(lane, y + LABEL);
      this.ops(lane, y + LABEL);
      y += lane.height + LABEL;
    }
    const edges = timeline.steps.flatMap(([from, to]) => [from, to]).filter((ns) => ns > begin && ns < end && ns > 0 && ns < timeline.wall_ns);
    svg.append("g").attr("class", "steps").selectAll("path").data([...new Set(edges)]).join("path").attr("d", (ns) => `M${this.x(ns)},16V${height}`);
    this.marked = svg.append("rect").attr("class", "marked").attr("y", 16).attr("height", height - 16).attr("width", 0);
    this.chosen = svg.append("rect").attr("class", "chosen").attr("y", 16).attr("height", height - 16).attr("width", 0);
    this.cursor = svg.append("path").attr("class", "cursor");
    if (this.gap) this.outline();
    this.shown.textContent = end - begin < timeline.wall_ns ? `${time(begin)} to ${time(end)}` : "drag over a part, or turn the wheel, to zoom";
  }

  /* One path a part, stacked from the floor of the lane. */
  stack(lane, y) {
    const { columns, wall_ns: whole } = this.timeline;
    const edge = (at) => Math.max(0, Math.min(this.width, this.x((at * whole) / columns))).toFixed(2);
    const first = Math.max(0, Math.floor((this.view[0] / whole) * columns));
    const last = Math.min(columns, Math.ceil((this.view[1] / whole) * columns));
    const done = new Float64Array(columns);
    for (const kind of lane.kinds) {
      const part = lane.parts[kind];
      if (!part) continue;
      let path = "";
      for (let at = first; at < last; at++) {
        if (!part[at]) continue;
        let end = at + 1; // columns alike are drawn as one
        while (end < last && part[end] === part[at] && done[end] === done[at]) end++;
        const [low, high] = [done[at], Math.min(done[at] + part[at], 1000)].map((share) => y + lane.height * (1 - share / 1000));
        path += `M${edge(at)},${low.toFixed(2)}V${high.toFixed(2)}H${edge(end)}V${low.toFixed(2)}Z`;
        for (let one = at; one < end; one++) done[one] += part[one];
        at = end - 1;
      }
      this.svg.append("path").attr("class", `${lane.css}-${kind}`).attr("d", path);
    }
  }

  /* The ops of a lane that are wide enough, by name. */
  ops(lane, y) {
    const { spans, phases } = this.timeline;
    const least = spans.all ? 0 : (LEAST_SPAN * (this.view[1] - this.view[0])) / this.width;
    const shown = lane.spans.filter((at) => spans.dur_ns[at] >= least && spans.start_ns[at] < this.view[1] && spans.start_ns[at] + spans.dur_ns[at] > this.view[0]);
    const from = (at) => Math.max(0, this.x(spans.start_ns[at]));
    const wide = (at) => Math.min(this.width, this.x(spans.start_ns[at] + spans.dur_ns[at])) - from(at);
    const parts = this.svg.append("g").attr("class", "spans").selectAll("g").data(shown).join("g");
    parts.append("rect").attr("class", (at) => `ph-${phases[spans.phase[at]]}${wide(at) < LEAST_SPAN ? " thin" : ""}`).attr("x", from).attr("y", y).attr("width", (at) => Math.max(wide(at), 0.5)).attr("height", lane.height);
    parts.append("text").attr("x", (at) => from(at) + 4).attr("y", y + 16).text((at) => {
      const [name, room] = [spans.names[spans.op[at]], Math.floor((wide(at) - 6) / 7)];
      return name.length <= room ? name : room > 3 ? `${name.slice(0, room - 1)}…` : "";
    });
  }

  point(ns, clientX, clientY) {
    this.at = Math.max(0, Math.min(this.timeline.wall_ns, ns));
    this.cursor.attr("d", `M${this.x(this.at)},16V${this.height}`);
    tip.show(this.about(this.at), clientX, clientY);
  }

  about(ns) {
    const { timeline } = this;
    const { spans } = timeline;
    const wide = timeline.wall_ns / timeline.columns;
    const column = Math.min(timeline.columns - 1, Math.floor(ns / wide));
    const step = timeline.steps.findIndex(([begin, end]) => ns >= begin && ns < end);
    const lines = [`${time(column * wide)} to ${time((column + 1) * wide)}`, ["step", step < 0 ? null : `${step + 1} of ${timeline.steps.length + timeline.steps_left}`]];
    for (const lane of this.lanes) {
      const there = lane.kinds.filter((kind) => lane.parts[kind] && lane.parts[kind][column]);
      const op = lane.spans.find((at) => ns >= spans.start_ns[at] && ns < spans.start_ns[at] + spans.dur_ns[at]);
      const named = op === undefined ? [] : [`${spans.names[spans.op[op]]} ${time(spans.dur_ns[op])}`];
      if (there.length || named.length) lines.push([lane.name, [...named, ...there.map((kind) => `${words(kind)} ${percent(lane.parts[kind][column] / 1000)}`)].join(", ")]);
    }
    return lines;
  }

  press(event) {
    if (event.button !== 0 || event.pointerType === "touch") return; // a finger scrolls; there are buttons for it
    this.pressed = event.offsetX;
  }

  drag(event) {
    if (this.pressed === null || this.pressed === undefined) {
      this.point(this.ns(event.offsetX), event.clientX, event.clientY);
      return;
    }
    const [from, to] = [this.pressed, event.offsetX].sort((one, other) => one - other);
    if (to - from > 3) this.svg.node().setPointerCapture(event.pointerId);
    this.chosen.attr("x", from).attr("width", to - from);
    tip.show([`${time(this.ns(from))} to ${time(this.ns(to))}`, ["long", time(this.ns(to) - this.ns(from))]], event.clientX, event.clientY);
  }

  release(event) {
    if (this.pressed === null || this.pressed === undefined) return;
    const [from, to] = [this.pressed, event.offsetX].sort((one, other) => one - other);
    this.pressed = null;
    this.chosen.attr("width", 0);
    if (to - from > 3) this.look(this.ns(Math.max(0, from)), this.ns(Math.min(this.width, to)));
  }

  /* The wheel zooms, unless it is scrolling the page, or has nothing left to zoom out of. */
  wheel(event) {
    const whole = this.view[1] - this.view[0] >= this.timeline.wall_ns;
    if (!event.deltaY || (whole && event.deltaY > 0) || performance.now() - (this.scrolled ?? -1e9) < 300) return;
    event.preventDefault();
    this.zoom(2 ** Math.max(-1, Math.min(1, event.deltaY / 200)), this.ns(event.offsetX));
    this.point(this.ns(event.offsetX), event.clientX, event.clientY);
  }

  key(event) {
    const act = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), Escape: () => this.look(0, this.timeline.wall_ns),
      ...(event.shiftKey ? { ArrowLeft: () => this.move(-0.25), ArrowRight: () => this.move(0.25) } : {}) }[event.key];
    const by = { ArrowRight: 1, ArrowLeft: -1, PageDown: 50, PageUp: -50 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || (!act && !by)) return;
    event.preventDefault();
    const [begin, end] = this.view;
    if (act) act();
    else this.at = (this.at >= begin && this.at <= end ? this.at : begin) + (by * (end - begin)) / 800;
    if (by && !act && (this.at < begin || this.at > end)) this.look(this.at - (end - begin) / 2, this.at + (end - begin) / 2);
    const box = this.svg.node().getBoundingClientRect();
    const ns = Math.max(0, Math.min(this.timeline.wall_ns, this.at ?? this.cursorNs()));
    this.point(ns, box.left + this.x(ns), Math.max(box.top, 0) + 40);
  }

  leave() {
    tip.hide();
    this.cursor.attr("d", null);
  }

  /* Outline a gap, near enough to see it. */
  mark(gap) {
    this.gap = gap;
    if (this.x(gap.start_ns + gap.time_ns) - this.x(gap.start_ns) < 20 || gap.start_ns < this.view[0] || gap.start_ns + gap.time_ns > this.view[1]) this.look(gap.start_ns - 3 * gap.time_ns, gap.start_ns + 4 * gap.time_ns);
    this.outline();
    this.container.scrollIntoView({ block: "nearest" });
  }

  outline() {
    this.marked.attr("x", this.x(this.gap.start_ns)).attr("width", Math.max(2, this.x(this.gap.start_ns + this.gap.time_ns) - this.x(this.gap.start_ns)));
  }
}
