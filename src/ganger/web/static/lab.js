// The Gantt charts of the lab move: all runs at one time, played, dragged, or from decision to decision.
"use strict";
(() => {
  const SECONDS = 20; // a whole run is played in so many
  let runs = [], moments = [], end = 0, now = 0, playing = 0, last = 0;

  function lasting(seconds) {
    const s = Math.max(0, Math.round(seconds));
    if (s < 3600) return `${Math.floor(s / 60)}m ${String(s % 60).padStart(2, "0")}s`;
    if (s < 172800) return `${Math.floor(s / 3600)}h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
    return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
  }

  function begin() {
    const player = document.getElementById("player");
    if (!player || player.dataset.ready) return;
    player.dataset.ready = "1";
    end = Number(player.dataset.end);
    now = end;
    const gpus = Number(player.dataset.gpus);
    const at = new Set();
    runs = [...player.querySelectorAll(".lane")].map((lane) => {
      const line = lane.querySelector(".state-line");
      const run = JSON.parse(line.dataset.run);
      const svg = lane.querySelector("svg");
      for (const [, from, to] of run.segments) at.add(from).add(to);
      return { ...run, gpus: run.gpus, all: gpus, line, decided: lane.querySelector(".decided"),
        reveal: svg.querySelector(".reveal"), mark: svg.querySelector(".now"),
        left: Number(svg.dataset.left), width: Number(svg.dataset.width) };
    });
    moments = [...at].sort((a, b) => a - b);
    document.getElementById("time").addEventListener("input", (event) => {
      stop();
      show(end * Number(event.target.value) / 1000);
    });
    document.getElementById("play").addEventListener("click", () => {
      if (playing) return stop();
      if (now >= end) now = 0;
      document.getElementById("play").textContent = "Pause";
      last = performance.now();
      playing = requestAnimationFrame(frame);
    });
    document.getElementById("next").addEventListener("click", () => {
      stop();
      const after = now >= end ? -1 : now;
      show(moments.find((moment) => moment > after) ?? end, true);
    });
    show(now);
  }

  function stop() {
    cancelAnimationFrame(playing);
    playing = 0;
    document.getElementById("play").textContent = "Play";
  }

  function frame(stamp) {
    show(Math.min(now + (stamp - last) / 1000 * end / SECONDS, end));
    last = stamp;
    if (now >= end) stop();
    else playing = requestAnimationFrame(frame);
  }

  function show(time, told = false) {
    now = time;
    document.getElementById("time").value = String(Math.round(1000 * now / (end || 1)));
    document.getElementById("clock").textContent = lasting(now);
    for (const run of runs) {
      const x = run.width * now / (end || 1);
      run.reveal.setAttribute("width", x.toFixed(1));
      run.mark.setAttribute("x1", (run.left + x).toFixed(1));
      run.mark.setAttribute("x2", (run.left + x).toFixed(1));
      let held = 0;
      const running = new Set();
      for (const [job, from, to, count] of run.segments) {
        if (from <= now && now < to) {
          held += count;
          running.add(job);
        }
      }
      let waiting = 0, over = 0, sum = 0;
      run.arrivals.forEach((came, job) => {
        const ended = run.ends[job];
        if (ended !== null && ended <= now) {
          over += 1;
          sum += ended - came;
        } else if (came <= now && !running.has(job)) waiting += 1;
      });
      run.line.textContent = `${held} of ${run.all} GPUs held, ${waiting} jobs wait, ${over} are over` +
        (over ? `, mean JCT so far ${lasting(sum / over)}` : "");
      run.decided.textContent = told ? decided(run) : "";
    }
  }

  // What was decided just now, in words.
  function decided(run) {
    const starts = new Map(), ends = new Set();
    for (const [job, from, to, count, node] of run.segments) {
      if (from === now) starts.set(job, [...(starts.get(job) || []), `${count} GPUs of node ${node}`]);
      if (to === now) ends.add(job);
    }
    const said = [...ends].filter((job) => !starts.has(job))
      .map((job) => `job ${job} ${run.ends[job] !== null && run.ends[job] <= now ? "is over" : "is preempted"}`);
    for (const [job, where] of starts) {
      said.push(`job ${job}, which came ${lasting(now - run.arrivals[job])} ago and asks for ${run.gpus[job]}, has ${where.join(" and ")}`);
    }
    return said.length ? `Now: ${said.join("; ")}.` : "Nothing changes here now.";
  }

  begin();
  document.body.addEventListener("htmx:afterSwap", begin);
})();
