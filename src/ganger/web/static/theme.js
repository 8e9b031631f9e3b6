// Light or dark, as chosen before, so that nothing flashes while a page loads.
"use strict";
{
  let chosen = null;
  try { chosen = localStorage.getItem("ganger-theme"); } catch { /* storage is closed to this page */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
