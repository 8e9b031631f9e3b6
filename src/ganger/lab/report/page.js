"use strict";
// The page's state (load, hidden recipes, choices), and the charts redrawn from it.
const data = JSON.parse(document.getElementById("data").textContent);
const tipBox = document.getElementById("tip");
const state = { panel: data.panels.length - 1, hidden: new Set(), time: "held", sweep: "jct_mean_seconds", kind: "time", gantt: 0 };
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const label = (group) => data.labels[group.series];
const panel = () => data.panels[state.panel];
const shown = (p = panel()) => p.groups.filter((g) => !state.hidden.has(g.series));
const metric = (group, name) => group.metrics[name] || [null, null];

function tip(words, x, y) {
  tipBox.hidden = !words;
  if (!words) return;
  const rows = words[1].map(([name, value, series]) => {
    const row = html("div", {}, ...(series === undefined ? [] : [html("i", { class: `swatch c${series % data.colours}` })]), name);
    row.append(html("span", {}, value));
    return row;
  });
  tipBox.replaceChildren(html("b", {}, words[0]), ...rows);
  const box = tipBox.getBoundingClientRect();
  tipBox.style.left = `${Math.max(8, Math.min(x + 16, innerWidth - box.width - 8))}px`;
  tipBox.style.top = `${Math.max(8, y + 16 + box.height > innerHeight ? y - box.height - 12 : y + 16)}px`;
}
function hover(node, words) {
  node.addEventListener("pointermove", (event) => tip(words(), event.clientX, event.clientY));
  node.addEventListener("pointerleave", () => tip(null));
}

const PER_CENT = { ticks: [0, 0.25, 0.5, 0.75, 1], text: (v) => `${v * 100}%`, say: share };
// One point for all that is too short to draw, and a level line to the right edge at the end.
function curve({ x, y }, floor, high) {
  const short = x.filter((v) => v <= floor).length;
  const points = x.map((v, i) => [v, y[i]]).slice(short);
  if (short) points.unshift([floor, y[short - 1]]);
  return points.length ? [...points, [high, y.at(-1)]] : [];
}
function distribution(box, key, floor, title) {
  const xs = panel().groups.flatMap((g) => [Math.max(g[key].x[0] ?? floor, floor), Math.max(g[key].x.at(-1) ?? floor, floor)]);
  const low = Math.min(...xs), high = Math.max(...xs, low * 10);
  const list = shown().map((g) => ({ series: g.series, label: label(g), points: curve(g[key], floor, high) }));
  const stops = Array.from({ length: 121 }, (_, i) => low * (high / low) ** (i / 120));
  const x = { log: true, range: [low, high], ticks: LOG_TICKS.filter((v) => v >= low && v <= high), text: tick, stops, say: (v) => `within ${time(v)}` };
  lines(box, list, { title, x, y: PER_CENT, at: below });
}
function scale(values, timed, most = 5) {
  const marks = ticks(Math.max(...values.filter((v) => v !== null), 0), most, timed);
  return marks.length > 1 ? marks : [0, 1];
}

