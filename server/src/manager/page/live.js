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
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const [before, after] = [[...old.childNodes], [...now.childNodes]];
  after.forEach((child, at) => {
    if (at < before.length) patch(before[at], child);
    else old.append(child.cloneNode(true));
  });
  before.slice(after.length).forEach((child) => child.remove());
}

const live = document.getElementById("live");
const button = document.createElement("button");
let source = null;

function toggle() {
  if (source) {
    source.close();
    source = null;
  } else {
    source = new EventSource("/events");
    source.onmessage = ({ data }) => {
      const now = live.cloneNode(false);
      now.innerHTML = data;
      patch(live, now);
    };
  }
  button.textContent = source ? "Pause updates" : "Resume updates";
}

if (live) {
  button.type = "button";
  button.addEventListener("click", toggle);
  document.querySelector(".login").append(button);
  toggle();
}
