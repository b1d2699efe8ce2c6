// Draws a timeline: rows are lanes ({kind, name, depth, status, spans: [[kind, start, end]], first, in, out, …}), times are
// seconds since the run's start, an end of null is still open. Only lanes in the window exist: as rows for name, focus
// and screen readers, as shapes of one SVG behind them. Zoom, pan and what the pointer is on are the view's own.

const NARROWEST_S = 0.002;
const BEYOND = 4; // lanes kept on either side of the window
const MARKED = new Set(["failed", "timed_out", "tripwire", "suspended", "cancelled", "running"]); // tones that a label shows
const KINDS = { turn: "turn", step: "step", tool: "tool", agent: "agent", "workflow-step": "workflow step", task: "background task" };

function makeView(store, model, el, prefix) {
  return new TimelineView(store, el, prefix);
}

class TimelineView {
  constructor(store, el, prefix) {
    this.store = store;
    this.prefix = prefix;
    this.view = null; // {from, to}; null is the whole run
    this.follows = false; // the right edge of a zoomed view stays where the run is
    this.active = null; // key of the lane that the keyboard is on
    this.hovered = null;
    this.pointerX = 0;
    this.shown = new Map(); // key → row element
    this.index = new Map();
    this.frames = new Frames(() => this.draw());
    this.build(el);
    this.listening = new AbortController();
    this.listen({ signal: this.listening.signal });
    this.sizes = new ResizeObserver(() => this.frames.ask());
    this.sizes.observe(this.root);
    this.sight = new IntersectionObserver(() => this.frames.ask()); // a cell out of sight may have no size
    this.sight.observe(this.root);
    this.reorder();
    this.changeFacts();
    this.atEnd = !this.store.order.length; // what grows from nothing is followed, until somebody scrolls
    this.draw();
  }

  close() {
    this.frames.close();
    this.sizes.disconnect();
    this.sight.disconnect();
    this.listening.abort();
    clearTimeout(this.ticking);
    this.root.remove();
  }

  change(keys, facts, order) {
    if (order) this.reorder();
    if (facts) this.changeFacts();
    for (const key of keys) this.shown.get(key)?.row.setAttribute("data-stale", "");
    this.frames.ask();
  }

  // ---- what there is ----

  build(el) {
    el.dataset.lmSuppressShortcuts = "true"; // JupyterLab has keys of its own
    this.title = make("span.nbm-muted.nbm-ellipsis");
    this.status = make("span");
    this.metrics = make("dl.nbm-metrics");
    const button = (words, name, icon, act) => {
      const made = make(`button.nbm-btn${icon ? ".nbm-btn--icon" : ""}`, { type: "button", "aria-label": name, title: name });
      made.append(icon ? drawIcon(icon) : words);
      made.addEventListener("click", act);
      return made;
    };
    this.out = button("", "Zoom out", '<path d="M3 8h10"/>', () => this.zoom(2));
    this.in = button("", "Zoom in", '<path d="M8 3v10M3 8h10"/>', () => this.zoom(0.5));
    this.fit = button("Fit", "Fit the whole run", "", () => this.show(null));
    const zooms = make("span.nbm-btngroup", { role: "group", "aria-label": "Zoom" }, this.out, this.in, this.fit);
    const bar = make("div.nbm-bar", {}, make("span.nbm-bar__title", {}, "Timeline"), this.title, this.status);
    bar.append(make("span.nbm-spacer"), this.metrics, zooms);
    this.picture = new TimelinePicture(this.prefix);
    this.space = make("div.nbm-tl__space", { role: "presentation" }, this.picture.svg);
    const about = "Arrow keys up and down move between lanes, left and right pan, plus and minus zoom, 0 shows all, Enter selects.";
    const help = make("span.nbm-sr", { id: `${this.prefix}help` }, about);
    this.scroll = make("div.nbm-tl__scroll", { role: "listbox", tabindex: "0", "aria-describedby": help.id }, this.space);
    this.empty = make("div.nbm-empty", {}, make("p"), make("p"));
    this.card = make("div.nbm-card", { hidden: true });
    this.box = make("div.nbm-tl", {}, this.picture.axis, this.scroll, this.empty, this.card, help);
    this.news = make("div.nbm-sr", { role: "status", "aria-live": "polite" });
    this.remark = make("span.nbm-muted", { hidden: true });
    const foot = make("div.nbm-bar.nbm-bar--foot", {}, this.picture.legend, this.remark);
    this.root = make("div.nbm.nbm-timeline", { role: "group" }, bar, this.box, foot, this.news);
    el.append(this.root);
  }

