// ---------------------------------------------------------------------------------------------------------------- data
// What the page was given: facts as JSON, and arrays as base64 in inert elements (page_data.h), decoded when first looked at.

const FACTS = JSON.parse(document.getElementById("page-facts").textContent);

// The value of every f16 bit pattern.
const HALF = new Float32Array(65536);
for (let bits = 0; bits < 65536; ++bits) {
  const exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const magnitude = exponent === 31 ? (mantissa ? NaN : Infinity)
                  : exponent === 0 ? mantissa * 2 ** -24
                  : (1024 + mantissa) * 2 ** (exponent - 25);
  HALF[bits] = bits & 0x8000 ? -magnitude : magnitude;
}

function bytesOf(id) {
  const text = document.getElementById(id).textContent;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), character => character.charCodeAt(0));
}

// The values of a described array. Whole numbers come as they are stored.
function decode(entry) {
  const bytes = bytesOf(entry.id), scale = entry.scale;
  switch (entry.type) {
    case "f16": return Float32Array.from(new Uint16Array(bytes.buffer), bits => HALF[bits] * scale);
    case "f32": return new Float32Array(bytes.buffer);
    case "root8": return Float32Array.from(bytes, level => level === 255 ? NaN : scale * (level / 254) ** 2);
    case "u16": return new Uint16Array(bytes.buffer);
    case "u32": return new Uint32Array(bytes.buffer);
    case "i32": return new Int32Array(bytes.buffer);
    default: return bytes;  // bits
  }
}

// Defines a property that is computed when first read.
function lazy(object, name, compute) {
  Object.defineProperty(object, name, {configurable: true, get() {
    const value = compute();
    Object.defineProperty(object, name, {value});
    return value;
  }});
}

// One head: names, and what was embedded of it; null where there is nothing.
class Head {
  constructor(facts, index) {
    this.index = index;
    this.layer = facts.layer;
    this.head = facts.head;
    this.reading = FACTS.readings[facts.reading] || "";
    this.kind = facts.kind;
    this.score = facts.score;  // null: not a number
    this.name = facts.layer === null ? `Head ${facts.head}` : `Layer ${facts.layer} · Head ${facts.head}`;
    this.shortName = facts.layer === null ? `H${facts.head}` : `L${facts.layer} H${facts.head}`;
    const array = entry => entry ? decode(entry) : null;
    lazy(this, "pooled", () => facts.pooled ? new Pooled(facts.pooled) : null);
    lazy(this, "entropy", () => array(facts.entropy));
    lazy(this, "keyMass", () => array(facts.keyMass));
    lazy(this, "links", () => facts.topk ? new Links(facts.topk) : null);
    lazy(this, "keyLinks", () => facts.keyTopk ? new Links(facts.keyTopk) : null);
    lazy(this, "exact", () => facts.exact ? new ExactWeights(facts.exact) : null);
    this.isExact = Boolean(facts.exact);
  }
  get kindText() { return this.score === null ? this.kind : `${this.kind} ${showShare(this.score, 2)}`; }
}

// Mean weights of bins of queries and keys: bin r holds queries ⌊r·queries/rows⌋ up to the next bin's first.
class Pooled {
  constructor(entry) {
    [this.rows, this.columns] = entry.shape;
    this.values = decode(entry);
    this.largest = entry.scale;
  }
  at(query, key) { return this.values[this.rowOf(query) * this.columns + this.columnOf(key)]; }
  rowOf(query) { return binOf(query, FACTS.queries, this.rows); }
  columnOf(key) { return binOf(key, FACTS.keys, this.columns); }
  queries(row) { return binRange(row, FACTS.queries, this.rows); }
  keys(column) { return binRange(column, FACTS.keys, this.columns); }
  get isFine() { return this.rows === FACTS.queries && this.columns === FACTS.keys; }
}

function binRange(bin, length, bins) { return [Math.floor(bin * length / bins), Math.floor((bin + 1) * length / bins)]; }
function binOf(index, length, bins) { return Math.floor(((index + 1) * bins - 1) / length); }

// The strongest partners of each token, largest first.
class Links {
  constructor(entry) {
    this.count = entry.index.shape[1];
    this.index = decode(entry.index);
    this.weight = decode(entry.weight);
    this.none = this.index instanceof Uint16Array ? 0xFFFF : 0xFFFFFFFF;
  }
  of(token) {
    const links = [];
    for (let n = token * this.count; n < (token + 1) * this.count; ++n) {
      if (this.index[n] !== this.none) links.push({index: this.index[n], weight: this.weight[n]});
    }
    return links;
  }
}

const HEADS = FACTS.heads.map((facts, index) => new Head(facts, index));

// ---- names of tokens

// A token in one line: what cannot be seen becomes an escape, spaces at the ends a dot, and what goes on and on an ellipsis.
const LONGEST_TOKEN = 60;
function show(token) {
  const letters = token.length > LONGEST_TOKEN ? Array.from(token.slice(0, 2 * LONGEST_TOKEN)) : [];
  const whole = letters.length <= LONGEST_TOKEN ? token : letters.slice(0, LONGEST_TOKEN - 1).join("") + "…";
  const escaped = whole.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, character => {
    const named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[character];
    return named || "\\u" + character.charCodeAt(0).toString(16).padStart(4, "0");
  });
  return escaped.replace(/^ +| +$/g, spaces => "·".repeat(spaces.length)) || "∅";
}

// Tokens have labels (how they are numbered and read) on each side. Where there are no words, the number alone speaks.
const queryNumber = query => query + FACTS.qOffset;
function queryToken(query) {
  if (FACTS.qTokens.length) return show(FACTS.qTokens[query]);
  return FACTS.sameText && FACTS.kTokens.length ? show(FACTS.kTokens[queryNumber(query)]) : "";
}
function keyToken(key) {
  if (FACTS.kTokens.length) return show(FACTS.kTokens[key]);
  const query = key - FACTS.qOffset;
  return FACTS.sameText && FACTS.qTokens.length && query >= 0 && query < FACTS.queries ? show(FACTS.qTokens[query]) : "";
}
const hasWords = FACTS.qTokens.length > 0 || FACTS.kTokens.length > 0;

// The same place in the text on the other side, or null.
function keyOfQuery(query) { return FACTS.sameText ? query + FACTS.qOffset : null; }
function queryOfKey(key) {
  const query = key - FACTS.qOffset;
  return FACTS.sameText && query >= 0 && query < FACTS.queries ? query : null;
}

function showWeight(weight) {
  if (Number.isNaN(weight)) return "not a number";
  if (weight === 0) return "0";
  return weight >= 0.001 ? weight.toFixed(4) : weight.toExponential(2);
}
// A share in few letters: with three digits 0.434 and 0.030, but 0.0013.
const showShare = (share, digits) => share >= 10 ** (1 - digits) || share === 0 ? share.toFixed(digits) : share.toPrecision(digits - 1);
const showPercent = share => share >= 0.01 ? `${Math.round(100 * share)} %` : `${(100 * share).toPrecision(1)} %`;
const showCount = count => count.toLocaleString("en-US");

// An element with properties, attributes (when the name has a dash, or is `role`) and children, which are nodes or text.
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}
