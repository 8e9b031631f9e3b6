"use strict";
// Saves charts as pictures: as SVG for print, in the light colours, with every colour and font written
// into it; or as PNG. Several pictures in one box become one.
const WRITTEN = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap",
  "opacity", "font-size", "font-weight", "text-anchor", "paint-order"];
const FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif";
const MM = 25.4 / 96; // of a CSS pixel
const DOTS = 3; // of a PNG, for each CSS pixel
const EDGE = 12; // around a chart, whose labels may stand out

function inLight(work) {
  const root = document.documentElement, before = root.dataset.theme;
  root.dataset.theme = "light";
  try { return work(); } finally {
    if (before === undefined) delete root.dataset.theme;
    else root.dataset.theme = before;
  }
}
function bare(node) {
  const style = getComputedStyle(node), copy = node.cloneNode(false);
  for (const name of ["class", "style", "tabindex", "role", "aria-label", "data-series"]) copy.removeAttribute(name);
  for (const name of WRITTEN) {
    const value = style.getPropertyValue(name);
    if (value) copy.setAttribute(name, value);
  }
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.cloneNode());
    else if (!child.classList.contains("cover") && getComputedStyle(child).visibility !== "hidden") copy.append(bare(child));
  }
  return copy;
}
function picture(box, title) {
  return inLight(() => {
    const outer = box.getBoundingClientRect(), width = Math.ceil(outer.width) + 2 * EDGE, height = Math.ceil(outer.height) + 2 * EDGE;
    const left = outer.left - EDGE, top = outer.top - EDGE;
    const out = el("svg", { width: `${(width * MM).toFixed(2)}mm`, height: `${(height * MM).toFixed(2)}mm`, viewBox: `0 0 ${width} ${height}`, "font-family": FONT });
    out.append(el("title", {}, title), el("rect", { width, height, fill: "#ffffff" }));
    for (const node of all("svg", box)) {
      const at = node.getBoundingClientRect(), copy = bare(node);
      for (const [name, value] of [["x", at.left - left], ["y", at.top - top], ["width", at.width], ["height", at.height]]) copy.setAttribute(name, value.toFixed(1));
      copy.setAttribute("overflow", "visible");
      out.append(copy);
    }
    for (const head of all("h3", box)) {
      const at = head.getBoundingClientRect();
      out.append(el("text", { x: (at.left - left).toFixed(1), y: (at.bottom - top - 5).toFixed(1), "font-size": "13px", "font-weight": 600, fill: "#1a1d21" }, [...head.childNodes].map((node) => node.textContent).filter(Boolean).join(", ")));
    }
    for (const entry of all(".legend li", box)) {
      const swatch = entry.querySelector(".swatch"), at = swatch.getBoundingClientRect(), words = entry.getBoundingClientRect();
      out.append(el("rect", { x: (at.left - left).toFixed(1), y: (at.top - top).toFixed(1), width: at.width, height: at.height, rx: 2, fill: getComputedStyle(swatch).backgroundColor }));
      out.append(el("text", { x: (at.right - left + 6).toFixed(1), y: (words.bottom - top - 5).toFixed(1), "font-size": "13px", fill: "#1a1d21" }, entry.textContent.trim()));
    }
    return { text: new XMLSerializer().serializeToString(out), width, height };
  });
}
function hand(blob, name) {
  const link = html("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
function save(box, title, kind) {
  const made = picture(box, title), name = `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart"}.${kind}`;
  if (kind === "svg") return hand(new Blob([made.text], { type: "image/svg+xml" }), name);
  const image = new Image();
  image.addEventListener("load", () => {
    const canvas = html("canvas", { width: made.width * DOTS, height: made.height * DOTS });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => hand(blob, name));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(made.text)}`;
}
// Two buttons under each chart that has none yet.
function savable(root = document) {
  for (const box of all(".chart", root)) {
    if (box.nextElementSibling?.classList.contains("save")) continue;
    const caption = box.closest("figure")?.querySelector("figcaption")?.firstChild.textContent;
    const title = box.dataset.title || caption || box.closest("section")?.querySelector("h2, h3")?.textContent || "chart";
    box.after(html("p", { class: "save" }, ...["SVG", "PNG"].map((kind) => {
      const button = html("button", { type: "button", "aria-label": `Save as ${kind}: ${title}` }, kind);
      button.addEventListener("click", () => save(box, title, kind.toLowerCase()));
      return button;
    })));
  }
}
