// One trial: what it is, what came out, why it stands where it stands, and how to run it again.

const STATISTICS = ["mean", "p50", "p90", "p95", "p99"];
const KINDS = [["ttft", "TTFT"], ["tpot", "TPOT"], ["itl", "ITL"], ["e2el", "E2E"], ["queue", "queue"], ["prefill", "prefill"]];

function tags(trial, doc) {
  const tag = (text, kind = "") => el("span", { class: `tag ${kind}` }, text);
  const share = doc.shares[trial.number];
  const chance = doc.chances[trial.number];
  return el("p", { class: "tags" },
    trial.marks.map((mark) => tag(mark)),
    trial.onFrontier ? tag("on the frontier", "good") : null,
    trial.reason !== null ? tag(`infeasible: ${trial.reason.replaceAll("_", " ")}`, "bad") : null,
    chance !== undefined ? tag(`truly non-dominated: ${percent(chance[0])}, it or its like: ${percent(chance[1])}`) : null,
    share !== undefined ? tag(`non-dominated in ${percent(share)} of replicates`) : null,
    trial.timing ? tag(`${trial.timing} kernel times`) : null);
}

function standing(trial, trials, doc) {
  if (trial.reason !== null) return el("p", {}, trial.detail);
  const better = trial.onFrontier ? null : dominatorOf(trial, trials, doc.objectives);
  if (!better) return null;
  const gains = doc.objectives.map((o) => {
    const share = gain(better, trial, o);
    return `${o.label} ${share ? `${percent(share)} better` : "equal"}`;
  });
  const changed = doc.fields.filter((f) => better.codes[f.name] !== trial.codes[f.name])
    .map((f) => `${f.name} ${f.values[better.codes[f.name]]} instead of ${f.values[trial.codes[f.name]]}`);
  return el("p", {}, "Dominated by ", el("button", { type: "button", onclick: () => select(better) }, `trial ${better.number}`),
    `: ${gains.join(", ")}; it has ${changed.join(", ")}.`);
}

function keptLimits(trial, doc) {
  return doc.limits.filter((limit) => limit.metric in trial.metrics).map((limit) => {
    const value = trial.metrics[limit.metric];
    const isKept = limit.is_least ? value >= limit.value : value <= limit.value;
    return [`${isKept ? "✓" : "✗"} ${limit.text}`, shown(value)];
  });
}

function latencies(trial, doc) {
  const known = KINDS.filter(([kind]) => STATISTICS.some((s) => `${s}_${kind}_ms` in trial.metrics));
  const used = STATISTICS.filter((s) => known.some(([kind]) => `${s}_${kind}_ms` in trial.metrics));
  const number = (text, tag = "td") => el(tag, { class: "number" }, text);
  return el("table", { class: "figures" },
    el("thead", {}, el("tr", {}, el("th", {}, "ms"), used.map((s) => number(s, "th")))),
    el("tbody", {}, known.map(([kind, label]) => el("tr", {}, el("td", {}, label),
      used.map((s) => number(shown(trial.metrics[`${s}_${kind}_ms`])))))));
}

function otherFigures(trial, doc) {
  const heading = new Set(doc.objectives.map((o) => o.name));
  return doc.metrics.filter((m) => m.name in trial.metrics && !m.name.endsWith("_ms") && !heading.has(m.name))
    .map((m) => [m.axis, shown(trial.metrics[m.name])]);
}

function expected(trial, doc) {
  const rows = Object.entries(doc.intervals[trial.number] ?? {});
  if (!rows.length) return null;
  return [el("h4", {}, "Four of five measurements are expected within"), facts(rows.map(([name, [low, high]]) => {
    const metric = doc.metrics.find((m) => m.name === name);
    return [metric.axis, `${shown(low)} – ${shown(high)}`];
  }))];
}

function again(trial, doc) {
  const yaml = yamlOf(trial, doc);
  const file = doc.files[trial.number] ?? `trial-${trial.number}.yaml`;
  const value = (name) => doc.fields.filter((f) => f.name === name).map((f) => f.values[trial.codes[name]])[0];
  // Launch files are those of one pool.
  const launch = value("prefill_replicas") === "0" ? `\ndynosim export --to ${value("backend")} ${file}` : "";
  const command = `dynosim simulate ${file}${launch}`;
  return [
    el("h4", {}, doc.files[trial.number] ? "Run it again, or launch it, in the run's folder" : "Run it again, or launch it, with the YAML below saved"),
    el("pre", { class: "command" }, command),
    el("details", {}, el("summary", {}, `${file}`), copier(yaml), el("pre", { class: "yaml" }, yaml)),
    doc.context ? null : el("p", { class: "muted small" }, "The workload is not in it: give the one that was searched under."),
  ];
}

function drawDetail(host, trial, trials, doc) {
  if (!trial) {
    host.replaceChildren(el("h3", { id: "detail-title" }, "No trial chosen"),
      el("p", { class: "muted" }, "Click a point or a row, or focus the chart and use the arrow keys."));
    return;
  }
  const varied = doc.fields.filter((f) => f.codes).map((f) => [f.name, f.values[trial.codes[f.name]]]);
  const fixed = doc.fields.filter((f) => !f.codes && f.lines[0]).map((f) => [f.name, f.values[0]]);
  const outcome = trial.isSimulated ? [
    facts(doc.objectives.map((o) => [o.axis, shown(trial.metrics[o.name])])),
    doc.limits.length ? [el("h4", {}, "Limits"), facts(keptLimits(trial, doc))] : null,
    expected(trial, doc),
    el("h4", {}, "Configuration"), facts(varied),
    el("details", {}, el("summary", {}, "Latencies"), latencies(trial, doc)),
    el("details", {}, el("summary", {}, "Other figures"), facts(otherFigures(trial, doc))),
  ] : [el("h4", {}, "Configuration"), facts(varied)];
  host.replaceChildren(...[el("h3", { id: "detail-title" }, `Trial ${trial.number}: ${trial.name}`), tags(trial, doc),
    standing(trial, trials, doc), outcome,
    el("details", {}, el("summary", {}, "Fields that do not vary"), facts(fixed)), again(trial, doc)]
    .flat(3).filter((child) => child !== null));
}
