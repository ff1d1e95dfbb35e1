// The chart: trials on two metrics, as few paths as there are kinds of markers. What is under the
// pointer is the nearest drawn trial, so that ten thousand of them cost no node each.

const MARGIN = { top: 16, right: 18, bottom: 46, left: 66 };
const REACH = 26;

class Scatter {
  constructor(host, { onSelect, onHover }) {
    Object.assign(this, { host, onSelect, onHover, window: null, drag: null, drawn: [] });
    new ResizeObserver(() => {
      if (this.state && host.clientWidth !== this.width) this.draw(this.state);
    }).observe(host);
  }

  // `state`: x, y (metrics), logX, logY, trials (those to draw), groups ({of, count}), limits,
  // selected. Axes that change forget the zoom.
  draw(state) {
    const axes = [state.x.name, state.y.name, state.logX, state.logY].join();
    if (axes !== this.axes) this.window = null;
    Object.assign(this, { state, axes, width: this.host.clientWidth || 800 });
    this.height = Math.round(Math.min(620, Math.max(360, this.width * 0.66)));
    const held = this.host.contains(document.activeElement);
    this.place();
    this.root = svg("svg", { viewBox: `0 0 ${this.width} ${this.height}`, tabindex: 0, role: "application",
      "aria-roledescription": "scatter chart", "aria-label": this.label() },
      svg("clipPath", { id: "inside" }, svg("rect", this.inside())),
      this.grid(), svg("g", { "clip-path": "url(#inside)" }, this.limits(), this.points(), this.front()),
      this.limitTexts(), this.marks(),
      this.ring = svg("path", { fill: "none", stroke: "var(--accent)", "stroke-width": 2.5 }),
      this.hover = svg("path", { fill: "none", stroke: "var(--text)", "stroke-width": 1.5 }),
      this.box = svg("rect", { fill: "var(--accent)", "fill-opacity": 0.12, stroke: "var(--accent)", visibility: "hidden" }));
    this.listen();
    this.host.replaceChildren(this.root);
    if (held) this.root.focus({ preventScroll: true });
    this.circle(this.ring, state.selected, 12);
  }

  label() {
    const { x, y } = this.state;
    return `${y.label} against ${x.label}, ${this.drawn.length} trials. Arrow keys go along the `
      + "frontier, plus and minus zoom, 0 shows everything.";
  }

  inside() {
    return { x: MARGIN.left, y: MARGIN.top, width: this.width - MARGIN.left - MARGIN.right,
      height: this.height - MARGIN.top - MARGIN.bottom };
  }

  place() {
    const { x, y, logX, logY, trials } = this.state;
    const fits = (v, isLog) => v !== undefined && (!isLog || v > 0);
    const able = trials.filter((t) => fits(t.metrics[x.name], logX) && fits(t.metrics[y.name], logY));
    // What is infeasible may lie far away: it is in view where it is near what may be chosen.
    const feasible = able.filter((t) => t.reason === null);
    const near = feasible.length ? feasible : able;
    const whole = [[x, logX], [y, logY]].map(([metric, isLog]) => extent(this.withLimits(near.map((t) => t.metrics[metric.name]), metric), isLog));
    const [rangeX, rangeY] = this.window ?? whole;
    this.whole = [extent(able.map((t) => t.metrics[x.name]), logX), extent(able.map((t) => t.metrics[y.name]), logY)];
    const { left, top, right, bottom } = MARGIN;
    this.atX = scale(rangeX, [left, this.width - right], logX);
    this.atY = scale(rangeY, [this.height - bottom, top], logY);
    this.drawn = able.map((trial) => ({ trial, px: this.atX(trial.metrics[x.name]), py: this.atY(trial.metrics[y.name]) }));
    this.outside = this.drawn.filter((p) => !this.isInside(p)).length;
  }

  // A limit close to what is shown is shown as well.
  withLimits(values, metric) {
    if (!values.length) return values;
    const [low, high] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    const limits = this.state.limits.filter((limit) => limit.metric === metric.name).map((limit) => limit.value);
    return [...values, ...limits.filter((v) => v > 0 && v >= low / 1.5 && v <= high * 1.5)];
  }

  isInside({ px, py }) {
    return px >= MARGIN.left - 1 && px <= this.width - MARGIN.right + 1
      && py >= MARGIN.top - 1 && py <= this.height - MARGIN.bottom + 1;
  }

