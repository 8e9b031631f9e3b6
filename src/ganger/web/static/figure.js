// Saves the figures that come drawn from the server, as those that draw.js draws are saved.
"use strict";
document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-save]");
  if (button) save(button.closest("figure").querySelector(".figure"), button.dataset.title, button.dataset.save);
});
