// The picture of a timeline: an axis, and the shapes of the lanes in the window, as SVG of our own. It keeps nothing but what
// it was last told: `place` is {range: {from, to}, width, lane (its height), narrow, live, now}.

const SVG = "http://www.w3.org/2000/svg";
const NICE = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 4, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1200, 1800];
const HOURS = 3600;
const FAILED = new Set(["failed", "error", "timed_out", "tripwire"]);
const STOPPED = new Set(["cancelled", "denied", "skipped"]);
const LEGEND = [
  ["turn", "turn", ["turn"]],
  ["step", "step", ["step"]],
  ["tool", "tool or agent", ["tool", "agent", "workflow-step"]],
  ["task", "background task", ["task"]],
  ["wait", "waiting", ["wait", "queued"]],
  ["suspended", "suspended", ["suspended"]],
  ["failed", "failed", ["failed"]],
  ["first", "first token", ["first"]],
];

class TimelinePicture {
  constructor(prefix) {
    this.prefix = prefix; // of ids in the page
    this.axis = draw("svg", { class: "nbm-tl__axis", "aria-hidden": "true" });
    this.svg = draw("svg", { class: "nbm-tl__draw", "aria-hidden": "true" });
    this.legend = make("ul.nbm-legend", { "aria-label": "Legend" });
    this.seen = new Set();
  }

  // `lanes` are rows of the store, the first of them the `first` of all.
  draw(place, lanes, first) {
    Object.assign(this, place);
    const height = lanes.length * this.lane;
    this.svg.style.top = `${first * this.lane}px`;
    setAttributes(this.svg, { width: this.width, height, viewBox: `0 0 ${this.width} ${height}` });
    setAttributes(this.axis, { width: this.width, height: 26, viewBox: `0 0 ${this.width} 26` });
    const { from, to } = this.range;
    this.x = (at) => ((at - from) / (to - from)) * this.width;
    const shapes = [this.patterns()];
    const heads = [];
    const step = niceStep(((to - from) * (this.narrow ? 64 : 84)) / this.width);
    const nowX = this.live ? this.x(this.now) : -1000;
    for (let tick = Math.ceil(from / step); tick * step <= to + step * 0.001; tick++) {
      const x = Math.round(this.x(tick * step)) + 0.5;
      if (x > this.width) break;
      shapes.push(draw("path", { class: "nbm-tl__line", d: `M${x} 0V${height}` }));
      heads.push(draw("path", { class: "nbm-tl__line", d: `M${x} 4V26` }));
      const near = x > nowX - 88 && x < nowX + 8;
      if (!near && x < this.width - 30) heads.push(draw("text", { x: x + 4, y: 16 }, tickWords(tick * step, step)));
    }
    if (this.live && nowX >= 0 && nowX <= this.width) {
      const x = Math.round(nowX) + 0.5;
      const left = nowX > 64;
      heads.push(draw("path", { class: "nbm-tl__now", d: `M${x} 4V26` }));
      heads.push(draw("text", { class: "nbm-tl__now", x: left ? x - 5 : x + 5, y: 16, "text-anchor": left ? "end" : "start" }, timeWords(this.now)));
    }
    const used = new Set();
    lanes.forEach((lane, number) => this.drawLane(lane, number * this.lane, shapes, used));
    if (this.live && nowX >= 0 && nowX <= this.width) {
      shapes.push(draw("path", { class: "nbm-tl__now", d: `M${Math.round(nowX) + 0.5} 0V${height}` }));
    }
    this.svg.replaceChildren(...shapes);
    this.axis.replaceChildren(...heads);
    this.drawLegend(used);
  }

