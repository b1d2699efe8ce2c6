// The browser half of every nbmastra widget: it places what the kernel decided.
//
// One Store per widget holds the document (`_boot`: {id, seq, rate, nodes}) and applies messages {seq, ops} in order; one View per
// display shows it. Operations and nodes are described in nbmastra/widgets/document.py. HTML comes sanitised from the
// kernel; the lists below are the second gate. Besides the document a view keeps only what its user did: what was opened.

const TAG = new RegExp(
  "^(a|b|button|caption|code|dd|details|div|dl|dt|em|fieldset|figcaption|figure|form|h[1-6]|hr|i|img|input|label|legend|li" +
    "|ol|optgroup|option|p|pre|progress|section|select|small|span|strong|summary|table|tbody|td|textarea|tfoot|th|thead" +
    "|tr|ul)$",
);
const ATTRIBUTE = new RegExp(
  "^(aria-[a-z]+|data-nbm-[a-z]+|alt|autocomplete|checked|colspan|dir|disabled|for|height|hidden|href|id|inputmode|lang|list" +
    "|max|maxlength|min|multiple|name|open|pattern|placeholder|readonly|required|role|rows|rowspan|scope|selected|size" +
    "|spellcheck|src|step|style|tabindex|title|type|value|width)$",
);
const VALUE = {
  href: /^(https?:|mailto:)/i,
  src: /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$/,
  style: /^(--[a-z-]+: ?[0-9.]+(%|px|em)?;? ?)*$/,
};
const REFERENCE = /^(id|for|list|aria-(activedescendant|controls|describedby|details|labelledby|owns))$/;
const ATOM = /^(img|svg|math|br|hr|input|button|select|textarea)$/i; // no caret inside of these

class Store extends SharedStore {
  get seq() {
    return this.boot?.seq ?? -1;
  }

  set seq(seq) {
    this.boot.seq = seq;
  }

  take(boot) {
    boot.rate ??= 1;
    for (const node of Object.values(boot.nodes)) startClock(node);
    for (const view of this.views) view.rebuild();
  }

  apply(ops) {
    for (const op of ops) {
      this.change(op);
      for (const view of this.views) view.change(op);
    }
    for (const view of this.views) view.settle();
  }

  change([kind, id, ...rest]) {
    const nodes = this.boot.nodes;
    const node = nodes[id];
    if (kind === "+") {
      const [p, before, t, c = "", a = {}, h = null] = rest;
      const kids = nodes[p].k;
      const place = before ? kids.indexOf(before) : -1;
      kids.splice(place < 0 ? kids.length : place, 0, id);
      nodes[id] = { p, t, c, a: { ...a }, h, k: [], s: null };
    } else if (kind === "=") {
      node.h = (node.h ?? "").slice(0, rest[0]) + rest[1];
    } else if (kind === "c") {
      node.c = rest[0] ?? "";
    } else if (kind === "a") {
      for (const [name, value] of Object.entries(rest[0])) {
        if (value === null) delete node.a[name];
        else node.a[name] = value;
      }
    } else if (kind === "s") {
      node.s = rest[0] ?? null;
      startClock(node);
    } else if (kind === "-") {
      const kids = nodes[node.p].k;
      kids.splice(kids.indexOf(id), 1);
      const remove = (gone) => {
        nodes[gone].k.forEach(remove);
        delete nodes[gone];
      };
      remove(id);
    } else if (kind === "r") {
      const names = rest[0];
      const named = (was) => names[was] ?? was;
      for (const [was, now] of Object.entries(names)) {
        nodes[now] = nodes[was];
        delete nodes[was];
      }
      for (const now of [id, ...Object.values(names)]) {
        nodes[now].p = named(nodes[now].p);
        nodes[now].k = nodes[now].k.map(named);
      }
    } else if (kind === "t") {
      this.boot.rate = rest[0];
    }
  }
}

