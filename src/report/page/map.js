// ------------------------------------------------------------------------------------------------------------------ map
// One head enlarged: queries down, keys across, entropy of each query at the right, mass of each key below (lengths as colours grow). The window on it can be
// zoomed and moved. Exact heads are computed as soon as a cell is at least a pixel; the pooled map stands in until then.

const TRACK = 48, TRACK_GAP = 10, AXIS_TITLE = 16;
const MIN_SPAN = 3;             // tokens across at the closest
const WHOLE_COST = 8e6;         // multiply-adds: heads up to this are computed whole, at once, in some ten milliseconds
const SLICE_COST = 1.5e6;       // larger windows are computed in slices of this, so that the page stays responsive

class MapView {
  // `hover(cell or null, x, y)` with cell {query, key}, either of which may be null beside the map; `pick(cell)` on a click.
  constructor(canvas, {hover, pick}) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.hover = hover;
    this.pick = pick;
    this.window = {top: 0, bottom: FACTS.queries, left: 0, right: FACTS.keys};
    this.cursor = null;     // {query, key} under the pointer or keyboard
    this.selection = {query: null, key: null};
    this.colors = null;
    this.style = null;
    this.head = null;
    this.exact = null;      // the exact window computed last: {top, bottom, left, right, values, image}
    this.pending = null;    // the exact window that is being computed
    this.job = 0;           // the number of that computation; others stop
    this.listen();
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
  }

  // ---- what is shown

  setHead(head) {
    this.head = head;
    this.exact = null;
    this.pooledImage = null;
    this.stopComputing();
    this.redraw();
  }

  setColors(colors) {
    this.colors = colors;
    const style = getComputedStyle(document.documentElement);
    const value = name => style.getPropertyValue(name).trim();
    this.style = {ink: value("--ink"), muted: value("--muted"), line: value("--line"), accent: value("--accent"), bar: value("--bar"),
                  barPeak: value("--bar-peak"), hidden: value("--hidden-cell"), font: getComputedStyle(document.body).fontFamily};
    this.pooledImage = null;
    if (this.exact) this.exact.image = null;
    this.redraw();
  }

  setSelection(selection) {
    this.selection = selection;
    this.redraw();
  }

  setCursor(cell) {
    this.cursor = cell;
    this.redraw();
  }

  get largest() {
    const {head} = this;
    if (this.showsExact) return this.exact.largest;
    return head.pooled ? head.pooled.largest : 1;
  }

  // Whether cells are single weights: those of the window, or while they are computed those that are left of the last one.
  get showsExact() { return Boolean(this.exact) && (covers(this.exact, this.wholeCells) || Boolean(this.pending)); }

  // The window in whole cells.
  get wholeCells() {
    const {top, bottom, left, right} = this.window;
    return {top: Math.floor(top), bottom: Math.ceil(bottom), left: Math.floor(left), right: Math.ceil(right)};
  }

  // ---- the window

  fit() { this.setWindow({top: 0, bottom: FACTS.queries, left: 0, right: FACTS.keys}); }

  // Zooms around a point of the map in tokens, by default the cursor or the middle.
  zoom(factor, at = this.cursorPoint) {
    const {top, bottom, left, right} = this.window;
    this.setWindow({top: at.y - (at.y - top) / factor, bottom: at.y + (bottom - at.y) / factor,
                    left: at.x - (at.x - left) / factor, right: at.x + (right - at.x) / factor});
  }

  pan(rows, columns) {
    const {top, bottom, left, right} = this.window;
    this.setWindow({top: top + rows, bottom: bottom + rows, left: left + columns, right: right + columns});
  }

  setWindow({top, bottom, left, right}) {
    [top, bottom] = fitted(top, bottom, FACTS.queries);
    [left, right] = fitted(left, right, FACTS.keys);
    this.window = {top, bottom, left, right};
    this.redraw();
  }

  // Moves the window as little as needed for the cell to be inside.
  reveal({query, key}) {
    const {top, bottom, left, right} = this.window;
    const shift = (at, low, high) => at < low ? at - low : at + 1 > high ? at + 1 - high : 0;
    const rows = shift(query, top, bottom), columns = shift(key, left, right);
    if (rows || columns) this.pan(rows, columns);
  }

  get cursorPoint() {
    const {top, bottom, left, right} = this.window;
    const {query = null, key = null} = this.cursor || {};
    return {y: query !== null ? query + 0.5 : (top + bottom) / 2, x: key !== null ? key + 0.5 : (left + right) / 2};
  }

  // ---- places on the canvas

  resize() {
    const width = this.canvas.parentElement.clientWidth;
    if (!width || !this.style) return;
    const side = hasWords ? 92 : 52, head = hasWords ? 76 : 34;
    const plotWidth = Math.max(120, width - side - TRACK - TRACK_GAP);
    // Square cells where the screen has room for them.
    const room = Math.max(300, window.innerHeight - 330), wanted = plotWidth * Math.min(1, Math.max(0.12, FACTS.queries / FACTS.keys));
    const plotHeight = Math.round(Math.max(80, Math.min(room, wanted)));
    this.plot = {x: side, y: head + AXIS_TITLE, width: plotWidth, height: plotHeight};
    const height = this.plot.y + plotHeight + TRACK_GAP + TRACK, ratio = window.devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.size = {width, height, ratio};
    this.redraw();
  }

  x(key) { return this.plot.x + (key - this.window.left) / (this.window.right - this.window.left) * this.plot.width; }
  y(query) { return this.plot.y + (query - this.window.top) / (this.window.bottom - this.window.top) * this.plot.height; }

  // The middle of a cell on the canvas, in CSS pixels.
  centre({query, key}) { return {x: this.x(key + 0.5), y: this.y(query + 0.5)}; }

  point(x, y) {
    const {plot, window: {top, bottom, left, right}} = this;
    return {x: left + (x - plot.x) / plot.width * (right - left), y: top + (y - plot.y) / plot.height * (bottom - top)};
  }

  // The cell at a place; beside the map its query or key alone; null outside of both.
  cellAt(x, y) {
    const {plot} = this, point = this.point(x, y);
    const inRows = y >= plot.y && y < plot.y + plot.height, inColumns = x >= plot.x && x < plot.x + plot.width;
    if (!inRows && !inColumns) return null;
    return {query: inRows ? Math.min(FACTS.queries - 1, Math.floor(point.y)) : null,
            key: inColumns ? Math.min(FACTS.keys - 1, Math.floor(point.x)) : null};
  }

  // ---- pointer

  listen() {
    const {canvas} = this;
    let press = null;
    canvas.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      press = {x: event.offsetX, y: event.offsetY, window: this.window, moved: false};
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", event => {
      if (press) {
        const dx = event.offsetX - press.x, dy = event.offsetY - press.y;
        press.moved = press.moved || Math.hypot(dx, dy) > 4;
        if (press.moved) {
          canvas.classList.add("dragging");
          const {top, bottom, left, right} = press.window;
          const rows = -dy / this.plot.height * (bottom - top), columns = -dx / this.plot.width * (right - left);
          this.setWindow({top: top + rows, bottom: bottom + rows, left: left + columns, right: right + columns});
        }
      }
      const cell = press && press.moved ? null : this.cellAt(event.offsetX, event.offsetY);
      this.setCursor(cell);
      this.hover(cell, event.offsetX, event.offsetY);
    });
    canvas.addEventListener("pointerup", event => {
      if (press && !press.moved) {
        const cell = this.cellAt(event.offsetX, event.offsetY);
        if (cell) this.pick(cell);
      }
      press = null;
      canvas.classList.remove("dragging");
    });
    canvas.addEventListener("pointercancel", () => { press = null; canvas.classList.remove("dragging"); });
    canvas.addEventListener("pointerleave", () => { this.setCursor(null); this.hover(null); });
    canvas.addEventListener("dblclick", event => this.zoom(2, this.point(event.offsetX, event.offsetY)));
    canvas.addEventListener("wheel", event => {
      event.preventDefault();
      const pixels = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1);
      this.zoom(Math.exp(-Math.max(-200, Math.min(200, pixels)) / 300), this.point(event.offsetX, event.offsetY));
      const cell = this.cellAt(event.offsetX, event.offsetY);
      this.setCursor(cell);
      this.hover(cell, event.offsetX, event.offsetY);
    }, {passive: false});
  }

  // ---- exact windows

  // Starts computing what the window shows, unless it is there or its cells are smaller than pixels.
  prepareExact() {
    const {head, plot} = this, wanted = this.wholeCells;
    if (!head.exact || sameWindow(this.pending, wanted)) return;
    this.stopComputing();
    if (this.exact && covers(this.exact, wanted)) return;
    const dim = head.exact.dim;
    if (FACTS.queries * FACTS.keys * dim <= WHOLE_COST) {
      const all = {top: 0, bottom: FACTS.queries, left: 0, right: FACTS.keys};
      const values = head.exact.window(0, FACTS.queries, 0, FACTS.keys);
      this.exact = {...all, values, image: null, largest: largestOf(values)};
      return;
    }
    if (wanted.bottom - wanted.top > plot.height || wanted.right - wanted.left > plot.width) return;
    this.computeSlices(head, wanted, dim);
  }

  stopComputing() {
    ++this.job;
    this.pending = null;
  }

  async computeSlices(head, wanted, dim) {
    const job = this.job, {top, bottom, left, right} = wanted, columns = right - left;
    this.pending = wanted;
    const values = new Float32Array((bottom - top) * columns), step = Math.max(1, Math.floor(SLICE_COST / (columns * dim)));
    for (let query = top; query < bottom; query += step) {
      await new Promise(resolve => setTimeout(resolve));
      if (job !== this.job) return;
      values.set(head.exact.window(query, Math.min(bottom, query + step), left, right), (query - top) * columns);
    }
    this.exact = {...wanted, values, image: null, largest: largestOf(values)};
    this.pending = null;
    this.redraw();
  }

  // ---- drawing

  redraw() {
    if (this.frame || !this.head || !this.style || !this.plot) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    const {context, size, style} = this;
    this.prepareExact();
    context.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
    context.clearRect(0, 0, size.width, size.height);
    this.drawCells();
    this.drawKeyMass();
    this.drawEntropy();
    this.drawAxes();
    this.drawMarks(this.selection, style.accent, 1);
    if (this.cursor) this.drawMarks(this.cursor, style.accent, 0.75);
    if (this.onDraw) this.onDraw();
  }

  drawCells() {
    const {context, plot, style, head} = this;
    context.save();
    context.beginPath();
    context.rect(plot.x, plot.y, plot.width, plot.height);
    context.clip();
    context.fillStyle = style.hidden;
    context.fillRect(plot.x, plot.y, plot.width, plot.height);
    context.imageSmoothingEnabled = false;
    if (!this.showsExact && head.pooled) {
      const {rows, columns, values, largest} = head.pooled;
      this.pooledImage = this.pooledImage || this.colors.image(values, rows, columns, largest);
      this.drawImage(this.pooledImage, {top: 0, bottom: FACTS.queries, left: 0, right: FACTS.keys});
    } else if (this.showsExact) {
      const {top, bottom, left, right, values} = this.exact;
      this.exact.image = this.exact.image || this.colors.image(values, bottom - top, right - left, this.largest);
      this.drawImage(this.exact.image, this.exact);
    }
    context.restore();
    context.strokeStyle = style.line;
    context.lineWidth = 1;
    context.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.width + 1, plot.height + 1);
  }

  // An image that stands for a window of tokens. Only the part inside the plot is drawn: a small source keeps large zooms sharp and fast.
  drawImage(image, {top, bottom, left, right}) {
    const x0 = this.x(left), x1 = this.x(right), y0 = this.y(top), y1 = this.y(bottom);
    this.context.drawImage(image, 0, 0, image.width, image.height, x0, y0, x1 - x0, y1 - y0);
  }

  drawKeyMass() {
    const {plot, head} = this;
    const y = plot.y + plot.height + TRACK_GAP;
    if (!head.keyMass) return;
    this.trackTitle({linear: "mass", root: "√ mass", log: "log mass"}[this.colors.scale], plot.x - 8, y + 11, "right");
    this.drawBars(head.keyMass, this.window.left, this.window.right, plot.width, share => this.colors.shade(share),
                  (at, length, share) => [plot.x + at, y, length, share * TRACK]);
  }

  drawEntropy() {
    const {plot, head} = this;
    const x = plot.x + plot.width + TRACK_GAP;
    if (!head.entropy) return;
    this.trackTitle("entropy", x, plot.y - 6, "left");
    this.drawBars(head.entropy, this.window.top, this.window.bottom, plot.height, share => share,
                  (at, length, share) => [x, plot.y + at, share * TRACK, length]);
  }

  trackTitle(text, x, y, align) {
    const {context, style} = this;
    context.fillStyle = style.muted;
    context.font = `11px ${style.font}`;
    context.textAlign = align;
    context.textBaseline = "alphabetic";
    context.fillText(text, x, y);
  }

  // One bar a token, or a pixel where tokens are finer: then its mean, and lighter its peak. `place(at, length, share)` gives the rectangle.
  // `shade` gives the length of a share of the largest.
  drawBars(values, begin, end, pixels, shade, place) {
    const {context, style} = this;
    const largest = largestOf(values);
    if (!(largest > 0)) return;
    const perToken = pixels / (end - begin), isFine = perToken < 1;
    const count = isFine ? Math.round(pixels) : Math.ceil(end) - Math.floor(begin);
    for (let n = 0; n < count; ++n) {
      const first = isFine ? Math.floor(begin + n / perToken) : Math.floor(begin) + n;
      const last = isFine ? Math.max(first + 1, Math.floor(begin + (n + 1) / perToken)) : first + 1;
      let peak = 0, sum = 0;
      for (let i = first; i < last && i < values.length; ++i) {
        if (values[i] > peak) peak = values[i];
        sum += values[i] || 0;
      }
      const from = isFine ? n : Math.max(0, Math.round((first - begin) * perToken)), to = isFine ? n + 1 : Math.min(pixels, Math.round((last - begin) * perToken));
      const gap = perToken > 6 ? 1 : 0;
      context.fillStyle = isFine ? style.barPeak : style.bar;
      context.fillRect(...place(from, to - from - gap, shade(peak / largest)));
      if (!isFine) continue;
      context.fillStyle = style.bar;
      context.fillRect(...place(from, to - from, shade(sum / (last - first) / largest)));
    }
  }

  drawAxes() {
    const {context, plot, style, window: {top, bottom, left, right}} = this, keySpacing = hasWords ? 15 : 44;
    context.font = `11px ${style.font}`;
    context.fillStyle = style.muted;
    context.textBaseline = "middle";
    // What is marked has a label of its own, which the others leave room for.
    const marks = [this.selection, this.cursor || {query: null, key: null}];
    for (const query of ticks(top, bottom, plot.height, 14)) {
      if (marks.every(mark => mark.query === null || Math.abs(this.y(mark.query) - this.y(query)) >= 14)) this.queryLabel(query);
    }
    for (const key of ticks(left, right, plot.width, keySpacing)) {
      if (marks.every(mark => mark.key === null || Math.abs(this.x(mark.key) - this.x(key)) >= keySpacing)) this.keyLabel(key);
    }
    context.fillStyle = style.muted;
    context.textBaseline = "alphabetic";
    context.textAlign = "left";
    context.fillText("keys →", plot.x, 11);
    context.textAlign = "right";
    context.fillText("queries ↓", plot.x - 8, plot.y - 9);
  }

  queryLabel(query) {
    const {context, plot} = this;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const text = cut(context, [queryNumber(query), queryToken(query)], plot.x - 12, this.window.bottom - this.window.top < plot.height / 14);
    context.fillText(text, plot.x - 8, this.y(query + 0.5));
  }

  keyLabel(key) {
    const {context, plot} = this;
    context.save();
    context.translate(this.x(key + 0.5), plot.y - 7);
    context.textBaseline = "middle";
    if (hasWords) {
      context.rotate(-Math.PI / 3.2);
      context.textAlign = "left";
    } else {
      context.textAlign = "center";
      context.translate(0, -4);
    }
    context.fillText(cut(context, [key, keyToken(key)], 78, this.window.right - this.window.left < plot.width / 15), 0, 0);
    context.restore();
  }

  // Lines along a query and a key, the cell where they meet, and their labels.
  drawMarks({query, key}, color, alpha) {
    const {context, plot, style} = this;
    context.save();
    context.globalAlpha = alpha;
    context.strokeStyle = context.fillStyle = color;
    context.lineWidth = 1;
    context.font = `600 11px ${style.font}`;
    const inside = (at, low, high) => at !== null && at + 1 > low && at < high;
    const showsQuery = inside(query, this.window.top, this.window.bottom), showsKey = inside(key, this.window.left, this.window.right);
    if (showsQuery) this.queryLabel(query);
    if (showsKey) this.keyLabel(key);
    context.beginPath();
    context.rect(plot.x - 5, plot.y - 5, plot.width + 10 + TRACK, plot.height + 10 + TRACK);
    context.clip();
    const band = (from, to, draw) => {
      if (to - from < 4) return draw((from + to) / 2);
      draw(from);
      draw(to);
    };
    context.globalAlpha = alpha * 0.7;
    if (showsQuery) band(this.y(query), this.y(query + 1), y => this.line(plot.x - 4, y, plot.x + plot.width + 4, y));
    if (showsKey) band(this.x(key), this.x(key + 1), x => this.line(x, plot.y - 4, x, plot.y + plot.height + 4));
    context.restore();
  }

  line(x0, y0, x1, y1) {
    const {context} = this;
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
  }
}

