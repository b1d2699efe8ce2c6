// One row of a table, and what it opens to.

class TableRow {
  constructor(table, key) {
    this.table = table;
    this.detail = null;
    this.cells = {};
    this.el = make("div.nbm-table__row", { role: "row" });
    for (const [name] of table.store.facts.columns) this.el.append((this.cells[name] = this.cell(name)));
    this.show(key);
  }

  // Another row of the table in the same elements.
  show(key) {
    this.key = key;
    this.stale = true;
    this.el.dataset.key = key;
    this.showActive();
    return this;
  }

  cell(name) {
    const cell = make("span.nbm-table__cell", { role: "gridcell", "data-column": name, tabindex: -1 });
    if (OPTIONAL.has(name)) cell.classList.add("is-opt");
    if (UNDER.has(name)) cell.classList.add("is-under");
    if (NUMBERS.has(name)) cell.classList.add("nbm-num");
    if (name === "args") cell.classList.add("nbm-mono", "nbm-muted");
    if (name === "acts") cell.classList.add("nbm-table__cell--acts");
    if (name === "says") {
      this.words = make("span.nbm-mono.nbm-ellipsis");
      this.bar = make("span.nbm-progress", { role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100 }, make("i"));
      this.percent = make("span.nbm-num");
      cell.append((this.live = make("span", {}, this.bar, this.percent, this.words)));
    }
    if (name === "tool") {
      cell.classList.add("nbm-table__name");
      this.opener = make("button.nbm-expand", { type: "button", tabindex: -1 }, drawIcon(CHEVRON_ICON, "nbm-chev"));
      this.name = make("span.nbm-mono.nbm-ellipsis");
      this.tags = make("span.nbm-tags");
      cell.append(this.opener, this.name, this.tags);
    }
    return cell;
  }

  get row() {
    return this.table.store.rows.get(this.key);
  }

  touch() {
    this.stale = true;
  }

  remove() {
    this.el.remove();
    this.dropDetail();
    if (this.el.contains(this.table.copier)) this.table.copier.remove();
  }

  dropDetail() {
    if (!this.detail) return;
    this.table.resized.unobserve(this.detail.el);
    this.detail.el.remove();
    this.detail = null;
  }

  // The elements that stand in the table for it.
  update(index) {
    setAttributes(this.el, { "aria-rowindex": index });
    const open = this.table.expanded.has(this.key);
    if (this.stale) {
      this.stale = false;
      this.fill(open);
      if (!open) this.dropDetail();
      else if (!this.detail) {
        this.detail = new Detail(this.table, this.key);
        this.table.resized.observe(this.detail.el);
      }
      this.detail?.update();
    }
    if (!this.detail) return [this.el];
    setAttributes(this.detail.el, { "aria-rowindex": index + 1 });
    return [this.el, this.detail.el];
  }

  height() {
    return this.el.offsetHeight + (this.detail?.el.offsetHeight ?? 0);
  }

  fill(open) {
    const { row, cells, table } = this;
    const name = row.tool;
    setAttributes(this.el, { "data-expanded": open, "aria-selected": table.selected === this.key ? "true" : null });
    putStatus(cells.status, row.status, "nbm-table__cell");
    cells.tool.style.setProperty("--depth", Math.min(row.depth ?? 0, 12));
    setAttributes(this.opener, { "aria-expanded": String(open), "aria-label": `Details of ${name}` });
    setText(this.name, name);
    setAttributes(cells.tool, { title: name });
    const tags = row.tags ?? [];
    if (this.tags.dataset.shown !== tags.join()) this.tags.replaceChildren(...tags.map((tag) => make("span.nbm-tag", {}, tag)));
    this.tags.dataset.shown = tags.join();
    setText(cells.args, row.args ?? "");
    setAttributes(cells.args, { title: row.args || null });
    if (row.writing) cells.args.append(make("span.nbm-caret", { "aria-hidden": "true" }));
    setText(cells.started, clockWords(row.started, times, days));
    setAttributes(cells.started, { title: row.started ? moments.format(new Date(row.started)) : null });
    setText(cells.attempts, row.attempts === null || row.attempts === undefined ? "" : numberWords(row.attempts));
    this.fillLive(row);
    if (cells.acts) this.fillActs(row);
    this.showTime();
  }

