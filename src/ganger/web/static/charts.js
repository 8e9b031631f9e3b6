// Draws the charts of a page with the code of the reports (draw.js), each from the data beside it.
"use strict";
(() => {
  const short = (value) => (value === null ? "–" : (+value.toPrecision(6)).toLocaleString("en", { maximumSignificantDigits: 6 }));

  // Gaps between lines of one x are read off at the points that were computed.
  function line(box, drawn) {
    const list = Object.entries(drawn.series).map(([label, points], series) => ({ series, label, points }));
    const xs = [...new Set(list.flatMap((one) => one.points.map(([x]) => x)))].sort((a, b) => a - b);
    const top = Math.max(...list.flatMap((one) => one.points.map(([, y]) => y)), 0);
    const x = { range: [xs[0], xs.at(-1)], ticks: ticks(xs.at(-1), 8, false).filter((v) => v <= xs.at(-1)), text: short, stops: xs, say: (v) => `${drawn.x} ${short(v)}` };
    lines(box, list, { title: drawn.lines, x, y: { ticks: ticks(top, 5, false), text: short, say: short }, direct: true, at: exact });
    const figure = box.parentElement;
    figure.querySelector(".key")?.remove();
    if (box.clientWidth < 480) { // too narrow for labels at the ends of lines
      figure.append(html("p", { class: "key" }, ...list.map(({ label, series }) => html("span", {}, html("i", { class: `swatch c${series}` }), label))));
    }
  }
  const KINDS = {
    bars(box, drawn) {
      const items = drawn.rows.map(([label, value]) => ({ series: drawn.best.includes(label) ? 2 : 0, label, value }));
      bars(box, items, { title: drawn.bars, what: drawn.unit, say: short, kept: true });
    },
    lines: line,
    drawn: (box, drawn) => gantt(box, drawn.drawn, drawn.chart),
  };

  function draw() {
    for (const box of all(".chart[data-drawn]")) {
      const drawn = JSON.parse(box.dataset.drawn);
      const kind = Object.keys(KINDS).find((name) => name in drawn);
      if (kind) KINDS[kind](box, drawn);
    }
    savable();
  }
  let width = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(draw, 120);
  });
  draw();
  document.body.addEventListener("htmx:afterSwap", draw);
})();