// [low, high) moved and cut so that it lies in 0…length and is not too small.
function fitted(low, high, length) {
  const span = Math.min(length, Math.max(Math.min(MIN_SPAN, length), high - low));
  const middle = (low + high) / 2, begin = Math.min(length - span, Math.max(0, middle - span / 2));
  return [begin, begin + span];
}

function covers(outer, inner) {
  return outer.top <= inner.top && outer.bottom >= inner.bottom && outer.left <= inner.left && outer.right >= inner.right;
}
function sameWindow(a, b) {
  return Boolean(a) && a.top === b.top && a.bottom === b.bottom && a.left === b.left && a.right === b.right;
}

// Tokens to be labelled, at steps of 1, 2 or 5 times a power of ten, at least `spacing` pixels apart.
function ticks(begin, end, pixels, spacing) {
  const perToken = pixels / (end - begin);
  let step = 1;
  for (let n = 0; step * perToken < spacing; ++n) step = [1, 2, 5][n % 3] * 10 ** Math.floor(n / 3);
  const list = [];
  for (let token = Math.ceil(begin / step) * step; token + 0.5 < end; token += step) list.push(token);
  return list;
}

// "12 word" or, when every token has its label, "word", in at most `width` pixels.
function cut(context, [number, word], width, wordsAlone) {
  let text = !word ? `${number}` : wordsAlone ? word : `${number} ${word}`;
  if (context.measureText(text).width <= width) return text;
  const letters = Array.from(text);
  while (letters.length > 1 && context.measureText(letters.join("") + "…").width > width) letters.pop();
  return letters.join("") + "…";
}

const largestValues = new WeakMap();
function largestOf(values) {
  if (!largestValues.has(values)) largestValues.set(values, values.reduce((a, b) => b > a ? b : a, 0));
  return largestValues.get(values);
}
