// The chart of the load: GPUs that are held, of those that there are, and jobs that wait.
"use strict";
(() => {
  const place = document.getElementById("load");
  const hour = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
  let chart = null;

  function colour(name) {
    const probe = document.createElement("i");
    probe.className = name;
    place.append(probe);
    const found = getComputedStyle(probe).backgroundColor;
    probe.remove();
    return found;
  }

  function draw() {
    const figure = place.querySelector(".chart");
    chart?.destroy();
    chart = null;
    if (!figure) return;
    const ink = getComputedStyle(place).color;
    const grid = { stroke: colour("grid-line"), width: 1 };
    const axis = { stroke: ink, grid, ticks: grid, font: "12px system-ui" };
    const held = colour("c2"), all = colour("c7"), waiting = colour("c4");
    chart = new uPlot({
      width: figure.clientWidth,
      height: 200,
      cursor: { drag: { x: true, y: false } },
      scales: { jobs: { range: (_, low, high) => [0, Math.max(high, 4)] }, y: { range: (_, low, high) => [0, Math.max(high, 1)] } },
      axes: [{ ...axis, space: 100, incrs: [1, 5, 10, 30, 60, 120, 240, 360].map((m) => 60 * m), values: (_, all) => all.map((at) => hour.format(1000 * at)) }, { ...axis, size: 56 }, { ...axis, side: 1, scale: "jobs", size: 56, grid: { show: false } }],
      series: [
        { label: "at", value: (_, at) => (at ? hour.format(1000 * at) : "–") },
        { label: "GPUs held", stroke: held, fill: held.replace("rgb(", "rgba(").replace(")", ", .16)"), width: 2, points: { show: false } },
        { label: "GPUs", stroke: all, width: 1, dash: [4, 4], points: { show: false } },
        { label: "jobs waiting", stroke: waiting, width: 1.5, scale: "jobs", points: { show: false } },
      ],
    }, JSON.parse(figure.dataset.points), figure);
  }

  async function again() {
    if (document.visibilityState === "hidden") return;
    const answer = await fetch(place.dataset.get, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (!answer?.ok) return;
    const open = place.querySelector("details")?.open;
    place.innerHTML = await answer.text();
    if (open) place.querySelector("details")?.setAttribute("open", "");
    draw();
  }

  draw();
  setInterval(again, 30000);
  document.addEventListener("ganger:theme", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(() => {
    const figure = place.querySelector(".chart");
    if (chart && figure) chart.setSize({ width: figure.clientWidth, height: 200 });
  }).observe(place);
})();
