// Times in the viewer's zone, live parts of pages, ticks that survive them, light and dark.
"use strict";
(() => {
  const { prefix, version } = document.body.dataset;
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

  function written(root) {
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
    if (shown.get(part).text === text) return;
    const whole = document.createElement("template");
    whole.innerHTML = text; // a part of a page of these, in which everything is escaped
    const before = shown.get(part).content;
    shown.set(part, { text, content: whole.content });
    replace(part, before, whole.content);
  }

  const copies = (nodes) => [...nodes].map((one) => one.cloneNode(true));
  const named = (row) => row.querySelector?.("th a[href]")?.getAttribute("href") ?? row.querySelector?.("input")?.value;

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
    const lines = now.nodeName === "TBODY" && after.nodeName === "TBODY";
    const [here, old, fresh] = [now, before, after].map((one) => [...(lines ? one.children : one.childNodes)]);
    if (here.length !== old.length) now.replaceChildren(...copies(after.childNodes));
    else if (lines) reorder(now, here, old, fresh);
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

  // A line of a table goes with what it is about, wherever that stands now.
  function reorder(body, here, old, fresh) {
    const names = fresh.map((one, at) => named(one) ?? at);
    const wanted = new Set(names);
    const had = new Map();
    old.forEach((one, at) => {
      const name = named(one) ?? at;
      if (wanted.has(name) && !had.has(name)) had.set(name, at);
      else here[at].remove();
    });
    let next = body.firstElementChild;
    fresh.forEach((one, place) => {
      const at = had.get(names[place]);
      had.delete(names[place]);
      if (at === undefined) {
        body.insertBefore(one.cloneNode(true), next);
        return;
      }
      if (here[at] === next) next = next.nextElementSibling;
      else body.insertBefore(here[at], next);
      patch(here[at], old[at], one);
    });
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
    htmx.process(part);
    written(part);
    count();
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
    chosen.textContent = number ? `${number} chosen:` : before;
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
    shown.set(part, { text: "", content });
  }
  written(document);
  count();
})();
