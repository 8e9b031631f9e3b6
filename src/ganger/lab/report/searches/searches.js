"use strict";
// The page of searches: its state (hidden recipes, whose trials, choices), and its charts.
const state = { panel: 0, hidden: new Set(), best: "seconds", one: data.leader };
const OF_ONE = ["curves", "ladder", "importance", "slices", "parallel", "gantt"];
Object.assign(DRAWN_BY, { one: OF_ONE });
const figure = (v) => (v === null ? "–" : Math.abs(v) >= 1e5 || (v && Math.abs(v) < 1e-4) ? v.toExponential(2) : `${+v.toPrecision(4)}`);
const ALONG = { seconds: [time, tick, true], gpu_hours: [(v) => `${figure(v)} GPU-h`, figure, false], money: [figure, figure, false] };
const STATE = { diverged: "broke down" };

// Whose trials are drawn: those that were chosen, else of the first that is shown.
const drawn = () => panel().groups.filter((g) => g.search);
const chosen = () => drawn().find((g) => g.series === state.one) || shown().find((g) => g.search) || drawn()[0];
// Who is chosen stands at each chart, and one choice is for all.
function choice(g) {
  for (const box of all("[data-one]")) {
    box.replaceChildren(...drawn().map((each) => {
      const input = html("input", { type: "radio", name: "one", value: each.series });
      input.name = `one-${box.dataset.one}`;
      input.checked = each === g;
      input.addEventListener("change", () => { state.one = each.series; draw(); });
      return html("label", {}, input, html("span", {}, label(each)));
    }));
  }
}
// The better, the fuller the colour; the worst is as faint as a ghost.
const shade = (g, rank) => `color-mix(in srgb, ${colour(g.series)} ${Math.round(100 * (1 - rank) ** 2)}%, var(--ghost))`;
const words = (g, i) => {
  const [number, name, how, epochs, best, hours] = g.search.trials[i];
  const axes = g.search.axes.filter((a) => a.say[i] !== null).map((a) => [a.name, a.say[i]]);
  return [`trial ${number} ${name}`, [["best", figure(best)], ["epochs", figure(epochs)], ["state", STATE[how] || how], ["GPU-hours", figure(hours)], ...axes]];
};
// What the pointer is near is drawn strongly, above the others.
function strong(node, wide, g, i) {
  hover(wide, () => words(g, i));
  wide.addEventListener("pointerenter", () => { node.classList.add("strong"); node.parentNode.append(node, wide); });
  wide.addEventListener("pointerleave", () => node.classList.remove("strong"));
}
function trace(svg, d, g, i) {
  const node = el("path", { class: "trial", d, style: `stroke:${shade(g, g.search.trials[i][6])}` });
  const wide = el("path", { class: "near", d });
  svg.append(node, wide);
  strong(node, wide, g, i);
}
// The scale of the metric: from y(low) to y(high), what is beyond at the edge.
function measure(low, high, log, a, b) {
  const warp = log ? Math.log : (v) => v, span = warp(high) - warp(low) || 1;
  const marks = log ? spaced(low, high) : between(low, high, 5);
  const place = (v) => a + ((warp(Math.min(Math.max(v, low), high)) - warp(low)) / span) * (b - a);
  return { place, marks };
}
function between(low, high, most) {
  const by = step(high - low, most, false), found = [];
  for (let n = Math.ceil(low / by - 1e-9); n * by <= high + by * 1e-9; n++) found.push(n * by);
  return found;
}
function spaced(low, high) {
  const found = [];
  for (let n = Math.floor(Math.log10(low)); n <= Math.ceil(Math.log10(high)); n++) for (const m of [1, 2, 5]) found.push(m * 10 ** n);
  const inside = found.filter((v) => v >= low * 0.999 && v <= high * 1.001);
  return inside.length > 6 ? inside.filter((v) => /^1(e|0*$)/.test(String(v)) || Math.log10(v) % 1 === 0) : inside;
}
// So many epochs as there are, evenly: the first and the last among them.
function epochs(curves) {
  const last = Math.max(...curves.map((c) => (c.length ? c.at(-1)[0] : 0)), 1);
  return { last, marks: between(0, last, 7) };
}

