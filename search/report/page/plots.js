// What the search as a whole came to: growth of the hypervolume, importance of fields, reasons.

function drawGrowth(host, doc) {
  const { gains, simulations, reference } = doc.growth;
  if (!gains.length) {
    host.replaceChildren(el("p", { class: "muted" }, "No feasible trial, no hypervolume."));
    return;
  }
  const [width, height] = [Math.max(320, host.clientWidth), 260];
  const last = gains.at(-1);
  // Its unit means little to anybody; how much of it was found when does.
  const shareOf = (volume) => volume / last[2];
  const atX = scale([0, Math.max(simulations, 1)], [62, width - 26], false);
  const atY = scale([0, 1.08], [height - 42, 10], false);
  const enough = gains.find((g) => g[2] >= 0.99 * last[2]);
  const steps = gains.map(([n, , volume]) => `H${atX(n)}V${atY(shareOf(volume))}`).join("");
  // Right of the point, or where there is no room under the curve as it is left of it.
  const isNearEnd = atX(enough[0]) > width - 170;
  const before = gains.findLast(([n]) => atX(n) <= width - 190) ?? [0, 0, 0];
  const below = isNearEnd ? atY(shareOf(Math.min(before[2], enough[2]))) + 20 : atY(shareOf(enough[2])) + 22;
  const words = `99 % after ${enough[0]} of ${simulations}`;
  host.replaceChildren(
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Hypervolume ${shown(last[2])}; ${words} simulations, last gain at ${last[0]}.` },
    atX.ticks.map((t) => svg("text", { x: atX(t), y: height - 24, "text-anchor": "middle", class: "muted" }, shown(t))),
    atY.ticks.map((t) => [svg("line", { class: "grid", x1: 62, x2: width - 26, y1: atY(t), y2: atY(t) }),
      svg("text", { x: 55, y: atY(t) + 4, "text-anchor": "end", class: "muted" }, `${Math.round(100 * t)} %`)]).flat(),
    svg("text", { x: (62 + width) / 2, y: height - 4, "text-anchor": "middle" }, "simulations"),
    svg("line", { class: "axis", "stroke-dasharray": "4 4", stroke: "currentColor", x1: 62, x2: width - 26, y1: atY(0.99), y2: atY(0.99) }),
    svg("path", { d: `M${atX(0)} ${atY(0)}${steps}H${atX(simulations)}`, fill: "none", stroke: "var(--c0)", "stroke-width": 2 }),
    svg("path", { d: SHAPES[0](atX(enough[0]), atY(shareOf(enough[2])), 4.5), fill: "var(--c0)", stroke: "var(--back)" }),
    svg("text", { class: "halo", x: isNearEnd ? width - 26 : atX(enough[0]) + 8, y: Math.min(below, height - 50),
      "text-anchor": isNearEnd ? "end" : "start" }, words)),
    el("p", { class: "muted small" }, `It ends at ${shown(last[2])}, last gain at simulation ${last[0]}; measured from `
      + doc.objectives.map((o, i) => `${o.label} ${shown(reference[i])}`).join(", ") + "."));
}

function drawImportance(host, doc) {
  const items = Object.entries(doc.importances);
  if (!items.length) {
    host.replaceChildren(el("p", { class: "muted" }, "Not known: only a sample of the space was looked at, or nothing varied."));
    return;
  }
  host.replaceChildren(...items.flatMap(([name, shares]) => {
    const rows = Object.entries(shares).filter(([, share]) => share >= 0.005);
    return [el("h4", {}, doc.metrics.find((m) => m.name === name)?.axis ?? name),
      el("div", { class: "shares" }, rows.flatMap(([field, share]) => {
        const bar = el("i", {});
        bar.style.width = `${100 * Math.min(share, 1)}%`;
        return [el("span", {}, field), bar, el("span", {}, percent(share))];
      }))];
  }), el("p", { class: "muted small" },
    "Shapley effects: each field's share of the variance over all candidates that can run."));
}

function drawReasons(host, doc) {
  if (!doc.reasons.length) {
    host.replaceChildren(el("p", { class: "muted" }, "Every trial is feasible."));
    return;
  }
  const rows = doc.reasons.map((r) => el("tr", {}, el("td", { class: "number" }, r.count.toLocaleString("en-US")),
    el("td", {}, r.name.replaceAll("_", " ")), el("td", { class: "muted" }, r.example)));
  host.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, el("th", { class: "number" }, "trials"), el("th", {}, "reason"),
    el("th", {}, "for example"))), el("tbody", {}, rows)));
}

function drawBasis(host, doc) {
  host.replaceChildren(facts(doc.basis), el("details", {}, el("summary", {}, "The whole manifest"),
    el("pre", { id: "manifest" }, JSON.stringify(doc.manifest, null, 2))));
}
