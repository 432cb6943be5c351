// ----------------------------------------------------------------------------------------------------------------- text
// The tokens as running text, shaded by what the chosen token attends to or is attended by, or else by the attention they receive. Long
// texts are made in pieces when they come into sight.

const PIECE = 256;

// One text, that of the queries or of the keys. Positions count along it.
class Flow {
  constructor(parent, {name, length, tokenOf, numberOf, pick}) {
    this.length = length;
    this.tokenOf = tokenOf;
    this.numberOf = numberOf;
    this.shades = null;    // Float32Array of shares, or null
    this.chosen = null;
    this.current = 0;      // where the Tab key enters
    this.element = make("div", {className: hasWords ? "flow" : "flow numbers", role: "listbox", "aria-label": name});
    this.observer = new IntersectionObserver(entries => entries.forEach(entry => this.onSight(entry)), {root: null, rootMargin: "300px"});
    this.pieces = Array.from({length: Math.ceil(length / PIECE)}, (_, n) => {
      const piece = make("div", {className: "piece", role: "presentation"});
      piece.dataset.piece = n;
      this.element.append(piece);
      this.observer.observe(piece);
      return piece;
    });
    if (this.pieces.length) this.fill(0);
    parent.append(this.element);
    this.element.addEventListener("click", event => {
      const token = event.target.closest("[data-position]");
      if (token) { this.moveTo(Number(token.dataset.position)); pick(this.current); }
    });
    this.element.addEventListener("keydown", event => {
      const steps = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10, Home: -Infinity, End: Infinity};
      if (event.key === "Enter" || event.key === " ") pick(this.current);
      else if (steps[event.key]) this.moveTo(this.current + steps[event.key]);
      else return;
      event.preventDefault();
    });
  }

  onSight(entry) {
    const n = Number(entry.target.dataset.piece);
    if (entry.isIntersecting && !entry.target.firstChild) { this.fill(n); this.paint(n); }
  }

  fill(n) {
    const piece = this.pieces[n];
    for (let position = n * PIECE; position < Math.min(this.length, (n + 1) * PIECE); ++position) {
      const number = this.numberOf(position), word = this.tokenOf(position);
      const token = make("span", {className: "token", role: "option", tabIndex: position === this.current ? 0 : -1, title: `${number}`,
                                  "aria-selected": `${position === this.chosen}`}, word || `${number}`);
      token.dataset.position = position;
      piece.append(token, " ");
    }
    piece.classList.add("filled");
  }

  tokenElement(position) {
    const n = Math.floor(position / PIECE);
    if (!this.pieces[n].firstChild) { this.fill(n); this.paint(n); }
    return this.pieces[n].children[position - n * PIECE];
  }

  moveTo(position) {
    this.tokenElement(this.current).tabIndex = -1;
    this.current = Math.max(0, Math.min(this.length - 1, position));
    const element = this.tokenElement(this.current);
    element.tabIndex = 0;
    element.focus();
  }

  choose(position) {
    if (this.chosen !== null) this.tokenElement(this.chosen).setAttribute("aria-selected", "false");
    this.chosen = position;
    if (position === null) return;
    this.tokenElement(this.current).tabIndex = -1;
    this.current = position;
    const element = this.tokenElement(position);
    element.setAttribute("aria-selected", "true");
    element.tabIndex = 0;
    this.reveal(element);
  }

  // Scrolls the text, but not the page.
  reveal(element) {
    const box = this.element.parentElement, frame = box.getBoundingClientRect(), place = element.getBoundingClientRect();
    if (place.top < frame.top || place.bottom > frame.bottom) {
      box.scrollTop += (place.top + place.bottom) / 2 - (frame.top + frame.bottom) / 2;
    }
  }

  setShades(shades, colors) {
    this.shades = shades;
    this.colors = colors;
    this.pieces.forEach((_, n) => this.paint(n));
  }

  paint(n) {
    const {shades, colors} = this;
    if (!colors) return;
    for (const token of this.pieces[n].children) {
      const {background, ink} = colors.css(shades ? shades[token.dataset.position] : 0);
      token.style.backgroundColor = background;
      token.style.color = ink;
    }
  }
}

class TextView {
  // `pick({query, key})` when a token is chosen.
  constructor(parent, shadeText, pick) {
    this.shadeText = shadeText;
    this.direction = "to";
    const keys = {name: FACTS.sameText ? "Tokens" : "Keys", length: FACTS.keys, tokenOf: keyToken, numberOf: key => key,
                  pick: key => pick({query: queryOfKey(key), key})};
    if (FACTS.sameText) {
      this.keyFlow = this.queryFlow = new Flow(parent, keys);
    } else {
      parent.append(make("h3", {}, "Queries"));
      this.queryFlow = new Flow(parent, {name: "Queries", length: FACTS.queries, tokenOf: queryToken, numberOf: queryNumber,
                                         pick: query => pick({query, key: null})});
      parent.append(make("h3", {}, "Keys"));
      this.keyFlow = new Flow(parent, keys);
    }
  }

  select({query, key}) {
    if (FACTS.sameText) return this.keyFlow.choose(key !== null ? key : query !== null ? keyOfQuery(query) : null);
    this.queryFlow.choose(query);
    this.keyFlow.choose(key);
  }

  shade(head, {query, key}, colors) {
    this.queryFlow.setShades(null, colors);
    this.keyFlow.setShades(null, colors);
    const attendsTo = query !== null && (!FACTS.sameText || this.direction === "to" || key === null);
    const attendedBy = key !== null && !attendsTo;
    if (attendsTo) {
      this.paint(this.keyFlow, weightsOfQuery(head, query), index => index, colors);
      this.explain(`what ${name(queryNumber(query), queryToken(query))} attends to, in this head`, !head.exact && !head.links);
    } else if (attendedBy) {
      this.paint(this.queryFlow, weightsOfKey(head, key), FACTS.sameText ? keyOfQuery : index => index, colors);
      this.explain(`what attends to ${name(key, keyToken(key))}, in this head`, !head.exact && !head.keyLinks);
    } else if (head.keyMass) {
      const largest = largestOf(head.keyMass);
      this.keyFlow.setShades(head.keyMass.map(mass => largest > 0 ? mass / largest : 0), colors);
      this.explain("attention received in this head; choose a token to see its own");
    } else {
      this.explain("choose a token");
    }
  }

  explain(text, isUnknown) { this.shadeText.textContent = isUnknown ? "not known for this head: no links in this page" : `Shade: ${text}`; }

  paint(flow, links, positionOf, colors) {
    const largest = links.reduce((most, {weight}) => Math.max(most, weight), 0), shades = new Float32Array(flow.length);
    if (largest > 0) for (const {index, weight} of links) shades[positionOf(index)] = weight / largest;
    flow.setShades(shades, colors);
  }
}

function name(number, word) { return word ? `“${word}” (${number})` : `token ${number}`; }
