"use strict";
// Drawing: plain SVG made of elements and text nodes, never of HTML strings, so that no name from
// a trace can become markup. Coordinates are CSS pixels: charts are redrawn when the page resizes.
const NS = document.getElementById("namespace").namespaceURI;
const SECONDS = { min: 60, h: 3600, d: 86400 };

function el(name, attributes, ...children) {
  const node = document.createElementNS(NS, name);
  write(node, attributes || {});
  node.append(...children);
  return node;
}
function html(name, attributes, ...children) {
  const node = document.createElement(name);
  write(node, attributes || {});
  node.append(...children);
  return node;
}
function write(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") node.style.cssText = value; // which a policy without inline styles lets through
    else node.setAttribute(key, value);
  }
}
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const COLOURS = 12;
const colour = (series) => `var(--s${series % COLOURS})`;
// Beyond six, and again beyond twelve, lines differ by their dashes too.
const dash = (series) => ["none", "7 3", "2 3", "9 3 2 3"][Math.floor(series / 6) % 4];

function time(s) {
  if (s === null || !isFinite(s)) return "–";
  if (s < 1) return s ? `${+(s * 1000).toPrecision(3)} ms` : "0 s";
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${String(Math.floor(s % 60)).padStart(2, "0")}s`;
  if (s < 172800) return `${Math.floor(s / 3600)}h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}
function tick(s) {
  if (s === 0) return "0";
  if (s < 1) return `${+(s * 1000).toPrecision(3)} ms`;
  if (s < 60) return `${+s.toPrecision(3)} s`;
  if (s < 600 && s % 60) return `${Math.floor(s / 60)}m ${+(s % 60).toPrecision(3)}s`;
  if (s < 3600) return `${+(s / 60).toPrecision(3)} min`;
  if (s < 172800) return `${+(s / 3600).toPrecision(3)} h`;
  return `${Math.round(s / 86400).toLocaleString("en")} d`;
}
const count = (v) => (v === null ? "–" : v.toLocaleString("en", { maximumFractionDigits: v < 10 ? 1 : 0 }));
const share = (v) => (v === null ? "–" : `${(v * 100).toFixed(v < 0.1 ? 1 : 0)}%`);
const FORMS = { time: [time, tick], latency: [time, tick], ratio: [share, share], number: [count, count], rate: [count, count] };

// Round steps: of time in the units people use, of all else in 1, 2, 5.
const STEPS = [1, 2, 5, 10, 15, 30].flatMap((n) => [n, n * 60])
  .concat([1, 2, 3, 6, 12].map((n) => n * SECONDS.h), [1, 2, 5, 10, 20, 50, 100, 200, 500].map((n) => n * SECONDS.d))
  .sort((a, b) => a - b);
function step(span, most, timed) {
  const rough = span / most;
  if (timed && rough > 0.5) return STEPS.find((s) => s >= rough) || 1000 * SECONDS.d;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((n) => n * power).find((s) => s >= rough * 0.999);
}
function ticks(top, most, timed) {
  if (!(top > 0)) return [0, 1];
  const by = step(top, most, timed);
  const out = [];
  for (let v = 0; v < top + by * 0.999; v += by) out.push(v);
  return out;
}
const LOG_TICKS = [0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 4 * 86400, 40 * 86400, 400 * 86400];
// The same, closer together: so that a short logarithmic scale has three at least.
const CLOSER = [[...LOG_TICKS, 0.003, 0.03, 0.3, 3], [
  ...[0.001, 0.01, 0.1, 1].flatMap((n) => [n, 2 * n, 5 * n]), 10, 20, 30, ...[1, 2, 5, 10, 20, 30].map((n) => n * 60),
  ...[1, 2, 5, 10].map((n) => n * 3600), ...[1, 2, 4, 10, 20, 40, 100, 200, 400].map((n) => n * 86400)]];
function logTicks(low, high) {
  const within = [LOG_TICKS, ...CLOSER].map((some) => some.filter((v) => v >= low && v <= high));
  return (within.find((some) => some.length > 2) || within.at(-1)).sort((a, b) => a - b);
}

