// What is shown now, and the parts of the page that show it.

const doc = JSON.parse(byId("document").textContent);
const trials = readTrials(doc);
const metrics = Object.fromEntries(doc.metrics.map((m) => [m.name, m]));
const state = { x: metrics[doc.axes[0]], y: metrics[doc.axes[1]], logX: false, logY: false, colour: doc.colour,
  showsInfeasible: true, rows: "frontier", selected: null };

const chart = new Scatter(byId("chart"), { onSelect: (trial) => select(trial), onHover: tip });
const filters = new Filters(byId("filters"), doc, () => update());
const table = new Table(byId("table"), byId("table-note"), doc, (trial, isRow) => select(trial, isRow));

function select(trial, isRow = false) {
  state.selected = trial;
  if (trial) {
    history.replaceState(null, "", `#trial-${trial.number}`);
    byId("live").textContent = `Trial ${trial.number}: ${trial.name}. `
      + doc.objectives.map((o) => `${o.label} ${shown(trial.metrics[o.name])} ${o.unit}`).join(", ");
  }
  update();
  if (isRow) byId("table").querySelector('tr[aria-selected="true"] button')?.focus({ preventScroll: true });
}

function groupsOf() {
  const field = doc.fields.find((f) => f.name === state.colour);
  return field ? { field, count: field.values.length, of: (t) => t.codes[field.name] }
    : { field: null, count: 1, of: () => 0 };
}

function update() {
  const passing = trials.filter((t) => filters.passes(t));
  const visible = passing.filter((t) => t.isSimulated && (state.showsInfeasible || t.reason === null));
  const groups = groupsOf();
  chart.draw({ ...state, trials: visible, groups, limits: doc.limits });
  drawLegend(passing, groups);
  drawUnplaced(passing);
  drawDetail(byId("detail"), state.selected, trials, doc);
  const kinds = { frontier: (t) => t.onFrontier, feasible: (t) => t.reason === null, all: () => true };
  const order = (a, b) => state.x.sign * (b.metrics[state.x.name] - a.metrics[state.x.name]) || a.number - b.number;
  const rows = passing.filter(kinds[state.rows]);
  table.draw(state.rows === "frontier" ? rows.sort(order) : rows, state.selected);
}

function drawLegend(passing, { field, of }) {
  const count = (test) => passing.filter((t) => t.isSimulated && test(t)).length;
  const items = field ? field.values.map((value, code) => {
    const isOn = !filters.off[field.name].has(code);
    const number = count((t) => t.reason === null && of(t) === code);
    return el("button", { type: "button", "aria-pressed": String(isOn), onclick: () => filters.set(field.name, code, !isOn) },
      groupSwatch(code), `${value} (${number})`);
  }) : [el("span", {}, groupSwatch(0), `feasible (${count((t) => t.reason === null)})`)];
  const marks = ["knee", "cheapest"].filter((mark) => doc[mark] !== null).map((mark) => [markSwatch(mark), doc.mark_texts[mark]]);
  byId("legend").replaceChildren(...[...items,
    [swatch(SHAPES[0], { fill: "none", stroke: "var(--text)" }, 6), "frontier of the search"],
    [swatch(() => "M-7 4V-2H1V-6H7", { fill: "none", stroke: "var(--text)", "stroke-width": 1.4 }), "best of what is shown, on these axes"],
    ...marks,
    ...(state.showsInfeasible ? [[swatch(cross, { stroke: "var(--grey)", "stroke-width": 1.4 }, 3.5),
      `infeasible (${count((t) => t.reason !== null)})`]] : []),
  ].map((item) => el("li", {}, item)));
}

function drawUnplaced(passing) {
  const unseen = passing.filter((t) => !t.isSimulated).length + doc.unlisted;
  const parts = [
    `${passing.filter((t) => t.isSimulated).length} simulated trials shown`,
    chart.outside ? `${chart.outside} outside of this view` : null,
    unseen ? `${unseen} never started: see below why` : null,
  ].filter(Boolean);
  byId("unplaced").replaceChildren(`${parts.join(", ")}. Drag to zoom, double-click to reset. `,
    ...(chart.outside ? [el("button", { type: "button", onclick: () => { chart.zoomOut(); drawUnplaced(passing); } }, "Show them all")] : []));
}

