// ---------------------------------------------------------------------------------------------------------------- links
// The chosen token's strongest partners over all heads, both ways.

const SHOWN_PARTNERS = 7, SHOWN_HEADS = 2;

class LinksView {
  // `open(head, {query, key})` when one link of one head is asked for.
  constructor(parent, clearButton, {open, clear}) {
    this.parent = parent;
    this.clearButton = clearButton;
    this.open = open;
    clearButton.addEventListener("click", clear);
  }

  show({query, key}) {
    const isEmpty = query === null && key === null;
    this.clearButton.hidden = isEmpty;
    if (isEmpty) {
      const what = HEADS.some(head => head.links || head.keyLinks || head.isExact)
          ? "Choose a token, in the text or on the map, to see which tokens it attends to most and which attend to it most, over all heads."
          : "This page holds no links of tokens.";
      return this.parent.replaceChildren(make("p", {className: "empty"}, what));
    }
    const lists = [];
    if (query !== null) {
      lists.push(this.list(`${name(queryNumber(query), queryToken(query))} attends to`, partners(head => head.links ? head.links.of(query) : weightsOfExact(head, query, null)),
                           partner => ({query, key: partner}), partner => partner, keyToken));
    }
    if (key !== null) {
      lists.push(this.list(`${name(key, keyToken(key))} is attended by`, partners(head => head.keyLinks ? head.keyLinks.of(key) : weightsOfExact(head, null, key)),
                           partner => ({query: partner, key}), queryNumber, queryToken));
    }
    this.parent.replaceChildren(...lists);
  }

  // `cellOf`, `numberOf`, `tokenOf`: of a partner.
  list(title, found, cellOf, numberOf, tokenOf) {
    const rows = found.slice(0, SHOWN_PARTNERS).map(({partner, mean, heads}) => {
      const chips = heads.slice(0, SHOWN_HEADS).map(({head, weight}) => {
        const chip = make("button", {type: "button", className: "link", title: `${head.name}: ${showWeight(weight)}`}, head.shortName,
                          make("span", {className: "count"}, showShare(weight, 2)));
        chip.addEventListener("click", () => this.open(head, cellOf(partner)));
        return chip;
      });
      const bar = make("span", {className: "bar", "aria-hidden": "true"});
      bar.style.setProperty("--share", mean / found[0].mean);
      const word = tokenOf(partner);
      return make("tr", {}, make("th", {scope: "row"}, make("bdi", {}, word || `${numberOf(partner)}`), word ? make("span", {className: "number"}, ` ${numberOf(partner)}`) : ""),
                  make("td", {className: "mean"}, bar, make("span", {}, showShare(mean, 3))), make("td", {className: "chips"}, ...chips));
    });
    const header = make("thead", {}, make("tr", {}, make("th", {scope: "col"}, "token"), make("th", {scope: "col", title: "mean weight over the heads"}, "mean"),
                                          make("th", {scope: "col"}, "most in")));
    const body = rows.length ? make("table", {}, header, make("tbody", {}, ...rows)) : make("p", {className: "empty"}, "Nothing.");
    return make("section", {}, make("h3", {}, title), body);
  }
}

// Without embedded links an exact head still knows them.
function weightsOfExact(head, query, key) {
  if (!head.exact) return [];
  return query !== null ? weightsOfQuery(head, query) : weightsOfKey(head, key);
}

// Every partner that some head's links name: {partner, mean weight over all heads, heads with their weights}, strongest first. Weights
// below a head's strongest links count as 0.
function partners(linksOf) {
  const found = new Map();
  for (const head of HEADS) {
    for (const {index, weight} of linksOf(head)) {
      if (!(weight > 0)) continue;
      if (!found.has(index)) found.set(index, {partner: index, mean: 0, heads: []});
      const entry = found.get(index);
      entry.mean += weight / HEADS.length;
      entry.heads.push({head, weight});
    }
  }
  for (const entry of found.values()) entry.heads.sort((a, b) => b.weight - a.weight);
  return [...found.values()].sort((a, b) => b.mean - a.mean);
}
