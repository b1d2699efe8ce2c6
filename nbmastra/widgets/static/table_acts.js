// What a user does with a table. Keys: arrows, Home, End, Page and Control with Home and End move between cells, Enter opens a
// row or goes to its buttons, Escape leaves a form, Control+C copies.

function makeView(store, model, el, prefix) {
  return new Table(store, el, prefix);
}

class Table extends TableWindow {
  toggle(key, open = !this.expanded.has(key), then = null) {
    if (open) {
      this.expanded.add(key);
      if (!this.store.rows.get(key)?.d) this.store.act("detail", key);
    } else this.expanded.delete(key);
    this.heights.delete(key);
    this.moved = true;
    this.opening = open ? key : null;
    this.drawn.get(key)?.touch();
    this.focusIn = open && then ? { key, selector: then } : null;
    this.draw();
  }

  onClick(event) {
    const { target } = event;
    const button = target.closest("button");
    const { sort, filter, clear, act, copy, all, json } = button?.dataset ?? {};
    const key = this.keyOf(target);
    if (sort) this.sortBy(sort);
    else if (filter) this.filter({ pressed: filter === "All" ? null : filter });
    else if (clear) this.filter({ words: "", pressed: null });
    else if (button === this.copier) this.copyCell(key, button.parentElement.dataset.column);
    else if (!key) return;
    else if (button?.classList.contains("nbm-expand")) this.toggle(key);
    else if (act) this.act(key, act, button);
    else if (copy) this.copied(button, this.store.ask(key, copy));
    else if (all) this.store.act("detail", key, "all");
    else if (json) this.drawn.get(key)?.detail?.editJson();
    else if (!button && target.closest(".nbm-table__row") && !String(document.getSelection())) this.store.act("select", key);
  }

  sortBy(column) {
    const [now, direction] = this.sort ?? ["", 1];
    const next = now !== column ? [column, 1] : direction > 0 ? [column, -1] : null;
    this.filter({ sort: next });
  }

  onSubmit(event) {
    event.preventDefault();
    const key = this.keyOf(event.target);
    const button = event.target.querySelector("button[data-act]:not(:disabled)");
    if (key && button) this.act(key, button.dataset.act, button);
  }

  act(key, name, button) {
    const form = button.closest("form");
    if (!form && OPENS.has(name)) return this.toggle(key, true, ".nbm-ask input, .nbm-ask select, .nbm-ask textarea");
    const values = {};
    for (const field of form?.querySelectorAll("[name]") ?? []) {
      if (field.closest("[hidden]")) continue;
      values[field.name] = field.type === "checkbox" ? field.checked : field.value;
    }
    this.store.act(name, key, "", values);
  }

  keyOf(target) {
    return target.closest("[data-key]")?.dataset.key;
  }

  onFocus(target) {
    const cell = target.closest("[data-column]");
    const key = this.keyOf(target);
    this.showTip(target.closest("[data-why]"));
    if (!key || (key === this.active.key && (!cell || cell.dataset.column === this.active.column))) return;
    const before = this.active.key;
    this.active = { key, column: cell?.dataset.column ?? this.active.column };
    for (const one of new Set([before, key])) this.drawn.get(one)?.showActive();
  }

  onPointer(target) {
    const cell = target?.closest(".nbm-table__row > [data-column]");
    const copies = cell && !["acts", "status"].includes(cell.dataset.column) && cell.textContent.trim();
    this.showTip(target?.closest("[data-why]") ?? document.activeElement?.closest?.("[data-why]"));
    if (!copies) this.copier.remove();
    else if (this.copier.parentElement !== cell) cell.append(this.copier);
  }

  showTip(el) {
    const why = el && this.root.contains(el) ? el.dataset.why : "";
    this.tip.hidden = !why;
    if (!why) return;
    setText(this.tip, why);
    const [at, around] = [el.getBoundingClientRect(), this.root.getBoundingClientRect()];
    this.tip.style.top = `${at.bottom - around.top + 2}px`;
    const widest = Math.max(8, around.width - this.tip.offsetWidth - 8);
    this.tip.style.right = `${Math.min(Math.max(8, around.right - at.right), widest)}px`;
  }

  onKey(event) {
    const { target, key } = event;
    const row = this.keyOf(target);
    const control = event.ctrlKey || event.metaKey;
    if (!row || event.altKey) return;
    if (key === "Escape" && target.closest(".nbm-table__detail, .nbm-table__cell button")) {
      event.preventDefault();
      return this.focus(row, "tool");
    }
    if (target.closest(".nbm-table__detail")) return;
    const inButton = target.closest("button");
    const column = this.active.column;
    if (control && key === "c" && !String(document.getSelection())) {
      event.preventDefault();
      return this.copyCell(row, column);
    }
    if ((key === "Enter" || key === " ") && !inButton) {
      event.preventDefault();
      const button = column === "acts" && this.drawn.get(row)?.el.querySelector(".nbm-table__cell--acts button:not(:disabled)");
      if (button) button.focus();
      else if (key === "Enter" || column === "tool") this.toggle(row);
      else this.store.act("select", row);
      return;
    }
    const place = this.places.get(row);
    const columns = [...this.drawn.get(row).el.children].filter((cell) => cell.offsetParent).map((cell) => cell.dataset.column);
    const at = columns.indexOf(column);
    const page = Math.max(1, Math.floor(this.box.clientHeight / 28) - 2);
    const end = this.shown.length - 1;
    const moves = {
      ArrowDown: [place + 1, at],
      ArrowUp: [place - 1, at],
      ArrowRight: [place, at + 1],
      ArrowLeft: [place, at - 1],
      PageDown: [Math.min(end, place + page), at],
      PageUp: [Math.max(0, place - page), at],
      Home: control ? [0, at] : [place, 0],
      End: control ? [end, at] : [place, columns.length - 1],
    };
    if (!moves[key] || event.shiftKey) return;
    event.preventDefault();
    const [to, cell] = moves[key];
    if (to >= 0 && to <= end && cell >= 0 && cell < columns.length) this.focus(this.shown[to], columns[cell]);
  }

  focus(key, column) {
    const before = this.active.key;
    this.active = { key, column };
    this.drawn.get(before)?.showActive();
    this.reveal(this.places.get(key));
    this.draw();
    const row = this.drawn.get(key);
    row?.showActive();
    (row?.cells[column] ?? row?.cells.tool)?.focus({ preventScroll: true });
  }

  copyCell(key, column) {
    const row = this.store.rows.get(key);
    if (!row) return;
    const whole = column === "args" || (column === "says" && row.elapsed !== undefined && row.elapsed !== null);
    if (whole) return this.copied(this.copier, this.store.ask(key, column === "args" ? "args" : "result"));
    let text = row[column];
    if (column === "elapsed") text = Math.round(1000 * (row.elapsed ?? this.store.seconds(row.since) ?? 0)) / 1000;
    if (column === "status") text = look(row.status)[1];
    this.copied(this.copier, Promise.resolve(String(text ?? "")));
  }

  async copied(button, text) {
    await copyText(await text);
    button.setAttribute("data-nbm-copied", "");
    const timer = setTimeout(() => {
      button.removeAttribute("data-nbm-copied");
      this.timers.delete(timer);
    }, 1500);
    this.timers.add(timer);
  }
}