class View {
  constructor(store, model, el, prefix) {
    this.store = store;
    this.model = model;
    this.el = el;
    this.prefix = prefix;
    this.opened = new Map(); // what the user opened or closed stays so
    this.timers = new Set();
    this.listening = new AbortController();
    const listen = { signal: this.listening.signal };
    el.addEventListener("click", (event) => this.onClick(event), listen);
    el.addEventListener("change", (event) => this.onChange(event), listen);
    el.addEventListener("input", (event) => this.onInput(event), listen);
    el.addEventListener("keydown", (event) => this.onKey(event), listen);
    el.addEventListener("submit", (event) => this.onSubmit(event), listen);
    el.addEventListener("toggle", (event) => this.onToggle(event), { ...listen, capture: true });
    this.rebuild();
  }

  close() {
    this.listening.abort();
    cancelAnimationFrame(this.painting);
    cancelAnimationFrame(this.sliding);
    clearTimeout(this.ticking);
    this.timers.forEach(clearTimeout);
    this.el.replaceChildren();
  }

  node(id) {
    return this.store.boot.nodes[id];
  }

  rebuild() {
    this.els = new Map();
    this.ids = new WeakMap();
    this.dirty = new Set();
    this.carets = new Map();
    this.clocks = new Set();
    this.el.replaceChildren();
    for (const id of this.node("").k) this.insert(id, this.el, null);
    this.settle();
  }

  insert(id, parent, before) {
    const node = this.node(id);
    const el = document.createElement(TAG.test(node.t) ? node.t : "div");
    this.els.set(id, el);
    this.ids.set(el, id);
    if (node.c) el.className = node.c;
    for (const [name, value] of Object.entries(node.a)) this.setAttribute(el, id, name, value);
    if (this.opened.has(id)) el.open = this.opened.get(id);
    if (node.h !== null) paint(el, node.h);
    for (const kid of node.k) this.insert(kid, el, null);
    if (node.s !== null) this.clocks.add(id);
    parent.insertBefore(el, before);
    if ("data-nbm-focus" in node.a && this.acted) {
      this.acted = false; // only in the display where somebody asked for it
      queueMicrotask(() => el.focus());
    }
  }

  change([kind, id, ...rest]) {
    const el = this.els.get(id);
    if (kind === "+") {
      const [parent, before] = rest;
      this.insert(id, parent ? this.els.get(parent) : this.el, this.els.get(before) ?? null);
    } else if (kind === "=") {
      this.dirty.add(id);
    } else if (kind === "c") {
      el.className = rest[0] ?? "";
    } else if (kind === "a") {
      for (const [name, value] of Object.entries(rest[0])) this.setAttribute(el, id, name, value);
    } else if (kind === "s") {
      if (this.node(id).s === null) {
        this.clocks.delete(id);
        this.dirty.add(id); // the time it showed gives way to its own content
      } else {
        this.clocks.add(id);
        this.showTime(id);
      }
    } else if (kind === "-") {
      this.keepFocus(el);
      el.remove();
      for (const gone of [el, ...el.querySelectorAll("*")]) this.forget(this.ids.get(gone));
    } else if (kind === "r") {
      for (const [was, now] of Object.entries(rest[0])) this.rename(was, now);
    }
  }

  rename(was, now) {
    this.ids.set(this.els.get(was), now);
    for (const kept of [this.els, this.carets, this.opened]) {
      if (kept.has(was)) kept.set(now, kept.get(was));
      kept.delete(was);
    }
    for (const kept of [this.dirty, this.clocks]) if (kept.delete(was)) kept.add(now);
  }

  forget(id) {
    for (const kept of [this.els, this.dirty, this.carets, this.clocks, this.opened]) kept.delete(id);
  }

  setAttribute(el, id, name, value) {
    if (!ATTRIBUTE.test(name) || (value !== null && VALUE[name]?.test(value) === false)) return;
    if (name === "open" && el.localName === "details") {
      const inUse = el.matches(":hover") || el.contains(document.activeElement);
      if (this.opened.has(id) || (value === null && el.open && inUse)) return;
    }
    if (name === "data-nbm-caret") {
      this.carets.get(id)?.remove();
      this.carets.delete(id);
      if (value !== null) this.carets.set(id, makeCaret());
    }
    if (name === "data-nbm-at") el.textContent = clockWords(value, clock, dayAndClock);
    if (name === "href") {
      el.target = "_blank";
      el.rel = "noopener noreferrer";
    }
    if (name === "value" && el.type === "range" && !el.matches(":active") && !this.sliding) el.value = value;
    if (name === "data-nbm-key") this.el.dataset.lmSuppressShortcuts = "true"; // JupyterLab has keys of its own
    if (name === "data-nbm-enter") this.el.dataset.lmSuppressShortcuts = "true";
    if (value !== null && (name === "hidden" || name === "disabled")) this.keepFocus(el);
    if (value === null) el.removeAttribute(name);
    else el.setAttribute(name, REFERENCE.test(name) ? value.replace(/\S+/g, (id) => this.prefix + id) : value);
  }

