// A link's token stands behind the #, which no browser sends: this sends it once, in the body.
"use strict";
(async () => {
  const prefix = document.body.dataset.prefix;
  const said = document.getElementById("enter");
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  const linked = location.pathname.endsWith("/enter");
  const inside = said.dataset.inside === "1";
  history.replaceState(null, "", location.pathname + location.search);
  if (!token && inside) { // who is in goes on
    location.replace(`${prefix}/`);
    return;
  }
  // A page that another site led to is asked for without the cookie: look once whether there is one.
  if (!token && (linked || sessionStorage.getItem("ganger-looked"))) {
    sessionStorage.removeItem("ganger-looked");
    return;
  }
  const answer = await fetch(`${prefix}/enter`, {
    method: "POST",
    body: new URLSearchParams(token ? { token } : {}),
  });
  if (answer.ok) {
    if (!token) sessionStorage.setItem("ganger-looked", "1");
    location.replace(linked ? `${prefix}/` : location.pathname + location.search);
  } else if (token) {
    said.textContent = `${(await answer.text()).trim()} Run “ganger open” for another one.`;
  }
})();
addEventListener("hashchange", () => { // a link was pasted into the tab of this page
  if (location.hash) location.reload();
});
