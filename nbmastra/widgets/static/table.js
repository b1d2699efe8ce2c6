// A table of calls or tasks. Only the rows in the window are in the page; the kernel decides what they say and what one may do.
//
// A view keeps what its user did: sorting, filters, which rows are open, which cell is active.

const ACTS = { approve: "Approve", decline: "Decline…", resume: "Resume…", cancel: "Cancel", restart: "Restart" };
const ANSWERS = ["approve", "decline", "resume"];
const OPENS = new Set(["decline", "resume"]); // the row opens for what else is needed
const OPTIONAL = new Set(["args", "started", "attempts"]); // not in narrow tables
const UNDER = new Set(["says", "acts"]); // a line of their own there
const NUMBERS = new Set(["started", "elapsed", "attempts"]);
const EXTRA = 8; // rows outside of the window on each side
const WINDOW = 420;
const COPY_ICON = '<path d="M5.5 5.5h7v8h-7z"/><path d="M3.5 10.5v-8h7"/>';
const CHEVRON_ICON = '<path d="M5.5 2.5L11 8l-5.5 5.5"/>';
const INFO_ICON = '<circle cx="8" cy="8" r="5.5"/><path d="M8 7.4v3.2M8 5.2v.1"/>';
const UP_ICON = '<path d="M8 13V3M4.5 6.5L8 3l3.5 3.5"/>';
const DOWN_ICON = '<path d="M8 3v10M4.5 9.5L8 13l3.5-3.5"/>';
const SEARCH_ICON = '<circle cx="7" cy="7" r="4"/><path d="M10 10l3.5 3.5"/>';

class TableWindow {
  constructor(store, el, prefix) {
    Object.assign(this, { store, el, prefix });
    this.expanded = new Set();
    this.heights = new Map(); // of rows that differ from what is usual, by key
    this.usual = new Map(); // by kind of row
    this.drawn = new Map(); // key → TableRow in the page
    this.shown = [];
    this.offsets = new Float64Array(1);
    this.words = "";
    this.pressed = null; // a filter's word
    this.sort = null; // [column, 1 or -1]; null is the kernel's
    this.active = { key: null, column: "tool" };
    this.timers = new Set();
    this.stale = true;
    this.frames = new Frames(() => this.draw());
    this.listening = new AbortController();
    this.build();
    this.resized = new ResizeObserver(() => this.onResize());
    this.resized.observe(this.box);
    this.change(new Set(), true, true);
    this.draw();
  }

  close() {
    this.closed = true;
    this.listening.abort();
    this.frames.close();
    this.resized.disconnect();
    clearTimeout(this.ticking);
    this.timers.forEach(clearTimeout);
    this.el.replaceChildren();
  }

  // ---- the frame around the rows ----

  build() {
    const { facts } = this.store;
    const on = (el, type, heard) => el.addEventListener(type, heard, { signal: this.listening.signal });
    this.title = make("span.nbm-bar__title");
    this.filters = make("span.nbm-filters", { role: "group", "aria-label": "Filter by status" });
    this.where = make("span.nbm-muted.nbm-table__where");
    this.search = make("input.nbm-input", { type: "search", placeholder: "Filter rows", "aria-label": `Filter rows of ${facts.title}` });
    const search = make("span.nbm-search", {}, drawIcon(SEARCH_ICON), this.search);
    const bar = make("div.nbm-bar", {}, this.title, this.filters, make("span.nbm-spacer"), this.where, search);
    this.head = make("div.nbm-table__head", { role: "row", "aria-rowindex": 1 });
    this.body = make("div", { role: "rowgroup" });
    this.box = make(`div.nbm-table.nbm-table--${facts.kind === "tasks" ? "tasks" : "calls"}`, { role: "grid", "aria-label": facts.label });
    this.box.append(make("div.nbm-table__heads", { role: "rowgroup" }, this.head), this.body);
    this.none = make("div.nbm-empty");
    this.tip = make("div.nbm-tip", { role: "tooltip", id: `${this.prefix}tip`, hidden: true });
    this.news = make("div.nbm-sr", { role: "status", "aria-live": "polite" });
    this.root = make("div.nbm.nbm-tabled", { role: "group", "aria-label": facts.label }, bar, this.box, this.none, this.tip, this.news);
    this.root.dataset.lmSuppressShortcuts = "true"; // JupyterLab has keys of its own
    this.copier = make("button.nbm-cellcopy", { type: "button", tabindex: -1, "aria-hidden": "true", title: "Copy" }, drawIcon(COPY_ICON));
    for (const [name, words] of facts.columns) this.head.append(this.heading(name, words));
    this.el.append(this.root);
    on(this.box, "scroll", () => this.frames.ask());
    on(this.search, "input", () => this.filter({ words: this.search.value }));
    on(this.root, "click", (event) => this.onClick(event));
    on(this.root, "submit", (event) => this.onSubmit(event));
    on(this.box, "keydown", (event) => this.onKey(event));
    on(this.box, "focusin", (event) => this.onFocus(event.target));
    on(this.box, "focusout", () => this.showTip(null));
    on(this.box, "pointerover", (event) => this.onPointer(event.target));
    on(this.box, "pointerleave", () => this.onPointer(null));
    on(this.box, "toggle", () => this.frames.ask());
  }

