// The console's own script. Pages work without it: it adds how long ago things were, copy buttons and keys.
"use strict";
(() => {
  const byID = (id) => document.getElementById(id);

  // What this browser remembers. Without storage, a choice lasts as long as the page.
  const chosen = {};
  function remember(name, value) {
    chosen[name] = value;
    try { localStorage.setItem("secbox." + name, value); } catch { /* not allowed */ }
  }
  function recall(name, otherwise) {
    try { return chosen[name] || localStorage.getItem("secbox." + name) || otherwise; } catch { return chosen[name] || otherwise; }
  }

  // say tells a message to screen readers, and shows it if it is a problem.
  function say(text, problem) {
    const status = byID("status");
    status.className = problem ? "toast" : "hide";
    status.textContent = text;
  }

  // Times

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const two = (n) => String(n).padStart(2, "0");
  const local = (d) => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;

  // withOffset returns a local time, as a field has it, in RFC 3339.
  function withOffset(text) {
    const d = new Date(text), east = -d.getTimezoneOffset(), far = Math.abs(east);
    return `${local(d).replace(" ", "T")}${east < 0 ? "-" : "+"}${two(Math.trunc(far / 60))}:${two(far % 60)}`;
  }

  // ago returns the distance to now; nothing if it is longer than 30 days.
  function ago(d) {
    const s = Math.trunc((Date.now() - d) / 1000), far = Math.abs(s);
    if (far < 5) return "just now";
    const [size, unit] = far < 60 ? [1, "second"] : far < 3600 ? [60, "minute"] : far < 86400 ? [3600, "hour"] : far < 2592000 ? [86400, "day"] : [0];
    if (!size) return "";
    const n = Math.trunc(far / size), text = `${n} ${unit}${n > 1 ? "s" : ""}`;
    return s < 0 ? `in ${text}` : `${text} ago`;
  }

  function times(root) {
    const how = recall("times", "ago");
    for (const t of root.querySelectorAll("time[data-utc]")) {
      const d = new Date(t.dateTime);
      if (isNaN(d)) continue;
      const exact = "exact" in t.dataset, utc = how === "utc";
      let text = utc ? t.dataset.utc.slice(0, 19) : how === "ago" && !exact && ago(d) || local(d);
      if (exact) text += utc || zone === "UTC" ? " UTC" : ` ${withOffset(d).slice(19)}`;
      if (t.textContent !== text) t.textContent = text;
      t.title = zone === "UTC" ? `${t.dataset.utc} UTC` : `${local(d)}${t.dataset.utc.slice(19)} ${zone}\n${t.dataset.utc} UTC`;
    }
  }

  setInterval(() => { if (!document.hidden) times(document); }, 5000);
  document.addEventListener("visibilitychange", () => times(document));

  // Copy buttons, which need a secure context

  document.addEventListener("click", async (e) => {
    const b = e.target.closest("button[data-copy]");
    if (!b) return;
    try {
      await navigator.clipboard.writeText(b.dataset.copy);
    } catch {
      say("The browser does not allow copying. Select the text and copy it.", true);
      return;
    }
    say("");
    say("Copied.");
    b.classList.add("done");
    setTimeout(() => b.classList.remove("done"), 1200);
  });

  // Keys

  const keysOn = () => recall("keys", "on") === "on";
  const rows = () => [...document.querySelectorAll("main tbody tr")].map((r) => r.querySelector("a[href]")).filter((a) => a?.checkVisibility());
  const search = () => document.querySelector("#filters input[type=search], #filters input[type=text], #filters select");

  function move(step) {
    const all = rows(), row = document.activeElement.closest("tbody tr");
    const at = all.findIndex((a) => row && row.contains(a));
    const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step];
    if (!next) return;
    next.focus({ preventScroll: true });
    next.closest("tr").scrollIntoView({ block: "nearest" });
  }

  const keys = {
    "/": () => { const field = search(); if (field) { field.focus(); field.select?.(); } },
    "?": () => byID("keys").showModal(),
    j: () => move(1),
    k: () => move(-1),
  };

  document.addEventListener("keydown", (e) => {
    if (e.defaultPrevented || e.isComposing || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
    const field = e.target.closest("input, textarea, select, [contenteditable]");
    const at = field?.checkVisibility() && field; // a dialog that closes keeps the focus for a moment
    if (e.key === "Escape" && at && at === search()) at.blur();
    if (e.key === "Escape") document.activeElement.classList.add("quiet"); // hides its exact time
    if (at || !keysOn() || !Object.hasOwn(keys, e.key)) return;
    e.preventDefault();
    keys[e.key]();
  });
  document.addEventListener("focusout", (e) => e.target.classList.remove("quiet"));

  document.addEventListener("click", (e) => {
    const open = e.target.closest("[data-open]");
    if (open) byID(open.dataset.open).showModal();
    const close = e.target.closest("[data-close]");
    if (close) close.closest("dialog").close();
  });

  document.addEventListener("change", (e) => {
    if (e.target.id === "keys-on") {
      remember("keys", e.target.checked ? "on" : "off");
      describeKeys();
    }
    const field = byID(e.target.dataset.time);
    if (field) field.value = e.target.value && withOffset(e.target.value);
    if (e.target.id === "times") {
      remember("times", e.target.value);
      times(document);
    }
  });

  function describeKeys() {
    const field = search();
    if (field && keysOn()) field.setAttribute("aria-keyshortcuts", "/");
    else if (field) field.removeAttribute("aria-keyshortcuts");
  }

  // Requests by htmx. A refusal is a page: it replaces the present one if the reader asked for it.

  document.addEventListener("htmx:beforeSwap", (e) => {
    const d = e.detail, asked = d.requestConfig.triggeringEvent;
    if (d.xhr.status < 400 || !asked || !["click", "submit"].includes(asked.type)) return;
    if (!(d.xhr.getResponseHeader("Content-Type") || "").startsWith("text/html")) {
      say("The server could not answer. Reload the page.", true);
      return;
    }
    d.shouldSwap = true;
    d.isError = false;
    d.target = byID("main");
    d.selectOverride = "#main";
    d.swapOverride = "outerHTML";
  });
  document.addEventListener("htmx:sendError", (e) => {
    if (!refreshes(e)) say("The server did not answer. Try again.", true);
  });
  document.addEventListener("htmx:beforeRequest", (e) => {
    if (!refreshes(e)) say("");
  });

  // A page that refreshes itself says when that fails, since its numbers look like those of now. The next refresh that succeeds takes the note away.

  const refreshes = (e) => e.detail.requestConfig.elt.id === "live";
  let refreshed = new Date();

  function stale(why) {
    const note = byID("stale");
    if (!note) return;
    const at = recall("times", "ago") === "utc" ? `${refreshed.toISOString().slice(11, 19)} UTC` : local(refreshed).slice(11);
    const text = why && `Not refreshed since ${at}: ${why}. The page goes on trying.`;
    if (note.textContent !== text) note.textContent = text;
    note.hidden = !why;
  }
  document.addEventListener("htmx:afterRequest", (e) => {
    if (!refreshes(e)) return;
    const { successful, xhr } = e.detail;
    if (successful) refreshed = new Date();
    stale(successful ? "" : xhr.status ? `the server cannot answer (status ${xhr.status})` : "the server does not answer");
  });

  // The head of a table stays at the top if the table need not scroll sideways: then nothing has to be cut.
  function fit() {
    for (const s of document.querySelectorAll(".scroll")) s.classList.toggle("fits", s.scrollWidth <= s.clientWidth);
  }
  window.addEventListener("resize", fit);
  document.addEventListener("toggle", fit, true);

  function ready(root) {
    times(root);
    fit();
    for (const b of root.querySelectorAll("button[data-copy]")) b.hidden = !navigator.clipboard;
    for (const x of root.querySelectorAll("[data-script]")) x.hidden = false;
    for (const x of root.querySelectorAll("[data-noscript]")) x.hidden = true;
    for (const x of root.querySelectorAll("[data-zone]")) x.textContent = zone;
    describeKeys();
  }
  document.addEventListener("DOMContentLoaded", () => {
    byID("keys-on").checked = keysOn();
    byID("times").value = recall("times", "ago");
    for (const o of byID("times").options) if (o.value === "local") o.textContent += ` (${zone})`;
    ready(document);
  });
  // Chromium forgets autofocus on some pages that come slowly.
  window.addEventListener("load", () => requestAnimationFrame(() => {
    if (document.activeElement === document.body) document.querySelector("[autofocus]")?.focus();
  }));

  // A part that is replaced keeps its open details, how far its tables are scrolled and the focus, and has local times before it is shown. Enter in a
  // field of the filters leads to the results.
  let opened = [], scrolled = [], focused = null, entered = false;

  // placeOf returns what has the focus, as a selector and which of its matches it is; null for an element that cannot be found again.
  function placeOf(e) {
    const attribute = ["id", "href", "data-copy", "aria-label"].find((name) => e.hasAttribute(name));
    const fold = e.matches("details[id] > summary") && e.parentNode.id;
    if (!attribute && !fold) return null;
    const selector = fold ? `#${CSS.escape(fold)} > summary` : `${e.localName}[${attribute}="${CSS.escape(e.getAttribute(attribute))}"]`;
    return { selector, at: [...document.querySelectorAll(selector)].indexOf(e) };
  }

  document.addEventListener("htmx:beforeSwap", (e) => {
    const active = document.activeElement;
    opened = [...e.target.querySelectorAll("details[open][id]")].map((d) => d.id);
    scrolled = [...e.target.querySelectorAll(".scroll")].map((s) => [s.getAttribute("aria-label"), s.scrollLeft]);
    focused = e.target.contains(active) && e.target !== active ? placeOf(active) : null;
    entered = e.detail.xhr.status < 400 && e.detail.requestConfig.triggeringEvent?.type === "submit" && active.matches("#filters :is(input[type=search], input[type=text])");
  });
  document.addEventListener("htmx:afterSwap", (e) => {
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    const parts = [...document.querySelectorAll(".scroll")];
    for (const [label, left] of scrolled) {
      const part = parts.find((s) => s.getAttribute("aria-label") === label);
      if (part) part.scrollLeft = left;
    }
    ready(e.target.parentNode || document);
    const again = entered ? byID("results") : focused && document.querySelectorAll(focused.selector)[focused.at];
    if (again && again !== document.activeElement) again.focus({ preventScroll: !entered });
    focused = null;
    entered = false;
  });
})();
