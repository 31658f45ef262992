// Loads the page again when the server says that it has changed, and says so when the server is silent.
"use strict";
const own = document.currentScript;
let loading = false, again = false;

function say(text) {
  const note = document.getElementById("live");  // a new one after each load
  note.textContent = text;
  note.hidden = !text;
}

async function load() {
  if (loading) { again = true; return; }
  loading = true;
  try {
    const answer = await fetch(location.href, {cache: "no-store"});
    if (!answer.ok) throw new Error(await answer.text());
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const open = Array.from(document.querySelectorAll("main details[open] > summary"), each => each.textContent);
    for (const part of ["header", "main", "footer"]) {
      document.querySelector(part).replaceWith(page.querySelector(part));
    }
    for (const each of document.querySelectorAll("main details > summary")) {
      if (open.includes(each.textContent)) each.parentNode.open = true;
    }
    document.title = page.title;
  } catch (error) {
    say(`This page could not be loaded again: ${error.message}`);
  } finally {
    loading = false;
    if (again) { again = false; load(); }
  }
}

const source = new EventSource(own.dataset.events);
source.onmessage = event => {
  const {trouble} = JSON.parse(event.data);
  say(trouble ? `The state cannot be read: ${trouble}. Below is what was read last.` : "");
  if (!trouble) load();
};
source.onerror = () => say("The server does not answer. Below is what it said last.");