  listen(options) {
    const on = (name, act, more = {}) => this.scroll.addEventListener(name, act, { ...options, ...more });
    on("scroll", () => this.frames.ask(), { passive: true });
    on("keydown", (event) => this.onKey(event));
    on("focus", () => this.frames.ask());
    on("blur", () => this.frames.ask());
    on("wheel", (event) => this.onWheel(event), { passive: false });
    on("pointerdown", (event) => this.onDown(event));
    on("pointermove", (event) => this.onMove(event));
    on("pointerup", (event) => this.onUp(event));
    on("pointercancel", () => (this.grip = null));
    on("pointerleave", () => this.hover(null));
  }

  reorder() {
    const before = this.index;
    this.index = new Map(this.store.order.map((key, place) => [key, place]));
    for (const [key, { row }] of this.shown) {
      if (this.index.has(key)) continue;
      row.remove();
      this.shown.delete(key);
    }
    const inUse = this.scroll.matches(":hover, :focus-visible");
    if (this.atEnd && !inUse) this.wanted = Infinity;
    else if (this.top && before.has(this.top)) {
      const moved = (this.index.get(this.top) ?? before.get(this.top)) - before.get(this.top);
      if (moved) this.wanted = (this.wanted ?? this.scroll.scrollTop) + moved * this.lane; // what is read stays where it is
    }
  }

  changeFacts() {
    const { title, status, news, selected, selectable, remark = "" } = this.store.facts;
    this.remark.hidden = !remark;
    setText(this.remark, remark);
    setAttributes(this.root, { "aria-label": `Timeline of ${title}` });
    setAttributes(this.scroll, { "aria-label": `Lanes of ${title}` });
    setText(this.title, title);
    putStatus(this.status, status);
    if (this.status.firstChild?.localName === "svg" && look(status)[0] === "arc") {
      this.status.firstChild.replaceWith(make("span.nbm-dot", { "aria-hidden": "true" }));
    }
    if (this.news.dataset.said !== undefined && this.news.dataset.said !== news) setText(this.news, news ?? "");
    this.news.dataset.said = news ?? "";
    if (selected !== this.selected) {
      this.selected = selected;
      if (this.index.has(selected)) this.reveal(selected);
    }
    this.selectable = selectable;
    for (const { row } of this.shown.values()) row.setAttribute("data-stale", "");
  }

  // ---- time and place ----

  get live() {
    return this.store.facts.now_since != null;
  }

  get now() {
    const { now_since, end } = this.store.facts;
    return this.live ? this.store.seconds(now_since) : (end ?? 0);
  }

  // The whole run: a live one has room to grow in, so that the scale changes now and then only.
  whole() {
    const now = Math.max(this.now, 0.01);
    if (!this.live) return { from: 0, to: now };
    const step = niceStep(now / 6);
    return { from: 0, to: Math.max(step, Math.ceil((now * 1.04) / step) * step) };
  }

  show(view, follows = false) {
    const whole = this.whole();
    if (view && view.to - view.from >= (whole.to - whole.from) * 0.999) view = null;
    if (view) {
      const width = Math.max(view.to - view.from, NARROWEST_S);
      const from = Math.min(Math.max(view.from, whole.from), Math.max(whole.to - width, whole.from));
      view = { from, to: from + width };
    }
    this.view = view;
    this.follows = Boolean(view) && this.live && (follows || view.to >= this.now);
    this.frames.ask();
  }

