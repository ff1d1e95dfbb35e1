// Nodes of the page. Text only ever enters as text: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);

function choice(label, options, selected, onchange) {
  const list = options.map(([value, text]) => el("option", { value, selected: value === selected }, text));
  return el("label", {}, label, el("select", { onchange: (e) => onchange(e.target.value) }, list));
}

function tick(label, checked, onchange) {
  const box = el("input", { type: "checkbox", checked, onchange: (e) => onchange(e.target.checked) });
  return el("label", {}, box, label);
}

// A table of two columns.
const facts = (rows, className = "facts") => el("table", { class: className }, el("tbody", {},
  rows.map(([name, value]) => el("tr", {}, el("td", {}, name), el("td", {}, value)))));

function copier(text) {
  const button = el("button", { type: "button", onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Files opened from disk may have no clipboard of that kind.
      const area = el("textarea", {});
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return button;
}
