// What the theme lacks for readers who use keys and a screen reader: focus on what scrolls, and names of landmarks.
addEventListener("load", () => {
  for (const each of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) each.tabIndex = 0;
  for (const [place, each] of document.querySelectorAll(".md-code__nav").entries()) each.ariaLabel = `Code ${place + 1}`;
});
