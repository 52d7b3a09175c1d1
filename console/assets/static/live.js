// Shows the output of an exec while it runs: server-sent events bring pieces of HTML, and at the end the rest of the complete page. A hidden page holds
// no connection, because browsers allow six for each server. Without this script the page has a link that reloads it.
"use strict";
(() => {
  const first = document.getElementById("live");
  if (!first) return;
  const url = first.dataset.live, streams = ["stdout", "stderr"];
  let at = first.dataset.at, status = first.dataset.status;
  let source = null, ended = false, proofs = 0;

  const box = (name, root = document) => root.querySelector(`#${name} pre[data-grows]`);
  const atEnd = (pre) => pre.scrollHeight - pre.scrollTop - pre.clientHeight < 4;

  function say(text) {
    const e = document.getElementById("live");
    if (e) e.textContent = text;
  }

  // count counts the time of the exec up, and what is left of its limit down. The server writes both in the same words.
  const loaded = new WeakMap();
  function count() {
    for (const e of document.querySelectorAll("[data-counts]")) {
      if (!loaded.has(e)) loaded.set(e, performance.now());
      const ms = Number(e.dataset.counts) + performance.now() - loaded.get(e), most = Number(e.dataset.most);
      e.textContent = `${duration(ms)} until now${most ? `, at most ${duration(Math.max(0, most - ms))} left` : ""}`;
    }
  }
  function duration(ms) {
    const s = Math.trunc(ms / 1000), two = (n) => String(n % 60).padStart(2, "0");
    if (s < 60) return `${s} s`;
    return s < 3600 ? `${Math.trunc(s / 60)} min ${two(s)} s` : `${Math.trunc(s / 3600)} h ${two(Math.trunc(s / 60))} min`;
  }
  setInterval(() => { if (!document.hidden) count(); }, 1000);

  // use shows what the exec uses now, in the rows of its limits.
  function use(fields) {
    for (const [name, { text, share }] of Object.entries(fields)) {
      const row = document.querySelector(`#resources tr[data-usage="${name}"]`), part = row?.querySelector("meter")?.parentNode;
      if (!part) continue;
      row.querySelector("td").textContent = text;
      part.hidden = false;
      part.firstElementChild.value = share;
      part.lastElementChild.textContent = `${Math.round(100 * share)} %`;
    }
  }

  function append(name, html) {
    const pre = box(name);
    if (!pre) return;
    const follow = atEnd(pre);
    pre.insertAdjacentHTML("beforeend", html);
    if (follow) pre.scrollTop = pre.scrollHeight;
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  function connect() {
    if (source || ended || document.hidden) return;
    source = new EventSource(`${url}?from=${at}`);
    source.onopen = () => say("live");
    source.onerror = () => {
      say("connecting …");
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again
      close();
      refused();
    };
    for (const name of streams) {
      source.addEventListener(name, (e) => {
        append(name, e.data);
        at = e.lastEventId;
      });
    }
    source.addEventListener("status", (e) => {
      if (e.data !== status) refresh();
      status = e.data;
    });
    source.addEventListener("usage", (e) => use(JSON.parse(e.data)));
    source.addEventListener("end", (e) => {
      ended = true;
      close();
      setTimeout(refresh, Math.random() * e.data);
    });
  }

  // refused says why there is no stream, whose status the browser does not tell, and tries again.
  async function refused() {
    const answer = await fetch(url, { method: "HEAD" }).catch(() => null), full = answer && answer.status === 429;
    if (full) say("not live: too many pages are live with your token. Close some, and reload this one");
    later(refresh, full ? 30000 : 5000); // finds a session that has ended
  }

  function later(f, ms) {
    setTimeout(f, ms * (1 + Math.random()));
  }

  // refresh puts the present page around the output that is shown already. Nothing moves while the exec runs: parts do not become lower. When it has
  // ended, boxes take the height of their text.
  async function refresh() {
    let page;
    try {
      const query = new URLSearchParams(location.search);
      query.set("shown", at);
      const answer = await fetch(`${location.pathname}?${query}`);
      if (answer.redirected || answer.status >= 400 && answer.status < 500) { // the session has ended; the exec was removed
        location.reload();
        return;
      }
      if (!answer.ok) throw new Error(answer.status);
      page = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    } catch {
      later(refresh, 5000);
      return;
    }
    const main = document.getElementById("main");
    for (const part of page.querySelectorAll(".head, .panel[id]")) {
      const old = main.querySelector(part.id ? `#${part.id}` : ".head");
      if (old && !ended) part.style.minHeight = `${old.getBoundingClientRect().height}px`;
    }
    const tops = streams.map((name) => {
      const old = box(name), next = box(name, page);
      if (!old || !next) return null;
      const top = old.scrollTop;
      next.replaceWith(old);
      old.className = next.className;
      return [old, top];
    });
    const opened = [...main.querySelectorAll("details[open][id]")].map((d) => d.id);
    const focused = main.contains(document.activeElement) && (document.activeElement.id || "main");
    const read = [...main.querySelectorAll(".panel[id]")].find((part) => part.getBoundingClientRect().bottom > 0);
    const readAt = read && read.getBoundingClientRect().top;
    main.replaceChildren(...page.childNodes);
    const readNow = read && document.getElementById(read.id);
    if (readNow) window.scrollBy(0, readNow.getBoundingClientRect().top - readAt);
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    for (const kept of tops) if (kept) kept[0].scrollTop = kept[1];
    if (focused && document.activeElement === document.body) (document.getElementById(focused) ?? main).focus({ preventScroll: true });
    htmx.process(main);
    htmx.trigger(main, "htmx:afterSwap"); // app.js makes the new parts ready
    if (!ended) {
      say(source ? "live" : "connecting …");
      connect();
      return;
    }
    const badge = main.querySelector(".head .badge"), news = document.getElementById("status");
    if (badge && news && !proofs) news.textContent = `The exec has ended: ${badge.textContent}.`;
    if (main.querySelector("[data-pending]") && proofs < 6) setTimeout(refresh, 2000 << proofs++);
  }

  for (const name of streams) {
    const pre = box(name);
    if (pre) pre.scrollTop = pre.scrollHeight;
  }
  say("connecting …");
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : connect()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", connect);
  connect();
})();
