"use strict";
// What the pages share: elements, numbers as text, axes. Text goes in by textContent only.

const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function add(parent, tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return parent.appendChild(element);
}

function number(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return (value / 1e9).toFixed(3) + " G";
  if (size >= 1e6) return (value / 1e6).toFixed(3) + " M";
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (Number.isInteger(value)) return String(value);
  return size < 1e-4 ? value.toExponential(2) : value.toPrecision(4);
}

// The same without zeros at its end.
function short(value) {
  const text = number(value);
  return /^-?\d+\.\d+$/.test(text) ? String(Number(text)) : text;
}

const font = "12px system-ui, sans-serif";
const axis = (label, more) => ({
  label, labelFont: font, labelSize: 18, font, stroke: () => css("--soft"), size: 58,
  values: (u, splits) => splits.map((value) => (value === null ? "" : tick(value))),
  grid: { stroke: () => css("--grid"), width: 1 }, ticks: { stroke: () => css("--line"), width: 1 },
  ...more,
});
const tick = (value) => (Math.abs(value) >= 1e6 ? short(value / 1e6) + " M"
  : Math.abs(value) >= 1000 ? value.toLocaleString("en-US") : String(Number(value.toPrecision(6))));
const faint = (hex) => hex + "2e";