const CHARTS = {
  best(box) {
    const [say, text, timed] = ALONG[state.best], p = panel();
    const list = shown().filter((g) => g.best[state.best].length).map((g) => ({ series: g.series, label: label(g), points: g.best[state.best] }));
    const everything = p.groups.flatMap((g) => g.best[state.best]);
    if (!everything.length || !list.length) return box.replaceChildren("Nothing was reported.");
    const end = Math.max(...everything.map((q) => q[0])), ys = everything.map((q) => q[1]), low = Math.min(...ys), high = Math.max(...ys, low + 1e-12);
    const log = low > 0 && high / low > 50, pad = (high - low) * 0.05;
    const marks = log ? spaced(low / 2, high * 2) : between(low - pad, high + pad, 5);
    const y = log ? { log: low / 1.3, ticks: [...marks.filter((v) => v > low / 1.3 && v < high), high * 1.2] } : { low: low - pad, ticks: [...marks, high + pad] };
    const stops = Array.from({ length: 121 }, (_, i) => (end * i) / 120);
    const at = (l, v) => (l.points[0][0] > v ? null : l.points.findLast((q) => q[0] <= v)[1]);
    lines(box, list, { title: `Best ${p.metric} so far`, x: { range: [0, end], ticks: ticks(end, 7, timed).filter((v) => v <= end), text, stops, say }, y: { ...y, text: (v) => (v === y.ticks.at(-1) ? "" : figure(v)), say: figure }, direct: true, at, height: 320 });
  },
  curves(box) {
    const g = chosen(); choice(g);
    const s = g.search, m = { top: 10, right: 10, bottom: 28, left: 52 }, f = frame(box, 340, `Learning curves of ${label(g)}`);
    const { last, marks } = epochs(s.curves), sx = (v) => m.left + (v / last) * (f.width - m.left - m.right);
    const scale = measure(...s.range, s.log, f.height - m.bottom, m.top);
    gridX(f, m, thin(marks.map((v) => [sx(v), v]), 40), figure);
    gridY(f, m, scale.marks.map((v) => [scale.place(v), v]), figure);
    s.curves.map((c, i) => [c, i]).reverse().forEach(([c, i]) => {
      if (c.length === 1 && c[0][1] !== null) {
        const dot = el("circle", { cx: sx(c[0][0]), cy: scale.place(c[0][1]), r: 2.5, style: `fill:${shade(g, s.trials[i][6])}` });
        hover(dot, () => words(g, i));
        f.svg.append(dot);
      } else if (c.length) trace(f.svg, path(c, sx, scale.place), g, i);
    });
  },
  ladder(box) {
    const g = chosen(); choice(g);
    const rungs = g.search.ladder, row = 30, m = { top: 4, left: 78, right: 150 };
    const f = frame(box, m.top + rungs.length * row + 8, `Rungs of ${label(g)}`);
    if (f.width < 480) m.right = 60;
    const most = Math.max(...rungs.map((r) => r.reached), 1), sx = (v) => (v / most) * (f.width - m.left - m.right);
    rungs.forEach((r, i) => {
      const y = m.top + i * row;
      const words = () => [`${figure(r.epoch)} epochs`, [["came so far", count(r.reached)], ["went on", count(r.on)], [`best ${panel().metric}`, figure(r.best)], ["in the middle", figure(r.middle)]]];
      f.svg.append(el("text", { class: "name", x: m.left - 10, y: y + 20, "text-anchor": "end" }, `epoch ${figure(r.epoch)}`));
      for (const [n, opacity] of [[r.reached, 0.3], [r.on, 1]]) {
        const bar = el("rect", { x: m.left, y: y + 6, width: n ? Math.max(sx(n), 1) : 0, height: 18, rx: 2, fill: colour(g.series), opacity });
        hover(bar, words);
        f.svg.append(bar);
      }
      const told = f.width < 480 ? `${r.reached}` : `${r.reached}, ${r.on} went on`;
      f.svg.append(el("text", { class: "value", x: m.left + sx(r.reached) + 8, y: y + 20 }, told));
    });
  },
  importance(box) {
    const g = chosen(); choice(g);
    const items = g.search.importance.map(([name, value]) => ({ series: g.series, label: name, value }));
    if (items.length) bars(box, items, { title: `What matters under ${label(g)}`, what: "of the differences", say: share, down: true, limit: 1 });
    else box.replaceChildren("Too few trials, or all alike.");
  },
  slices(box) {
    const g = chosen(); choice(g);
    const grid = html("div", { class: "facets" }), s = g.search;
    box.replaceChildren(grid);
    const parts = s.axes.map((axis) => {
      const inner = html("div", { class: "inner" });
      grid.append(html("div", {}, html("h3", {}, axis.name), inner));
      return [inner, axis];
    });
    for (const [inner, axis] of parts) slice(inner, g, axis);
  },
  parallel(box) {
    const g = chosen(); choice(g);
    const s = g.search, first = Math.max(...s.axes[0].ticks.map((t) => clip(t[1], 12).length));
    const m = { top: 40, bottom: 30, left: 14 + 7 * first, right: 64 }, f = frame(box, 380, `Parameters of all trials of ${label(g)}`);
    const bottom = f.height - m.bottom, base = bottom - 26;  // below it: trials without the parameter
    const scale = measure(...s.range, s.log, ...(panel().more ? [base, m.top] : [m.top, base]));
    const sx = (i) => m.left + (i / s.axes.length) * (f.width - m.left - m.right);
    const sy = (v) => (v === null ? bottom - 6 : base - v * (base - m.top));
    const names = [...s.axes.map((a) => a.name), panel().metric], room = (f.width - m.left - m.right) / s.axes.length / 7;
    s.trials.map((t, i) => [t, i]).reverse().forEach(([t, i]) => {
      if (t[4] === null) return;
      const points = [...s.axes.map((a, n) => [sx(n), sy(a.at[i])]), [sx(s.axes.length), scale.place(t[4])]];
      trace(f.svg, points.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join(""), g, i);
    });
    names.forEach((name, n) => {
      const x = sx(n), axis = s.axes[n], last = !axis;
      f.svg.append(el("line", { class: "axis", x1: x, x2: x, y1: m.top, y2: base }));
      f.svg.append(el("text", { class: "name", x, y: m.top - 20 + (n % 2 && f.width < 700 ? 10 : 0), "text-anchor": "middle" }, clip(name, Math.max(room * (f.width < 700 ? 1.8 : 1), 6))));
      const marks = last ? scale.marks.map((v) => [scale.place(v), figure(v)]) : axis.ticks.map(([v, word]) => [sy(v), word]);
      let before = Infinity;
      for (const [y, word] of marks.sort((a, b) => b[0] - a[0])) {
        if (before - y < 13) continue;
        before = y;
        f.svg.append(el("text", { class: "end", x: x + (last ? 8 : -6), y: y + 4, "text-anchor": last ? "start" : "end" }, clip(word, n ? Math.max(room - 1, 5) : 12)));
      }
      if (axis && axis.at.some((v) => v === null)) f.svg.append(el("text", { x, y: bottom + 12, "text-anchor": "middle" }, "none"));
    });
  },
  gantt(box) {
    const g = chosen(); choice(g);
    if (g.search.gantt) gantt(box, g.search.gantt, label(g));
    else box.replaceChildren("Not drawn: see the top of the page.");
  },
};
// One parameter against the best of each trial.
function slice(box, g, axis) {
  const s = g.search, m = { top: 6, right: 10, bottom: 20, left: 44 }, f = frame(box, 160, `${panel().metric} by ${axis.name}`);
  const scale = measure(...s.range, s.log, f.height - m.bottom, m.top), sx = (v) => m.left + 6 + v * (f.width - m.left - m.right - 12);
  gridY(f, m, scale.marks.filter((_, i) => scale.marks.length < 5 || i % 2 === 0).map((v) => [scale.place(v), v]), figure);
  const marks = axis.ticks, ends = (i) => (i === 0 && axis.ticks.length > 1 && marks[0][0] < 0.1 ? "start" : i === marks.length - 1 && marks.at(-1)[0] > 0.9 ? "end" : "middle");
  let right = -Infinity;
  marks.forEach(([v, word], i) => {
    const text = clip(word, Math.max((f.width - m.left) / marks.length / 6.5, 6)), half = 3.4 * text.length;
    const left = sx(v) - (ends(i) === "start" ? 0 : ends(i) === "end" ? 2 * half : half), last = i === marks.length - 1;
    if (left < right + 6 || (!last && ends(marks.length - 1) === "end" && left + 2 * half > sx(1) - 7 * marks.at(-1)[1].length - 8)) return;
    right = left + 2 * half;
    f.svg.append(el("text", { x: sx(v), y: f.height - 5, "text-anchor": ends(i) }, text));
  });
  s.trials.map((t, i) => [t, i]).reverse().forEach(([t, i]) => {
    if (axis.at[i] === null || t[4] === null) return;
    const dot = el("circle", { class: "dot", cx: sx(axis.at[i]), cy: scale.place(t[4]), r: 3.5, style: `fill:${shade(g, t[6])};stroke-width:.75` });
    hover(dot, () => words(g, i));
    f.svg.append(dot);
  });
}
begin();
