// Times in the viewer's zone, live parts of pages, ticks that survive them, light and dark.
"use strict";
(() => {
  const { prefix, version } = document.body.dataset;
  const shows = document.body.classList.contains("only-shows");
  const moment = new Intl.DateTimeFormat(undefined, {
    day: "numeric", month: "short", hour: "2-digit", minute: "2-digit",
  });
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

  function lasting(seconds) {
    const s = Math.max(0, Math.floor(seconds));
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)}m ${String(s % 60).padStart(2, "0")}s`;
    return `${Math.floor(s / 3600)}h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
  }

  const elsewhere = ["jobs/", "lab", "lessons", "whatif"].map((name) => `a[href^="${prefix}/${name}"]`).join();
  function written(root) {
    if (shows) { // with a link that only shows these pages do not open
      for (const one of root.querySelectorAll(elsewhere)) one.removeAttribute("href");
    }
    for (const one of root.querySelectorAll("time:not([title])")) {
      const at = new Date(one.dateTime);
      one.textContent = moment.format(at);
      one.title = exact.format(at);
    }
    ticking(root);
  }

  function ticking(root) {
    for (const one of root.querySelectorAll("[data-since]")) {
      one.textContent = lasting(Date.now() / 1000 - Number(one.dataset.since));
    }
  }

  // ------------------------------------------------------------------ parts that are live
  // What each shows: its `text`; the `frame` around the lines of its list, and the `content` of that;
  // and `lines` by name: the `node` on the page, and as it was sent the `text` and what that makes,
  // `before`. `work` is what is to be done until the page has them.
  const shown = new Map();
  const asking = new Map(); // whether there are news since it was asked

  async function refresh(part) {
    if (asking.has(part)) {
      asking.set(part, true);
      return;
    }
    asking.set(part, false);
    try {
      const answer = await fetch(part.dataset.get, { headers: { "HX-Request": "true" } });
      if (answer.status === 401) signedOut();
      if (!answer.ok) return;
      take(part, await answer.text());
    } catch { /* the stream says that nobody answers */ } finally {
      const late = asking.get(part);
      asking.delete(part);
      if (late) changed();
    }
  }

  function take(part, text) {
    const state = shown.get(part);
    if (state.text === text) return;
    const until = performance.now() + SLICE_MS;
    const { frame, lines } = split(text);
    state.text = text;
    if (state.frame !== frame) {
      const [before, after] = [state.content, parsed(frame)];
      Object.assign(state, { frame, content: after });
      replace(part, before, after);
    }
    state.work = lines.size ? linedUp(part, state, lines) : null; // the newest is what counts
    work(until);
  }

  const copies = (nodes) => [...nodes].map((one) => one.cloneNode(true));

  function parsed(text) {
    const whole = document.createElement("template");
    whole.innerHTML = text; // a part of a page of these, in which everything is escaped
    return whole.content;
  }

  // A part's frame, and its lines by name, which stands first in each: what is put into a page has
  // no "<".
  const OPEN = "<tbody>", CLOSE = "</tbody>", LINE = '<tr data-row="';
  function split(text) {
    const from = text.indexOf(OPEN) + OPEN.length, to = text.lastIndexOf(CLOSE);
    const lines = to < from ? [] : text.slice(from, to).split(LINE).slice(1);
    if (!lines.length) return { frame: text, lines: new Map() };
    return {
      frame: text.slice(0, from) + text.slice(to),
      lines: new Map(lines.map((one) => [named(one), one])),
    };
  }

  function named(line) {
    const name = line.slice(0, line.indexOf('"'));
    return name.includes("&") ? parsed(LINE + line).firstElementChild.dataset.row : name; // escaped
  }

  // A list is lined up in slices, so that no frame is late for it however long it is.
  const SLICE_MS = 3;
  let waiting = 0; // for the next frame
  function work(until) {
    const active = document.activeElement;
    for (const state of shown.values()) {
      while (state.work) {
        if (state.work.next().done) state.work = null;
        if (performance.now() >= until) break;
      }
    }
    if (active !== document.activeElement && active.isConnected) active.focus({ preventScroll: true }); // its line has moved
    count();
    if (!waiting && [...shown.values()].some((state) => state.work)) {
      waiting = requestAnimationFrame(() => {
        waiting = 0;
        work(performance.now() + SLICE_MS);
      });
    }
  }

  // A line goes with what it is about, wherever that stands now; those that are as they were are
  // neither read nor touched.
  function* linedUp(part, state, lines) {
    const body = part.querySelector("tbody");
    if (!body) return; // what was there at first has come late, and took the place of this
    const known = new Set();
    for (const [name, { node }] of state.lines) {
      if (node.parentNode === body && lines.has(name)) known.add(node);
      else state.lines.delete(name);
    }
    for (const node of [...body.children]) {
      if (!known.has(node)) node.remove();
    }
    let next = body.firstElementChild;
    for (const [name, text] of lines) {
      const line = state.lines.get(name);
      if (line?.text === text && line.node === next) {
        next = next.nextElementSibling;
        continue;
      }
      const after = line?.text === text ? line.before : parsed(LINE + text).firstElementChild;
      const node = line?.node ?? after.cloneNode(true);
      if (node === next || node === next?.nextElementSibling) next = node.nextElementSibling; // what it was behind comes later
      else body.insertBefore(node, next);
      if (line) patch(node, line.before, after);
      else for (const all of part.querySelectorAll("input.all")) all.checked = false;
      state.lines.set(name, { node, before: after, text });
      written(node);
      yield;
    }
  }

  // What is another than before takes its place, and the rest stays as it is. `now` is what the page
  // shows, to which scripts may have added.
  function patch(now, before, after) {
    if (before.isEqualNode(after)) return;
    const same = now.nodeName === after.nodeName && before.nodeName === after.nodeName;
    if (!same || now.nodeName === "TIME" || now.nodeType !== Node.ELEMENT_NODE) {
      now.replaceWith(after.cloneNode(true));
      return;
    }
    for (const { name, value } of after.attributes) {
      if (before.getAttribute(name) !== value) now.setAttribute(name, value);
    }
    for (const { name } of before.attributes) {
      if (!after.hasAttribute(name)) now.removeAttribute(name);
    }
    within(now, before, after);
  }

  function within(now, before, after) {
    const [here, old, fresh] = [now, before, after].map((one) => [...one.childNodes]);
    if (here.length !== old.length) now.replaceChildren(...copies(after.childNodes));
    else align(now, here, old, fresh);
  }

  // Where something came or went, such as a sentence below a table, what stands before it and after
  // it stays.
  function align(parent, here, old, fresh) {
    const more = Math.min(old.length, fresh.length);
    let start = 0;
    while (start < more && old[start].nodeName === fresh[start].nodeName) start += 1;
    let end = 0;
    while (end < more - start && old.at(-1 - end).nodeName === fresh.at(-1 - end).nodeName) end += 1;
    const after = here[here.length - end] ?? null;
    for (const one of here.slice(start, here.length - end)) one.remove();
    for (const one of fresh.slice(start, fresh.length - end)) parent.insertBefore(one.cloneNode(true), after);
    for (let at = 0; at < start; at += 1) patch(here[at], old[at], fresh[at]);
    for (let at = 1; at <= end; at += 1) patch(here.at(-at), old.at(-at), fresh.at(-at));
  }

  function replace(part, before, after) {
    const ticked = new Set([...part.querySelectorAll("input:checked")].map((one) => one.value));
    const open = [...part.querySelectorAll("details[open]")].map((one) => one.id);
    const active = document.activeElement;
    const kept = part.contains(active) ? active.getAttribute("href") || active.value : null;
    const left = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    within(part, before, after);
    for (const one of part.querySelectorAll("input[type=checkbox]")) {
      one.checked = ticked.has(one.value) && !one.classList.contains("all");
    }
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    part.querySelectorAll(".scroll").forEach((one, at) => {
      if (left[at]) one.scrollLeft = left[at]; // which has the page laid out at once
    });
    if (kept) {
      [...part.querySelectorAll("a, input")]
        .find((one) => (one.getAttribute("href") || one.value) === kept)?.focus({ preventScroll: true });
    }
    written(part);
    possible(part.querySelector("[data-orders]"));
  }

  // Parts come over the stream as they change; those that it does not cover are asked for.
  let covered = new Set();
  let due = 0;
  let timer = 0;
  function changed() {
    if (document.visibilityState === "hidden") {
      due = -1;
      return;
    }
    if (timer) return;
    timer = setTimeout(() => {
      timer = 0;
      due = Date.now() + 900;
      for (const part of document.querySelectorAll(".live")) {
        if (!covered.has(part.dataset.get)) refresh(part);
      }
    }, Math.max(0, due - Date.now()));
  }

  // ------------------------------------------------------------------ the stream
  const lost = document.getElementById("lost");
  let tick = Number(document.body.dataset.tick);
  let heard = Date.now();

  function say(text) {
    if (lost.textContent === text && lost.hidden === !text) return;
    lost.textContent = text;
    lost.hidden = !text;
    document.body.classList.toggle("stale", Boolean(text));
  }

  function signedOut() {
    say("You are signed out. Run “ganger open” for a new link.");
  }

  async function told(message) {
    if (message.kind === "part") {
      for (const part of document.querySelectorAll(".live")) {
        if (part.dataset.get === message.part) take(part, message.text);
      }
    } else if (message.kind === "tick") {
      covered = new Set(message.covered);
      heard = message.answered * 1000;
      const back = message.up && document.body.classList.contains("stale");
      say(message.up ? "" : `The daemon does not answer. Nothing here is newer than ${exact.format(heard)}.`);
      if (message.up && !document.querySelector(".live") && document.body.dataset.up === "0") location.reload();
      if (back) document.body.dispatchEvent(new Event("ganger:back"));
      if (message.tick !== tick) {
        tick = message.tick;
        changed();
      }
    } else if (message.closed) {
      const answer = await fetch(`${prefix}/cluster/load`, { headers: { "HX-Request": "true" } }).catch(() => null);
      if (answer?.status === 401) signedOut();
      else if (!answer) say(`These pages do not answer. Nothing here is newer than ${exact.format(heard)}.`);
    } else {
      say(`Not connected. Nothing here is newer than ${exact.format(heard)}.`);
    }
  }

  if (window.SharedWorker) {
    const worker = new SharedWorker(`${prefix}/static/worker.js?v=${version}`);
    const looked = () => {
      const seen = document.visibilityState === "visible" ? [...document.querySelectorAll(".live")] : [];
      const parts = seen.map((part) => part.dataset.get);
      worker.port.postMessage({ path: `${prefix}/events`, parts });
    };
    worker.port.onmessage = (event) => told(event.data);
    looked();
    document.addEventListener("visibilitychange", looked);
    addEventListener("pagehide", () => worker.port.postMessage("bye"));
    addEventListener("pageshow", (event) => {
      if (event.persisted) location.reload();
    });
  } else { // no stream that tabs can share: ask now and then
    setInterval(changed, 5000);
  }
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible" && due === -1) {
      due = 0;
      changed();
    }
  });
  document.body.addEventListener("ganger:done", () => {
    leave();
    due = 0;
    changed();
  });
  setInterval(() => { // nobody knows whether what ran still runs
    if (!document.body.classList.contains("stale")) ticking(document);
  }, 1000);
  setInterval(() => { // what a job writes is no change of its state
    const later = document.querySelector("#now.live") && document.querySelector("#log .later");
    if (later && document.visibilityState === "visible" && document.activeElement !== later) {
      htmx.trigger(later, "ganger:more");
    }
  }, 2000);

  // ------------------------------------------------------------------ ticks and orders
  // Of a job's orders those are there that make sense in its state.
  function possible(said) {
    if (!said) return;
    const now = said.dataset.orders.split(" ");
    for (const one of document.querySelectorAll("#orders [name=verb]")) {
      const part = one.closest(".join") || one;
      part.hidden = !now.includes(one.value);
    }
    document.querySelector("#orders .box").hidden = !said.dataset.orders;
  }

  // A look ahead: what an order does to the others, before it is given.
  const looks = document.getElementById("look-ahead");
  const panel = document.getElementById("ahead");
  if (looks) {
    try { looks.checked = localStorage.getItem("ganger-ahead") !== "no"; } catch { looks.checked = true; }
    looks.addEventListener("change", () => {
      try { localStorage.setItem("ganger-ahead", looks.checked ? "yes" : "no"); } catch { /* for this page */ }
    });
  }

  function leave() {
    if (panel) panel.replaceChildren();
  }

  document.body.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.elt.id !== "orders" || !looks?.checked) return;
    event.detail.path = `${prefix}/queue/ahead`;
    panel.textContent = "Looking ahead …";
  });

  const orders = document.getElementById("orders");
  const chosen = document.getElementById("chosen");
  const before = chosen?.textContent;

  function count() {
    if (!chosen) return;
    const number = document.querySelectorAll("tbody input:checked").length;
    const said = number ? `${number} chosen:` : before;
    if (chosen.textContent !== said) chosen.textContent = said;
    for (const one of orders.querySelectorAll("button")) one.disabled = !number;
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("input.all")) {
      for (const one of document.querySelectorAll("tbody input[form=orders]")) one.checked = event.target.checked;
    }
    if (event.target.matches("input[type=checkbox]")) count();
  });
  document.addEventListener("click", (event) => {
    const asked = event.target.closest("[data-ask]");
    if (asked && !looks?.checked && !confirm(asked.dataset.ask)) event.preventDefault();
    if (event.target.closest(".ahead .leave")) leave();
    if (event.target.closest(".toast .close")) event.target.closest(".toast").remove();
  });
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status === 401) signedOut();
    if (event.detail.xhr.status < 400) return;
    event.detail.shouldSwap = true; // errors are one sentence, and stand where the answer would
    event.detail.isError = false;
  });
  document.body.addEventListener("htmx:afterSwap", (event) => {
    written(event.detail.elt);
    document.getElementById("h-ahead")?.focus();
    const toast = document.querySelector("#toast .toast:not(.failed)");
    if (event.detail.target.id === "toast" && toast) {
      for (const one of document.querySelectorAll("input[type=checkbox]:checked")) one.checked = false;
      count();
      setTimeout(() => toast.remove(), 15000);
    }
  });
  document.body.addEventListener("htmx:sendError", (event) => {
    if (event.detail.target?.id === "toast") say("Nobody answers: nothing was done.");
  });

  // ------------------------------------------------------------------ light and dark
  document.getElementById("theme")?.addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem("ganger-theme", next); } catch { /* it lasts as long as the page */ }
    document.dispatchEvent(new Event("ganger:theme"));
  });

  document.querySelector(".top nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
  for (const part of document.querySelectorAll(".live")) { // as it came, before scripts add to it
    const content = document.createDocumentFragment();
    content.append(...copies(part.childNodes));
    const rows = [...part.querySelectorAll("tr[data-row]")];
    if (rows.length) content.querySelector("tbody").replaceChildren();
    const lines = new Map(rows.map((node) => [node.dataset.row, { node, before: node.cloneNode(true), text: "" }]));
    shown.set(part, { text: "", frame: "", content, lines, work: null });
  }
  written(document);
  count();
})();
