// Elements from text alone: nothing here, or after, ever parses HTML.

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function paragraph(text, kind = "") {
  return make("p", kind ? { class: kind } : {}, text);
}

function chip(colour) {
  const element = make("span", { class: "chip", "aria-hidden": "true" });
  element.style.backgroundColor = colour;
  return element;
}

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Calls `draw` now, and again whenever the element's width or the colours of the page change.
function redrawWithLayout(element, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (element.clientWidth && element.clientWidth !== width) {
      width = element.clientWidth;
      draw();
    }
  }).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

function decodeBase64(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes.buffer;
}

// 1600000 -> "1.6M"
function shortCount(count) {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(count) >= size) return `${Number((count / size).toPrecision(3))}${letter}`;
  }
  return String(count);
}