  fillLive(row) {
    const bar = row.progress !== null && row.progress !== undefined;
    const tone = row.problem ? "bad" : row.tone || "plain";
    setAttributes(this.live, { class: bar ? "nbm-live nbm-live--bar" : "nbm-live" });
    setAttributes(this.words, { class: `nbm-mono nbm-ellipsis nbm-tone--${tone}` });
    setText(this.words, row.problem || row.says || (bar ? "" : "–"));
    this.bar.hidden = this.percent.hidden = !bar;
    if (!bar) return;
    setAttributes(this.bar, { "aria-label": `Progress of ${row.tool}`, "aria-valuenow": row.progress });
    this.bar.style.setProperty("--p", `${row.progress}%`);
    setText(this.percent, `${numberWords(row.progress)} %`);
  }

  fillActs(row) {
    const had = this.cells.acts.contains(document.activeElement) ? document.activeElement.dataset.act : null;
    const answered = ANSWERS.some((act) => row.taken?.includes(act));
    const names = row.acts ?? [];
    const seen = JSON.stringify([names, row.taken, row.why, row.tool]);
    if (this.actsSeen === seen) return;
    this.actsSeen = seen;
    const made = names.map((act) => {
      const primary = act === "approve" || act === "resume" ? ".nbm-btn--primary" : "";
      const taken = row.taken?.includes(act) || (answered && ANSWERS.includes(act));
      return make(`button.nbm-btn${primary}`, { type: "button", "data-act": act, disabled: taken, "aria-label": `${ACTS[act]} ${row.tool}` }, ACTS[act] ?? act);
    });
    if (!names.length && row.why) {
      const label = { type: "button", "data-why": row.why, "aria-describedby": this.table.tip.id, "aria-label": `No actions for ${row.tool}` };
      made.push(make("button.nbm-btn.nbm-btn--plain", label, drawIcon(INFO_ICON), "No actions"));
    }
    this.cells.acts.replaceChildren(...made);
    this.showActive();
    if (had) (made.find((button) => button.dataset.act === had && !button.disabled) ?? this.cells.acts).focus({ preventScroll: true });
  }

  // The one cell that Tab comes to, and the buttons of its row.
  showActive() {
    const { active } = this.table;
    const mine = active.key === this.key;
    for (const [name, cell] of Object.entries(this.cells)) cell.tabIndex = mine && name === active.column ? 0 : -1;
    for (const button of this.cells.acts?.children ?? []) button.tabIndex = mine ? 0 : -1;
  }

  // Shows the time it took or takes; gives the seconds of what goes on.
  showTime() {
    const { row } = this;
    const seconds = row ? this.table.store.seconds(row.since) : null;
    if (row) setText(this.cells.elapsed, seconds === null ? timeWords(row.elapsed, true) : timeWords(seconds));
    return seconds;
  }
}

