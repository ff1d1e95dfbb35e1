// Markers: shape and colour say the same, so that greyscale and colour-blind readers lose nothing.

const polygon = (corners) => (x, y, r) =>
  `M${corners.map(([a, b]) => `${(x + a * r).toFixed(1)} ${(y + b * r).toFixed(1)}`).join("L")}Z`;

const SHAPES = [
  (x, y, r) => `M${(x - r).toFixed(1)} ${y.toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
  polygon([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]),
  polygon([[0, -1.15], [1.1, 0.85], [-1.1, 0.85]]),
  polygon([[0, -1.3], [1.1, 0], [0, 1.3], [-1.1, 0]]),
  polygon([[-1.1, -0.85], [1.1, -0.85], [0, 1.15]]),
  polygon([[-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1],
    [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4]]),
  polygon([[1.15, 0], [-0.85, 1.1], [-0.85, -1.1]]),
  polygon([[-1.15, 0], [0.85, -1.1], [0.85, 1.1]]),
  polygon([[0, -1.2], [1.14, -0.37], [0.7, 0.97], [-0.7, 0.97], [-1.14, -0.37]]),
  polygon([[-0.6, -1.1], [0.6, -1.1], [1.2, 0], [0.6, 1.1], [-0.6, 1.1], [-1.2, 0]]),
];
const COLOURS = 7;

const cross = (x, y, r) => `M${(x - r).toFixed(1)} ${(y - r).toFixed(1)}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`;
const star = (x, y, r) => polygon([...Array(10).keys()].map((i) => {
  const [angle, length] = [(i * Math.PI) / 5 - Math.PI / 2, i % 2 ? 0.45 : 1.1];
  return [length * Math.cos(angle), length * Math.sin(angle)];
}))(x, y, r);

const shapeOf = (group) => SHAPES[group % SHAPES.length];
const colourOf = (group) => `var(--c${group % COLOURS})`;
const MARKS = { knee: [star, "var(--knee)"], cheapest: [SHAPES[5], "var(--cheapest)"] };

// A marker by itself, for legends.
function swatch(shape, attributes, r = 5) {
  return svg("svg", { width: 16, height: 16, viewBox: "-8 -8 16 16", "aria-hidden": "true" },
    svg("path", { d: shape(0, 0, r), ...attributes }));
}
const groupSwatch = (group) => swatch(shapeOf(group), { fill: colourOf(group) });
const markSwatch = (mark) => swatch(MARKS[mark][0], { fill: MARKS[mark][1], stroke: "#000" }, 6);
