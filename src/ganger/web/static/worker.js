// One stream of changes for all tabs of a browser: over HTTP/1.1 a browser has six connections to a
// host, and a seventh stream would wait for ever. Over it come the parts that the tabs show, each
// when it changes.
"use strict";
const MOST = 8; // of more parts tabs are told that something changed, and ask
const REST_MS = 30; // tabs come and go together
const ports = new Map(); // with the parts that each shows
let last = null; // what was said last
let path = "";
let source = null;
let covered = null; // the parts that come over the stream
let timer = 0;

const parts = () => [...new Set([...ports.values()].flat())].sort().slice(0, MOST);

function tell(message) {
  last = message;
  for (const port of ports.keys()) port.postMessage(message);
}

function told(event) {
  tell({ kind: "tick", covered, ...JSON.parse(event.data) });
}

function came(event) {
  const message = JSON.parse(event.data);
  for (const [port, shown] of ports) {
    if (shown.includes(message.part)) port.postMessage({ kind: "part", ...message });
  }
}

function listen() {
  timer = 0;
  const wanted = parts();
  if (!ports.size || (source && String(wanted) === String(covered))) return;
  source?.close();
  covered = wanted;
  const query = wanted.map((part) => `see=${encodeURIComponent(part)}`).join("&");
  const mine = new EventSource(query ? `${path}?${query}` : path);
  source = mine;
  mine.addEventListener("tick", told);
  mine.addEventListener("part", came);
  mine.onerror = () => {
    const closed = mine.readyState === EventSource.CLOSED;
    tell({ kind: "lost", closed });
    if (closed && source === mine) { // it was refused: try again, in case somebody has come in meanwhile
      source = null;
      setTimeout(() => { if (!source) listen(); }, 5000);
    }
  };
}

self.onconnect = (event) => {
  const port = event.ports[0];
  port.onmessage = (message) => {
    if (message.data === "bye") {
      ports.delete(port);
    } else {
      path = message.data.path;
      if (!ports.has(port) && last) port.postMessage({ ...last, covered: message.data.parts });
      ports.set(port, message.data.parts);
    }
    timer ||= setTimeout(listen, REST_MS);
  };
};
