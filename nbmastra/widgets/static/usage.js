// Draws usage: rows are steps, the rest of a turn, or runs inside ({turn, step, agent, depth, model, input, cached, output,
// reasoning, speed, cost, open}), in the order of the kernel; facts have the totals. Grouping is the view's own: it adds up
// what the kernel gave, and what nobody reported stays missing.

const GROUPS = { step: "Step", turn: "Turn", model: "Model" };
const COUNTS = ["input", "cached", "output", "reasoning"];
const HEADS = ["Input", "Cached", "Output", "Reasoning"];
const SHOWN = 200; // rows drawn; earlier ones are added up in one
const SILENT_S = 2.5; // after so long without a token the speed is 0

function makeView(store, model, el) {
  return new UsageDrawing(store, el);
}

class UsageDrawing {
  constructor(store, el) {
    this.store = store;
    this.by = "step";
    this.lines = new Map(); // key → row element and its cells
    this.frames = new Frames(() => this.draw());
    this.build(el);
    this.change();
    this.draw();
  }

  close() {
    this.frames.close();
    clearTimeout(this.ticking);
    this.root.remove();
  }

  change() {
    const { title, news } = this.store.facts;
    setAttributes(this.root, { "aria-label": `Usage of ${title}` });
    setAttributes(this.table, { "aria-label": `Tokens of ${title}` });
    setText(this.title, title);
    if (this.news.dataset.said !== undefined && this.news.dataset.said !== news) setText(this.news, news ? `${news}, usage is complete` : "");
    this.news.dataset.said = news ?? "";
    this.frames.ask();
  }

  build(el) {
    this.title = make("span.nbm-muted.nbm-ellipsis");
    this.toggles = Object.entries(GROUPS).map(([by, words]) => {
      const toggle = make("button.nbm-toggle", { type: "button", "aria-pressed": String(by === this.by) }, words);
      toggle.addEventListener("click", () => {
        this.by = by;
        for (const other of this.toggles) setAttributes(other, { "aria-pressed": String(other === toggle) });
        this.frames.ask();
      });
      return toggle;
    });
    const groups = make("span.nbm-btngroup", { role: "group", "aria-label": "Group by" }, ...this.toggles);
    const bar = make("div.nbm-bar", {}, make("span.nbm-bar__title", {}, "Usage"), this.title, make("span.nbm-spacer"), groups);
    this.first = make("span", { role: "columnheader" }, GROUPS.step);
    const keys = HEADS.map((words, i) => {
      const key = make(`i.nbm-tok.nbm-tok--${COUNTS[i]}`, { "aria-hidden": "true" });
      return make(`span.nbm-num${i % 2 ? ".is-opt" : ""}`, { role: "columnheader" }, key, words);
    });
    const head = make("div.is-head", { role: "row" }, this.first, make("span.nbm-usage__bar", { role: "columnheader" }, "Tokens"), ...keys);
    head.append(make("span.nbm-num.is-opt", { role: "columnheader" }, "tokens/s"), make("span.nbm-num", { role: "columnheader" }, "Cost"));
    this.body = make("div", { role: "rowgroup" }, head);
    this.sum = this.makeLine("is-total");
    this.body.append(this.sum.row);
    this.table = make("div.nbm-usage__table", { role: "table" }, this.body);
    this.note = make("p.nbm-muted.nbm-usage__note");
    const scroll = make("div.nbm-usage__scroll", { tabindex: "0", role: "group", "aria-label": "Table of tokens" }, this.table);
    this.main = make("div.nbm-usage__main", {}, scroll, this.note);
    this.stats = ["Total tokens", "Cost", "Speed"].map((words) => {
      const value = make("dd");
      const name = make("dt", {}, words);
      return { name, value, el: make("dl.nbm-stat", {}, make("div", {}, name, value)) };
    });
    this.spark = drawShape("svg", { class: "nbm-spark", viewBox: "0 0 200 36", preserveAspectRatio: "none", role: "img" });
    this.sparkLine = drawShape("path", { d: "" });
    this.spark.append(drawShape("path", { class: "nbm-spark__base", d: "M0 35.5H200" }), this.sparkLine);
    this.side = make("div.nbm-usage__side", {}, ...this.stats.map((stat) => stat.el), this.spark);
    this.box = make("div.nbm-usage", {}, this.main, this.side);
    this.empty = make("div.nbm-empty", {}, make("p"), make("p"));
    this.news = make("div.nbm-sr", { role: "status", "aria-live": "polite" });
    this.root = make("div.nbm.nbm-usage-view", { role: "group" }, bar, this.box, this.empty, this.news);
    el.append(this.root);
  }

