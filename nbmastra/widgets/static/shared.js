// What the browser halves of all widgets share: messages in their order, displays that come and go, times, copies.
//
// The script behind this one has `class Store extends SharedStore`, with take(boot) for a whole state, apply(ops) for a
// message, a `seq`, and `makeView(store, model, el, prefix)`, which gives what has `close()`. The protocol is described in nbmastra/widgets/shared.py.

const stores = new Map();
let displays = 0;

class SharedStore {
  constructor(model) {
    this.model = model;
    this.views = new Set();
    this.boot = null;
    this.early = new Map(); // messages behind a gap, by seq
    this.asked = -Infinity;
    this.onMessage = (message) => this.receive(message);
    this.onBoot = () => this.adopt(this.model.get("_boot"));
  }

  open() {
    this.model.on("msg:custom", this.onMessage);
    this.model.on("change:_boot", this.onBoot);
    this.onBoot();
    // What the kernel sent before this page listened is lost, and nothing may follow that would show the gap.
    if (this.boot) this.model.send({ act: "seen", seq: this.boot.seq });
  }

  close() {
    this.closed = true;
    this.model.off("msg:custom", this.onMessage);
    this.model.off("change:_boot", this.onBoot);
    for (const view of [...this.views]) this.remove(view);
    stores.delete(this.boot?.id);
  }

  show(view) {
    if (this.gone) this.model.send({ act: "returned" }); // the cell was moved, say
    this.gone = false;
    this.views.add(view);
    return () => this.remove(view);
  }

  remove(view) {
    if (!this.views.delete(view)) return;
    view.close();
    this.gone = !this.views.size && !this.closed;
    if (this.gone) this.model.send({ act: "gone" });
  }

  adopt(boot) {
    if (!boot || boot === this.boot) return;
    if (this.boot && boot.seq <= this.seq && !this.broken) {
      this.model.set("_boot", this.boot); // what the page would save is the state as it is
      return;
    }
    this.boot = boot;
    this.broken = false;
    this.asked = -Infinity;
    this.take(boot);
    this.drain();
  }

  receive(message) {
    if (!Array.isArray(message?.ops) || message.seq <= this.seq) return;
    this.early.set(message.seq, message.ops);
    this.drain();
  }

  drain() {
    for (const seq of this.early.keys()) if (seq <= this.seq) this.early.delete(seq);
    for (let ops; (ops = this.early.get(this.seq + 1)); ) {
      this.early.delete(++this.seq);
      try {
        this.apply(ops);
      } catch (error) {
        console.warn("[nbmastra] starting again from the kernel's state:", error);
        this.broken = true;
      }
    }
    if ((this.early.size || this.broken) && Date.now() - this.asked > 2000) {
      this.asked = Date.now();
      this.model.send({ act: "sync" });
    }
  }
}

// 7.4 s, 12 s, 1:05, 1:02:05 as it passes; 0.84 s, 12.3 s when it is final. Digits and separators are the reader's.
function timeWords(seconds, final = false) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  seconds = Math.max(0, seconds);
  if (seconds < 60) {
    const digits = seconds < 10 ? (final ? 2 : 1) : final ? 1 : 0;
    const shown = final ? seconds : Math.floor(seconds * 10 ** digits) / 10 ** digits;
    return `${numberWords(shown, digits)} s`;
  }
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, Math.floor(seconds) % 60];
  if (!parts[0]) parts.shift();
  return parts.map((part, i) => (i ? String(part).padStart(2, "0") : part)).join(":");
}

const numberFormats = new Map();

function numberWords(value, digits = 0) {
  if (!numberFormats.has(digits)) {
    const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    numberFormats.set(digits, new Intl.NumberFormat(navigator.language, options));
  }
  return numberFormats.get(digits).format(value);
}

// A moment by the reader's clock: `today` says how one of this day is told, `other` how any other is.
function clockWords(iso, today, other) {
  const at = new Date(iso ?? NaN);
  if (Number.isNaN(at.getTime())) return "";
  return (at.toDateString() === new Date().toDateString() ? today : other).format(at);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea"); // pages without https have no clipboard
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

export default {
  initialize({ model }) {
    const store = new Store(model);
    store.open();
    stores.set(store.boot.id, store);
    return () => store.close();
  },
  render({ model, el }) {
    const store = stores.get(model.get("_boot").id);
    return store.show(makeView(store, model, el, `nbm-${store.boot.id}-${++displays}-`)); // ids in the page are by display
  },
};
