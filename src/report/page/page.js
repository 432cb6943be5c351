// ----------------------------------------------------------------------------------------------------------------- page
// What is chosen (a head, a token, a theme, a scale), and how the parts learn of it.

const byId = id => document.getElementById(id);

class Page {
  constructor() {
    this.head = HEADS[0];
    this.selection = {query: null, key: null};
    this.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    this.writeFacts();
    this.overview = new Overview(byId("grid"), byId("kinds"), {choose: head => this.choose(head), enter: () => byId("map").focus()});
    this.map = new MapView(byId("map"), {hover: (cell, x, y) => this.tip(cell, x, y), pick: cell => this.pick(cell)});
    this.map.onDraw = () => this.writeLegend();
    this.text = new TextView(byId("flows"), byId("text-shade"), cell => this.select(cell));
    this.links = new LinksView(byId("links"), byId("clear"), {
      open: (head, cell) => { this.choose(head); this.goTo(cell); },
      clear: () => this.select({query: null, key: null}),
    });
    this.listen();
    this.applyColors();
    this.choose(this.head);
    this.select(this.selection);
  }

  writeFacts() {
    byId("title").textContent = FACTS.title;
    byId("notes").replaceChildren(...FACTS.notes.map(note => make("li", {}, note)));
    const layers = new Set(HEADS.map(head => head.layer)).size;
    byId("overview-size").textContent = layers > 1 ? `${layers} layers, ${HEADS.length} heads` : `${HEADS.length}`;
    byId("direction").hidden = !FACTS.sameText;
  }

  // ---- choices

  choose(head) {
    this.head = head;
    this.overview.select(head);
    this.map.setHead(head);
    byId("reading").textContent = head.reading;
    byId("head-name").textContent = head.name;
    byId("head-kind").textContent = head.kind ? head.kindText : "";
    byId("head-facts").textContent = factsOf(head);
    byId("map").setAttribute("aria-label", `${head.name}, ${FACTS.queries} queries by ${FACTS.keys} keys`);
    this.text.shade(head, this.selection, this.colors);
    this.hideTip();
  }

  // A cell or token that was pointed at: on one text the query decides, else both sides.
  pick({query, key}) {
    if (FACTS.sameText && query !== null) key = keyOfQuery(query);
    else if (FACTS.sameText) query = queryOfKey(key);
    this.select({query, key});
  }

  select(selection) {
    this.selection = selection;
    this.map.setSelection(selection);
    this.text.select(selection);
    this.text.shade(this.head, selection, this.colors);
    this.links.show(selection);
  }

  // Shows one cell under the keyboard's cursor.
  goTo(cell) {
    this.map.reveal(cell);
    this.map.setCursor(cell);
    const {x, y} = this.map.centre(cell);
    this.tip(cell, x, y);
    this.announce(cell);
  }

  // ---- colours

  applyColors() {
    document.documentElement.dataset.theme = this.theme;
    byId("theme-button").textContent = this.theme === "dark" ? "Light" : "Dark";
    this.colors = new Colors(this.theme, byId("scale").value);
    this.overview.draw(this.colors);
    this.map.setColors(this.colors);
    if (!this.map.plot) this.map.resize();
    this.text.shade(this.head, this.selection, this.colors);
    this.drawRamp();
  }

  drawRamp() {
    const ramp = byId("ramp"), context = ramp.getContext("2d");
    ramp.width = 256;
    ramp.height = 1;
    const image = new ImageData(256, 1);
    new Uint32Array(image.data.buffer).set(this.colors.pixels);
    context.putImageData(image, 0, 0);
  }

  writeLegend() {
    const {map, head, colors} = this, pooled = head.pooled;
    const half = showWeight(colors.share(0.5) * map.largest), full = showWeight(map.largest);
    byId("legend-text").replaceChildren(make("span", {className: "ends"}, make("span", {}, colors.scale === "log" ? showWeight(colors.share(0) * map.largest) : "0"),
                                                                        make("span", {}, half), make("span", {}, full)),
                                        make("span", {className: "meaning"}, meaningOf(head, map.showsExact, pooled)));
  }