  draw() {
    const { facts } = this.store;
    const live = facts.now_since != null;
    const reported = facts.total?.all != null || facts.total?.input != null || facts.total?.output != null;
    this.empty.hidden = reported;
    this.box.hidden = !reported;
    for (const toggle of this.toggles) toggle.disabled = !reported;
    if (reported) this.drawTable(facts, live);
    else this.drawEmpty(facts, live);
    clearTimeout(this.ticking);
    if (live && facts.rate && facts.spoke_since) this.ticking = setTimeout(() => this.frames.ask(), 1000);
  }

  speedNow(facts) {
    const quiet = facts.spoke_since ? this.store.seconds(facts.spoke_since) : 0;
    return facts.speed != null && quiet > SILENT_S ? 0 : facts.speed;
  }

  drawEmpty(facts, live) {
    setText(this.empty.firstChild, live ? "No usage reported yet" : "No usage was reported");
    const measured = [];
    const speed = this.speedNow(facts);
    if (speed != null) measured.push(`${numberWords(speed)} tokens/s`);
    if (facts.first != null) measured.push(`${timeWords(facts.first, true)} to first token`);
    const from = measured.length ? ` About ${measured.join(" and ")}, measured from the stream.` : "";
    setText(this.empty.lastChild, `${live ? "Numbers come at the end of each step." : "The provider or server told no numbers."}${from}`);
  }

  drawTable(facts, live) {
    const rows = this.grouped();
    setText(this.first, GROUPS[this.by]);
    const widest = Math.max(1, ...rows.map(({ row }) => parts(row).reduce((a, b) => a + b, 0)));
    const keys = new Set(rows.map(({ key }) => key));
    for (const [key, { row }] of this.lines) {
      if (keys.has(key)) continue;
      row.remove();
      this.lines.delete(key);
    }
    let behind = this.body.firstChild;
    for (const { key, name, row } of rows) {
      const line = this.lines.get(key) ?? this.makeLine();
      this.lines.set(key, line);
      if (behind.nextSibling !== line.row) behind.after(line.row);
      behind = line.row;
      this.drawLine(line, name, row, widest);
    }
    this.drawLine(this.sum, "Total", { ...facts.total, cost: facts.cost, speed: live ? null : facts.speed, open: live }, 0);
    const remark = facts.remark ? ` ${facts.remark}` : "";
    const unpriced = facts.unpriced?.length ? ` No price is known for ${facts.unpriced.join(", ")}.` : "";
    setText(this.note, `Cached is part of input, reasoning part of output. A dash: the provider did not report it.${unpriced}${remark}`);
    this.drawSide(facts, live);
  }

  drawSide(facts, live) {
    const [total, cost, speed] = this.stats;
    const nested = new Map();
    for (const row of this.store.rows.values()) if (row.agent && row.all) nested.set(row.agent, (nested.get(row.agent) ?? 0) + row.all);
    const [[agent, tokens] = [], ...others] = [...nested].sort((a, b) => b[1] - a[1]);
    const inside = [...nested.values()].reduce((a, b) => a + b, 0);
    const words = agent ? `${numberWords(others.length ? inside : tokens)} by ${others.length ? `${nested.size} agents inside` : agent}` : "";
    putStat(total, facts.total.all == null ? "–" : numberWords(facts.total.all), words || (facts.total.all == null ? "not reported" : ""));
    cost.el.hidden = facts.cost == null;
    putStat(cost, moneyWords(facts.cost), facts.own_prices ? "your prices" : "list prices");
    const now = live ? this.speedNow(facts) : facts.speed;
    setText(speed.name, live ? "Speed now" : "Speed");
    speed.el.hidden = now == null;
    if (now != null) putStat(speed, numberWords(now), facts.median == null ? "tokens/s" : `tokens/s, median ${numberWords(facts.median)}`);
    const points = facts.spark ?? [];
    const top = Math.max(...points, 0);
    this.spark.style.display = top > 0 ? "" : "none";
    if (!(top > 0)) return;
    const last = Math.max(points.length - 1, 1);
    const line = points.map((point, i) => `${((200 * i) / last).toFixed(1)} ${(34.5 - (32 * point) / top).toFixed(1)}`).join(" ");
    setAttributes(this.sparkLine, { d: `M${line}` });
    setAttributes(this.spark, { "aria-label": `Tokens per second over the run, between 0 and ${numberWords(top)}` });
  }

