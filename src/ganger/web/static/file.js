// A trace from a file of the user: the browser reads it, and its begin is sent with the set-up.
"use strict";
(() => {
  const loader = document.getElementById("loader");
  if (!loader || !window.ReadableStream) return;
  const most = Number(loader.dataset.most);
  const file = document.getElementById("file");
  const kind = document.querySelector("#set-up [name=kind]");
  const name = document.getElementById("file-name");
  const text = document.getElementById("file-text");
  const said = document.getElementById("file-said");
  loader.hidden = false;

  // The first bytes, at most so many, gzip undone; and whether there are more.
  async function begin(stream) {
    const reader = stream.getReader();
    const parts = [];
    let size = 0;
    while (size <= most) {
      const { done, value } = await reader.read();
      if (done) return [new Blob(parts), false];
      parts.push(value);
      size += value.length;
    }
    reader.cancel();
    return [new Blob(parts).slice(0, most), true];
  }

  async function load() {
    const chosen = file.files[0];
    name.value = text.value = said.textContent = "";
    if (!chosen) return;
    try {
      const zipped = chosen.name.endsWith(".gz");
      const [bytes, more] = await begin(zipped ? chosen.stream().pipeThrough(new DecompressionStream("gzip")) : chosen.stream());
      const whole = await bytes.text();
      const kept = more ? whole.slice(0, whole.lastIndexOf("\n") + 1) : whole;
      if (file.files[0] !== chosen) return;
      name.value = chosen.name;
      text.value = kept;
      kind.value = "file";
      const lines = kept.split("\n").length - (kept.endsWith("\n") ? 1 : 0);
      said.textContent = more
        ? `The first ${lines.toLocaleString()} lines are taken: of a file ${most / 1048576} MiB.`
        : `${lines.toLocaleString()} ${lines === 1 ? "line" : "lines"}.`;
    } catch {
      said.textContent = `${chosen.name} cannot be read.`;
    }
  }

  file.addEventListener("change", load);
  load(); // a browser that comes back has kept what was chosen
})();