  zoom(factor, at) {
    const { from, to } = this.range;
    const middle = at ?? (this.live && this.follows ? to : (from + Math.min(to, Math.max(this.now, from))) / 2);
    this.show({ from: middle - (middle - from) * factor, to: middle + (to - middle) * factor });
  }

  pan(seconds) {
    if (this.view) this.show({ from: this.view.from + seconds, to: this.view.to + seconds });
  }

  at(x) {
    return this.range.from + (x / this.width) * (this.range.to - this.range.from);
  }

  measure() {
    const style = getComputedStyle(this.box);
    const size = (name) => parseFloat(style.getPropertyValue(name)) || 0;
    this.lane = size("--nbm-tl-lane") || 22;
    this.left = size("--nbm-tl-label");
    this.width = Math.max(this.space.clientWidth - this.left - size("--nbm-tl-end"), 40);
    this.narrow = this.root.clientWidth <= 560;
    pen.font = `11px ${style.fontFamily}`;
  }

  // ---- drawing ----

  draw() {
    const lanes = this.store.order.length;
    this.drawHead(lanes);
    if (lanes && this.space.clientWidth) {
      this.measure();
      this.range = this.follows ? this.followed() : (this.view ?? this.whole());
      this.space.style.height = `${lanes * this.lane}px`;
      if (this.wanted !== undefined) this.scroll.scrollTop = Math.min(this.wanted, lanes * this.lane);
      this.wanted = undefined;
      const { scrollTop, clientHeight } = this.scroll;
      this.atEnd = scrollTop + clientHeight >= lanes * this.lane - 4;
      this.top = this.store.order[Math.floor(scrollTop / this.lane)];
      const first = Math.max(0, Math.floor(scrollTop / this.lane) - BEYOND);
      const last = Math.min(lanes, Math.ceil((scrollTop + clientHeight) / this.lane) + BEYOND);
      this.drawRows(first, last);
      const { range, width, lane, narrow, live, now } = this;
      const drawn = this.store.order.slice(first, last).map((key) => this.store.rows.get(key));
      this.picture.draw({ range, width, lane, narrow, live, now }, drawn, first);
      this.drawCard();
    }
    clearTimeout(this.ticking);
    if (this.live && this.store.facts.rate) this.ticking = setTimeout(() => this.frames.ask(), this.now < 10 ? 100 : 500);
  }

  followed() {
    const width = this.view.to - this.view.from;
    const to = Math.max(this.view.to, this.now + width * 0.04);
    return (this.view = { from: to - width, to });
  }

  drawHead(lanes) {
    const { turns, first, gap } = this.store.facts;
    this.empty.hidden = lanes > 0;
    this.picture.axis.style.display = lanes ? "" : "none";
    this.scroll.hidden = !lanes;
    const [title, more] = this.store.facts.untimed
      ? ["No times are known", "Nobody knows when things happened in this run."]
      : this.live
        ? ["Nothing has happened yet", "Turns, steps and calls appear here as they begin."]
        : ["Nothing happened", "The run has no turns, steps or calls."];
    setText(this.empty.firstChild, title);
    setText(this.empty.lastChild, more);
    const facts = [[timeWords(this.now, !this.live), "time", true]];
    if (turns > 1) facts.push([numberWords(turns), "turns"]);
    if (first != null) facts.push([timeWords(first, true), "to first token"]);
    if (gap != null) facts.push([timeWords(gap, true), "longest gap"]);
    const words = JSON.stringify(facts);
    if (this.metrics.dataset.words !== words) {
      this.metrics.dataset.words = words;
      const pairs = facts.map(([value, name, hidden]) => make("div", {}, make(hidden ? "dt.nbm-sr" : "dt", {}, name), make("dd", {}, value)));
      this.metrics.replaceChildren(...pairs);
    }
    this.fit.disabled = this.out.disabled = !this.view;
    this.in.disabled = !lanes || Boolean(this.view && this.view.to - this.view.from <= NARROWEST_S * 1.01);
    this.root.classList.toggle("nbm-still", this.store.facts.rate === 0);
  }