  grouped() {
    const { order, rows, facts } = this.store;
    const many = facts.turns > 1;
    const groups = new Map();
    for (const key of order) {
      const row = rows.get(key);
      const [group, name] = this.groupOf(key, row, many);
      const known = groups.get(group);
      if (known) known.row = addRows(known.row, row);
      else groups.set(group, { key: group, name, row });
    }
    const found = [...groups.values()];
    if (found.length <= SHOWN) return found;
    const early = found.slice(0, found.length - SHOWN);
    const sum = early.map(({ row }) => row).reduce(addRows);
    const words = `${numberWords(early.length)} earlier`;
    return [{ key: "earlier", name: words, row: { ...sum, agent: "", depth: 0 } }, ...found.slice(-SHOWN)];
  }

  groupOf(key, row, many) {
    if (this.by === "model") {
      const name = row.model || "no model named";
      return [`model:${row.agent}:${name}`, row.agent ? `${row.agent}, ${name}` : name];
    }
    if (this.by === "turn") return [`turn:${row.turn}:${row.agent}`, row.agent || `Turn ${row.turn}`];
    if (row.agent) return [key, row.agent];
    const where = row.step != null ? `step ${row.step}` : "beyond its steps";
    return [key, many ? `Turn ${row.turn}, ${where}` : where[0].toUpperCase() + where.slice(1)];
  }

  makeLine(cls = "") {
    const name = make("span", { role: "rowheader" });
    const bar = make("span.nbm-usage__bar", { role: "cell" });
    const cells = [...HEADS, "speed", "cost"].map((_, i) => make(`span.nbm-num${[1, 3, 4].includes(i) ? ".is-opt" : ""}`, { role: "cell" }));
    const row = make(`div${cls ? `.${cls}` : ""}`, { role: "row" }, name, bar, ...cells);
    return { row, name, bar, cells, drawn: "" };
  }

  drawLine(line, name, row, widest) {
    const values = [...COUNTS.map((count) => row[count]), row.speed, row.cost];
    const drawn = JSON.stringify([name, values, widest, row.open, row.depth]);
    if (line.drawn === drawn) return;
    line.drawn = drawn;
    const inside = row.depth && this.by !== "model";
    const label = make(`span.nbm-ellipsis${row.depth ? ".nbm-muted" : ""}`, {}, name);
    if (inside) label.style.paddingLeft = `${14 * Math.min(row.depth, 6)}px`;
    line.name.replaceChildren(label);
    const bars = widest ? parts(row).map((count, i) => count && bar(COUNTS[i], count / widest)).filter(Boolean) : [];
    line.bar.replaceChildren(...bars);
    line.cells.forEach((cell, i) => {
      const value = values[i];
      if (value != null) cell.replaceChildren(i === 5 ? moneyWords(value) : numberWords(value));
      else cell.replaceChildren(...missing(i === 5 ? "no price" : row.open ? "not reported yet" : "not reported", row.open));
    });
  }
}

function drawShape(tag, attributes) {
  const el = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(el, attributes);
  return el;
}

// What is drawn: input that wasn't cached, cached, output that isn't reasoning, reasoning.
function parts({ input, cached, output, reasoning }) {
  return [Math.max((input ?? 0) - (cached ?? 0), 0), cached ?? 0, Math.max((output ?? 0) - (reasoning ?? 0), 0), reasoning ?? 0];
}

function bar(kind, share) {
  const el = make(`i.nbm-tok.nbm-tok--${kind}`);
  el.style.width = `${(share * 100).toFixed(2)}%`;
  return el;
}

function missing(words, open) {
  return [make("span", { "aria-hidden": "true" }, open ? "" : "–"), make("span.nbm-sr", {}, words)];
}

function addRows(a, b) {
  const sum = { ...a, open: a.open || b.open, depth: Math.min(a.depth, b.depth) };
  for (const name of [...COUNTS, "all"]) sum[name] = a[name] == null ? b[name] : b[name] == null ? a[name] : a[name] + b[name];
  const [spentA, spentB] = [a, b].map((row) => (row.all ?? row.input ?? row.output ?? 0) !== 0);
  sum.cost = !spentA ? b.cost : !spentB ? a.cost : a.cost == null || b.cost == null ? null : a.cost + b.cost;
  const speeds = [a, b].filter((row) => row.speed > 0 && row.output > 0); // all tokens through all of the time
  const time = speeds.reduce((all, row) => all + row.output / row.speed, 0);
  sum.speed = time > 0 ? speeds.reduce((all, row) => all + row.output, 0) / time : null;
  return sum;
}

function putStat({ value }, words, small) {
  const shown = JSON.stringify([words, small]);
  if (value.dataset.shown === shown) return;
  value.dataset.shown = shown;
  value.replaceChildren(`${words} `, make("small", {}, small));
}

function moneyWords(value) {
  if (value == null) return "";
  return `$${numberWords(value, value !== 0 && value < 0.0001 ? 6 : value < 1 ? 4 : 2)}`;
}
