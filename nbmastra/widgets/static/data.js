// The store of the data widgets: rows and facts as the kernel has them, drawn by the script behind this one.
//
// That script's `makeView` gives { change(keys, facts, order), close() }: the keys of rows that differ, whether facts do,
// whether rows came or went. Operations are described in nbmastra/widgets/data.py. Text goes in by
// textContent; what the kernel sanitised (fields ending in `_html`) by `putHtml`, whose lists are the second gate.

class Store extends SharedStore {
  rows = new Map(); // key → fields; `since` fields are {s: seconds, at: when the kernel said so}
  order = [];
  facts = { rate: 1 };
  copies = new Map(); // what is done with a text that the kernel was asked for

  take(boot) {
    this.seq = boot.seq;
    this.repeats = new Set(boot.repeats);
    this.facts = this.timed(boot.facts);
    this.rows = new Map(boot.rows.map(([key, row]) => [key, this.timed(row)]));
    this.order = boot.rows.map(([key]) => key);
    // What the page would save is what is shown.
    const now = { seq: () => this.seq, facts: () => this.untimed(this.facts), rows: () => this.saved() };
    for (const [name, get] of Object.entries(now)) Object.defineProperty(boot, name, { get, enumerable: true });
    this.tell(new Set(this.order), true, true);
  }

  receive(message) {
    if (typeof message?.copy === "string") {
      this.copies.get(message.copy)?.(String(message.text));
      this.copies.delete(message.copy);
    }
    super.receive(message);
  }

  apply(ops) {
    const keys = new Set();
    let [facts, order] = [false, false];
    const gone = new Set();
    for (const [kind, key, ...rest] of ops) {
      if (kind === "f") {
        Object.assign(this.facts, this.timed(key));
        facts = true;
        continue;
      }
      keys.add(key);
      if (kind === "-") {
        this.rows.delete(key);
        gone.add(key);
      } else if (kind === "+") {
        if (gone.size) this.forget(gone);
        this.rows.set(key, this.timed(rest[1]));
        if (rest[0] === (this.order.at(-1) ?? null)) this.order.push(key);
        else this.order.splice(this.order.indexOf(rest[0]) + 1, 0, key);
        order = true;
      } else if (kind === "=") {
        Object.assign(this.rows.get(key), this.timed(rest[0]));
      } else if (kind === "~") {
        const [name, keep, add] = rest;
        const row = this.rows.get(key);
        row[name] = row[name].slice(0, keep) + add;
      }
    }
    order ||= gone.size > 0;
    if (gone.size) this.forget(gone);
    this.tell(keys, facts, order);
  }

  forget(gone) {
    this.order = this.order.filter((key) => !gone.has(key));
    gone.clear();
  }

  tell(keys, facts, order) {
    for (const view of this.views) view.change(keys, facts, order);
  }

  timed(fields) {
    for (const [name, value] of Object.entries(fields)) {
      if (typeof value === "number" && /(^|_)since$/.test(name)) fields[name] = { s: value, at: Date.now() };
    }
    return fields;
  }

  untimed(fields) {
    const shown = Object.entries(fields).map(([name, value]) => [name, value?.at ? this.seconds(value) : value]);
    return Object.fromEntries(shown);
  }

  saved() {
    return this.order.map((key) => [key, this.untimed(this.rows.get(key))]);
  }

  // Seconds that have passed since then; null where nothing passes.
  seconds(since) {
    return since ? since.s + ((Date.now() - since.at) / 1000) * this.facts.rate : null;
  }

  // True if it was sent: an act on a row is done once, wherever it is shown.
  act(name, key = "", arg = "", values = {}) {
    if (key && !this.repeats.has(name)) {
      const row = this.rows.get(key);
      if (!row || row.taken?.includes(name)) return false;
      row.taken = [...(row.taken ?? []), name];
      this.tell(new Set([key]), false, false);
    }
    this.model.send({ act: name, node: key, arg, values });
    return true;
  }

  // The whole of what a row shows a part of, from the kernel.
  ask(key, what) {
    const token = `${key} ${what} ${displays} ${Math.random()}`;
    return new Promise((done) => {
      this.copies.set(token, done);
      this.act("copy", key, what, { token });
    });
  }
}

// ---- what the scripts share ----

const HTML_TAG = new RegExp(
  "^(a|b|br|button|caption|code|dd|del|details|div|dl|dt|em|figure|hr|i|img|label|li|ol|option|p|pre|s|section|select|small" +
    "|span|strong|sub|summary|sup|table|tbody|td|tfoot|th|thead|tr|ul|blockquote|h[1-6]|form|input|textarea" +
    "|svg|path|circle)$",
);
const HTML_ATTRIBUTE = new RegExp(
  "^(aria-[a-z]+|data-nbm-[a-z]+|alt|checked|class|colspan|dir|disabled|for|hidden|href|id|inputmode|lang|max|min|name" +
    "|open|placeholder|readonly|required|role|rows|rowspan|scope|selected|spellcheck|src|start|tabindex|target|title|type|value" +
    "|viewbox|d|cx|cy|r|opacity|stroke-dasharray|rel)$",
);
const HTML_VALUE = {
  href: /^(https?:|mailto:)/i,
  src: /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$/,
};