  drawRows(first, last) {
    const keys = new Set(this.store.order.slice(first, last));
    if (this.active !== null && this.index.has(this.active)) keys.add(this.active); // what has the focus stays
    for (const [key, { row }] of this.shown) {
      if (keys.has(key)) continue;
      row.remove();
      this.shown.delete(key);
    }
    let behind = this.picture.svg;
    for (const key of [...keys].sort((a, b) => this.index.get(a) - this.index.get(b))) {
      const made = this.shown.get(key) ?? this.makeRow(key);
      if (behind.nextSibling !== made.row) behind.after(made.row);
      behind = made.row;
      this.drawRow(key, made);
    }
    const active = this.scroll.matches(":focus") ? this.shown.get(this.active)?.row.id : null;
    setAttributes(this.scroll, { "aria-activedescendant": active });
  }

  makeRow(key) {
    const name = make("span.nbm-ellipsis");
    const mark = make("span.nbm-tl__mark");
    const kind = make("span.nbm-sr"); // the row's name is its content: what is seen, and these words between it
    const label = make("span.nbm-lane__label", {}, name, mark, kind);
    const end = make("span.nbm-lane__end");
    const more = make("span.nbm-sr");
    const row = make("div.nbm-lane", { role: "option", id: `${this.prefix}${++laneIds}`, "data-key": key, "data-stale": "" }, label, end, more);
    const made = { row, label, name, mark, kind, end, more };
    this.shown.set(key, made);
    return made;
  }

  drawRow(key, { row, label, name, mark, kind, end, more }) {
    const lane = this.store.rows.get(key);
    const open = lane.spans.some(([kind, , to]) => kind !== "gap" && to === null);
    row.style.top = `${this.index.get(key) * this.lane}px`;
    const active = key === this.active && this.scroll.matches(":focus-visible");
    row.classList.toggle("is-active", active);
    row.classList.toggle("is-hovered", key === this.hovered);
    if (!row.hasAttribute("data-stale") && !open) return;
    row.removeAttribute("data-stale");
    label.style.setProperty("--depth", Math.min(lane.depth, 8));
    name.className = `nbm-ellipsis${lane.kind === "turn" || lane.kind === "step" ? "" : " nbm-mono"}`;
    setText(name, lane.name);
    const [, word, tone] = lane.status ? look(lane.status) : ["", "", ""];
    if (MARKED.has(tone)) {
      putStatus(mark, lane.status, "nbm-tl__mark");
      if (mark.childElementCount > 1) mark.lastChild.remove();
    } else if (mark.firstChild) {
      mark.replaceChildren();
      mark.className = "nbm-tl__mark";
      delete mark.dataset.status;
    }
    const took = duration(lane, this.now);
    setText(end, timeWords(took, !open));
    const [from, to] = [lane.spans[0][1], open ? null : lane.spans[0][1] + took];
    setText(kind, [KINDS[lane.kind], word.toLowerCase() || (open ? "running" : ""), ""].filter((text, i) => text || i === 2).join(", "));
    const facts = [`from ${timeWords(from, true)}${to === null ? " on" : ` to ${timeWords(to, true)}`}`, tokenWords(lane)];
    if (lane.first != null) facts.push(`first token after ${timeWords(lane.first - from, true)}`);
    setText(more, facts.filter(Boolean).join(", "));
    const place = this.index.get(key) + 1;
    setAttributes(row, {
      "aria-selected": String(key === this.selected),
      "aria-posinset": place,
      "aria-setsize": this.store.order.length,
    });
  }

  // ---- the card: what there is to know of a lane ----