  // ---- the cell under the pointer or keyboard

  tip(cell, x, y) {
    if (!cell) return this.hideTip();
    const tip = byId("tip"), lines = [];
    if (cell.query !== null) lines.push(["query", queryNumber(cell.query), queryToken(cell.query)]);
    if (cell.key !== null) lines.push(["key", cell.key, keyToken(cell.key)]);
    tip.replaceChildren(...lines.map(([side, number, word]) => make("div", {className: "side"}, make("span", {className: "label"}, side),
                                                                    make("span", {}, make("bdi", {}, word), make("span", {className: "number"}, ` ${number}`)))),
                        ...valuesOf(this.head, cell).map(([label, value]) => make("div", {className: "value"}, make("span", {className: "label"}, label), value)));
    tip.hidden = false;
    const stage = tip.parentElement, left = x + 18 + tip.offsetWidth > stage.clientWidth ? x - 14 - tip.offsetWidth : x + 18;
    tip.style.left = `${Math.max(0, left)}px`;
    tip.style.top = `${Math.max(0, y + 18 + tip.offsetHeight > stage.clientHeight ? y - 14 - tip.offsetHeight : y + 18)}px`;
  }

  hideTip() { byId("tip").hidden = true; }

  announce({query, key}) {
    const value = valuesOf(this.head, {query, key}).map(([label, text]) => `${label} ${text}`).join(", ");
    byId("announce").textContent = `query ${queryNumber(query)} ${queryToken(query)}, key ${key} ${keyToken(key)}: ${value}`;
  }

  // ---- events

