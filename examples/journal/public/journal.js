// Two things that a page can do without: a button for the light, and a search in the entries.
// The file is read in the head, so that a page which was left dark doesn't first come up light.
"use strict";

(function () {
  var root = document.documentElement;
  var night = window.matchMedia("(prefers-color-scheme: dark)");

  // Storage may be refused (a private window); then the choice lasts as long as the page.
  function remember(light) {
    try { localStorage.setItem("light", light); } catch (refused) {}
  }

  function remembered() {
    try { return localStorage.getItem("light"); } catch (refused) { return null; }
  }

  function current() {
    return root.dataset.light || (night.matches ? "dark" : "light");
  }

  var kept = remembered();
  if (kept === "dark" || kept === "light") root.dataset.light = kept;

  function addButton() {
    var button = document.createElement("button");
    button.type = "button";

    function label() {
      button.textContent = current() === "dark" ? "Light" : "Dark";
    }

    button.addEventListener("click", function () {
      root.dataset.light = current() === "dark" ? "light" : "dark";
      remember(root.dataset.light);
      label();
    });
    night.addEventListener("change", label);
    label();
    document.querySelector("header nav").append(button);
  }

  // Every word that is typed has to be somewhere in an entry's title, date or summary.
  function addSearch(list) {
    var entries = Array.from(list.children);
    var field = document.createElement("input");
    field.type = "search";
    field.placeholder = "Search the entries";
    field.setAttribute("aria-label", "Search the entries");

    var nothing = document.createElement("p");
    nothing.textContent = "Nothing about that, yet.";
    nothing.setAttribute("role", "status");
    nothing.hidden = true;

    field.addEventListener("input", function () {
      var words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      var found = 0;
      entries.forEach(function (entry) {
        var text = entry.textContent.toLowerCase();
        entry.hidden = !words.every(function (word) { return text.includes(word); });
        if (!entry.hidden) found += 1;
      });
      nothing.hidden = found > 0;
    });

    document.addEventListener("keydown", function (event) {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.activeElement === field) return;
      event.preventDefault();
      field.focus();
    });

    list.before(field);
    list.after(nothing);
  }

  document.addEventListener("DOMContentLoaded", function () {
    addButton();
    var list = document.querySelector(".entries");
    if (list) addSearch(list);
  });
})();