  heading(name, words) {
    const cell = make("span.nbm-table__cell", { role: "columnheader", "data-column": name });
    if (OPTIONAL.has(name) || UNDER.has(name)) cell.classList.add("is-opt");
    if (NUMBERS.has(name)) cell.classList.add("nbm-num");
    if (words) cell.append(make("button.nbm-table__sort", { type: "button", "data-sort": name }, words));
    else cell.append(make("span.nbm-sr", {}, "Actions"));
    return cell;
  }

  filter(change) {
    Object.assign(this, change);
    if (change.words !== undefined && this.search.value !== this.words) this.search.value = this.words;
    this.stale = true;
    this.box.scrollTop = 0;
    this.frames.ask();
  }

  // ---- what the kernel says ----

  change(keys, facts, order) {
    for (const key of keys) {
      const row = this.store.rows.get(key);
      if (row) row.found = undefined;
      if (row && this.expanded.has(key) && !row.d && order) this.store.act("detail", key); // another page's kernel state
      this.drawn.get(key)?.touch();
    }
    this.stale ||= order || keys.size > 0;
    if (facts) this.showFacts();
    this.frames.ask();
  }

  showFacts() {
    const { title, label, news, selected } = this.store.facts;
    setText(this.title, title);
    setAttributes(this.box, { "aria-label": label });
    setText(this.news, news ?? "");
    if (this.selected === selected) return;
    const before = this.selected;
    this.selected = selected;
    for (const key of [before, selected]) this.drawn.get(key)?.touch();
    if (selected && before !== undefined) this.wanted = selected;
  }

  // ---- order ----

  arrange() {
    const { rows, order, facts } = this.store;
    const counts = new Map();
    let tries = false;
    for (const key of order) {
      const { status, attempts } = rows.get(key);
      counts.set(status, (counts.get(status) ?? 0) + 1);
      tries ||= attempts !== null && attempts !== undefined;
    }
    this.box.classList.toggle("has-tries", tries);
    this.showFilters(counts, order.length);
    const statuses = this.pressed && new Set(facts.filters.find(([word]) => word === this.pressed)?.[1]);
    const words = this.words.toLowerCase().split(/\s+/).filter(Boolean);
    let keys = this.sorted(order);
    if (statuses) keys = keys.filter((key) => statuses.has(rows.get(key).status));
    if (words.length) keys = keys.filter((key) => words.every((word) => findable(rows.get(key)).includes(word)));
    this.shown = keys;
    this.places = new Map(keys.map((key, i) => [key, i]));
    this.stale = false;
  }

  sorted(order) {
    const [column, direction] = this.sort ?? this.store.facts.sort;
    for (const cell of this.head.children) this.showSort(cell, column, direction);
    if (!this.sort && direction > 0) return order;
    const { rows } = this.store;
    const below = new Map();
    for (const key of order) {
      const { parent } = rows.get(key);
      const above = parent && rows.has(parent) ? parent : "";
      if (below.has(above)) below.get(above).push(key);
      else below.set(above, [key]);
    }
    const value = new Map(this.sort ? order.map((key) => [key, this.sortable(rows.get(key), column)]) : []);
    const compare = new Intl.Collator(navigator.language, { numeric: true });
    const found = [];
    const add = (above) => {
      const keys = below.get(above) ?? [];
      if (this.sort) {
        keys.sort((a, b) => {
          const [x, y] = [value.get(a), value.get(b)];
          if (x === null || y === null) return (x === null) - (y === null);
          return direction * (typeof x === "number" ? x - y : compare.compare(x, y));
        });
      } else keys.reverse();
      for (const key of keys) {
        found.push(key);
        add(key);
      }
    };
    add("");
    return found;
  }

  sortable(row, column) {
    if (column === "status") return look(row.status)[1];
    if (column === "elapsed") return row.elapsed ?? this.store.seconds(row.since);
    return row[column] ?? null;
  }