  grid() {
    const { x, y } = this.state;
    const { left, top, right, bottom } = MARGIN;
    const [w, h] = [this.width - right, this.height - bottom];
    return svg("g", {},
      svg("rect", { ...this.inside(), fill: "transparent", class: "axis", stroke: "currentColor" }),
      this.atX.ticks.map((t) => svg("g", {},
        svg("line", { class: "grid", x1: this.atX(t), x2: this.atX(t), y1: top, y2: h }),
        svg("text", { x: this.atX(t), y: h + 17, "text-anchor": "middle", class: "muted" }, shown(t)))),
      this.atY.ticks.map((t) => svg("g", {},
        svg("line", { class: "grid", x1: left, x2: w, y1: this.atY(t), y2: this.atY(t) }),
        svg("text", { x: left - 8, y: this.atY(t) + 4, "text-anchor": "end", class: "muted" }, shown(t)))),
      svg("text", { x: (left + w) / 2, y: h + 38, "text-anchor": "middle" },
        `${x.axis}${x.sign > 0 ? ", better →" : ", ← better"}`),
      svg("text", { transform: `translate(15 ${(top + h) / 2}) rotate(-90)`, "text-anchor": "middle" },
        `${y.axis}${y.sign > 0 ? ", better →" : ", ← better"}`));
  }

  // Limits on the two metrics that are shown, with the way from the axis to their line.
  bounded() {
    const { x, y, limits } = this.state;
    return limits.flatMap((limit) => [[x, this.atX, true], [y, this.atY, false]]
      .filter(([metric]) => metric.name === limit.metric)
      .map(([, at, isAcross]) => ({ limit, isAcross, at: at(limit.value) }))
      .filter(({ at, isAcross }) => Number.isFinite(at) && this.isInside(isAcross ? { px: at, py: MARGIN.top } : { px: MARGIN.left, py: at })));
  }

  limits() {
    const { left, top, right, bottom } = MARGIN;
    return this.bounded().map(({ isAcross, at }) => svg("line", { class: "limit", ...(isAcross
      ? { x1: at, x2: at, y1: top, y2: this.height - bottom }
      : { x1: left, x2: this.width - right, y1: at, y2: at }) }));
  }

  limitTexts() {
    const [w, top] = [this.width - MARGIN.right, MARGIN.top];
    return this.bounded().map(({ limit, isAcross, at }) => svg("text", { class: "limit-text halo", ...(isAcross
      ? { transform: `translate(${at - 5} ${top + 6}) rotate(-90)`, "text-anchor": "end" }
      : { x: w - 6, y: at - 5, "text-anchor": "end" }) }, limit.text));
  }

  points() {
    const { groups } = this.state;
    const paths = Array(groups.count).fill("");
    let refused = "";
    for (const { trial, px, py } of this.drawn) {
      if (trial.reason !== null) refused += cross(px, py, 3.2);
      else paths[groups.of(trial)] += shapeOf(groups.of(trial))(px, py, 4.8);
    }
    return [
      svg("path", { d: refused, fill: "none", stroke: "var(--grey)", "stroke-width": 1.3, class: "refused" }),
      paths.map((d, i) => d && svg("path", { d, fill: colourOf(i), stroke: "var(--back)", "stroke-width": 0.8, class: "group" })),
    ].flat().filter(Boolean);
  }

  // The best of what is shown on these axes, and rings around the search's own frontier.
  front() {
    const { x, y } = this.state;
    const able = this.drawn.map((p) => p.trial).filter((t) => t.reason === null);
    const corners = bestOf(able, x, y).map((t) => [this.atX(t.metrics[x.name]), this.atY(t.metrics[y.name])]);
    // A point promises what it dominates: steps, not slopes.
    const steps = corners.map(([px, py]) => (x.sign > 0 ? `V${py}H${px}` : `H${px}V${py}`));
    const rings = this.drawn.filter((p) => p.trial.onFrontier).map((p) => SHAPES[0](p.px, p.py, 8));
    return [
      svg("path", { d: this.edge(corners, steps.join("")), fill: "none", stroke: "var(--text)", "stroke-width": 1.4, class: "front" }),
      svg("path", { d: rings.join(""), fill: "none", stroke: "var(--text)", "stroke-width": 1.2, class: "rings" }),
    ];
  }

  // The steps, from where their region enters the view to where it leaves it.
  edge(corners, steps) {
    if (!corners.length) return "";
    const [width, height] = [2 * this.width, 2 * this.height];
    const { x, y } = this.state;
    const worst = y.sign > 0 ? height : -height;
    if (x.sign > 0) return `M${-width} ${corners[0][1]}${steps}V${worst}`;
    return `M${corners[0][0]} ${worst}${steps}H${width}`;
  }

  marks() {
    return this.drawn.filter((p) => p.trial.marks.length && this.isInside(p)).flatMap(({ trial, px, py }) => [
      ...trial.marks.map((mark, i) => svg("path", { d: MARKS[mark][0](px, py, i ? 5 : 9), fill: MARKS[mark][1], stroke: "#000" })),
      svg("text", { class: "halo", ...(px > this.width - 150 ? { x: px - 13, "text-anchor": "end" } : { x: px + 13 }), y: py - 10 },
        trial.marks.join(", ")),
    ]);
  }