const tipBox = document.getElementById("tip");
function tip(words, x, y) {
  tipBox.hidden = !words;
  if (!words) return;
  const rows = words[1].map(([name, value, series]) => {
    const row = html("div", {}, ...(series === undefined ? [] : [html("i", { class: `swatch c${series % COLOURS}` })]), name);
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

function frame(box, height, label) {
  const width = Math.max(box.clientWidth, 160);
  const svg = el("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, tabindex: 0 });
  box.replaceChildren(svg);
  return { svg, width, height };
}
function gridX(f, m, positions, text) {
  for (const [x, value] of positions) {
    f.svg.append(el("line", { class: "grid", x1: x, x2: x, y1: m.top, y2: f.height - m.bottom }));
    const word = text(value), last = x + 3.6 * word.length > f.width; // centred it would be cut off
    f.svg.append(el("text", { x: last ? f.width : x, y: f.height - m.bottom + 17, "text-anchor": last ? "end" : "middle" }, word));
  }
}
function gridY(f, m, positions, text) {
  for (const [y, value] of positions) {
    f.svg.append(el("line", { class: value === 0 ? "axis" : "grid", x1: m.left, x2: f.width - m.right, y1: y, y2: y }));
    f.svg.append(el("text", { x: m.left - 8, y: y + 4, "text-anchor": "end" }, text(value)));
  }
}
function path(points, sx, sy) {
  let out = "", pen = "M";
  for (const [x, y] of points) {
    if (y === null) { pen = "M"; continue; }
    out += `${pen}${sx(x).toFixed(1)} ${sy(y).toFixed(1)}`;
    pen = "L";
  }
  return out;
}
// Labels pushed apart so that none covers another, in their own order, inside [low, high].
function spread(labels, gap, low, high) {
  labels.sort((a, b) => a.y - b.y);
  let floor = low;
  for (const l of labels) floor = (l.y = Math.max(l.y, floor)) + gap;
  let ceiling = high;
  for (const l of labels.toReversed()) ceiling = (l.y = Math.min(l.y, ceiling)) - gap;
  return labels;
}

// items: {series, label, value, half}. Horizontal bars, the best first, value at the end.
// o: {title, what, say, down: largest first, kept: in their own order, limit: a line that nothing can
// be beyond}
function bars(box, items, o) {
  const rows = items.filter((i) => i.value !== null).sort((a, b) => (o.kept ? 0 : o.down ? b.value - a.value : a.value - b.value));
  const rowHeight = 34, m = { top: 4, right: 76, bottom: 8, left: 0 };
  const f = frame(box, m.top + m.bottom + Math.max(rows.length, 1) * rowHeight, o.title);
  m.left = Math.min(f.width * 0.36, 12 + 7.2 * Math.max(4, ...rows.map((r) => r.label.length)));
  const top = Math.max(...rows.map((r) => r.value + (r.half || 0)), o.limit || 0, 1e-9);
  const sx = (v) => m.left + (v / top) * (f.width - m.left - m.right);
  if (o.limit) f.svg.append(el("line", { class: "cross", x1: sx(o.limit), x2: sx(o.limit), y1: 0, y2: f.height - m.bottom }));
  rows.forEach((row, i) => {
    const y = m.top + i * rowHeight + rowHeight / 2;
    const name = el("text", { class: "name", x: m.left - 10, y: y + 4, "text-anchor": "end" }, clip(row.label, (m.left - 10) / 6.8));
    const bar = el("rect", { x: m.left, y: y - 9, width: Math.max(sx(row.value) - m.left, 1), height: 18, rx: 2, fill: colour(row.series) });
    f.svg.append(name, bar);
    if (row.half) {
      const [a, b] = [sx(Math.max(row.value - row.half, 0)), sx(row.value + row.half)];
      const d = `M${a} ${y}H${b}M${a} ${y - 4}v8M${b} ${y - 4}v8`;
      f.svg.append(el("path", { class: "halo", fill: "none", d }), el("path", { class: "whisker", fill: "none", d }));
    }
    f.svg.append(el("text", { class: "value", x: sx(row.value + (row.half || 0)) + 8, y: y + 4 }, o.say(row.value)));
    const words = [row.label, [[o.what, o.say(row.value)], ...(row.half ? [["±", o.say(row.half)]] : [])]];
    hover(bar, () => words);
  });
}
const clip = (text, letters) => (text.length <= letters ? text : `${text.slice(0, Math.max(1, Math.floor(letters) - 1))}…`);

// lines: {series, label, points: [[x, y|null]], halves}. o: {title, x: {...}, y: {...}, dots, at};
// y.log: the least value of a logarithmic scale; y.low: that of another, if not 0
function lines(box, list, o) {
  const narrow = box.clientWidth < 480;
  const m = { top: 10, right: o.direct && !narrow ? 14 + 7 * Math.max(3, ...list.map((l) => clip(l.label, 14).length)) : 14, bottom: 28, left: 46 };
  const f = frame(box, o.height || (narrow ? 240 : 280), o.title);
  const [x0, x1] = o.x.range, y1 = o.y.ticks.at(-1);
  const warp = o.x.log ? Math.log : (v) => v;
  const sx = (v) => m.left + ((warp(v) - warp(x0)) / (warp(x1) - warp(x0) || 1)) * (f.width - m.left - m.right);
  const y0 = o.y.low || 0;
  const lift = o.y.log ? (v) => Math.log(Math.max(v, o.y.log) / o.y.log) / Math.log(y1 / o.y.log || 1) : (v) => (v - y0) / (y1 - y0);
  const sy = (v) => f.height - m.bottom - lift(v) * (f.height - m.top - m.bottom);
  gridX(f, m, thin(o.x.ticks.map((v) => [sx(v), v]), narrow ? 48 : 44), o.x.text);
  gridY(f, m, o.y.ticks.map((v) => [sy(v), v]), o.y.text);
  for (const [i, l] of list.entries()) {
    f.svg.append(el("path", { class: "line", "data-series": l.series, d: path(l.points, sx, sy), stroke: colour(l.series), "stroke-dasharray": dash(l.series) }));
    if (o.dots) dots(f.svg, l, sx, sy, 5 * (i - (list.length - 1) / 2));
  }
  if (o.direct && !narrow) endLabels(f, m, list, sy);
  const cross = el("line", { class: "cross", y1: m.top, y2: f.height - m.bottom, visibility: "hidden" });
  f.svg.append(cross);
  probe(f, { cross, sx, list, o, m });
  return { sx, sy };
}
// Whiskers of one x stand beside each other (`aside`), so that none hides another.
function dots(svg, l, sx, sy, aside) {
  l.points.forEach(([x, y], i) => {
    if (y === null) return;
    const half = l.halves && l.halves[i];
    if (half) svg.append(el("path", { class: "line", "data-series": l.series, opacity: 0.5, stroke: colour(l.series), d: `M${sx(x) + aside} ${sy(Math.max(y - half, 0))}V${sy(y + half)}` }));
    svg.append(el("circle", { class: "dot", "data-series": l.series, cx: sx(x), cy: sy(y), r: 4, fill: colour(l.series) }));
  });
}
function endLabels(f, m, list, sy) {
  const labels = list.flatMap((l) => {
    const last = l.points.filter((p) => p[1] !== null).at(-1);
    return last ? [{ l, y: sy(last[1]) + 4 }] : [];
  });
  for (const { l, y } of spread(labels, 14, m.top + 8, f.height - m.bottom)) {
    f.svg.append(el("text", { class: "end", "data-series": l.series, x: f.width - m.right + 10, y, style: `fill:${colour(l.series)}` }, clip(l.label, 14)));
  }
}
function thin(positions, gap) {
  const kept = [];
  for (const p of positions) if (!kept.length || p[0] - kept.at(-1)[0] >= gap) kept.push(p);
  return kept;
}

// The pointer, or the arrow keys, read off every line's value at one x.
function probe(f, { cross, sx, list, o, m }) {
  const stops = o.x.stops;
  const show = (x, clientX, clientY) => {
    cross.setAttribute("x1", sx(x)); cross.setAttribute("x2", sx(x)); cross.setAttribute("visibility", "visible");
    const rows = list.map((l) => [l, o.at(l, x)]).filter((r) => r[1] !== null).sort((a, b) => b[1] - a[1]);
    tip([o.x.say(x), rows.map(([l, v]) => [l.label, o.y.say(v), l.series])], clientX, clientY);
  };
  const hide = () => { cross.setAttribute("visibility", "hidden"); tip(null); };
  const nearest = (px) => stops.reduce((a, b) => (Math.abs(sx(b) - px) < Math.abs(sx(a) - px) ? b : a));
  let current = Math.floor(stops.length / 2);
  f.svg.addEventListener("pointermove", (event) => {
    const r = f.svg.getBoundingClientRect();
    const x = nearest(((event.clientX - r.left) / r.width) * f.width);
    current = stops.indexOf(x);
    show(x, event.clientX, event.clientY);
  });
  f.svg.addEventListener("pointerleave", hide);
  f.svg.addEventListener("blur", hide);
  f.svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    current = Math.min(stops.length - 1, Math.max(0, current + by));
    const r = f.svg.getBoundingClientRect();
    show(stops[current], r.left + (sx(stops[current]) / f.width) * r.width, r.top + 20);
  });
}
// The share of jobs at or below x, between the points of a thinned distribution.
function below(line, x) {
  const p = line.points;
  if (!p.length || x < p[0][0]) return p.length ? 0 : null;
  const after = p.findIndex((q) => q[0] > x);
  if (after < 0) return p.at(-1)[1];
  const [a, b] = [p[after - 1], p[after]];
  return a[1] + ((b[1] - a[1]) * (x - a[0])) / (b[0] - a[0]);
}
function exact(line, x) {
  const hit = line.points.find((p) => p[0] === x);
  return hit ? hit[1] : null;
}

// One small picture: its own line as an area, everybody else's as ghosts behind it.
function facet(box, own, others, o) {
  const m = { top: 6, right: 4, bottom: 20, left: o.left || 34 };
  const f = frame(box, o.height || 120, `${own.label}: ${o.title} over time`);
  const sx = (v) => m.left + (v / (o.x1 || 1)) * (f.width - m.left - m.right);
  const sy = (v) => f.height - m.bottom - (v / o.ticks.at(-1)) * (f.height - m.top - m.bottom);
  gridY(f, m, o.ticks.map((v) => [sy(v), v]), o.say);
  for (const v of [0, o.x1]) {
    f.svg.append(el("text", { x: sx(v), y: f.height - 5, "text-anchor": v ? "end" : "start" }, v ? time(v) : "0"));
  }
  for (const other of others) f.svg.append(el("path", { class: "ghost", d: path(other.points, sx, sy) }));
  const live = own.points.filter((p) => p[1] !== null);
  if (live.length) {
    const area = `${path(live, sx, sy)}L${sx(live.at(-1)[0])} ${sy(0)}L${sx(live[0][0])} ${sy(0)}Z`;
    f.svg.append(el("path", { d: area, fill: colour(own.series), opacity: 0.18 }));
    f.svg.append(el("path", { class: "line", style: "stroke-width:1.5", d: path(live, sx, sy), stroke: colour(own.series) }));
  }
  const cross = el("line", { class: "cross", y1: m.top, y2: f.height - m.bottom, visibility: "hidden" });
  f.svg.append(cross);
  const text = { x: { stops: own.points.map((p) => p[0]), say: time }, y: { say: o.say }, at: exact };
  if (own.points.length) probe(f, { cross, sx, list: [own], o: text, m });
  return { f, m, sx };
}

const SYMBOL = "fill:var(--paper);font-weight:600;pointer-events:none;font-size:11px";
function gantt(box, g, label) {
  const total = g.nodes.reduce((a, b) => a + b, 0);
  const rowHeight = Math.max(6, Math.min(20, 640 / total)), gap = 8;
  const m = { top: 4, right: 4, bottom: 26, left: 56 };
  const firsts = g.nodes.map((_, i) => g.nodes.slice(0, i).reduce((a, b) => a + b, 0));
  const f = frame(box, m.top + m.bottom + total * rowHeight + (g.nodes.length - 1) * gap, `Gantt chart of ${label}`);
  const node = (row) => firsts.findLastIndex((first) => first <= row);
  const sy = (row) => m.top + row * rowHeight + node(row) * gap;
  const sx = (v) => m.left + (v / g.end) * (f.width - m.left - m.right);
  const marks = ticks(g.end, 7, true).filter((v) => v <= g.end);
  gridX(f, m, thin(marks.map((v) => [sx(v), v]), 48), tick);
  firsts.forEach((first, i) => f.svg.append(el("text", { x: m.left - 8, y: sy(first) + Math.max(rowHeight, 12) - 2, "text-anchor": "end" }, clip(g.names ? g.names[i] : `node ${i}`, 8))));
  for (const [job, start, end, row, rows, part = 0, parts = 1] of g.bars) {
    const [name, tenant, gpus] = g.jobs[job];
    const w = Math.max(sx(end) - sx(start), 0.75), h = rows * rowHeight / parts, y = sy(row) + part * h;
    const bar = el("rect", { x: sx(start), y: y + 0.5, width: Math.max(w - 0.5, 0.5), height: Math.max(h - 1, 0.5), rx: Math.min(2, w / 3), fill: colour(job), opacity: job % (2 * COLOURS) < COLOURS ? 0.9 : 0.62 });
    hover(bar, () => [name, [...(tenant ? [[g.beside || "tenant", tenant]] : []), ["GPUs", String(gpus)], ["from", time(start)], ["to", time(end)]]]);
    f.svg.append(bar);
    if (w > 10 + 7 * String(job).length && h >= 11) {
      f.svg.append(el("text", { x: sx(start) + 4, y: y + h / 2 + 4, style: SYMBOL }, String(job)));
    }
  }
  return { f, m, sx };
}

// boxes: [lane, microseconds from the first, how long, model, size, reason, outcome]
function batches(box, boxes, g, label) {
  const used = [...new Set(boxes.map((b) => b[0]))].sort((a, b) => a - b);
  const rowHeight = Math.max(8, Math.min(26, 640 / used.length)), m = { top: 4, right: 4, bottom: 26, left: 64 };
  const first = boxes[0][1], end = Math.max(...boxes.map((b) => b[1] + b[2])) - first;
  const f = frame(box, m.top + m.bottom + used.length * rowHeight, `Batches on lanes under ${label}`);
  const sx = (v) => m.left + (v / (end || 1)) * (f.width - m.left - m.right), row = new Map(used.map((lane, i) => [lane, i]));
  gridX(f, m, thin(ticks(end / 1e6, 7, true).filter((v) => v <= end / 1e6).map((v) => [sx(v * 1e6), v]), 48), tick);
  used.forEach((lane, i) => f.svg.append(el("text", { x: m.left - 8, y: m.top + i * rowHeight + rowHeight / 2 + 4, "text-anchor": "end" }, `${g.types[lane]} ${lane}`)));
  for (const [lane, began, took, model, size, reason, outcome] of boxes) {
    const x = sx(began - first), w = Math.max(sx(began - first + took) - x, 0.75), y = m.top + row.get(lane) * rowHeight;
    const look = size ? { fill: colour(model), opacity: outcome === "ok" ? 0.9 : 0.45 } : { fill: "none", stroke: colour(model) };
    const node = el("rect", { x, y: y + 1, width: Math.max(w - 0.5, 0.5), height: rowHeight - 2, rx: Math.min(2, w / 3), ...look });
    const words = [g.models[model], [...(size ? [["requests", String(size)]] : []), ["why", g.reasons[reason]], ["from", time(began / 1e6)], ["took", time(took / 1e6)], ...(outcome === "ok" ? [] : [["ended", outcome]])]];
    hover(node, () => words);
    f.svg.append(node);
    if (size && w > 8 + 7 * String(size).length && rowHeight >= 11) f.svg.append(el("text", { x: x + w / 2, y: y + rowHeight / 2 + 4, "text-anchor": "middle", style: SYMBOL }, String(size)));
  }
}
