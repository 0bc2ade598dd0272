/* The cells of a section: which of them a filter leaves, and their sums by op, layer or kernel. */

class Sum {
  constructor(key, cell, leastKnown) {
    this.leastKnown = leastKnown;
    this.key = key;
    this.cell = cell; // the one with most time: cells come in that order
    this.kernels = this.calls = this.time = this.flops = this.flopsNs = this.bytes = this.bytesNs = 0;
    this.lost = this.lostNs = this.least = this.own = 0;
    this.tc = { 1: 0, 0: 0, unknown: 0 };
    this.bounds = new Map();
  }
  known(value, ns) {
    return ns > this.leastKnown * this.time || (this.time === 0 && ns === 0 && value > 0) ? value : null;
  }
  get knownShare() { return this.time ? this.flopsNs / this.time : null; }
  get knownFlops() { return this.known(this.flops, this.flopsNs); }
  get knownBytes() { return this.known(this.bytes, this.bytesNs); }
  get knownLost() { return this.known(this.lost, this.lostNs); }
  get rate() { return this.knownFlops === null || !this.flopsNs ? null : (this.flops / this.flopsNs) * 1e9; }
  get bandwidth() { return this.knownBytes === null || !this.bytesNs ? null : (this.bytes / this.bytesNs) * 1e9; }
  get intensity() { return this.knownFlops === null || !this.knownBytes ? null : this.flops / this.bytes; }
  get peak() { return this.knownLost === null || !this.lostNs ? null : this.least / this.lostNs; }
  get bound() {
    let best = null;
    for (const [name, ns] of this.bounds) if (best === null || ns > this.bounds.get(best)) best = name;
    return best;
  }
  get tensor() {
    const { 1: yes, 0: no, unknown } = this.tc;
    if (!yes && !no) return unknown ? UNKNOWN : "-";
    return !no ? "yes" : !yes ? "no" : `${percent(yes / (yes + no))}`;
  }
}

class Cells {
  constructor(cells) {
    this.of = cells;
    this.size = cells.op.length;
    this.total = cells.time_ns.reduce((sum, ns) => sum + ns, 0);
    this.node = cells.layer.map((path) => cells.layers.node[path]);
    this.paths = this.pathTexts();
    this.spans();
    const groups = new Map();
    this.groups = []; // [op, phase] of each group, the point and row of an op
    this.group = cells.op.map((op, at) => {
      const key = `${op}/${cells.phase[at]}`;
      if (!groups.has(key)) {
        groups.set(key, this.groups.length);
        this.groups.push([op, cells.phase[at]]);
      }
      return groups.get(key);
    });
    this.filter = { query: "", group: null, place: null, kernel: null, layer: null };
    this.mask = new Uint8Array(this.size).fill(1);
    const lower = (texts) => texts.map((text) => text.toLowerCase());
    this.texts = {
      op: lower(cells.ops.map(([name, shape]) => `${name || "no op known"} ${shape || ""}`)),
      layer: lower(this.paths),
      kernel: lower(cells.names.map((both) => both.join(" "))),
    };
  }

  pathTexts() {
    const { parent, name } = this.of.layers;
    const texts = [""];
    for (let at = 1; at < name.length; at++) texts.push(parent[at] ? texts[parent[at]] + name[at] : name[at].slice(1));
    return texts;
  }

  /* A layer with all inside it is one span of numbers. */
  spans() {
    const { parent } = this.of.layers;
    const inside = parent.map(() => []);
    for (let at = 1; at < parent.length; at++) inside[parent[at]].push(at);
    this.first = new Int32Array(parent.length);
    this.last = new Int32Array(parent.length);
    let next = 0;
    const waiting = [[0, false]];
    while (waiting.length) {
      const [at, done] = waiting.pop();
      if (done) {
        this.last[at] = next - 1;
        continue;
      }
      this.first[at] = next++;
      waiting.push([at, true], ...inside[at].map((one) => [one, false]));
    }
  }

  within(node, layer) {
    return this.first[node] >= this.first[layer] && this.first[node] <= this.last[layer];
  }

  opName(at) { return this.of.ops[this.of.op[at]][0] || "no op known"; }
  shape(at) { return this.of.ops[this.of.op[at]][1] || ""; }
  phase(at) { return this.of.phases[this.of.phase[at]]; }

  /* Which cells every part of the filter leaves; without: a part that is not looked at. */
  masked(without = null) {
    const { query, group, place, kernel, layer } = this.filter;
    const wanted = query.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const mask = new Uint8Array(this.size);
    for (let at = 0; at < this.size; at++) {
      if (group !== null && without !== "group" && this.group[at] !== group) continue;
      if (kernel !== null && this.of.kernel[at] !== kernel) continue;
      if (layer !== null && !this.within(this.node[at], layer)) continue;
      if (place !== null && without !== "place" && !this.isIn(at, place)) continue;
      const texts = [this.texts.op[this.of.op[at]], this.texts.layer[this.node[at]], this.texts.kernel[this.of.kernel[at]]];
      if (!wanted.every((word) => texts.some((text) => text.includes(word)) || this.phase(at).startsWith(word))) continue;
      mask[at] = 1;
    }
    return mask;
  }

  isIn(at, place) {
    if (place.op === undefined) return place.layers.some((layer) => this.within(this.node[at], layer));
    if (!place.layers.includes(this.node[at]) || this.opName(at) !== place.op || this.of.phase[at] !== place.phase) return false;
    return place.kernel === undefined || this.of.kernel[at] === place.kernel;
  }

  add(sum, at) {
    const of = this.of;
    sum.kernels += of.kernels[at];
    sum.calls += of.calls[at];
    sum.time += of.time_ns[at];
    sum.flops += of.flops[at];
    sum.flopsNs += of.flops_ns[at];
    sum.bytes += of.bytes[at];
    sum.bytesNs += of.bytes_ns[at];
    sum.lost += of.lost_ns[at];
    sum.lostNs += of.lost_of_ns[at];
    sum.least += of.least_ns[at];
    const tc = of.verdicts[of.verdict[at]][0];
    if (tc !== "-") sum.tc[tc === null ? "unknown" : tc] += of.time_ns[at];
    const bound = of.bounds[of.bound[at]];
    if (bound !== null) sum.bounds.set(bound, (sum.bounds.get(bound) || 0) + of.time_ns[at]);
  }

  /* Sums of the cells of a mask by a code of each, those with most time first. */
  sums(mask, codes) {
    const found = new Map();
    for (let at = 0; at < this.size; at++) {
      if (!mask[at]) continue;
      const key = codes[at];
      let sum = found.get(key);
      if (!sum) found.set(key, (sum = new Sum(key, at, this.of.least_known)));
      this.add(sum, at);
    }
    return [...found.values()].sort((one, other) => other.time - one.time);
  }

  /* Of every layer with all inside it; own: without what is in layers inside it. */
  layerSums(mask) {
    const found = new Map();
    const { parent } = this.of.layers;
    for (let at = 0; at < this.size; at++) {
      if (!mask[at]) continue;
      for (let node = this.node[at]; node > 0; node = parent[node]) {
        let sum = found.get(node);
        if (!sum) found.set(node, (sum = new Sum(node, at, this.of.least_known)));
        this.add(sum, at);
        if (node === this.node[at]) sum.own += this.of.time_ns[at];
      }
    }
    return [...found.values()].sort((one, other) => other.time - one.time || one.key - other.key);
  }
}
