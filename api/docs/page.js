"use strict";
// The page works without this script: it adds a search and buttons that copy the examples.

const search = document.getElementById("search");
const found = document.getElementById("found");
const entries = [...document.querySelectorAll("main article")].map((article) => ({
  article,
  text: article.textContent.toLowerCase(),
  links: document.querySelectorAll(`nav a[href="#${article.id}"]`),
}));
const groups = [...document.querySelectorAll("[data-group]")];

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const { article, text, links } of entries) {
    const hit = words.every((word) => text.includes(word));
    article.hidden = !hit;
    for (const link of links) link.hidden = !hit;
    if (hit) count++;
  }
  for (const group of groups) {
    const inside = group.querySelectorAll(group.tagName === "SECTION" ? "article" : "a");
    group.hidden = words.length > 0 && [...inside].every((e) => e.hidden);
  }
  document.body.classList.toggle("searching", words.length > 0);
  found.textContent = words.length ? `${count} found` : "";
}

document.getElementById("find").hidden = false;
search.addEventListener("input", filter);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape" && document.activeElement === search) {
    search.value = "";
    filter();
  }
});

// A link also reveals a target that is collapsed or filtered out.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.closest("[hidden]")) {
    search.value = "";
    filter();
  }
  for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
  for (const fold of target.querySelectorAll(":scope > details.fields-of")) fold.open = true;
  target.scrollIntoView({ behavior: "instant" });
}
window.addEventListener("hashchange", reveal);
reveal();

for (const pre of document.querySelectorAll("pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    const text = pre.querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch { // only https and loopback may write to the clipboard
      getSelection().selectAllChildren(pre);
      button.textContent = "Selected: press Ctrl-C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  const box = document.createElement("div");
  box.className = "example";
  pre.replaceWith(box);
  box.append(button, pre);
}