  patterns() {
    const hatch = (name) => {
      const box = { id: `${this.prefix}${name}`, width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
      return draw("pattern", box, draw("path", { class: `nbm-tl__hatch--${name}`, d: "M0.5 0V4" }));
    };
    return draw("defs", {}, hatch("wait"), hatch("suspended"));
  }

  drawLane(lane, top, shapes, used) {
    const y = top + (this.lane - 10) / 2;
    for (const [kind, from, end] of lane.spans) {
      const open = end === null;
      const to = open ? Math.max(this.now, from) : end;
      if (to < this.range.from || from > this.range.to) continue;
      // What lies far outside of the window is cut: numbers of millions of pixels aren't drawn well.
      const [x1, x2] = [Math.max(this.x(from), -20), Math.min(this.x(to), this.width + 20)];
      if (kind === "gap") this.drawGap(lane, x1, x2, to - from, y + 5, shapes);
      else if (kind === "turn") {
        const right = open ? "" : `V${y + 9}`;
        shapes.push(draw("path", { class: "nbm-tl__turn", d: `M${x1} ${y + 9}V${y + 3.5}H${Math.max(x2, x1 + 2)}${right}` }));
      } else {
        const failed = kind !== "wait" && kind !== "suspended" && kind !== "queued" && kind !== "step" && FAILED.has(lane.status);
        const waiting = kind === "step" && open && lane.first == null;
        const name = failed ? "failed" : waiting ? "wait" : STOPPED.has(lane.status) && kind !== "queued" ? "stopped" : kind;
        const waits = kind === "step" && lane.first > from;
        const start = waits ? Math.min(Math.max(this.x(lane.first), x1), x2) : x1;
        if (waits) this.drawBar("wait", x1, start, y, false, shapes);
        if (waits) used.add("wait");
        this.drawBar(name, start, x2, y, open && end === null && x2 <= this.width, shapes);
        used.add(name);
      }
      used.add(kind);
    }
    if (lane.kind === "step" && lane.first != null && lane.first >= this.range.from && lane.first <= this.range.to) {
      const x = this.x(lane.first);
      shapes.push(draw("path", { class: "nbm-tl__first", d: `M${x} ${y - 3}V${y + 13}` }));
      used.add("first");
    }
  }

  drawBar(name, x1, x2, y, live, shapes) {
    const hatch = { wait: "wait", queued: "wait", suspended: "suspended" }[name];
    const box = { class: `nbm-tl__bar nbm-tl__bar--${name}`, x: x1, y: y + 0.5, width: Math.max(x2 - x1, 2), height: 9, rx: 1 };
    shapes.push(draw("rect", hatch ? { ...box, style: `fill:url(#${this.prefix}${hatch})` } : box));
    if (live && x2 - x1 > 3) shapes.push(draw("path", { class: "nbm-tl__open", d: `M${x2} ${y}V${y + 10}` }));
  }

  drawGap(lane, x1, x2, seconds, y, shapes) {
    shapes.push(draw("path", { class: "nbm-tl__gap", d: `M${x1} ${y}H${x2}` }));
    const time = timeWords(seconds, true);
    const whole = lane.note && !this.narrow ? `${time} ${lane.note}` : time;
    const words = [whole, time].find((text) => pen.measureText(text).width + 24 < x2 - x1);
    if (!words) return;
    const middle = (Math.max(x1, 0) + Math.min(x2, this.width)) / 2;
    const width = pen.measureText(words).width + 8;
    shapes.push(draw("rect", { class: "nbm-tl__blank", x: middle - width / 2, y: y - 8, width, height: 16 }));
    shapes.push(draw("text", { x: middle, y: y + 4, "text-anchor": "middle" }, words));
  }

  drawLegend(used) {
    const { seen } = this;
    const before = seen.size;
    for (const kind of used) seen.add(kind);
    if (seen.size === before && this.legend.firstChild) return;
    const items = LEGEND.filter(([, , kinds]) => kinds.some((kind) => seen.has(kind))).map(([name, words]) => {
      const key = draw("svg", { class: "nbm-tl__key", width: 16, height: 16, "aria-hidden": "true" }, this.patterns());
      const shapes = [];
      if (name === "turn") shapes.push(draw("path", { class: "nbm-tl__turn", d: "M1 12V6.5H15V12" }));
      else if (name === "first") shapes.push(draw("path", { class: "nbm-tl__first", d: "M8 1V15" }));
      else this.drawBar(name, 1, 15, 3, false, shapes);
      key.append(...shapes);
      return make("li", {}, key, words);
    });
    this.legend.replaceChildren(...items);
  }
}

const pen = document.createElement("canvas").getContext("2d"); // only measures text

function draw(tag, attributes, ...inner) {
  const el = document.createElementNS(SVG, tag);
  setAttributes(el, attributes);
  el.append(...inner);
  return el;
}

function niceStep(least) {
  return NICE.find((step) => step >= least) ?? HOURS * [1, 2, 3, 6, 12, 24, 48, 168, 720, 8760].find((n, i, all) => HOURS * n >= least || i === all.length - 1);
}

function tickWords(at, step) {
  if (step >= 60 || at >= 3600) return at ? timeWords(Math.max(at, 60)) : "0 s";
  if (at >= 60) return timeWords(at);
  const digits = step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;
  return `${numberWords(at, digits)} s`;
}

function duration(lane, now) {
  const own = lane.spans.filter(([kind]) => kind !== "gap");
  return Math.max(...own.map(([, , to]) => to ?? now)) - own[0][1];
}

function tokenWords({ in: input, out: output }) {
  const words = [];
  if (input != null) words.push(`${numberWords(input)} in`);
  if (output != null) words.push(`${numberWords(output)} out`);
  return words.join(", ");
}
