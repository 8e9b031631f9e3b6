// One stream of changes for all tabs of a browser: over HTTP/1.1 a browser has six connections to a
// host, and a seventh stream would wait for ever.
"use strict";
const ports = new Set();
let last = null;
let source = null;

function tell(message) {
  last = message;
  for (const port of ports) port.postMessage(message);
}

function listen(path) {
  source = new EventSource(path);
  source.addEventListener("tick", (event) => tell({ kind: "tick", ...JSON.parse(event.data) }));
  source.onerror = () => {
    const closed = source.readyState === EventSource.CLOSED;
    tell({ kind: "lost", closed });
    if (closed) { // it was refused: try again, in case somebody has come in meanwhile
      source = null;
      setTimeout(() => { if (!source && ports.size) listen(path); }, 5000);
    }
  };
}

self.onconnect = (event) => {
  const port = event.ports[0];
  ports.add(port);
  port.onmessage = (message) => {
    if (message.data === "bye") {
      ports.delete(port);
      return;
    }
    if (!source) listen(message.data);
    else if (last) port.postMessage(last);
  };
};
