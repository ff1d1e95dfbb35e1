// Trials, one object each, from the document's columns.

function readTrials(doc) {
  const columns = doc.trials;
  const front = new Set(doc.frontier);
  const trials = columns.number.map((number, i) => ({
    number,
    name: columns.name[i],
    reason: columns.reason[i] < 0 ? null : doc.reasons[columns.reason[i]].name,
    detail: doc.details[columns.detail[i]],
    timing: doc.timings[columns.timing[i]],
    codes: Object.fromEntries(doc.fields.map((f) => [f.name, f.codes ? f.codes[i] : 0])),
    metrics: {},
    isSimulated: false,
    onFrontier: front.has(number),
    marks: ["knee", "cheapest"].filter((mark) => doc[mark] === number),
  }));
  columns.simulated.forEach((i, row) => {
    trials[i].isSimulated = true;
    for (const metric of doc.metrics) {
      const value = metric.values[row];
      if (value !== null) trials[i].metrics[metric.name] = value;
    }
  });
  return trials;
}

// Whether `a` is at least as good as `b` in every objective, and better in one.
function dominates(a, b, objectives) {
  const gains = objectives.map((o) => o.sign * (a.metrics[o.name] - b.metrics[o.name]));
  return gains.every((g) => g >= 0) && gains.some((g) => g > 0);
}

// The frontier's point that dominates a trial; of several the one whose smallest gain is largest.
function dominatorOf(trial, trials, objectives) {
  const least = (t) => Math.min(...objectives.map((o) => gain(t, trial, o)));
  const able = trials.filter((t) => t.onFrontier && dominates(t, trial, objectives));
  return able.length ? able.reduce((best, t) => (least(t) > least(best) ? t : best)) : null;
}

// How much better `a` is than `b`, as a share of `b`.
function gain(a, b, objective) {
  const [ours, theirs] = [a.metrics[objective.name], b.metrics[objective.name]];
  return ours === theirs ? 0 : (objective.sign * (ours - theirs)) / Math.abs(theirs);
}

// Trials that none of `trials` beats on two metrics, from left to right.
function bestOf(trials, x, y) {
  const better = (a, b) => x.sign * (b.metrics[x.name] - a.metrics[x.name])
    || y.sign * (b.metrics[y.name] - a.metrics[y.name]);
  let height = -Infinity;
  const kept = [...trials].sort(better).filter((t) => {
    const isBetter = y.sign * t.metrics[y.name] > height;
    if (isBetter) height = y.sign * t.metrics[y.name];
    return isBetter;
  });
  return x.sign > 0 ? kept.reverse() : kept;
}

// The deployment as YAML that `dynosim simulate` takes.
function yamlOf(trial, doc) {
  const lines = doc.fields.map((f) => f.lines[trial.codes[f.name]]).join("");
  return `# Trial ${trial.number}\n${lines}${doc.context}`;
}
