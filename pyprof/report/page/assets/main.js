/* Sections: their charts and tables, and one filter for all of a section. */

function show(article, section) {
  const find = (name) => article.querySelector(name);
  const cells = new Cells(section.cells);
  const { filter } = cells;
  const names = new Map(); // of the parts of the filter that are set, what they are called
  const pick = (part, value, name) => {
    const again = filter[part] === value || value === null;
    filter[part] = again ? null : value;
    names.set(part, name);
    update();
  };
  const legend = (place, used, first = []) => keys(find(`${place} .keys.phases`), [...first, ...cells.of.phases.filter((phase) => used.has(phase)).map((phase) => [`ph-${phase}`, phase])]);
  legend(".where", new Set(cells.of.phase.map((phase) => cells.of.phases[phase])), [["layer", "layer"]]);
  const icicle = new Icicle(find(".icicle"), cells, (place, path) => {
    filter.place = place;
    names.set("place", path);
    update();
  });
  const roofline = new Roofline(find(".roofline"), find(".roofnotes"), section, cells, (group) => pick("group", group, groupName(group)));
  if (roofline.points.length) legend(".roof", new Set(roofline.points.map((point) => cells.phase(point.cell))));
  const timeline = new Timeline(find(".timeline"), find(".keys.causes"), section.timeline, section.on_gpu);
  placeTable(find(".places"), section.places);
  gapTable(find(".gaps"), section.timeline, (gap) => timeline.mark(gap));
  const groupName = (group) => {
    const [op, phase] = cells.groups[group];
    return [cells.of.ops[op][0] || "no op known", cells.of.ops[op][1], cells.of.phases[phase]].filter(Boolean).join(" ");
  };
  const ops = opTable(find(".table.ops"), cells, { picked: (sum) => pick("group", sum.key, groupName(sum.key)), isPicked: (sum) => filter.group === sum.key });
  const layers = layerTable(find(".table.layers"), cells, { picked: (sum) => pick("layer", sum.key, cells.paths[sum.key]), isPicked: (sum) => filter.layer === sum.key });
  const kernels = kernelTable(find(".table.kernels"), cells, section.on_gpu ? "Kernel" : "Op", { picked: (sum) => pick("kernel", sum.key, cells.of.names[sum.key][0]), isPicked: (sum) => filter.kernel === sum.key });
  const isProduct = cells.of.verdict.map((code) => cells.of.verdicts[code][0] !== "-");
  const tensor = find(".table.tensor") && isProduct.some(Boolean) && tensorTable(find(".table.tensor"), cells, {});
  const verdictTexts = cells.of.verdict.map((code, at) => JSON.stringify([cells.opName(at), ...cells.of.verdicts[code]]));

  function update() {
    const mask = cells.masked();
    ops.update(cells.sums(mask, cells.group));
    layers.update(cells.layerSums(mask));
    kernels.update(cells.sums(mask, cells.of.kernel));
    if (tensor) tensor.update(cells.sums(mask.map((one, at) => (one && isProduct[at] ? 1 : 0)), verdictTexts));
    roofline.update(mask);
    icicle.show(filter.place, ["group", "layer", "kernel"].some((part) => filter[part] !== null) || filter.query.trim() ? cells.masked("place") : null);
    chips();
    matched(mask);
  }

  function chips() {
    const set = ["place", "group", "layer", "kernel"].filter((part) => filter[part] !== null);
    const titles = { place: "in", group: "op", layer: "layer", kernel: "kernel" };
    find(".chips").replaceChildren(...set.map((part) => make("button", { type: "button", class: "chip", "aria-label": `Remove the filter ${titles[part]} ${names.get(part)}`,
      onclick: () => { filter[part] = null; update(); } }, `${titles[part]}: ${brief(names.get(part))}`, make("span", { "aria-hidden": "true" }, " ×"))),
      ...(set.length > 1 ? [make("button", { type: "button", class: "chip", onclick: () => { set.forEach((part) => { filter[part] = null; }); update(); } }, "clear all")] : []));
  }

  const brief = (name) => (name.length > 70 ? `${name.slice(0, 69)}…` : name);

  function matched(mask) {
    let ns = 0;
    for (let at = 0; at < cells.size; at++) if (mask[at]) ns += cells.of.time_ns[at];
    const all = Object.entries(filter).every(([, value]) => value === null || value === "");
    const rest = cells.of.rest.cells ? `; ${count(cells.of.rest.kernels)} kernels with ${time(cells.of.rest.time_ns)} in ${count(cells.of.rest.cells)} smaller groups are left out` : "";
    find(".matched").textContent = (all ? "" : `${time(ns)}, ${percent(ns / (cells.total || 1))} of the time`) + rest;
  }

  holds(article, section);
  find(".query").addEventListener("input", (event) => {
    filter.query = event.target.value;
    update();
  });
  update();
}

/* What was measured: the roofline of kernels at each level of memory, and a row of each point. */
function showMeasured(article, section) {
  const find = (name) => article.querySelector(name);
  const cells = new Cells(section.cells);
  cells.total = section.total_ns; // a kernel has a point at every level
  const pick = (group) => {
    cells.filter.group = cells.filter.group === group ? null : group;
    update();
  };
  const roofline = new Roofline(find(".roofline"), find(".roofnotes"), section, cells, pick);
  keys(find(".keys.phases"), cells.of.phases.map((level) => [`ph-${level}`, level]));
  const table = measuredTable(find(".table.measured"), cells, { picked: (sum) => pick(sum.key), isPicked: (sum) => cells.filter.group === sum.key });
  function update() {
    const mask = cells.masked();
    table.update(cells.sums(mask, cells.group));
    roofline.update(mask);
  }
  update();
}

/* A section that is closed is drawn when it is first opened. */
JSON.parse(document.getElementById("data").textContent).forEach((section, at) => {
  const article = document.querySelector(`[data-section="${at}"]`);
  const whole = article.querySelector("details.whole");
  if (section.measured) showMeasured(article, section);
  else if (!section.cells) holds(article, section);
  else if (!whole || whole.open) show(article, section);
  else whole.addEventListener("toggle", () => show(article, section), { once: true });
});

/* The code beside a button, to the clipboard. */
for (const button of document.querySelectorAll(".copy")) {
  const code = button.parentElement.querySelector("code");
  button.addEventListener("click", async () => {
    let done = true;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch { // not allowed here: the older way
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Selected: press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

/* A link to a section that is closed opens it. */
function reveal() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  const whole = target && target.querySelector("details.whole");
  if (!whole) return;
  whole.open = true;
  target.scrollIntoView();
}
window.addEventListener("hashchange", reveal);
reveal();
document.documentElement.setAttribute("data-ready", "");
