"use strict";

// Copies the differences of a new rendering into the page, so that focus, scrolled tables and opened lists stay.
function patch(old, now) {
  if (old.isEqualNode(now)) return;
  if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName) {
    old.replaceWith(now.cloneNode(true));
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    old.data = now.data;
    return;
  }
  // A form keeps the input of the user.
  if (old.nodeName === "FORM") return;
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !now.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) {
    // The reader decides what is folded.
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const [before, after] = [[...old.childNodes], [...now.childNodes]];
  after.forEach((child, at) => {
    if (at < before.length) patch(before[at], child);
    else old.append(child.cloneNode(true));
  });
  before.slice(after.length).forEach((child) => child.remove());
}

const live = document.getElementById("live");
// On a narrow screen the cards of these parts are several screens long.
if (live && matchMedia("(max-width:34rem)").matches) {
  for (const part of live.querySelectorAll("details.fold")) part.open = false;
}
const button = document.createElement("button");
// Message that the edits have changed since the load of the page. The history and the forms of the selected member have
// the token of the client, so that only a load renews them.
const note = document.createElement("p");
let source = null;
// Lines of each section by the id of the section, as the server sent them; null before the first event.
let sections = null;

// Returns the nodes of HTML.
function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  localize(template.content);
  return template.content;
}

// Shows the times below a node in the zone of the browser, in the form of the server: with the date, or with the seconds
// of a time of the day. The tooltip keeps UTC.
function localize(node) {
  for (const time of node.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (time.title || isNaN(at)) continue;
    const two = (number) => String(number).padStart(2, "0");
    const clock = two(at.getHours()) + ":" + two(at.getMinutes());
    const day = at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate());
    time.title = time.textContent;
    time.textContent = time.title.includes("-") ? day + " " + clock : clock + ":" + two(at.getSeconds());
  }
}

// Reads an event: whole sections from their opening to their closing tags, and "id number line" for a changed line.
// Returns the ids of the changed sections.
function read(data) {
  const changed = new Set();
  let lines = null;
  for (const line of data.split("\n")) {
    const opened = /^<section id=(\S+)>$/.exec(line);
    if (opened) {
      lines = [];
      sections.set(opened[1], lines);
      changed.add(opened[1]);
    }
    if (lines) {
      lines.push(line);
      if (line === "</section>") lines = null;
    } else {
      const [, id, number, text] = /^(\S+) (\d+) (.*)$/s.exec(line);
      sections.get(id)[number] = text;
      changed.add(id);
    }
  }
  return changed;
}

// Returns the newest edit as shown by the page.
function newestEdit() {
  return document.getElementById("newest-edit")?.textContent;
}

function show({ data }) {
  const edit = newestEdit();
  update(data);
  if (newestEdit() === edit || note.hasChildNodes()) return;
  const link = document.createElement("a");
  link.href = location.pathname + location.search;
  link.textContent = "Load the page again";
  note.append("The history and the forms are older than the newest edit. ", link);
}

function update(data) {
  const isFirst = !sections;
  sections ??= new Map();
  const changed = read(data);
  const ticked = new Set(boxes().filter((box) => box.checked).map(boxKey));
  const html = (id) => sections.get(id).join("\n") + "\n";
  if (isFirst) {
    const now = live.cloneNode(false);
    now.append("\n", parse([...changed].map(html).join("")));
    patch(live, now);
  } else {
    for (const id of changed) patch(document.getElementById(id), parse(html(id)).firstChild);
  }
  // A row may have another member than before.
  if (ticked.size) for (const box of boxes()) box.checked = ticked.has(boxKey(box));
}

// Returns the boxes of all members.
function boxes() {
  return [...live.querySelectorAll("input")];
}

// Returns the balancer and the member of a box.
function boxKey(box) {
  return box.getAttribute("form") + " " + box.value;
}

function toggle() {
  if (source) {
    source.close();
    source = null;
  } else {
    source = new EventSource("/events");
    // Each connection begins with all sections.
    source.onopen = () => {
      sections = null;
    };
    source.onmessage = show;
  }
  button.textContent = source ? "Pause updates" : "Resume updates";
}

// Copies the lines below a button. Unlike navigator.clipboard, the command works without a secure context as well.
function copy({ target }) {
  if (!target.matches(".copy")) return;
  getSelection().selectAllChildren(target.parentElement.nextElementSibling);
  if (document.execCommand("copy")) target.textContent = "Copied";
}

document.documentElement.classList.add("script");
localize(document);
document.querySelector(".about").append(", times in " + Intl.DateTimeFormat().resolvedOptions().timeZone);
document.addEventListener("click", copy);
if (live) {
  button.type = "button";
  button.addEventListener("click", toggle);
  document.querySelector(".login").append(button);
  note.className = "stale";
  note.setAttribute("role", "status");
  live.after(note);
  toggle();
}