const CHARTS = {
  bars(box) {
    const items = shown().map((g) => ({ series: g.series, label: label(g), value: metric(g, "jct_mean_seconds")[0], half: metric(g, "jct_mean_seconds")[1] }));
    bars(box, items, "Mean JCT of every recipe");
  },
  gangs(box) {
    const names = panel().gangs;
    const list = shown().map((g) => ({ series: g.series, label: label(g), points: g.gangs.mean.map((y, i) => [i, y]) }));
    const stops = names.map((_, i) => i);
    const x = { range: [-0.3, names.length - 0.7], ticks: stops, text: (i) => names[i], stops, say: (i) => `${names[i]} GPU${names[i] === "1" ? "" : "s"}` };
    const y = { ticks: scale(panel().groups.flatMap((g) => g.gangs.mean), true), text: tick, say: time };
    lines(box, list, { title: "Mean JCT by gang size", x, y, dots: true, direct: true, at: exact });
  },
  jct: (box) => distribution(box, "jct", 0.001, "Distribution of JCT"),
  delay: (box) => distribution(box, "delay", 1, "Distribution of queueing delay"),
  time(box) {
    const p = panel(), width = p.horizon / (p.groups[0].time.held.length || 1);
    const line = (g) => ({ series: g.series, label: label(g), points: g.time[state.time].map((y, i) => [(i + 0.5) * width, y]) });
    const gpus = state.time === "held" || state.time === "running";
    const marks = gpus ? [0, p.gpus / 2, p.gpus] : scale(p.groups.flatMap((g) => g.time[state.time]), false, 3);
    const list = shown().map(line);
    const grid = html("div", { class: "facets" });
    box.replaceChildren(grid);
    const parts = list.map((own) => {
      const live = own.points.map((q) => q[1]).filter((v) => v !== null);
      const mean = live.reduce((a, b) => a + b, 0) / (live.length || 1);
      const inner = html("div", { class: "inner" });
      const text = gpus ? `mean ${share(mean / p.gpus)}` : `mean ${count(mean)}`;
      grid.append(html("div", {}, html("h3", {}, html("i", { class: `swatch c${own.series % data.colours}` }), own.label, html("span", {}, text)), inner));
      return [inner, own];
    });
    const o = { title: state.time.replace("_", " "), x1: p.horizon, ticks: marks };
    for (const [inner, own] of parts) facet(inner, own, list.filter((l) => l !== own), o);
  },
  sweep(box) {
    const [say, text] = FORMS[state.kind], loads = data.panels.map((p) => p.load);
    const list = data.labels.map((name, series) => {
      const found = data.panels.map((p) => p.groups.find((g) => g.series === series));
      const pair = found.map((g) => (g ? metric(g, state.sweep) : [null, null]));
      return { series, label: name, points: pair.map((v, i) => [loads[i], v[0]]), halves: pair.map((v) => v[1]) };
    });
    const values = list.flatMap((l) => l.points.map((q, i) => (q[1] === null ? null : q[1] + (l.halves[i] || 0))));
    const pad = (loads.at(-1) - loads[0]) * 0.04;
    const x = { range: [loads[0] - pad, loads.at(-1) + pad], ticks: loads, text: String, stops: loads, say: (v) => `load ${v}` };
    const y = { ticks: scale(values, state.kind === "time"), text, say };
    lines(box, list.filter((l) => !state.hidden.has(l.series)), { title: "Metric over load", x, y, dots: true, direct: true, at: exact, height: 340 });
  },
  gantt(box) {
    const drawn = panel().groups.filter((g) => g.gantt);
    const chosen = drawn.find((g) => g.series === state.gantt) || drawn[0];
    const choice = document.getElementById("gantt-choice");
    choice.replaceChildren(...drawn.map((g) => {
      const input = html("input", { type: "radio", name: "gantt", value: g.series });
      input.checked = g === chosen;
      return html("label", {}, input, html("span", {}, label(g)));
    }));
    if (chosen) gantt(box, chosen.gantt, label(chosen));
    else box.replaceChildren("Too large to draw at this load.");
  },
};

function draw(only) {
  for (const box of all("[data-chart]")) {
    if (!only || only === box.dataset.chart) CHARTS[box.dataset.chart](box);
  }
}
function show() {
  for (const node of all("[data-panel]")) node.classList.toggle("off", +node.dataset.panel !== state.panel);
  for (const node of all("main [data-series]")) {
    if (!node.closest("svg")) node.classList.toggle("off", state.hidden.has(+node.dataset.series));
  }
  draw();
}
function sortBy(table, column, th) {
  const down = th.getAttribute("aria-sort") === "ascending";
  for (const other of all("thead th", table)) other.removeAttribute("aria-sort");
  th.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => row.children[column].dataset.sort;
  const rows = all("tbody tr", table).sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
}
// Blue where a tenant gained by sharing, orange where it lost; full colour at a factor of three.
function heat() {
  for (const cell of all("[data-rho]")) {
    const rho = +cell.dataset.rho;
    if (!(rho > 0)) continue;
    const depth = Math.min(Math.abs(Math.log(rho)) / Math.log(3), 1) * 42;
    cell.style.setProperty("--heat", `color-mix(in srgb, var(--${rho > 1 ? "loss" : "gain"}) ${depth.toFixed(0)}%, transparent)`);
  }
}
function focusOn(series) {
  for (const node of all("svg [data-series]")) node.classList.toggle("dim", series !== null && +node.dataset.series !== series);
}
function legend() {
  for (const chip of all(".chip")) {
    const series = +chip.dataset.series;
    chip.addEventListener("click", () => {
      if (!state.hidden.delete(series)) state.hidden.add(series);
      if (state.hidden.size === data.labels.length) state.hidden.clear();
      for (const other of all(".chip")) other.setAttribute("aria-pressed", !state.hidden.has(+other.dataset.series));
      show();
    });
    chip.addEventListener("pointerenter", () => focusOn(series));
    chip.addEventListener("pointerleave", () => focusOn(null));
  }
}
function choices() {
  document.addEventListener("change", ({ target }) => {
    if (target.id === "load") { state.panel = +target.value; show(); }
    if (target.name === "time") { state.time = target.value; draw("time"); }
    if (target.name === "sweep") { state.sweep = target.value; state.kind = target.dataset.kind; draw("sweep"); }
    if (target.name === "gantt") { state.gantt = +target.value; draw("gantt"); }
    if (target.name === "tenants") for (const table of all(".tenants")) table.dataset.show = target.value;
  });
  for (const table of all(".sortable")) {
    all("thead th", table).forEach((th, column) => th.firstElementChild.addEventListener("click", () => sortBy(table, column, th)));
  }
}
function theme() {
  const root = document.documentElement;
  const asked = new URLSearchParams(location.search).get("theme");
  if (asked === "light" || asked === "dark") root.dataset.theme = asked;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
}
legend(); choices(); theme(); heat(); show();
let width = innerWidth, waiting = 0;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(draw, 120);
});
