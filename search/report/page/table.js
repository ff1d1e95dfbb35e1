// Trials as rows, sorted by any column.

const MOST_ROWS = 250;

class Table {
  constructor(host, note, doc, onSelect) {
    const names = [...doc.objectives.map((o) => o.name), ...doc.limits.map((l) => l.metric), "num_gpus", "usd_per_hour"];
    const metrics = [...new Set(names)].map((name) => doc.metrics.find((m) => m.name === name)).filter(Boolean);
    const hasReasons = doc.reasons.length > 0;
    this.columns = [
      { title: "trial", isNumber: true, of: (t) => t.number },
      { title: "", of: (t) => t.marks.join(", "), isText: true },
      ...doc.fields.filter((f) => f.codes).map((f) => ({ title: f.name.replaceAll("_", " "), of: (t) => t.codes[f.name],
        isNumber: f.is_number, text: (t) => f.values[t.codes[f.name]] })),
      ...metrics.map((m) => ({ title: m.axis, isNumber: true, of: (t) => t.metrics[m.name], text: (t) => shown(t.metrics[m.name]) })),
      ...(Object.keys(doc.chances).length ? [{ title: "it or its like truly non-dominated", isNumber: true, of: (t) => doc.chances[t.number]?.[1],
        text: (t) => (t.number in doc.chances ? percent(doc.chances[t.number][1]) : "–") }] : []),
      ...(hasReasons ? [{ title: "infeasible", of: (t) => (t.reason ?? "").replaceAll("_", " "), isText: true, isReason: true }] : []),
    ];
    Object.assign(this, { host, note, onSelect, sort: { column: null, isDown: true } });
  }

  draw(trials, selected) {
    Object.assign(this, { trials, selected });
    const columns = this.columns.filter((c) => !c.isReason || trials.some((t) => t.reason !== null));
    const rows = this.sorted(trials).slice(0, MOST_ROWS);
    this.note.textContent = rows.length < trials.length
      ? `The first ${rows.length} of ${trials.length}; sort or filter to see others, or open trials.csv.` : "";
    const body = el("tbody", {}, rows.map((t) => this.row(t, columns)));
    const head = el("thead", {}, el("tr", {}, columns.map((c) => this.heading(c))));
    this.host.replaceChildren(el("table", {}, head, body));
  }

  sorted(trials) {
    const { column, isDown } = this.sort;
    if (!column) return trials;
    const sign = isDown ? -1 : 1;
    const order = (a, b) => {
      const [one, other] = [column.of(a), column.of(b)];
      // What is unknown stands last, either way.
      if (one === undefined || other === undefined) return (one === undefined) - (other === undefined);
      return sign * (one < other ? -1 : one > other ? 1 : 0) || a.number - b.number;
    };
    return [...trials].sort(order);
  }

  heading(column) {
    const isSorted = this.sort.column === column;
    const arrow = isSorted ? (this.sort.isDown ? " ↓" : " ↑") : "";
    const press = () => {
      this.sort = { column, isDown: isSorted ? !this.sort.isDown : !column.isText && column.title !== "trial" };
      this.draw(this.trials, this.selected);
      this.host.querySelector(`th:nth-child(${at + 1}) button`)?.focus();
    };
    const button = el("button", { type: "button", onclick: () => press() }, (column.title || "mark") + arrow);
    const at = this.columns.indexOf(column);
    return el("th", { scope: "col", class: column.isNumber ? "number" : null,
      "aria-sort": isSorted ? (this.sort.isDown ? "descending" : "ascending") : null }, button);
  }

  row(trial, columns) {
    const cells = columns.map((column, i) => {
      const text = column.text ? column.text(trial) : String(column.of(trial) ?? "–");
      const content = i === 0 ? el("button", { type: "button", "aria-label": `Show trial ${text}` }, text) : text;
      const attributes = { class: column.isNumber ? "number" : null, title: column.isReason ? trial.detail : null };
      return el("td", attributes, content);
    });
    return el("tr", { class: trial.reason === null ? null : "out", "aria-selected": trial === this.selected ? "true" : null,
      onclick: () => this.onSelect(trial, true) }, cells);
  }
}