  listen() {
    byId("zoom-in").addEventListener("click", () => this.map.zoom(1.6));
    byId("zoom-out").addEventListener("click", () => this.map.zoom(1 / 1.6));
    byId("zoom-fit").addEventListener("click", () => this.map.fit());
    byId("scale").addEventListener("change", () => this.applyColors());
    byId("theme-button").addEventListener("click", () => this.setTheme(this.theme === "dark" ? "light" : "dark"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", event => this.setTheme(event.matches ? "dark" : "light"));
    byId("help-button").addEventListener("click", () => byId("help").showModal());
    for (const button of byId("direction").children) button.addEventListener("click", () => this.setDirection(button.dataset.direction));
    byId("map").addEventListener("keydown", event => { if (this.onMapKey(event)) event.preventDefault(); });
    byId("map").addEventListener("blur", () => { this.map.setCursor(null); this.hideTip(); });
    document.addEventListener("keydown", event => this.onKey(event));
    window.addEventListener("resize", () => this.map.resize());
  }

  setTheme(theme) {
    this.theme = theme;
    this.applyColors();
  }

  setDirection(direction) {
    this.text.direction = direction;
    for (const button of byId("direction").children) button.setAttribute("aria-pressed", `${button.dataset.direction === direction}`);
    this.text.shade(this.head, this.selection, this.colors);
  }

  // True when the key had a meaning.
  onMapKey(event) {
    const steps = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
    const zooms = {"+": 1.6, "=": 1.6, "-": 1 / 1.6, "−": 1 / 1.6};
    if (steps[event.key]) this.moveCursor(steps[event.key], event.shiftKey ? 10 : 1);
    else if (zooms[event.key]) this.zoomAtCursor(() => this.map.zoom(zooms[event.key]));
    else if (event.key === "0") this.zoomAtCursor(() => this.map.fit());
    else if (event.key === "Enter" && this.map.cursor) this.pick(this.map.cursor);
    else return false;
    return true;
  }

  moveCursor([down, right], distance) {
    const clamp = (at, length) => Math.max(0, Math.min(length - 1, at));
    const {cursor, wholeCells} = this.map;
    const from = cursor && cursor.query !== null && cursor.key !== null ? cursor : null;
    this.goTo(from ? {query: clamp(from.query + down * distance, FACTS.queries), key: clamp(from.key + right * distance, FACTS.keys)}
                   : {query: wholeCells.top, key: wholeCells.left});
  }

  // The tip stays with its cell.
  zoomAtCursor(zoom) {
    zoom();
    const {cursor} = this.map;
    if (cursor && cursor.query !== null && cursor.key !== null) this.goTo(cursor);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open || event.target.tagName === "SELECT") return;
    if (event.key === "Escape") this.escape();
    else if (event.key === "," || event.key === ".") this.step(event.key === "," ? -1 : 1);
    else if (event.key === "?") byId("help").showModal();
  }

  escape() {
    const hasSelection = this.selection.query !== null || this.selection.key !== null;
    if (hasSelection) this.select({query: null, key: null});
    else this.overview.focus();
  }

  step(by) { this.choose(HEADS[(this.head.index + by + HEADS.length) % HEADS.length]); }
}

// ---- sentences

// The values at a cell, or beside the map at a query or key alone: [label, text].
function valuesOf(head, {query, key}) {
  if (query === null) return head.keyMass ? [["mass", `${showWeight(head.keyMass[key])} received`]] : [];
  if (key === null) return head.entropy ? [["entropy", `${head.entropy[query].toFixed(3)} nats`]] : [];
  const {hidden, weight, below, mean} = pairOf(head, query, key);
  if (hidden) return [["weight", "not visible to the query"]];
  const values = [];
  if (weight !== undefined) values.push(["weight", showWeight(weight)]);
  else if (head.pooled && head.pooled.isFine) values.push(["weight", `≈ ${showWeight(mean)}`]);
  else if (below !== undefined) values.push(["weight", `at most ${showWeight(below)}`]);
  if (weight === undefined && mean !== undefined && !head.pooled.isFine) {
    const [firstQuery, lastQuery] = head.pooled.queries(head.pooled.rowOf(query)), [firstKey, lastKey] = head.pooled.keys(head.pooled.columnOf(key));
    values.push(["bin", `${showWeight(mean)} from queries ${queryNumber(firstQuery)}–${queryNumber(lastQuery - 1)} to keys ${firstKey}–${lastKey - 1}`]);
  }
  return values;
}

function meaningOf(head, showsExact, pooled) {
  if (showsExact) return head.exact.rounded ? "weight of one query and key, exact for q and k rounded to f16" : "weight of one query and key, exact";
  if (!pooled) return "no pooled map in this page";
  if (pooled.isFine) return "weight of one query and key, in 254 steps";
  const queries = Math.round(FACTS.queries / pooled.rows), keys = Math.round(FACTS.keys / pooled.columns);
  const bins = `weight on ${showCount(keys)} keys together, mean of ${showCount(queries)} queries`;
  return head.isExact ? `${bins}; zoom in for exact weights` : `${bins}; with --head ${head.head} each pair`;
}

// A line about a head: how wide it looks, and which key it looks at most.
function factsOf(head) {
  const facts = [];
  if (head.entropy) {
    const values = head.entropy.filter(value => !Number.isNaN(value));
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const keys = Math.round(Math.exp(mean));
    if (values.length) facts.push(`Entropy ${mean.toFixed(2)} nats: a query looks at ${keys > 1 ? `some ${showCount(keys)} keys` : "one key or none"}`);
  }
  if (head.keyMass) {
    const total = head.keyMass.reduce((sum, mass) => sum + (mass || 0), 0), largest = largestOf(head.keyMass), key = head.keyMass.indexOf(largest);
    if (total > 0) facts.push(`${showPercent(largest / total)} of all attention goes to ${name(key, keyToken(key))}`);
  }
  return facts.join(" · ");
}

const page = HEADS.length && FACTS.queries && FACTS.keys ? new Page() : null;
if (!page) {
  byId("title").textContent = FACTS.title;
  byId("reading").textContent = `${FACTS.readings[0] || ""} Nothing to show: no heads, queries or keys.`;
  document.querySelector("main").hidden = true;
}
