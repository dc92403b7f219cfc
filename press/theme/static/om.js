// What the theme's own scripts leave out: wide figures and formulas that scroll take the keyboard's focus.
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