// Ids in the page are by display, so that labels find their fields when a widget is shown twice.
function putHtml(el, html, prefix = "") {
  const template = document.createElement("template");
  template.innerHTML = html;
  for (const node of [...template.content.querySelectorAll("*")]) {
    if (!HTML_TAG.test(node.localName)) {
      node.remove();
      continue;
    }
    for (const { name, value } of [...node.attributes]) {
      if (!HTML_ATTRIBUTE.test(name.toLowerCase()) || HTML_VALUE[name]?.test(value) === false) node.removeAttribute(name);
      else if (/^(id|for|aria-(controls|describedby|labelledby))$/.test(name)) node.setAttribute(name, prefix + value);
    }
  }
  el.replaceChildren(template.content);
}

// make("span.nbm-num", {title: "…"}, "text", child): an element with classes, attributes and text or elements in it.
function make(what, attributes = {}, ...inner) {
  const [tag, ...classes] = what.split(".");
  const el = document.createElement(tag || "div");
  if (classes.length) el.className = classes.join(" ");
  setAttributes(el, attributes);
  el.append(...inner.filter((item) => item !== null && item !== undefined));
  return el;
}

function setAttributes(el, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) el.removeAttribute(name);
    else if (el.getAttribute(name) !== String(value)) el.setAttribute(name, value === true ? "" : value);
  }
}

function setText(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

const icons = new Map();

// An icon of our own: `paths` are the inside of an svg of 16 × 16.
function drawIcon(paths, cls = "nbm-icon") {
  const svg = `<svg class="${cls}" viewBox="0 0 16 16" aria-hidden="true">${paths}</svg>`;
  if (!icons.has(svg)) {
    const template = document.createElement("template");
    template.innerHTML = svg;
    icons.set(svg, template.content.firstChild);
  }
  return icons.get(svg).cloneNode(true);
}

// Status → [icon, word, class], as nbmastra/widgets/icons.py has them; another one is shown by its own word.
const SHAPES = {
  dashed: '<circle cx="8" cy="8" r="5.5" stroke-dasharray="2.2 2.2"/>',
  arc: '<circle cx="8" cy="8" r="5.5" opacity=".3"/><path d="M8 2.5A5.5 5.5 0 0 1 13.5 8"/>',
  bars: '<path d="M5.5 4v8M10.5 4v8"/>',
  check: '<path d="M3.5 8.5l3 3 6-7"/>',
  struck: '<circle cx="8" cy="8" r="5.5"/><path d="M4.2 11.8l7.6-7.6"/>',
  cross: '<path d="M4 4l8 8M12 4l-8 8"/>',
  clock: '<circle cx="8" cy="8" r="5.5"/><path d="M8 4.8V8l2.2 1.6"/>',
  octagon: '<path d="M5.5 2.5h5l3 3v5l-3 3h-5l-3-3v-5z"/><path d="M8 5.2v3.4M8 10.9v.1"/>',
  broken: '<path d="M1.5 8h3.5M11 8h3.5M6.2 5v6M9.8 5v6"/>',
};
const LOOKS = {
  pending: ["dashed", "Pending", "pending"],
  running: ["arc", "Running", "running"],
  streaming: ["arc", "Arguments", "running"],
  suspended: ["bars", "Suspended", "suspended"],
  "needs-approval": ["bars", "Approval", "suspended"],
  "needs-input": ["bars", "Needs input", "suspended"],
  success: ["check", "Completed", "completed"],
  completed: ["check", "Completed", "completed"],
  denied: ["struck", "Declined", "cancelled"],
  cancelled: ["struck", "Cancelled", "cancelled"],
  failed: ["cross", "Failed", "failed"],
  error: ["cross", "Failed", "failed"],
  timed_out: ["clock", "Timed out", "timed_out"],
  tripwire: ["octagon", "Tripwire", "tripwire"],
  truncated: ["broken", "Truncated", "truncated"],
};

function look(status) {
  return LOOKS[status] ?? ["dashed", String(status), "pending"];
}

// Fills an element with icon and word of a status, if it shows another one.
function putStatus(el, status, cls = "") {
  const [shape, word, tone] = look(status);
  if (el.dataset.status === String(status)) return;
  el.dataset.status = status;
  el.className = `${cls} nbm-status nbm-status--${tone}`.trim();
  el.replaceChildren(drawIcon(SHAPES[shape]), make("span", {}, word));
}

// Lets `draw` run once a frame of the screen, however often it is asked for; in a hidden tab not at all.
class Frames {
  constructor(draw) {
    this.draw = draw;
    this.asked = 0;
  }

  ask() {
    this.asked ||= requestAnimationFrame(() => {
      this.asked = 0;
      this.draw();
    });
  }

  close() {
    cancelAnimationFrame(this.asked);
    this.asked = 0;
  }
}
