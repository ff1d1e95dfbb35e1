// Numbers in words, and values on a line.

function shown(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e7 || Math.abs(value) < 1e-3)) return value.toPrecision(3);
  return value.toLocaleString("en-US", { maximumSignificantDigits: 4 });
}

const percent = (share) => `${(100 * share).toFixed(Math.abs(share) < 0.0995 ? 1 : 0)} %`;

// Maps [low, high] to [from, to]; `invert` goes back, `ticks` are round values between.
function scale([low, high], [from, to], isLog) {
  const [flat, back] = isLog ? [Math.log10, (v) => 10 ** v] : [(v) => v, (v) => v];
  const [a, b] = [flat(low), flat(high)];
  const at = (value) => from + ((flat(value) - a) / (b - a)) * (to - from);
  at.invert = (pixel) => back(a + ((pixel - from) / (to - from)) * (b - a));
  at.ticks = (isLog && high / low > 3 ? logTicks : linearTicks)(low, high, Math.abs(to - from) / 80);
  return at;
}

function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(count, 5);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); i++) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  const factors = high / low > 1e3 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const factor of factors) ticks.push(factor * 10 ** power);
  }
  return ticks.filter((t) => t >= low && t <= high);
}

// The range of values with a margin; nothing and a single value have one too.
function extent(values, isLog, margin = 0.06) {
  if (!values.length) return isLog ? [1, 10] : [0, 1];
  let low = values.reduce((a, b) => Math.min(a, b));
  let high = values.reduce((a, b) => Math.max(a, b));
  if (isLog) {
    const factor = (high / low) ** margin * (high === low ? 1.2 : 1);
    return [low / factor, high * factor];
  }
  const width = (high - low) * margin || Math.abs(high) * 0.1 || 1;
  if (low >= 0 && low - width < 0) low = width;
  return [low - width, high + width];
}
