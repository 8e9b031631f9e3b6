// A cluster put together of nodes: added, dragged in and out, moved, by pointer and by keys. What it
// is stands in the field above as `2x4xV100+1x8xA100`, which alone is sent.
"use strict";
(() => {
  const field = document.getElementById("cluster"), rack = document.getElementById("rack");
  const gpus = document.getElementById("node-gpus"), type = document.getElementById("node-type");
  const fresh = document.getElementById("node-new"), said = document.getElementById("rack-said");
  const GPUS_MAX = 128, GROUPS_MAX = 8, NS = "http://www.w3.org/2000/svg";
  let nodes = [], dragged = null;

  function read() {
    const parts = field.value.trim().split("+").map((part) => part.match(/^(\d{1,3})x(\d{1,3})x([A-Za-z][A-Za-z0-9-]{0,19})$/));
    if (!parts.every(Boolean) || parts.reduce((sum, part) => sum + part[1] * part[2], 0) > GPUS_MAX) return null;
    return parts.flatMap(([, count, each, kind]) => Array.from({ length: +count }, () => ({ gpus: +each, kind })));
  }
  function groups(list) {
    const found = [];
    for (const { gpus: each, kind } of list) {
      const last = found.at(-1);
      if (last && last.each === each && last.kind === kind) last.count += 1;
      else found.push({ count: 1, each, kind });
    }
    return found;
  }
  function change(list, focus = -1) {
    const total = list.reduce((sum, node) => sum + node.gpus, 0), parts = groups(list);
    if (total > GPUS_MAX) return say(`At most ${GPUS_MAX} GPUs: this would be ${total}.`);
    if (parts.length > GROUPS_MAX) return say(`At most ${GROUPS_MAX} groups of like nodes.`);
    if (!list.length) return say("A cluster has a node at least.");
    nodes = list;
    field.value = parts.map((part) => `${part.count}x${part.each}x${part.kind}`).join("+");
    draw();
    if (focus >= 0) rack.children[Math.min(focus, nodes.length - 1)].focus();
  }
  function say(text) { said.textContent = text; }

  function boxes(node) {
    const svg = document.createElementNS(NS, "svg"), wide = Math.min(node.gpus, 8);
    svg.setAttribute("viewBox", `0 0 ${wide * 9} ${Math.ceil(node.gpus / 8) * 9}`);
    svg.setAttribute("width", wide * 9);
    svg.setAttribute("aria-hidden", "true");
    for (let at = 0; at < node.gpus; at += 1) {
      const box = document.createElementNS(NS, "rect");
      for (const [name, value] of Object.entries({ x: (at % 8) * 9, y: Math.floor(at / 8) * 9, width: 7, height: 7, rx: 1.5 })) box.setAttribute(name, value);
      svg.append(box);
    }
    return svg;
  }
  function draw() {
    rack.replaceChildren(...nodes.map((node, at) => {
      const item = document.createElement("li"), out = document.createElement("button");
      item.className = "piece";
      item.draggable = true;
      item.tabIndex = 0;
      item.dataset.at = at;
      item.title = "Arrow keys move it, Delete takes it out";
      const name = document.createElement("span");
      name.textContent = `${node.gpus} ${node.kind}`;
      out.type = "button";
      out.textContent = "×";
      out.setAttribute("aria-label", `Take out node ${at}, ${node.gpus} ${node.kind}`);
      out.addEventListener("click", () => change(nodes.filter((_, other) => other !== at), at));
      item.append(boxes(node), name, out);
      return item;
    }));
    const total = nodes.reduce((sum, node) => sum + node.gpus, 0);
    say(`${nodes.length} node${nodes.length === 1 ? "" : "s"}, ${total} GPUs.`);
  }
  function chosen() { return { gpus: +gpus.value, kind: type.value }; }
  function moved(from, to) {
    const list = [...nodes], [node] = list.splice(from, 1);
    list.splice(to, 0, node);
    return list;
  }
  function offer() {
    const node = chosen(), name = document.createElement("span");
    name.textContent = `${node.gpus} ${node.kind}`;
    fresh.replaceChildren(boxes(node), name);
  }

  rack.addEventListener("keydown", (event) => {
    const item = event.target.closest("li");
    if (!item || event.target !== item) return;
    const at = +item.dataset.at, by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (event.key === "Delete" || event.key === "Backspace") change(nodes.filter((_, other) => other !== at), at);
    else if (by && at + by >= 0 && at + by < nodes.length) change(moved(at, at + by), at + by);
    else return;
    event.preventDefault();
  });
  document.addEventListener("dragstart", (event) => {
    const item = event.target.closest?.(".piece");
    if (!item) return;
    dragged = item === fresh ? "new" : +item.dataset.at;
    event.dataTransfer.setData("text/plain", item.textContent);
    event.dataTransfer.effectAllowed = "move";
  });
  document.addEventListener("dragend", () => { dragged = null; rack.classList.remove("over"); });
  document.addEventListener("dragover", (event) => {
    if (dragged === null) return;
    rack.classList.toggle("over", Boolean(event.target.closest?.("#rack")));
    event.preventDefault();
  });
  document.addEventListener("drop", (event) => {
    if (dragged === null) return;
    event.preventDefault();
    const from = dragged, inside = event.target.closest?.("#rack"), on = event.target.closest?.("#rack li");
    dragged = null;
    rack.classList.remove("over");
    if (!inside) {
      if (from !== "new") change(nodes.filter((_, other) => other !== from));
      return;
    }
    const to = on ? +on.dataset.at : nodes.length;
    if (from === "new") change([...nodes.slice(0, to), chosen(), ...nodes.slice(to)]);
    else change(moved(from, Math.min(to, nodes.length - 1)));
  });
  document.getElementById("node-add").addEventListener("click", () => change([...nodes, chosen()]));
  for (const one of [gpus, type]) one.addEventListener("change", offer);
  field.addEventListener("input", () => {
    const found = read();
    if (found) {
      nodes = found;
      draw();
    } else say("Write like 2x4xV100 or 2x4xV100+1x8xA100, of at most 128 GPUs.");
  });

  const begin = read();
  document.getElementById("builder").hidden = false;
  offer();
  if (begin) {
    nodes = begin;
    draw();
  }
})();
