// ------------------------------------------------------------------------------------------------------- exact weights
// exp(masked_scores − lse) of any pair, from the embedded q, k and lse, by the rules of regard/attention.h. Numbers are f32 or better.

const NOT_VISIBLE = -1;

class ExactWeights {
  constructor(entry) {
    this.q = decode(entry.q);
    this.k = decode(entry.k);
    this.lse = decode(entry.lse);
    this.dim = entry.q.shape[1];
    this.scale = entry.scale;
    this.softCap = entry.softCap;
    this.slope = entry.alibiSlope;
    this.rounded = entry.q.rounded || entry.k.rounded;
    this.mask = entry.mask ? new PairTable(entry.mask) : null;
    this.bias = entry.bias ? new PairTable(entry.bias) : null;
    this.visible = entry.visible ? decode(entry.visible) : null;
  }

  // The weights of queries [firstQuery, lastQuery) and keys [firstKey, lastKey), in C order; NOT_VISIBLE where the rules hide the key.
  window(firstQuery, lastQuery, firstKey, lastKey) {
    const columns = lastKey - firstKey, weights = new Float32Array((lastQuery - firstQuery) * columns).fill(NOT_VISIBLE);
    for (let query = firstQuery; query < lastQuery; ++query) {
      const [begin, end, position] = this.visibleKeys(query);
      const row = (query - firstQuery) * columns - firstKey;
      for (let key = Math.max(begin, firstKey); key < Math.min(end, lastKey); ++key) {
        if (this.mask && !this.mask.bit(query, key)) continue;
        const bias = this.bias ? this.bias.number(query, key) : 0;
        if (bias === -Infinity) continue;
        weights[row + key] = this.weight(query, key, bias - this.slope * Math.abs(position - key));
      }
    }
    return weights;
  }

  visibleKeys(query) {
    return this.visible ? this.visible.subarray(3 * query, 3 * query + 3) : [0, FACTS.keys, query];
  }

  weight(query, key, addend) {
    const {q, k, dim} = this;
    let dot = 0;
    for (let d = 0, i = query * dim, j = key * dim; d < dim; ++d) dot += q[i + d] * k[j + d];
    const score = dot * this.scale;
    const capped = this.softCap > 0 ? this.softCap * Math.tanh(score / this.softCap) : score;
    const masked = capped + addend;
    return masked === -Infinity ? 0 : Math.exp(masked - this.lse[query]);
  }
}

// Numbers or bits of pairs; an axis of length 1 stands for all.
class PairTable {
  constructor(entry) {
    const [rows, columns] = entry.shape;
    this.values = decode(entry);
    this.rowStride = rows === 1 ? 0 : columns;
    this.columnStride = columns === 1 ? 0 : 1;
  }
  number(query, key) { return this.values[query * this.rowStride + key * this.columnStride]; }
  bit(query, key) {
    const n = query * this.rowStride + key * this.columnStride;
    return this.values[n >> 3] >> (n & 7) & 1;
  }
}

// What the page knows of one pair: {weight} exact, {below} a bound, {mean} of the pooled cell, {hidden} by the rules.
function pairOf(head, query, key) {
  if (head.exact) {
    const weight = head.exact.window(query, query + 1, key, key + 1)[0];
    return weight === NOT_VISIBLE ? {hidden: true} : {weight};
  }
  const known = {};
  if (head.pooled) known.mean = head.pooled.at(query, key);
  if (head.links) {
    const links = head.links.of(query), link = links.find(candidate => candidate.index === key);
    if (link) known.weight = link.weight;
    else if (links.length === head.links.count) known.below = links[links.length - 1].weight;
  }
  return known;
}

// The weights that `query` gives, or `key` receives, as a list {index, weight}: all of them for exact heads, else the strongest.
function weightsOfQuery(head, query) {
  if (head.exact) return listed(head.exact.window(query, query + 1, 0, FACTS.keys));
  return head.links ? head.links.of(query) : [];
}
function weightsOfKey(head, key) {
  if (head.exact) return listed(head.exact.window(0, FACTS.queries, key, key + 1));
  return head.keyLinks ? head.keyLinks.of(key) : [];
}
function listed(weights) {
  return Array.from(weights, (weight, index) => ({index, weight})).filter(link => link.weight > 0);
}
