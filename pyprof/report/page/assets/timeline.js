/* The window from left to right: of each stream the busy time by phase, of each device the idle time by cause. */

const LANE = 24;
const IDLE = 16;
const LABEL = 22;

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
    this.svg = d3.select(container).append("svg").attr("tabindex", "0").attr("role", "img")
      .attr("aria-label", "Timeline; the arrow keys move a cursor that tells what is busy there");
    this.svg.on("mousemove", (event) => this.point(event.offsetX, event.clientX, event.clientY)).on("mouseleave blur", () => this.leave())
      .on("keydown", (event) => this.key(event));
    drawn(container, (width) => this.draw(width));
  }

  *laneList() {
    const { timeline } = this;
    const several = timeline.devices.length > 1;
    for (const device of timeline.devices) {
      const name = this.onGpu ? `GPU ${device.number}${several ? `, process ${device.pid}` : ""}` : "CPU";
      for (const stream of device.streams) {
        const which = !this.onGpu ? "" : stream.stream === null ? ", other streams" : `, stream ${stream.stream}`;
        yield { name: name + which, parts: stream.busy, kinds: timeline.phases, css: "ph", height: LANE };
      }
      yield { name: `${name} idle`, parts: device.idle, kinds: timeline.causes, css: "cause", height: IDLE };
    }
  }

  share(lane) {
    const sum = Object.values(lane.parts).reduce((total, part) => total + part.reduce((all, one) => all + one, 0), 0);
    return sum / 1000 / this.timeline.columns;
  }

  draw(width) {
    const { timeline, svg } = this;
    this.width = width;
    const top = 22;
    const height = top + this.lanes.reduce((sum, lane) => sum + lane.height + LABEL, 0);
    svg.attr("width", width).attr("height", height).attr("viewBox", `0 0 ${width} ${height}`).selectAll("*").remove();
    const x = d3.scaleLinear([0, timeline.wall_ns], [0, width]);
    const ticks = x.ticks(Math.max(2, Math.floor(width / 120))).filter((ns) => x(ns) < width - 40 && x(ns) > 20);
    const axis = svg.append("g").attr("class", "axis");
    axis.selectAll("text").data(ticks).join("text").attr("x", (ns) => x(ns)).attr("y", 12).attr("text-anchor", "middle").text((ns) => time(ns));
    axis.selectAll("path").data(ticks).join("path").attr("d", (ns) => `M${x(ns)},16V${height}`);
    let y = top;
    for (const lane of this.lanes) {
      svg.append("text").attr("class", "lane").attr("y", y + 17).text(`${lane.name}: ${percent(this.share(lane))}`);
      svg.append("rect").attr("class", "floor").attr("y", y + LABEL).attr("width", width).attr("height", lane.height);
      this.stack(lane, y + LABEL);
      y += lane.height + LABEL;
    }
    const edges = timeline.steps.flatMap(([begin, end]) => [begin, end]).filter((ns) => ns > 0 && ns < timeline.wall_ns);
    svg.append("g").attr("class", "steps").selectAll("path").data([...new Set(edges)]).join("path").attr("d", (ns) => `M${x(ns)},16V${height}`);
    this.marked = svg.append("rect").attr("class", "marked").attr("y", 16).attr("height", height - 16).attr("width", 0);
    this.cursor = svg.append("path").attr("class", "cursor");
    this.height = height;
  }

  /* One path a part, stacked from the floor of the lane. */
  stack(lane, y) {
    const { columns } = this.timeline;
    const wide = this.width / columns;
    const done = new Float64Array(columns);
    for (const kind of lane.kinds) {
      const part = lane.parts[kind];
      if (!part) continue;
      let path = "";
      for (let at = 0; at < columns; at++) {
        if (!part[at]) continue;
        let end = at + 1; // columns alike are drawn as one
        while (end < columns && part[end] === part[at] && done[end] === done[at]) end++;
        const [low, high] = [done[at], Math.min(done[at] + part[at], 1000)].map((share) => y + lane.height * (1 - share / 1000));
        path += `M${(at * wide).toFixed(2)},${low.toFixed(2)}V${high.toFixed(2)}H${(end * wide).toFixed(2)}V${low.toFixed(2)}Z`;
        for (let one = at; one < end; one++) done[one] += part[one];
        at = end - 1;
      }
      this.svg.append("path").attr("class", `${lane.css}-${kind}`).attr("d", path);
    }
  }

  point(offset, clientX, clientY) {
    const column = Math.max(0, Math.min(this.timeline.columns - 1, Math.floor((offset / this.width) * this.timeline.columns)));
    this.column = column;
    const x = ((column + 0.5) / this.timeline.columns) * this.width;
    this.cursor.attr("d", `M${x},16V${this.height}`);
    tip.show(this.about(column), clientX, clientY);
  }

  about(column) {
    const { timeline } = this;
    const wide = timeline.wall_ns / timeline.columns;
    const step = timeline.steps.findIndex(([begin, end]) => (column + 0.5) * wide >= begin && (column + 0.5) * wide < end);
    const lines = [`${time(column * wide)} to ${time((column + 1) * wide)}`, ["step", step < 0 ? null : `${step + 1} of ${timeline.steps.length + timeline.steps_left}`]];
    for (const lane of this.lanes) {
      const there = lane.kinds.filter((kind) => lane.parts[kind] && lane.parts[kind][column]);
      if (there.length) lines.push([lane.name, there.map((kind) => `${words(kind)} ${percent(lane.parts[kind][column] / 1000)}`).join(", ")]);
    }
    return lines;
  }

  key(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1, PageDown: 50, PageUp: -50 }[event.key];
    if (!by) return;
    event.preventDefault();
    const columns = this.timeline.columns;
    const column = Math.max(0, Math.min(columns - 1, (this.column ?? -1) + by));
    const box = this.container.getBoundingClientRect();
    const x = ((column + 0.5) / columns) * this.width;
    this.point(x, box.left + x, Math.max(box.top, 0) + 40);
  }

  leave() {
    tip.hide();
    this.cursor.attr("d", null);
  }

  mark(gap) {
    const x = (ns) => (ns / this.timeline.wall_ns) * this.width;
    this.marked.attr("x", x(gap.start_ns)).attr("width", Math.max(2, x(gap.time_ns)));
    this.container.scrollIntoView({ block: "nearest" });
  }
}
