// Loads the page again when the server says that it has changed, and says so when the server is silent.
"use strict";
const SILENT = "The server does not answer. Below is what it said last.";
const SILENT_MS = 40000;  // it sends something every 15 s; a connection that broke on its way ends without an error
const AGAIN_MS = 5000;
const own = document.currentScript;
let trouble = "", failed = "", loading = false, again = false, source, heard = Date.now();

function show() {
  const note = document.getElementById("live");  // a new one after each load
  note.textContent = trouble || failed;
  note.hidden = !note.textContent;
}

function all(selector) { return Array.from(document.querySelectorAll(selector)); }

async function load() {
  if (loading) { again = true; return; }
  loading = true;
  try {
    const answer = await fetch(location.href, {cache: "no-store", signal: AbortSignal.timeout(SILENT_MS)});
    if (!answer.ok) throw new Error(await answer.text());
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const open = all("main details[open] > summary").map(each => each.textContent);
    const focused = all("a, summary").indexOf(document.activeElement);
    for (const part of ["header", "main", "footer"]) {
      document.querySelector(part).replaceWith(page.querySelector(part));
    }
    for (const each of all("main details > summary")) {
      if (open.includes(each.textContent)) each.parentNode.open = true;
    }
    if (focused >= 0) all("a, summary")[focused]?.focus({preventScroll: true});
    document.title = page.title;
    failed = "";
  } catch (error) {
    failed = `This page could not be loaded again: ${error.message}`;
  } finally {
    show();
    loading = false;
    if (again) { again = false; load(); }
  }
}

function listen() {
  heard = Date.now();
  source = new EventSource(own.dataset.events);
  source.addEventListener("alive", () => { heard = Date.now(); });
  source.onmessage = event => {
    heard = Date.now();
    const said = JSON.parse(event.data).trouble;
    trouble = said ? `The state cannot be read: ${said}. Below is what was read last.` : "";
    show();
    if (!said) load();
  };
  source.onerror = () => { trouble = SILENT; show(); };
}

// A page in the background gives its connection to others, since a browser has six to a server. It is still loaded now
// and then, for its title.
document.addEventListener("visibilitychange", () => {
  source?.close();
  if (!document.hidden) listen();
});

setInterval(() => {
  if (document.hidden) {
    if (Date.now() - heard > SILENT_MS) { heard = Date.now(); load(); }
  // A browser does not connect again by itself after an answer of a proxy, such as 502.
  } else if (source.readyState === EventSource.CLOSED || Date.now() - heard > SILENT_MS) {
    trouble = SILENT;
    show();
    source.close();
    listen();
  } else if (failed) {
    load();
  }
}, AGAIN_MS);
if (!document.hidden) listen();