  showSort(cell, column, direction) {
    const mine = cell.dataset.column === column;
    setAttributes(cell, { "aria-sort": mine ? (direction > 0 ? "ascending" : "descending") : null });
    const button = cell.querySelector("button");
    const shown = mine ? String(direction) : "";
    if (!button || (button.dataset.shown ?? "") === shown) return;
    button.dataset.shown = shown;
    button.querySelector("svg")?.remove();
    if (mine) button.append(drawIcon(direction > 0 ? UP_ICON : DOWN_ICON));
  }

  showFilters(counts, all) {
    const wanted = [["All", all]];
    for (const [word, statuses] of this.store.facts.filters) {
      const count = statuses.reduce((sum, status) => sum + (counts.get(status) ?? 0), 0);
      if (count || this.pressed === word) wanted.push([word, count]);
    }
    while (this.filters.childElementCount > wanted.length) this.filters.lastElementChild.remove();
    wanted.forEach(([word, count], i) => {
      const button = this.filters.children[i] ?? this.filters.appendChild(make("button.nbm-toggle", { type: "button" }, make("span"), " ", make("b")));
      setText(button.firstChild, word);
      setText(button.lastChild, numberWords(count));
      setAttributes(button, { "data-filter": word, "aria-pressed": String((this.pressed ?? "All") === word) });
    });
  }

  // ---- the window ----

  kindOf(row) {
    const acts = row.acts?.length || row.why ? 1 : 0;
    return this.narrow ? 2 + acts : 0;
  }

  heightOf(key) {
    const kind = this.kindOf(this.store.rows.get(key));
    return this.heights.get(key) ?? this.usual.get(kind) ?? [28, 0, 50, 78][kind];
  }

  measure() {
    const offsets = new Float64Array(this.shown.length + 1);
    this.shown.forEach((key, i) => {
      offsets[i + 1] = offsets[i] + this.heightOf(key);
    });
    this.offsets = offsets;
  }

