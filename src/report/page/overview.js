// ------------------------------------------------------------------------------------------------------------- overview
// The grid of small maps, layers by heads, and the kinds of heads above it. One stop of the Tab key; arrows move and choose.

const SMALL_MAP = 64;  // cells a side: about what a small map has pixels
const WRAPPED_COLUMNS = 8;

class Overview {
  // `choose(head)` when a head is chosen; `enter()` when its map is asked for.
  constructor(grid, kinds, {choose, enter}) {
    this.grid = grid;
    this.kinds = kinds;
    this.choose = choose;
    this.enter = enter;
    this.markedKind = null;
    this.layOut();
    this.listKinds();
    grid.addEventListener("click", event => {
      const cell = event.target.closest("[data-index]");
      if (cell) this.choose(HEADS[cell.dataset.index]);
    });
    grid.addEventListener("keydown", event => this.onKey(event));
  }

  // Rows of heads: one a layer, or lines of WRAPPED_COLUMNS when there is one layer only.
  layOut() {
    const layers = [...new Set(HEADS.map(head => head.layer))];
    this.isWrapped = layers.length === 1;
    this.rows = this.isWrapped
        ? Array.from({length: Math.ceil(HEADS.length / WRAPPED_COLUMNS)}, (_, r) => HEADS.slice(r * WRAPPED_COLUMNS, (r + 1) * WRAPPED_COLUMNS))
        : layers.map(layer => HEADS.filter(head => head.layer === layer));
    const columns = Math.max(...this.rows.map(row => row.length), 1);
    this.grid.style.setProperty("--columns", columns);
    this.grid.classList.toggle("wrapped", this.isWrapped);
    this.cells = new Map();
    for (const heads of this.rows) {
      const row = make("div", {role: "row", className: "grid-row"});
      if (!this.isWrapped) row.append(make("span", {role: "rowheader", className: "grid-label", title: `Layer ${heads[0].layer}`}, `${heads[0].layer}`));
      for (const head of heads) row.append(this.makeCell(head));
      this.grid.append(row);
    }
  }

  makeCell(head) {
    const kind = head.kind ? `, ${head.kindText}` : "";
    const cell = make("div", {role: "gridcell", className: "thumb", tabIndex: -1, title: head.name + kind, "aria-label": head.name + kind,
                              "aria-selected": "false", "data-index": head.index});
    cell.append(make("canvas", {"aria-hidden": "true"}));
    if (this.isWrapped) cell.append(make("span", {className: "grid-label"}, `${head.head}`));
    if (head.isExact) cell.classList.add("exact");
    this.cells.set(head, cell);
    return cell;
  }

  listKinds() {
    const counts = new Map();
    for (const {kind} of HEADS) if (kind) counts.set(kind, (counts.get(kind) || 0) + 1);
    for (const [kind, count] of [...counts].sort((a, b) => b[1] - a[1])) {
      const chip = make("button", {type: "button", className: "chip", "aria-pressed": "false"}, kind, make("span", {className: "count"}, `${count}`));
      chip.addEventListener("click", () => this.mark(this.markedKind === kind ? null : kind));
      chip.dataset.kind = kind;
      this.kinds.append(chip);
    }
  }

  // Other kinds than this one step back.
  mark(kind) {
    this.markedKind = kind;
    for (const chip of this.kinds.children) chip.setAttribute("aria-pressed", `${chip.dataset.kind === kind}`);
    for (const [head, cell] of this.cells) cell.classList.toggle("dim", kind !== null && head.kind !== kind);
  }

  select(head) {
    for (const [other, cell] of this.cells) {
      cell.setAttribute("aria-selected", `${other === head}`);
      cell.tabIndex = other === head ? 0 : -1;
    }
    this.selected = head;
  }

  focus() { this.cells.get(this.selected).focus(); }

  onKey(event) {
    const row = this.rows.findIndex(heads => heads.includes(this.selected)), column = this.rows[row].indexOf(this.selected);
    const steps = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -Infinity], End: [0, Infinity]};
    if (event.key === "Enter" || event.key === " ") {
      this.enter();
    } else if (steps[event.key]) {
      const [down, right] = steps[event.key];
      const heads = this.rows[Math.min(this.rows.length - 1, Math.max(0, row + down))];
      this.choose(heads[Math.min(heads.length - 1, Math.max(0, column + right))]);
      this.focus();
    } else {
      return;
    }
    event.preventDefault();
  }

  draw(colors) {
    for (const [head, cell] of this.cells) {
      const canvas = cell.firstChild, small = smallMap(head);
      if (!small) continue;
      canvas.width = small.columns;
      canvas.height = small.rows;
      canvas.classList.toggle("coarse", Math.max(small.rows, small.columns) < SMALL_MAP);
      canvas.getContext("2d").drawImage(colors.image(small.values, small.rows, small.columns, small.largest), 0, 0);
    }
  }
}

// The pooled map of a head in few cells, each the largest of those it covers, so that thin lines stay visible.
function smallMap(head) {
  if (!head.pooled) return null;
  if (head.small) return head.small;
  const {rows: fullRows, columns: fullColumns, values, largest} = head.pooled;
  const rows = Math.min(SMALL_MAP, fullRows), columns = Math.min(SMALL_MAP, fullColumns), small = new Float32Array(rows * columns);
  for (let r = 0; r < fullRows; ++r) {
    const row = binOf(r, fullRows, rows) * columns;
    for (let c = 0; c < fullColumns; ++c) {
      const n = row + binOf(c, fullColumns, columns), value = values[r * fullColumns + c];
      if (value > small[n] || Number.isNaN(value)) small[n] = value;
    }
  }
  return head.small = {rows, columns, values: small, largest};
}