  // What is taken away leaves the focus to the field that is the view's home, if it has one.
  keepFocus(el) {
    const home = el.contains(document.activeElement) && this.el.querySelector("[data-nbm-home]");
    if (home && !el.contains(home)) home.focus();
  }

  // Text is painted once a frame of the screen, however many messages came; in a hidden tab not at all.
  settle() {
    if (this.dirty.size || this.carets.size) this.painting ||= requestAnimationFrame(() => this.repaint());
    if (this.clocks.size && !this.ticking) this.tick();
  }

  repaint() {
    this.painting = 0;
    for (const caret of this.carets.values()) caret.remove();
    for (const id of this.dirty) paint(this.els.get(id), this.node(id).h ?? "");
    this.dirty.clear();
    for (const [id, caret] of this.carets) putAtEnd(this.els.get(id), caret);
  }

  tick() {
    let pause = 1000;
    for (const id of this.clocks) {
      if (this.showTime(id) < 10) pause = 100;
    }
    this.ticking = this.clocks.size && this.store.boot.rate ? setTimeout(() => this.tick(), pause) : 0;
  }

  showTime(id) {
    const { s, start } = this.node(id);
    const seconds = s + ((Date.now() - start) / 1000) * this.store.boot.rate;
    this.els.get(id).textContent = timeWords(seconds);
    return seconds;
  }

  onToggle({ target }) {
    const id = this.ids.get(target);
    if (id !== undefined && target.open !== "open" in this.node(id).a) this.opened.set(id, target.open);
  }

  // Only nodes of the document act: markup inside of `html`, which may show what a model wrote, never does.
  onClick(event) {
    const target = event.target.closest("[data-nbm-act], [data-nbm-copy], [data-nbm-copyof]");
    const id = target && this.ids.get(target);
    if (id === undefined || id === null || FIELD.test(target.localName)) return;
    const { a } = this.node(id);
    if ("data-nbm-copy" in a || "data-nbm-copyof" in a) {
      this.copy(target, a["data-nbm-copy"] ?? this.els.get(a["data-nbm-copyof"])?.textContent ?? "");
    } else this.act(target, id);
  }

  onChange({ target }) {
    const id = this.ids.get(target);
    const node = this.node(id); // a field that is taken away while one writes in it changes, too
    if (target.type === "range") {
      cancelAnimationFrame(this.sliding); // this says where it has come to
      this.sliding = 0;
    }
    if (node && FIELD.test(target.localName) && "data-nbm-act" in node.a) this.act(target, id);
  }

  // A slider acts while it is moved, once a frame of the screen.
  onInput({ target }) {
    const id = this.ids.get(target);
    if (id === undefined || target.type !== "range" || !("data-nbm-act" in this.node(id).a)) return;
    this.sliding ||= requestAnimationFrame(() => {
      this.sliding = 0;
      const now = this.ids.get(target);
      if (this.els.has(now)) this.act(target, now);
    });
  }

