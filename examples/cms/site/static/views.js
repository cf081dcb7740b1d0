// How often this page was seen. The page itself is the same for everybody, and kept by the page cache.
const views = document.getElementById("views");
if (views) {
  fetch("/views" + location.pathname)
    .then((response) => response.json())
    .then((hits) => {
      if (hits.views === 0) return;
      const number = hits.views.toLocaleString("en");
      views.textContent = `· ${number} ${hits.views === 1 ? "view" : "views"}`;
    })
    .catch(() => {});
}