  circle(path, trial, radius) {
    const point = this.drawn.find((p) => p.trial === trial);
    path.setAttribute("d", point && this.isInside(point) ? SHAPES[0](point.px, point.py, radius) : "");
  }

  position(event) {
    const box = this.root.getBoundingClientRect();
    const factor = this.width / box.width;
    return [(event.clientX - box.left) * factor, (event.clientY - box.top) * factor];
  }

  nearest([x, y]) {
    let best = null;
    let least = REACH ** 2 + 40;
    for (const point of this.drawn) {
      // Where several lie together, the one that is more likely to be meant.
      const handicap = point.trial.onFrontier ? 0 : point.trial.reason === null ? 15 : 40;
      const distance = (point.px - x) ** 2 + (point.py - y) ** 2 + handicap;
      if (distance < least && this.isInside(point)) [best, least] = [point.trial, distance];
    }
    return best;
  }

  listen() {
    const root = this.root;
    root.addEventListener("pointerdown", (e) => { if (e.button === 0) this.drag = this.position(e); });
    root.addEventListener("pointermove", (e) => this.move(e));
    root.addEventListener("pointerup", (e) => this.release(e));
    root.addEventListener("pointerleave", () => { this.point(null); });
    root.addEventListener("pointercancel", () => { this.drag = null; });
    root.addEventListener("dblclick", () => this.zoomTo(null));
    root.addEventListener("wheel", (e) => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      this.zoom(e.deltaY < 0 ? 1.25 : 0.8, this.position(e));
    }, { passive: false });
    root.addEventListener("keydown", (e) => this.press(e));
  }

  move(event) {
    const at = this.position(event);
    if (this.drag && event.pointerType !== "touch" && Math.hypot(at[0] - this.drag[0], at[1] - this.drag[1]) > 6) {
      const [x, y] = [Math.min(at[0], this.drag[0]), Math.min(at[1], this.drag[1])];
      fill(this.box, { x, y, width: Math.abs(at[0] - this.drag[0]), height: Math.abs(at[1] - this.drag[1]), visibility: "visible" }, []);
      this.point(null);
      return;
    }
    this.point(this.nearest(at), event);
  }

  point(trial, event) {
    this.circle(this.hover, trial, 10);
    this.root.style.cursor = trial ? "pointer" : "crosshair";
    this.onHover(trial, event);
  }

  release(event) {
    const [from, to] = [this.drag, this.position(event)];
    this.drag = null;
    this.box.setAttribute("visibility", "hidden");
    if (!from) return;
    if (Math.abs(from[0] - to[0]) > 6 && Math.abs(from[1] - to[1]) > 6 && event.pointerType !== "touch") {
      const sorted = (a, b) => [Math.min(a, b), Math.max(a, b)];
      this.zoomTo([sorted(this.atX.invert(from[0]), this.atX.invert(to[0])), sorted(this.atY.invert(from[1]), this.atY.invert(to[1]))]);
      return;
    }
    const trial = this.nearest(to);
    if (trial) this.onSelect(trial);
  }

  zoomTo(window) {
    this.window = window;
    this.draw(this.state);
  }

  // Everything, infeasible trials that lie far away included.
  zoomOut() {
    this.zoomTo(this.whole);
  }

  zoom(factor, [x, y] = [this.width / 2, this.height / 2]) {
    const { left, right, top, bottom } = MARGIN;
    const about = (centre, from, to) => [centre - (centre - from) / factor, centre + (to - centre) / factor];
    const [x0, x1] = about(x, left, this.width - right).map(this.atX.invert);
    const [y1, y0] = about(y, top, this.height - bottom).map(this.atY.invert);
    this.zoomTo([[x0, x1], [y0, y1]]);
  }

  press(event) {
    const { selected } = this.state;
    const front = this.drawn.filter((p) => p.trial.onFrontier).sort((a, b) => a.px - b.px).map((p) => p.trial);
    const i = front.indexOf(selected);
    const steps = { ArrowRight: i + 1, ArrowUp: i + 1, ArrowLeft: i - 1, ArrowDown: i - 1, Home: 0, End: front.length - 1 };
    const zooms = { "+": () => this.zoom(1.5), "=": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5), 0: () => this.zoomTo(null) };
    if (event.key in steps && front.length) {
      this.onSelect(front[Math.min(Math.max(steps[event.key], 0), front.length - 1)]);
    } else if (event.key in zooms) {
      zooms[event.key]();
    } else {
      return;
    }
    event.preventDefault();
  }
}
