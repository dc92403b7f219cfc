// What the theme's own scripts leave out.

// Wide figures and formulas that scroll can be reached by keyboard.
document.addEventListener("DOMContentLoaded", () => {
  const wide = document.querySelectorAll(".om-formula, .om-figure, .om-scroll");
  const update = () => {
    for (const box of wide) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  window.addEventListener("resize", update);
  update();
});

// Opened as files, pages cannot fetch each other: the search lists titles without their text.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