  // The row at a height below the heads.
  rowAt(top) {
    let [low, high] = [0, this.shown.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.offsets[middle + 1] <= top) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  draw() {
    if (this.closed) return;
    const { box } = this;
    const top = box.scrollTop;
    const first = this.shown[this.rowAt(top)];
    const within = first === undefined ? 0 : top - this.offsets[this.places?.get(first) ?? 0];
    const atEnd = top > 0 && top + box.clientHeight >= box.scrollHeight - 4;
    if (this.stale) this.arrange();
    this.narrow = this.root.clientWidth > 0 && this.root.clientWidth <= 760;
    const some = this.shown.length > 0;
    box.hidden = !some;
    this.showNone(some);
    this.measure();
    // What is read stays where it is; who is at the end stays there.
    if (this.wanted) this.seek();
    else if (atEnd && !this.moved) this.scrollTo(this.offsets[this.shown.length]);
    else if (top > 0 && this.places.has(first)) this.scrollTo(this.offsets[this.places.get(first)] + within);
    this.moved = false;
    for (let round = 0; round < 4; round++) {
      this.place();
      if (!this.remeasure()) break;
      this.measure();
    }
    this.showOpened();
    this.showWhere();
    this.tick();
  }

  // Scroll to what was opened, as soon as it is there.
  showOpened() {
    const key = this.opening;
    if (!key || !this.store.rows.get(key)?.d || !this.places.has(key)) return;
    this.opening = null;
    this.reveal(this.places.get(key));
  }

  scrollTo(top) {
    if (Math.abs(this.box.scrollTop - top) < 1) return;
    this.place(top); // what is below must be there before one can scroll to it
    this.box.scrollTop = top;
  }

  // Put the rows of the window into the page, and empty space for the others.
  place(top = this.box.scrollTop) {
    const start = Math.max(0, this.rowAt(top) - EXTRA);
    const end = Math.min(this.shown.length, this.rowAt(top + Math.max(this.box.clientHeight, WINDOW)) + 1 + EXTRA);
    const indices = [];
    for (let i = start; i < end; i++) indices.push(i);
    const focused = this.box.contains(document.activeElement) ? this.places.get(this.active.key) : undefined;
    if (focused !== undefined && (focused < start || focused >= end)) indices.push(focused); // focus isn't lost
    indices.sort((a, b) => a - b);
    const keep = new Set(indices.map((i) => this.shown[i]));
    const spare = []; // elements of rows that leave serve those that come
    for (const [key, row] of this.drawn) {
      if (keep.has(key)) continue;
      row.remove();
      spare.push(row);
      this.drawn.delete(key);
    }
    if (!this.places.has(this.active.key)) this.active = { ...this.active, key: this.shown[indices[0]] ?? null };
    let opened = 0;
    if (this.expanded.size) for (let i = 0; i < (indices[0] ?? 0); i++) opened += this.expanded.has(this.shown[i]);
    const wanted = [];
    let next = 0;
    const pad = (to) => {
      const height = this.offsets[to] - this.offsets[next];
      if (height > 0) wanted.push(make("div.nbm-table__pad", { "aria-hidden": "true", style: `height: ${height}px` }));
    };
    for (const i of indices) {
      pad(i);
      next = i + 1;
      const key = this.shown[i];
      let row = this.drawn.get(key);
      if (!row) this.drawn.set(key, (row = spare.pop()?.show(key) ?? new TableRow(this, key)));
      wanted.push(...row.update(i + opened + 2));
      opened += this.expanded.has(key);
    }
    pad(this.shown.length);
    setAttributes(this.box, { "aria-rowcount": this.shown.length + this.expanded.size + 1 });
    this.reconcile(wanted);
  }

  reconcile(wanted) {
    const { body } = this;
    const lost = body.contains(document.activeElement) ? document.activeElement : null;
    const keep = new Set(wanted);
    for (const el of [...body.children]) if (!keep.has(el)) el.remove();
    let at = body.firstChild;
    for (const el of wanted) {
      if (el === at) at = at.nextSibling;
      else body.insertBefore(el, at);
    }
    if (lost && lost !== document.activeElement && body.contains(lost)) lost.focus({ preventScroll: true });
  }

  // True if a row isn't as high as was thought.
  remeasure() {
    let changed = false;
    for (const [key, row] of this.drawn) {
      const height = row.height();
      if (!height || Math.abs(height - this.heightOf(key)) < 0.5) continue;
      const kind = this.kindOf(this.store.rows.get(key));
      if (!row.detail && !this.usual.has(kind)) this.usual.set(kind, height);
      else this.heights.set(key, height);
      changed = true;
    }
    return changed;
  }

  onResize() {
    if (this.width !== this.root.clientWidth) {
      this.width = this.root.clientWidth;
      this.heights.clear();
      this.usual.clear();
      for (const row of this.drawn.values()) row.touch();
    }
    this.frames.ask();
  }

  seek() {
    const key = this.wanted;
    this.wanted = null;
    if (!this.places.has(key) && this.store.rows.has(key)) {
      this.filter({ words: "", pressed: null });
      this.arrange();
      this.measure();
    }
    const place = this.places.get(key);
    if (place !== undefined) this.reveal(place);
  }

  reveal(place) {
    const [top, bottom] = [this.offsets[place], this.offsets[place + 1]];
    const seen = this.box.clientHeight - this.head.offsetHeight;
    const { scrollTop } = this.box;
    if (top < scrollTop) this.scrollTo(top);
    else if (bottom > scrollTop + seen) this.scrollTo(Math.min(top, bottom - seen));
  }

  showWhere() {
    const seen = Math.max(0, this.box.clientHeight - this.head.offsetHeight);
    const all = this.shown.length;
    const first = this.rowAt(this.box.scrollTop);
    const last = Math.min(all, this.rowAt(this.box.scrollTop + seen - 1) + 1);
    const cut = all > 0 && (first > 0 || last < all);
    setText(this.where, cut ? `rows ${numberWords(first + 1)} to ${numberWords(last)}` : "");
  }

  showNone(some) {
    this.none.hidden = some;
    const filtered = this.words || this.pressed;
    const [title, text] = filtered ? [this.words ? `No row matches "${this.words}"` : "No such row", ""] : this.store.facts.empty;
    if (some || this.none.dataset.shown === title) return;
    this.none.dataset.shown = title;
    const clear = make("button.nbm-btn", { type: "button", "data-clear": "yes" }, "Clear filter");
    this.none.replaceChildren(make("p", {}, title), make("p", {}, filtered ? clear : text));
  }

  tick() {
    clearTimeout(this.ticking);
    let pause = 0;
    for (const row of this.drawn.values()) {
      const seconds = row.showTime();
      if (seconds !== null) pause = seconds < 10 ? 100 : pause || 1000;
    }
    this.ticking = pause && this.store.facts.rate ? setTimeout(() => this.tick(), pause) : 0;
  }
}

function findable(row) {
  row.found ??= `${look(row.status)[1]} ${row.tool} ${row.args ?? ""} ${row.says ?? ""} ${(row.tags ?? []).join(" ")}`.toLowerCase();
  return row.found;
}
