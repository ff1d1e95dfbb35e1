// Filters: of every field that varies, which values are shown.

const CHIPS = 12;

class Filters {
  constructor(host, doc, onChange) {
    this.fields = doc.fields.filter((f) => f.codes);
    this.off = Object.fromEntries(this.fields.map((f) => [f.name, new Set()]));
    Object.assign(this, { host, onChange });
    this.draw();
  }

  passes(trial) {
    return this.fields.every((f) => !this.off[f.name].has(trial.codes[f.name]));
  }

  set(field, code, isOn) {
    if (isOn) this.off[field].delete(code);
    else this.off[field].add(code);
    this.draw();
    this.onChange();
  }

  keep(field, low, high) {
    const codes = this.fields.find((f) => f.name === field).values.keys();
    this.off[field] = new Set([...codes].filter((code) => code < low || code > high));
    this.draw();
    this.onChange();
  }

  clear() {
    for (const hidden of Object.values(this.off)) hidden.clear();
    this.draw();
    this.onChange();
  }

  draw() {
    const focused = document.activeElement?.dataset?.key;
    const isUsed = Object.values(this.off).some((hidden) => hidden.size);
    this.host.replaceChildren(...this.fields.map((f) => el("fieldset", {}, el("legend", {}, f.name),
      f.values.length > CHIPS ? this.range(f) : this.chips(f))),
    ...(isUsed ? [el("button", { type: "button", onclick: () => this.clear() }, "Show all again")] : []));
    // Drawn anew; the keyboard stays where it was.
    if (focused) this.host.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  chips(field) {
    return field.values.map((value, code) => el("label", { class: "chip" },
      el("input", { type: "checkbox", checked: !this.off[field.name].has(code), "data-key": `${field.name}/${code}`,
        onchange: (e) => this.set(field.name, code, e.target.checked) }), value));
  }

  range(field) {
    const on = [...field.values.keys()].filter((code) => !this.off[field.name].has(code));
    const [low, high] = [on[0] ?? 0, on.at(-1) ?? field.values.length - 1];
    const options = field.values.map((value, code) => [String(code), value]);
    return [choice("from", options, String(low), (v) => this.keep(field.name, Number(v), Math.max(high, Number(v)))),
      choice("to", options, String(high), (v) => this.keep(field.name, Math.min(low, Number(v)), Number(v)))];
  }
}
