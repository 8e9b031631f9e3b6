"use strict";
// What every page does: tips, legends, tables that sort, choices, and redrawing. A page has its own
// `state` (at least panel and hidden) and CHARTS.
const data = JSON.parse(document.getElementById("data").textContent);
const label = (group) => data.labels[group.series];
const panel = () => data.panels[state.panel];
const shown = (p = panel()) => p.groups.filter((g) => !state.hidden.has(g.series));
const metric = (group, name) => group.metrics[name] || [null, null];

const PER_CENT = { ticks: [0, 0.25, 0.5, 0.75, 1], text: (v) => `${v * 100}%`, say: share };
// One point for all that is too short to draw, and a level line to the right edge at the end.
function curve({ x, y }, floor, high) {
  const short = x.filter((v) => v <= floor).length;
  const points = x.map((v, i) => [v, y[i]]).slice(short);
  if (short) points.unshift([floor, y[short - 1]]);
  return points.length ? [...points, [high, y.at(-1)]] : [];
}
function distribution(box, key, floor, title, drawn = null) {
  const xs = (drawn || panel().groups).flatMap((g) => [Math.max(g[key].x[0] ?? floor, floor), Math.max(g[key].x.at(-1) ?? floor, floor)]);
  const low = Math.min(...xs), high = Math.max(...xs, low * 10);
  const list = (drawn || shown()).map((g) => ({ series: g.series, label: label(g), points: curve(g[key], floor, high) }));
  const stops = Array.from({ length: 121 }, (_, i) => low * (high / low) ** (i / 120));
  const x = { log: true, range: [low, high], ticks: logTicks(low, high), text: tick, stops, say: (v) => `within ${time(v)}` };
  lines(box, list, { title, x, y: PER_CENT, at: below });
}
function scale(values, timed, most = 5) {
  const marks = ticks(Math.max(...values.filter((v) => v !== null), 0), most, timed);
  return marks.length > 1 ? marks : [0, 1];
}

function radios(id, name, options) {
  document.getElementById(id).replaceChildren(...options.map(([value, word, on]) => {
    const input = html("input", { type: "radio", name, value });
    input.checked = on;
    return html("label", {}, input, html("span", {}, word));
  }));
}
// What ran where: drawn are groups with a series and lanes; the page has the choices and the key.
function onLanes(box, drawn) {
  const chosen = drawn.find((g) => g.series === state.lanes) || drawn[0];
  radios("lanes-choice", "lanes", drawn.map((g) => [g.series, label(g), g === chosen]));
  const names = chosen ? chosen.lanes.stretches : [], at = Math.min(state.stretch, names.length - 1);
  radios("stretch-choice", "stretch", names.map((s, i) => [i, s.name, i === at]));
  const there = chosen ? [...new Set(names[at].boxes.map((b) => b[3]))].sort((a, b) => a - b) : [];
  document.getElementById("lanes-models").replaceChildren(...there.map((model) => html("span", {}, html("i", { class: `swatch c${model % data.colours}` }), chosen.lanes.models[model])));
  if (chosen) batches(box, names[at].boxes, chosen.lanes, label(chosen));
  else box.replaceChildren("Nothing ran here.");
}

// The charts that a choice changes, where they are not called as it is.
const DRAWN_BY = { stretch: ["lanes"], service: ["services", "services_within", "lanes"] };
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
    if (target.id === "load") { state.panel = +target.value; show(); return; }
    if (!(target.name in state)) return;
    state[target.name] = isNaN(target.value) ? target.value : +target.value;
    if (target.dataset.kind) state.kind = target.dataset.kind;
    for (const chart of DRAWN_BY[target.name] || [target.name]) draw(chart);
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
function begin() { legend(); choices(); theme(); show(); savable(); }
let width = innerWidth, waiting = 0;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(draw, 120);
});
