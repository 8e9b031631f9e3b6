// The Gantt charts of the lab move: all runs at one time, played, dragged, or from decision to decision.
"use strict";
(() => {
  const SECONDS = 20; // a whole run is played in so many
  const LEFT = 56; // where time begins in every chart
  let player = null, runs = [], end = 0, now = 0, playing = 0, last = 0, decided = null;

  const at = (moments, time) => { // the last moment that is not later
    let low = 0, high = moments.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (moments[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  };

  function begin() {
    player = document.getElementById("player");
    if (!player || player.dataset.ready) return;
    player.dataset.ready = "1";
    end = Number(player.dataset.end);
    now = end;
    decided = null;
    const arrivals = JSON.parse(player.dataset.arrivals);
    runs = all(".lane", player).map((lane, series) => {
      const run = JSON.parse(lane.dataset.run);
      const ends = run.ends.map((ended, job) => [ended, ended - arrivals[job]]).filter(([ended]) => ended !== null);
      ends.sort((a, b) => a[0] - b[0]);
      return { ...run, ends, series, lane, label: lane.getAttribute("aria-label"), covers: [] };
    });
    player.addEventListener("click", ({ target }) => {
      if (target.id === "play") return playing ? stop() : play();
      if (target.id === "next" || target.id === "before") step(target.id === "next");
    });
    document.getElementById("time").addEventListener("input", (event) => {
      stop();
      tell(null);
      show(end * Number(event.target.value) / 1000);
    });
    draw();
  }

  function draw() {
    for (const run of runs) {
      run.covers = [];
      const box = run.lane.querySelector(".drawn");
      if (run.drawn) cover(run, gantt(box, { ...run.drawn, end }, run.label));
      for (const [name, title] of [["held", "GPUs held"], ["jobs_waiting", "jobs waiting"]]) {
        const width = end / (run.slices[name].length || 1);
        const points = (values) => values.map((y, i) => [(i + 0.5) * width, y]);
        const top = Math.max(...runs.flatMap((other) => other.slices[name]), 0);
        const marks = name === "held" ? [0, run.gpus] : ticks(top, 2, false);
        const others = runs.filter((other) => other !== run).map((other) => ({ points: points(other.slices[name]) }));
        const own = { series: run.series, label: run.label, points: points(run.slices[name]) };
        cover(run, facet(run.lane.querySelector(`.${name}`), own, others, { title, x1: end, ticks: marks, say: count, left: LEFT, height: 86 }));
      }
    }
    savable(player);
    show(now);
  }

  // What is later than now is covered, up to the right edge.
  function cover(run, { f, m }) {
    const veil = el("rect", { class: "cover", y: m.top, height: f.height - m.top - m.bottom });
    const mark = el("line", { class: "now cover", y1: m.top, y2: f.height - m.bottom });
    f.svg.append(veil, mark);
    run.covers.push({ veil, mark, left: m.left, width: f.width - m.left - m.right });
  }

  function stop() {
    cancelAnimationFrame(playing);
    playing = 0;
    document.getElementById("play").textContent = "Play";
  }

  function play() {
    if (now >= end) now = 0;
    document.getElementById("play").textContent = "Pause";
    tell(null);
    last = performance.now();
    playing = requestAnimationFrame(move);
  }

  function move(stamp) {
    show(Math.min(now + (stamp - last) / 1000 * end / SECONDS, end));
    last = stamp;
    if (now >= end) stop();
    else playing = requestAnimationFrame(move);
  }

  // The next moment at which any of the recipes decided something, or the one before.
  async function step(forward) {
    stop();
    if (!decided) {
      const answer = await fetch(player.dataset.decisions);
      if (!answer.ok) return;
      decided = await answer.json();
    }
    const moments = decided.flatMap((run) => run.decisions.map(([time]) => time)).sort((a, b) => a - b);
    const from = now >= end && forward ? -1 : now;
    const to = forward ? moments.find((time) => time > from) : moments.findLast((time) => time < from);
    if (to === undefined) {
      say(forward ? "Nothing is decided later." : "Nothing was decided before.");
      return;
    }
    show(to);
    tell(to);
  }

  // What each recipe decided at that moment, and why the others wait.
  function tell(time) {
    runs.forEach((run, number) => {
      const box = run.lane.querySelector(".decided");
      box.replaceChildren();
      if (time === null || !decided) return;
      const found = decided[number].decisions.filter(([moment]) => moment === time);
      if (!found.length) box.append(html("p", {}, now > (decided[number].decisions.at(-1)?.[0] ?? 0) && decided[number].skipped ? `${decided[number].skipped} later decisions are not kept.` : "It decides nothing now."));
      for (const [, news, did, wait] of found) {
        box.append(html("p", {}, html("b", {}, news[0].toUpperCase() + news.slice(1)), `: ${did.join("; ")}.`));
        if (wait.length) box.append(html("p", {}, "Waiting, by the plan: ", wait.join("; "), "."));
      }
    });
  }

  function say(text) {
    for (const run of runs) run.lane.querySelector(".decided").replaceChildren(html("p", {}, text));
  }

  function show(moment) {
    now = moment;
    document.getElementById("time").value = String(Math.round(1000 * now / (end || 1)));
    document.getElementById("clock").textContent = time(now);
    for (const run of runs) {
      for (const { veil, mark, left, width } of run.covers) {
        const x = left + width * now / (end || 1);
        veil.setAttribute("x", x.toFixed(1));
        veil.setAttribute("width", Math.max(left + width - x + 1, 0).toFixed(1));
        mark.setAttribute("x1", x.toFixed(1));
        mark.setAttribute("x2", x.toFixed(1));
      }
      const step = at(run.moments, now);
      const over = at(run.ends.map(([ended]) => ended), now) + 1;
      const mean = run.ends.slice(0, over).reduce((sum, [, took]) => sum + took, 0) / over;
      run.lane.querySelector(".state-line").textContent =
        `${step < 0 ? 0 : count(run.held[step])} of ${run.gpus} GPUs held; ` +
        `wait for their first start: ${step < 0 ? 0 : run.waiting[step]}; over: ${over}` + (over ? `; mean JCT so far ${time(mean)}` : "");
    }
  }

  let width = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width || !player) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(draw, 120);
  });
  begin();
  document.body.addEventListener("htmx:afterSwap", begin);
})();
