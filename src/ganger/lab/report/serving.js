"use strict";
// The page of requests: its state (fleet and load, hidden recipes, choices), and its charts.
const state = { panel: data.first, hidden: new Set(), time: "in_time", sweep: "attainment", kind: "ratio", lanes: 0, stretch: 0 };
const per = { ticks: [0, 0.25, 0.5, 0.75, 1], text: share, say: (v) => `${(100 * v).toFixed(1)}%` };
const beside = (same) => data.panels.filter((p) => same(p, panel()));

// One line for each recipe over the panels that are alike: a point for each.
function over(panels, xs, key) {
  return data.labels.map((name, series) => {
    const pair = panels.map((p) => metric(p.groups.find((g) => g.series === series) || { metrics: {} }, key));
    return { series, label: name, points: pair.map((v, i) => [xs[i], v[0]]), halves: pair.map((v) => v[1]) };
  }).filter((l) => !state.hidden.has(l.series));
}
const tops = (list) => list.flatMap((l) => l.points.map((q, i) => (q[1] === null ? null : q[1] + ((l.halves && l.halves[i]) || 0))));
// What no recipe can exceed, as a line of its own.
function limits(box, panels, xs, m) {
  const svg = box.querySelector("svg"), points = panels.map((p, i) => [xs[i], p.bound]);
  svg.append(el("path", { class: "cross", fill: "none", d: path(points, m.sx, m.sy) }));
}
const seconds = (g) => g.time.width;

const CHARTS = {
  attainment(box) {
    const items = shown().map((g) => ({ series: g.series, label: label(g), value: metric(g, "attainment")[0], half: metric(g, "attainment")[1] }));
    bars(box, items, { title: "Answered in time, by recipe", what: "in time", say: per.say, down: true, limit: panel().bound });
  },
  within: (box) => distribution(box, "within", 1e-4, "Distribution of latencies"),
  load(box) {
    const g = panel().groups.find((each) => each.time);
    if (!g) return box.replaceChildren("");
    const width = seconds(g), came = g.time.arrivals.slice(0, g.time.arrivals.findLastIndex((n) => n > 0) + 1);
    const points = came.map((n, i) => [(i + 0.5) * width, n / width]);
    const end = came.length * width, x = { range: [0, end], ticks: ticks(end, 7, true).filter((v) => v <= end), text: tick, stops: points.map((p) => p[0]), say: time };
    const y = { ticks: scale(points.map((p) => p[1]), false, 3), text: count, say: (v) => `${count(v)} a second` };
    lines(box, [{ series: 7, label: "requests", points }], { title: "Load over time", x, y, at: exact, height: 150 });
  },
  time(box) {
    const groups = shown().filter((g) => g.time), part = state.time === "in_time", word = { in_time: "in time", busy: "lanes busy", batch: "requests a batch", open: "requests" }[state.time];
    const values = (g) => ({
      in_time: () => g.time.arrivals.map((n, i) => (n ? g.time.in_time[i] / n : null)),
      batch: () => g.time.batches.map((n, i) => (n ? g.time.executed[i] / n : null)),
    }[state.time] || (() => g.time[state.time]))();
    const list = groups.map((g) => ({ series: g.series, label: label(g), points: values(g).map((y, i) => [(i + 0.5) * seconds(g), y]) }));
    const end = Math.max(...groups.map((g) => g.time.arrivals.length * seconds(g)));
    const marks = part ? [0, 0.5, 1] : scale(list.flatMap((l) => l.points.map((p) => p[1])), false, 3);
    const grid = html("div", { class: "facets" });
    box.replaceChildren(grid);
    const say = part ? share : count;
    const parts = list.map((own) => {
      const inner = html("div", { class: "inner" });
      grid.append(html("div", {}, html("h3", {}, html("i", { class: `swatch c${own.series % data.colours}` }), own.label), inner));
      return [inner, own];
    });
    for (const [inner, own] of parts) facet(inner, own, list.filter((l) => l !== own), { title: word, x1: end, ticks: marks, say });
  },
  sweep(box) {
    const [say, text] = FORMS[state.kind], panels = beside((a, b) => a.fleet === b.fleet && a.slo === b.slo), xs = panels.map((p) => p.load);
    const list = over(panels, xs, state.sweep), pad = (xs.at(-1) - xs[0]) * 0.04, ratio = state.sweep === "attainment";
    const x = { range: [xs[0] - pad, xs.at(-1) + pad], ticks: xs, text: String, stops: xs, say: (v) => `load ${v}` };
    const y = ratio ? per : { ticks: scale(tops(list), state.kind === "latency"), text, say };
    const m = lines(box, list, { title: "Metric over load", x, y, dots: true, direct: true, at: exact, height: 340 });
    if (ratio) limits(box, panels, xs, m);
  },
  frontier(box) {
    const panels = beside((a, b) => a.fleet === b.fleet && a.slo === b.slo), xs = panels.map((_, i) => i);
    const good = over(panels, xs, "goodput_per_second"), late = over(panels, xs, "latency_p99_seconds");
    const list = good.map((l, k) => ({ ...l, halves: late[k].halves, points: l.points.map((p, i) => [p[1], late[k].points[i][1]]).filter((p) => p[0] !== null) }));
    const stops = list.flatMap((l) => l.points.map((p) => p[0])).sort((a, b) => a - b), top = ticks(stops.at(-1) || 1, 6, false).at(-1);
    const x = { range: [0, top], ticks: ticks(top, 6, false), text: count, stops, say: (v) => `${count(v)} in time a second` };
    const values = tops(list).filter((v) => v > 0), low = Math.min(...values) / 1.5, high = Math.max(...values) * 1.5;
    const y = { log: low, ticks: [...logTicks(low, high), high], text: (v) => (v === high ? "" : tick(v)), say: time };
    if (stops.length) lines(box, list, { title: "Latency over throughput", x, y, dots: true, direct: true, at: exact, height: 320 });
  },
  fleets(box) {
    const panels = beside((a, b) => a.load === b.load && a.slo === b.slo), xs = panels.map((_, i) => i), names = panels.map((p) => p.fleet);
    const x = { range: [-0.3, names.length - 0.7], ticks: xs, text: (i) => clip(names[i], 14), stops: xs, say: (i) => names[i] };
    const m = lines(box, over(panels, xs, "attainment"), { title: "In time, by fleet", x, y: per, dots: true, direct: true, at: exact, height: 320 });
    limits(box, panels, xs, m);
  },
  lanes: (box) => onLanes(box, panel().groups.filter((g) => g.lanes)),
};
begin();