function drawControls() {
  const options = doc.metrics.filter((m) => m.is_axis).map((m) => [m.name, m.axis]);
  const colours = doc.fields.filter((f) => f.codes).map((f) => [f.name, f.name]);
  const set = (change) => { Object.assign(state, change); update(); };
  byId("controls").replaceChildren(
    choice("Across", options, state.x.name, (v) => set({ x: metrics[v] })),
    tick("log", state.logX, (v) => set({ logX: v })),
    choice("Up", options, state.y.name, (v) => set({ y: metrics[v] })),
    tick("log", state.logY, (v) => set({ logY: v })),
    ...(colours.length ? [choice("Colour", [["", "none"], ...colours], state.colour, (v) => set({ colour: v }))] : []),
    tick("infeasible", state.showsInfeasible, (v) => set({ showsInfeasible: v })));
  byId("zoom").replaceChildren(...[["+", "Zoom in", () => chart.zoom(1.5)], ["−", "Zoom out", () => chart.zoom(1 / 1.5)],
    ["⟲", "Reset the zoom", () => chart.zoomTo(null)]]
    .map(([text, label, onclick]) => el("button", { type: "button", "aria-label": label, title: label, onclick }, text)));
  byId("table-controls").replaceChildren(choice("Rows", [["frontier", "frontier"], ["feasible", "feasible"], ["all", "all"]],
    state.rows, (v) => set({ rows: v })));
}

function tip(trial, event) {
  const box = byId("tip");
  box.hidden = !trial || !event;
  if (box.hidden) return;
  const figures = [...new Set([state.x, state.y, ...doc.objectives.map((o) => metrics[o.name])])];
  const varied = doc.fields.filter((f) => f.codes).map((f) => [f.name, f.values[trial.codes[f.name]]]);
  const chance = doc.chances[trial.number];
  const sure = chance === undefined ? [] : [["truly non-dominated", percent(chance[0])], ["it or its like", percent(chance[1])]];
  box.replaceChildren(el("b", {}, `Trial ${trial.number}${trial.marks.length ? `, ${trial.marks.join(", ")}` : ""}`),
    facts([...figures.map((m) => [m.axis, shown(trial.metrics[m.name])]), ...sure, ...varied], ""),
    ...(trial.reason !== null ? [el("span", { class: "muted" }, `infeasible: ${trial.detail}`)] : []));
  const [w, h] = [box.offsetWidth, box.offsetHeight];
  box.style.left = `${event.clientX + 16 + w > innerWidth ? Math.max(4, event.clientX - 16 - w) : event.clientX + 16}px`;
  box.style.top = `${Math.max(4, Math.min(event.clientY + 12, innerHeight - h - 4))}px`;
}

function drawAnswers() {
  byId("facts").textContent = doc.summary;
  const answers = ["knee", "cheapest"].filter((mark) => doc[mark] !== null).map((mark) => {
    const trial = trials.find((t) => t.number === doc[mark]);
    const figures = [...doc.objectives, ...[metrics.usd_per_hour].filter(Boolean)]
      .map((o) => `${shown(trial.metrics[o.name])} ${o.unit}`.trim()).join(" · ");
    return el("button", { type: "button", class: "answer", onclick: () => select(trial) },
      el("b", {}, markSwatch(mark), `${doc.mark_texts[mark]}: ${trial.name}`), el("span", {}, figures));
  });
  byId("answers").replaceChildren(...(answers.length ? answers
    : [el("p", { class: "note" }, "No trial is feasible: nothing to choose from. The reasons are below.")]));
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (isDark) => { document.documentElement.dataset.theme = isDark ? "dark" : "light"; };
  set(dark.matches);
  dark.addEventListener("change", (e) => set(e.matches));
  byId("theme").addEventListener("click", () => set(document.documentElement.dataset.theme !== "dark"));
}

theme();
drawAnswers();
drawControls();
drawImportance(byId("importance"), doc);
drawReasons(byId("reasons"), doc);
drawBasis(byId("basis"), doc);
new ResizeObserver(() => drawGrowth(byId("growth"), doc)).observe(byId("growth").parentElement);
const linked = location.hash.match(/^#trial-(\d+)$/);
const first = linked ? Number(linked[1]) : doc.knee ?? doc.cheapest;
state.selected = trials.find((t) => t.number === first) ?? null;
update();