  get about() {
    if (this.hovered !== null) return this.hovered;
    if (this.closed) return null;
    if (this.active !== null && this.scroll.matches(":focus-visible")) return this.active;
    return this.narrow && this.selected ? this.selected : null;
  }

  drawCard() {
    const key = this.about;
    const lane = this.grip?.moved ? null : this.store.rows.get(key);
    this.card.hidden = !lane;
    if (!lane) return;
    const took = duration(lane, this.now);
    const [from, open] = [lane.spans[0][1], lane.spans.some(([kind, , to]) => kind !== "gap" && to === null)];
    const turn = lane.turn !== key && this.store.rows.get(lane.turn);
    const whole = turn ? duration(turn, this.now) : 0;
    const share = whole > 0 && took <= whole ? `, ${numberWords((100 * took) / whole)} % of ${turn.name.toLowerCase()}` : "";
    const gap = lane.spans.find(([kind]) => kind === "gap");
    const facts = [["From, to", open ? `${timeWords(from, true)}, goes on` : `${timeWords(from, true)} to ${timeWords(from + took, true)}`]];
    facts.push(["Duration", `${timeWords(took, !open)}${share}`]);
    if (lane.first != null) facts.push(["First token", timeWords(lane.first - from, true)]);
    if (lane.kind === "turn" || lane.kind === "step" || lane.kind === "agent") facts.push(["Tokens", tokenWords(lane) || "not reported"]);
    if (lane.speed != null) facts.push(["Speed", `${numberWords(lane.speed)} tokens/s`]);
    if (lane.model) facts.push(["Model", lane.model]);
    if (gap) facts.push(["Gap", `${timeWords((gap[2] ?? this.now) - gap[1], true)}${lane.note ? ` ${lane.note}` : ""}`]);
    const hint = this.selectable && lane.kind !== "turn" && lane.kind !== "step" ? "Select to show its row in the tables." : "";
    const words = JSON.stringify([key, lane.name, lane.status, facts, hint]);
    if (this.card.dataset.words !== words) {
      this.card.dataset.words = words;
      const title = make("p.nbm-card__title");
      if (lane.status) {
        const status = make("span");
        putStatus(status, lane.status);
        status.lastChild.className = "nbm-sr";
        title.append(status);
      }
      title.append(make(`span.nbm-ellipsis${lane.kind === "turn" || lane.kind === "step" ? "" : ".nbm-mono"}`, {}, lane.name));
      title.append(make("span.nbm-tag", {}, KINDS[lane.kind] ?? lane.kind));
      const list = make("dl.nbm-kv", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
      this.card.replaceChildren(title, list, hint ? make("p.nbm-muted.nbm-card__hint", {}, hint) : "");
    }
    if (this.narrow) return;
    // Below its lane, or above it: never on it, and never out of the box to the right.
    const top = this.scroll.offsetTop + this.index.get(key) * this.lane - this.scroll.scrollTop;
    const { offsetWidth: width, offsetHeight: height } = this.card;
    const wanted = this.hovered === key ? this.left + this.pointerX + 12 : this.left + Math.max(this.picture.x(from), 0) + 12;
    this.card.style.left = `${Math.max(4, Math.min(wanted, this.box.clientWidth - width - 4))}px`;
    const below = top + this.lane + 3;
    const room = this.root.getBoundingClientRect().bottom - this.box.getBoundingClientRect().top;
    this.card.style.top = `${below + height <= room || top - height - 3 < 0 ? below : top - height - 3}px`;
  }

  // ---- what the user does ----

  laneAt(event) {
    const y = event.clientY - this.space.getBoundingClientRect().top;
    return this.store.order[Math.floor(y / this.lane)] ?? null;
  }

  trackX(event) {
    return event.clientX - this.picture.svg.getBoundingClientRect().left;
  }

  hover(key) {
    if (key === this.hovered && key === null) return;
    this.hovered = key;
    this.frames.ask();
  }

  onMove(event) {
    this.pointerX = this.trackX(event);
    const { grip } = this;
    if (grip && Math.abs(event.clientX - grip.x) > 4 && this.view && !grip.moved) {
      grip.moved = true;
      this.scroll.setPointerCapture(event.pointerId);
      this.scroll.classList.add("is-panning");
    }
    if (grip?.moved) {
      const seconds = ((grip.x - event.clientX) / this.width) * (grip.to - grip.from);
      this.show({ from: grip.from + seconds, to: grip.to + seconds });
    } else if (event.pointerType !== "touch") this.hover(this.laneAt(event));
  }

  onDown(event) {
    if (event.button !== 0 || !this.range) return;
    this.grip = { x: event.clientX, from: this.range.from, to: this.range.to, key: this.laneAt(event), moved: false };
  }

  onUp(event) {
    const { grip } = this;
    this.grip = null;
    this.scroll.classList.remove("is-panning");
    if (!grip || grip.moved) return this.frames.ask();
    if (grip.key !== null && grip.key === this.laneAt(event)) this.select(grip.key);
  }

  onWheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(2 ** (Math.max(-100, Math.min(100, event.deltaY)) / 100), this.at(Math.max(0, this.trackX(event))));
      return;
    }
    const sideways = event.deltaX || (event.shiftKey ? event.deltaY : 0);
    if (!sideways || !this.view || Math.abs(sideways) < Math.abs(event.deltaY && !event.shiftKey ? event.deltaY : 0)) return;
    event.preventDefault();
    this.pan((sideways / this.width) * (this.view.to - this.view.from));
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { from, to } = this.range ?? { from: 0, to: 0 };
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / this.lane) - 1);
    const place = this.index.get(this.active) ?? -1;
    const last = this.store.order.length - 1;
    const acts = {
      ArrowDown: () => this.go(place + 1),
      ArrowUp: () => this.go(Math.max(place, 1) - 1),
      PageDown: () => this.go(place + page),
      PageUp: () => this.go(place - page),
      Home: () => this.go(0),
      End: () => this.go(last),
      ArrowLeft: () => this.pan((from - to) / 8),
      ArrowRight: () => this.pan((to - from) / 8),
      "+": () => this.zoom(0.5, this.middleOf(this.active)),
      "=": () => this.zoom(0.5, this.middleOf(this.active)),
      "-": () => this.zoom(2, this.middleOf(this.active)),
      0: () => this.show(null),
      Enter: () => this.active !== null && this.select(this.active),
      " ": () => this.active !== null && this.select(this.active),
      Escape: () => {
        this.closed = true;
        this.hovered = null;
        this.frames.ask();
      },
    };
    if (!Object.hasOwn(acts, event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key !== "Escape") this.closed = false;
    acts[event.key]();
  }

  // Zooming by key keeps the lane that one is on in sight.
  middleOf(key) {
    const lane = this.store.rows.get(key);
    if (!lane) return undefined;
    const middle = lane.spans[0][1] + duration(lane, this.now) / 2;
    return middle >= this.range.from && middle <= this.range.to ? middle : undefined;
  }

  go(place) {
    const key = this.store.order[Math.max(0, Math.min(place, this.store.order.length - 1))];
    if (key === undefined) return;
    this.active = key;
    this.hovered = null;
    this.reveal(key);
  }

  reveal(key) {
    const top = this.index.get(key) * (this.lane ?? 22);
    const { scrollTop, clientHeight } = this.scroll;
    if (top < scrollTop) this.wanted = top;
    else if (clientHeight && top + this.lane > scrollTop + clientHeight) this.wanted = top + this.lane - clientHeight;
    this.frames.ask();
  }

  select(key) {
    this.active = key;
    this.selected = key;
    for (const { row } of this.shown.values()) row.setAttribute("data-stale", "");
    this.store.act("select", key);
    this.frames.ask();
  }
}

let laneIds = 0;