  // A key clicks the button that names it, wherever in the widget it is pressed but where it means something else.
  onKey(event) {
    const breaks = event.key === "Enter" && event.shiftKey && !event.isComposing;
    if (breaks && event.target.localName === "textarea" && this.ids.has(event.target)) return this.breakLine(event);
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.isComposing) return;
    const { target, key } = event;
    if (this.onFieldKey(event)) return;
    const own = key === " " ? "button, summary, a, input, select, textarea" : "select, textarea, input:not([type=range])";
    if (target.closest(own) && !(key === " " && target.type === "range")) return;
    const button = this.el.querySelector(`button[data-nbm-key="${key === " " ? "Space" : CSS.escape(key)}"]`);
    if (!button || !this.ids.has(button)) return;
    event.preventDefault();
    event.stopPropagation();
    if (!button.disabled) button.click();
  }

  // In a field that says so, Enter and Escape click a button of its form; Shift+Enter breaks the line as ever.
  onFieldKey(event) {
    const { target, key } = event;
    const id = this.ids.get(target);
    const act = id === undefined ? null : this.node(id).a[key === "Enter" ? "data-nbm-enter" : key === "Escape" ? "data-nbm-escape" : ""];
    if (!act) return false;
    event.preventDefault();
    event.stopPropagation();
    for (const button of target.form?.querySelectorAll("button") ?? []) {
      const own = this.ids.get(button);
      if (own !== undefined && this.node(own).a["data-nbm-act"] === act && !button.disabled) button.click();
    }
    return true;
  }

  // JupyterLab takes the line break of Shift+Enter away from every field within a cell: it is put there here.
  breakLine(event) {
    const { target } = event;
    event.preventDefault();
    event.stopPropagation();
    target.setRangeText("\n", target.selectionStart, target.selectionEnd, "end");
    target.dispatchEvent(new InputEvent("input", { bubbles: true }));
  }

  onSubmit(event) {
    event.preventDefault();
    for (const button of event.target.querySelectorAll("button[data-nbm-act]")) {
      if (this.ids.has(button)) return button.click();
    }
  }

  act(target, node) {
    const { a, t } = this.node(node);
    if ("disabled" in a) return;
    const values = {};
    const form = target.closest("form, [data-nbm-form]") ?? target;
    for (const field of [form, ...form.querySelectorAll("[name]")]) {
      if (field.name) values[field.name] = field.type === "checkbox" ? field.checked : field.value;
    }
    if (t === "button" && !("data-nbm-repeat" in a)) this.store.apply([["a", node, { disabled: "" }]]);
    this.acted = true;
    this.model.send({ act: a["data-nbm-act"], arg: a["data-nbm-arg"] ?? "", values, node });
    if ("data-nbm-clears" in a) form.reset?.();
  }

  async copy(target, text) {
    await copyText(text);
    target.setAttribute("data-nbm-copied", "");
    const timer = setTimeout(() => {
      target.removeAttribute("data-nbm-copied");
      this.timers.delete(timer);
    }, 1500);
    this.timers.add(timer);
  }
}

const FIELD = /^(input|select|textarea)$/;

function startClock(node) {
  if (node.s !== null) node.start = Date.now();
}

function makeCaret() {
  const caret = document.createElement("span");
  caret.className = "nbm-caret";
  caret.setAttribute("aria-hidden", "true");
  return caret;
}

// Behind the last thing written, however deep.
function putAtEnd(el, caret) {
  const last = lastWritten(el);
  if (last) last.after(caret);
  else el.append(caret);
}

function lastWritten(el) {
  for (let node = el.lastChild; node; node = node.previousSibling) {
    if (node.nodeType === Node.TEXT_NODE ? node.data.trim() : ATOM.test(node.localName)) return node;
    const last = lastWritten(node);
    if (last) return last;
  }
  return null;
}

function paint(el, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  morph(el, template.content);
}

const clock = new Intl.DateTimeFormat(navigator.language, { hour: "2-digit", minute: "2-digit" });
const dayAndClock = new Intl.DateTimeFormat(navigator.language, { dateStyle: "medium", timeStyle: "short" });

// Change `old` into `fresh` and keep every node that still fits, so that selections and scroll positions survive.
function morph(old, fresh) {
  let at = old.firstChild;
  for (let want = fresh.firstChild, next; want; want = next) {
    next = want.nextSibling;
    if (!at) {
      old.append(want);
    } else if (at.nodeName !== want.nodeName) {
      const gone = at;
      at = at.nextSibling;
      old.replaceChild(want, gone);
    } else {
      if (at.nodeType === Node.TEXT_NODE) {
        if (want.data.startsWith(at.data)) at.appendData(want.data.slice(at.data.length));
        else at.data = want.data;
      } else {
        morphAttributes(at, want);
        morph(at, want);
      }
      at = at.nextSibling;
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function morphAttributes(old, fresh) {
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) {
    // What the reader opened in it stays open.
    if (!fresh.hasAttribute(name) && !(name === "open" && old.localName === "details")) old.removeAttribute(name);
  }
}

function makeView(store, model, el, prefix) {
  return new View(store, model, el, prefix);
}
