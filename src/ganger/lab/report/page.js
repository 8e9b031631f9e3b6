"use strict";
// The page of jobs: its state (load, hidden recipes, choices), and its charts.
const state = { panel: data.panels.length - 1, hidden: new Set(), time: "held", sweep: "jct_mean_seconds", kind: "time", gantt: 0, services: "in_time", service: 0, lanes: 0, stretch: 0, frontier: "energy_kwh" };
// The service that is chosen, of those that the panel has.
const service = () => panel().services[Math.min(state.service, panel().services.length - 1)];

const CHARTS = {
  bars(box) {
    const items = shown().map((g) => ({ series: g.series, label: label(g), value: metric(g, "jct_mean_seconds")[0], half: metric(g, "jct_mean_seconds")[1] }));
    bars(box, items, { title: "Mean JCT of every recipe", what: "mean JCT", say: time });
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
    const o = { title: state.time.replace("_", " "), x1: p.horizon, ticks: marks, say: count };
    for (const [inner, own] of parts) facet(inner, own, list.filter((l) => l !== own), o);
  },
  services(box) {
    const names = panel().services, name = service();
    radios("services-choice", "service", (names.length > 1 ? names : []).map((each, i) => [i, each, each === name]));
    const drawn = shown().filter((g) => g.services[name]), part = state.services === "in_time" || state.services === "busy", timed = state.services === "p99";
    const list = drawn.map((g) => ({ series: g.series, label: label(g), points: g.services[name][state.services].map((y, i) => [g.services[name].at[i], y]) }));
    const marks = part ? [0, 0.5, 1] : scale(list.flatMap((l) => l.points.map((p) => p[1])), timed, 3);
    const o = { title: state.services.replace("_", " "), x1: Math.max(...list.flatMap((l) => l.points.map((p) => p[0])), 0), ticks: marks, say: part ? share : timed ? time : count };
    const grid = html("div", { class: "facets" });
    box.replaceChildren(grid);
    const parts = list.map((own) => {
      const inner = html("div", { class: "inner" });
      grid.append(html("div", {}, html("h3", {}, html("i", { class: `swatch c${own.series % data.colours}` }), own.label), inner));
      return [inner, own];
    });
    for (const [inner, own] of parts) facet(inner, own, list.filter((l) => l !== own), o);
  },
  services_within(box) {
    const drawn = shown().map((g) => ({ ...g, within: (g.services[service()] || {}).within })).filter((g) => g.within && g.within.x.length);
    if (drawn.length) distribution(box, "within", 1e-4, "Distribution of latencies", drawn);
    else box.replaceChildren("Nothing was answered.");
  },
  lanes: (box) => onLanes(box, panel().groups.map((g) => ({ series: g.series, lanes: (g.services[service()] || {}).lanes })).filter((g) => g.lanes)),
  frontier(box) {
    const known = shown().filter((g) => g.metrics[state.frontier] && metric(g, state.frontier)[0] !== null && metric(g, "jct_mean_seconds")[0] !== null);
    const list = known.map((g) => ({ series: g.series, label: label(g), points: [[metric(g, state.frontier)[0], metric(g, "jct_mean_seconds")[0]]] }));
    const xs = list.map((l) => l.points[0][0]), top = Math.max(...xs, 0) || 1, low = Math.min(...xs, top);
    const pad = (top - low) * 0.08 || top * 0.08;
    const x = { range: [low - pad, top + pad], ticks: ticks(top, 12, false).filter((v) => v >= low - pad && v <= top + pad), text: count, stops: xs, say: count };
    const y = { ticks: scale(list.map((l) => l.points[0][1]), true), text: tick, say: time };
    lines(box, list, { title: "Mean JCT by energy, carbon or cost", x, y, dots: true, direct: true, at: exact });
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

// Blue where a tenant gained by sharing, orange where it lost; full colour at a factor of three.
function heat() {
  for (const cell of all("[data-rho]")) {
    const rho = +cell.dataset.rho;
    if (!(rho > 0)) continue;
    const depth = Math.min(Math.abs(Math.log(rho)) / Math.log(3), 1) * 42;
    cell.style.setProperty("--heat", `color-mix(in srgb, var(--${rho > 1 ? "loss" : "gain"}) ${depth.toFixed(0)}%, transparent)`);
  }
}
document.addEventListener("change", ({ target }) => {
  if (target.name === "tenants") for (const table of all(".tenants")) table.dataset.show = target.value;
});
heat();
begin();