const days = new Intl.DateTimeFormat(navigator.language, { day: "numeric", month: "short" });
const moments = new Intl.DateTimeFormat(navigator.language, { dateStyle: "medium", timeStyle: "medium" });
const times = new Intl.DateTimeFormat(navigator.language, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

// What a row opens to: a question and its form, arguments, result or error, output, times.
class Detail {
  constructor(table, key) {
    Object.assign(this, { table, key });
    this.seen = new Map();
    const places = ["ask", "args", "remarks", "result", "output", "times"];
    this.parts = Object.fromEntries(places.map((name) => [name, make(`div.nbm-${name}`, { hidden: true })]));
    this.left = make("div", {}, this.parts.ask, this.parts.args, this.parts.remarks);
    this.right = make("div", {}, this.parts.result, this.parts.output, this.parts.times);
    this.loading = make("p.nbm-line.nbm-muted", {}, "Asking the kernel …");
    this.cell = make("div.nbm-table__opened", { role: "gridcell" }, this.loading, this.left, this.right);
    this.el = make("div.nbm-table__detail", { role: "row", "data-key": key }, this.cell);
  }

  get row() {
    return this.table.store.rows.get(this.key);
  }

  update() {
    const { row } = this;
    const d = row?.d;
    this.loading.hidden = Boolean(d);
    this.left.hidden = this.right.hidden = !d;
    if (!d) return;
    this.part("ask", d.ask, (el) => this.ask(el, d.ask));
    this.showAnswered(row, d.ask);
    const args = d.args_text ?? d.args_html;
    this.part("args", args, (el) => {
      const body = make(d.args_text ? "pre.nbm-pre" : "div.nbm-pre");
      if (d.args_text) body.textContent = d.args_text;
      else putHtml(body, d.args_html, this.prefix);
      el.replaceChildren(this.title("Arguments", "args"), body);
    });
    this.part("remarks", d.remarks, (el) => el.replaceChildren(...d.remarks.map((text) => make("p.nbm-notice__text.nbm-muted", {}, text))));
    this.part("result", [d.result_html, d.error_html, d.answer], (el) => this.result(el, d));
    this.output(row.d_output ?? "");
    const facts = [...d.times.map(([label, seconds]) => [label, timeWords(seconds, true)]), ...d.ids];
    this.part("times", facts, (el) => {
      const list = make("dl.nbm-kv");
      for (const [label, value] of facts) list.append(make("dt", {}, label), make("dd.nbm-mono", {}, value));
      el.replaceChildren(this.title("Times and ids"), list);
    });
    if (this.table.focusIn?.key === this.key) {
      const target = this.cell.querySelector(this.table.focusIn.selector);
      if (target) {
        this.table.focusIn = null;
        requestAnimationFrame(() => target.focus({ preventScroll: true }));
      }
    }
  }

  get prefix() {
    return `${this.table.prefix}${[...this.table.store.rows.keys()].indexOf(this.key)}-`;
  }

  // Draws a part anew, if it is another one; what the user opened or wrote in it stays otherwise.
  part(name, data, draw) {
    const seen = JSON.stringify(data ?? null);
    if (this.seen.get(name) === seen) return;
    this.seen.set(name, seen);
    const empty = ["null", '""', "[]", "{}", "[null,null,null]"].includes(seen);
    this.parts[name].hidden = empty;
    if (empty) this.parts[name].replaceChildren();
    else draw(this.parts[name]);
  }

  title(words, copies = "") {
    const title = make("p.nbm-h", {}, make("span", {}, words));
    const label = `Copy the ${copies} of ${this.row.tool}`;
    if (copies) title.append(make("button.nbm-btn.nbm-btn--plain", { type: "button", "data-copy": copies, "aria-label": label }, drawIcon(COPY_ICON), "Copy"));
    return title;
  }

  result(el, d) {
    const html = d.error_html ?? d.result_html;
    const body = make("div");
    if (html) putHtml(body, html, this.prefix);
    else body.append(make("pre.nbm-pre", {}, d.answer ?? ""));
    const words = d.error_html ? "Error" : d.result_words ? `Result, ${d.result_words}` : html ? "Result" : "Answer";
    el.replaceChildren(this.title(words, html ? (d.error_html ? "error" : "result") : ""), body);
    if (d.cut) {
      const label = `Show all of the result of ${this.row.tool}`;
      el.append(make("p.nbm-more", {}, make("button.nbm-btn.nbm-btn--plain", { type: "button", "data-all": "yes", "aria-label": label }, "Show all")));
    }
  }

  // Text that grows is added to, so that what is selected or scrolled stays so.
  output(text) {
    const el = this.parts.output;
    el.hidden = !text;
    if (!text) return el.replaceChildren();
    this.lines ??= make("pre.nbm-pre.nbm-table__output", { tabindex: 0, role: "group", "aria-label": `Output of ${this.row.tool}` });
    if (!el.firstChild) el.replaceChildren(this.title("Output", "output"), this.lines);
    const { lines } = this;
    const end = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 4;
    const old = lines.firstChild;
    if (old && text.startsWith(old.data)) old.appendData(text.slice(old.data.length));
    else lines.textContent = text;
    if (end) lines.scrollTop = lines.scrollHeight;
  }

  // ---- questions ----

  ask(el, ask) {
    const { tool } = this.row;
    el.replaceChildren(this.title(ask.kind === "approval" ? "Asks for your approval" : "Waits for"));
    if (ask.words) el.append(make("p.nbm-notice__text", {}, ask.words));
    if (ask.more_html) putHtml(el.appendChild(make("div")), ask.more_html, this.prefix);
    if (!ask.able) return el.append(make("p.nbm-notice__text.nbm-muted", {}, "It can't be answered from here."));
    const form = make("form", { "aria-label": `Answer ${tool}` });
    const actions = make("div.nbm-actions");
    this.problem = make("p.nbm-notice__text.nbm-tone--bad", { role: "alert" });
    if (ask.kind === "approval") {
      const label = `Reason for declining ${tool} (optional)`;
      const reason = make("input.nbm-input", { name: "reason", "aria-label": label, placeholder: "Reason for declining (optional)" });
      actions.append(this.button("approve", "Approve"), this.button("decline", "Decline"), reason);
    } else {
      this.fields = make("div.nbm-fields", {}, ...ask.fields.map((field, i) => this.field(field, i)));
      form.append(this.fields);
      actions.append(this.button("resume", "Resume"));
      if (ask.fields[0]?.name !== "json" || ask.fields.length > 1) {
        actions.append(make("button.nbm-btn.nbm-btn--plain", { type: "button", "data-json": "yes" }, "Edit as JSON"));
      }
    }
    form.append(actions);
    el.append(form, this.problem);
  }

  button(act, words) {
    const primary = act === "decline" ? "" : ".nbm-btn--primary";
    return make(`button.nbm-btn${primary}`, { type: "button", "data-act": act, "aria-label": `${words} ${this.row.tool}` }, words);
  }

  field({ name, label, kind, choices, hint, value }, i) {
    const id = `${this.prefix}field-${i}`;
    const about = { id, name, "aria-describedby": `${id}-hint` };
    let input;
    if (kind === "choice") input = make("select.nbm-input", about, ...choices.map(([words, json]) => make("option", { value: json }, words)));
    else if (kind === "check") input = make("input.nbm-input", { ...about, type: "checkbox" });
    else if (kind === "json") input = make("textarea.nbm-input", { ...about, rows: 4, spellcheck: "false" });
    else input = make("input.nbm-input", { ...about, type: "text", inputmode: kind === "number" ? "decimal" : "text", value });
    return make("div.nbm-field", {}, make("label", { for: id }, label), input, make("span.nbm-field__hint", { id: `${id}-hint` }, hint));
  }

  // The same answer as JSON, with what was written so far.
  editJson() {
    const given = {};
    for (const field of this.fields.querySelectorAll("[name]")) {
      if (field.type === "checkbox") given[field.name] = field.checked;
      else if (field.value) given[field.name] = readJson(field.value);
    }
    const json = this.field({ name: "json", label: "Answer as JSON", kind: "json", hint: "" }, "json");
    json.querySelector("textarea").value = JSON.stringify(given, null, 2);
    this.fields.replaceChildren(json);
    this.cell.querySelector("[data-json]").remove();
    json.querySelector("textarea").focus();
  }

  showAnswered(row, ask) {
    if (!ask?.able) return;
    const answered = ANSWERS.some((act) => row.taken?.includes(act));
    for (const button of this.parts.ask.querySelectorAll("[data-act]")) button.disabled = answered;
    setText(this.problem, row.problem ?? "");
  }
}

function readJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
