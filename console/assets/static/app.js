// The console's own script. Pages work without it: it adds local times, copy buttons and keys.
"use strict";
(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const two = (n) => String(n).padStart(2, "0");
  const local = (d) => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;

  function ago(d) {
    const s = Math.round((Date.now() - d) / 1000);
    const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
    const [unit, size] = units.find(([, n]) => Math.abs(s) >= n) || units[3];
    return new Intl.RelativeTimeFormat("en", { numeric: "auto" }).format(-Math.trunc(s / size), unit);
  }

  // The text keeps its width: UTC and local time have the same form.
  function times(root) {
    for (const t of root.querySelectorAll("time[data-utc]")) {
      const d = new Date(t.dateTime);
      if (isNaN(d)) continue;
      t.textContent = local(d);
      t.title = `${t.dataset.utc} UTC · ${local(d)} ${zone} · ${ago(d)}`;
    }
    for (const z of root.querySelectorAll("[data-zone]")) z.textContent = zone;
  }

  function copyButtons(root) {
    for (const b of root.querySelectorAll("button[data-copy]")) b.hidden = !navigator.clipboard;
  }

  document.addEventListener("click", async (e) => {
    const b = e.target.closest("button[data-copy]");
    if (!b) return;
    await navigator.clipboard.writeText(b.dataset.copy);
    const status = document.getElementById("status");
    if (status) status.textContent = "Copied.";
    b.classList.add("done");
    setTimeout(() => b.classList.remove("done"), 1200);
  });

  function ready(root) {
    times(root);
    copyButtons(root);
  }
  document.addEventListener("DOMContentLoaded", () => ready(document));

  // A part that is replaced keeps its open details, and has local times before it is shown.
  let opened = [];
  document.addEventListener("htmx:beforeSwap", (e) => { opened = [...e.target.querySelectorAll("details[open][id]")].map((d) => d.id); });
  document.addEventListener("htmx:afterSwap", (e) => {
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    ready(e.target.parentNode || document);
  });
})();
