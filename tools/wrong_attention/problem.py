"""A random problem by regard's names, and attention as whole matrices in double precision with any step replaced."""

import numpy as np

INF = np.inf


class Problem:
    """q [B,H,Tq,d], k [B,G,Tk,d], v [B,G,Tk,dv] and rules, by regard's names."""

    def __init__(self, rng, **want):
        pick = lambda name, choices: want[name] if name in want else int(rng.choice(choices))
        self.rng = rng
        self.B = pick("B", [1, 1, 2, 3])
        self.G = pick("G", [1, 2, 3])
        self.group = pick("group", [1, 2, 3])
        self.H = self.G * self.group
        self.d = pick("d", [4, 6, 8, 16])
        self.dv = pick("dv", [self.d, 5, 12])
        self.Tk = pick("Tk", [9, 13, 21, 33])
        self.Tq = want.get("Tq") or (self.Tk if rng.random() < 0.5 else int(rng.integers(3, self.Tk)))
        spread = want.get("spread", float(rng.choice([1.0, 1.5, 2.0])))
        normal = lambda *shape: (rng.normal(size=shape) * spread).astype(np.float32)
        self.q, self.k = normal(self.B, self.H, self.Tq, self.d), normal(self.B, self.G, self.Tk, self.d)
        self.v = rng.normal(size=(self.B, self.G, self.Tk, self.dv)).astype(np.float32)
        self.scale = 1 / np.sqrt(self.d)
        self.arrays, self.extra = {}, {}
        self.causal = bool(want.get("causal", rng.random() < 0.4))
        self.offset = np.zeros(self.B, int) if want.get("align", rng.choice(["top", "bottom"])) == "top" else np.full(self.B, self.Tk - self.Tq)
        self.left = self.right = self.lens = self.mask = self.bias = self.cap = self.sinks = self.slopes = self.qseg = self.kseg = None
        if want.get("window"):
            self.left = int(rng.integers(1, max(2, self.Tk // 3)))
        if want.get("lens"):
            self.lens = rng.integers(max(2, self.Tk // 3), self.Tk, self.B)
        if want.get("mask"):
            self.mask = rng.random((self.B, 1, self.Tq, self.Tk)) < 0.7
            self.mask[..., 0] = True
        if want.get("bias"):
            self.bias = (rng.normal(size=(1, self.H, self.Tq, self.Tk)) * (rng.random((1, self.H, self.Tq, self.Tk)) < 0.6)).astype(np.float32)
        if want.get("cap"):
            self.cap = float(rng.choice([1.0, 2.0, 5.0]))
        if want.get("sinks"):
            self.sinks = rng.normal(size=self.H).astype(np.float32)
        if want.get("slopes"):
            self.slopes = alibi(self.H).astype(np.float32)
        if want.get("segments"):
            cuts = np.sort(rng.choice(np.arange(2, self.Tk - 2), 2, replace=False))
            row = np.zeros(self.Tk, np.int32)
            row[cuts[0] :] += 1
            row[cuts[1] :] += 1
            if want.get("pads"):
                row[-2:] = -1
            self.qseg = self.kseg = np.tile(row, (self.B, 1))

    def save(self, path):
        out = {"q": self.q, "k": self.k, "v": self.v, "causal": np.array(self.causal), "q_offset": self.offset.astype(np.int64)}
        for name, value in {"window_left": self.left, "window_right": self.right, "soft_cap": self.cap}.items():
            if value is not None:
                out[name] = np.array(value)
        for name, value in {"mask": self.mask, "bias": self.bias, "sinks": self.sinks, "alibi_slopes": self.slopes}.items():
            if value is not None:
                out[name] = value
        if self.lens is not None:
            out["kv_lens"] = self.lens.astype(np.int64)
        if self.qseg is not None:
            out["q_segments"], out["kv_segments"] = self.qseg, self.kseg
        out.update(self.extra)
        np.savez(path, **out)


def alibi(heads):
    power = 2 ** int(np.floor(np.log2(heads)))
    slopes = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    return np.array(slopes + [2.0 ** (-8 * (2 * h + 1) / (2 * power)) for h in range(heads - power)])


def repeat(x, p):
    return np.repeat(x.astype(np.float64), p.group, axis=1)


def rules(p, causal=None, offset=None, shift=0, left="own", right="own", lens=True, segments=True, see_pads=False):
    """Who may see whom but for the mask tensor, [B,1,Tq,Tk]."""
    causal = p.causal if causal is None else causal
    offset = p.offset if offset is None else np.broadcast_to(offset, (p.B,))
    left, right = (p.left if left == "own" else left), (p.right if right == "own" else right)
    i, j = np.arange(p.Tq)[:, None], np.arange(p.Tk)[None, :]
    see = np.ones((p.B, 1, p.Tq, p.Tk), bool)
    for b in range(p.B):
        distance = i + offset[b] - j
        if p.qseg is not None:
            qs, ks = p.qseg[b], p.kseg[b]
            place = lambda seg: np.array([t - np.flatnonzero(seg == s)[0] for t, s in enumerate(seg)])
            if segments:
                distance = place(qs)[:, None] + offset[b] - place(ks)[None, :]
                see[b, 0] &= qs[:, None] == ks[None, :]
            if not see_pads:
                see[b, 0] &= (qs[:, None] != -1) & (ks[None, :] != -1)
        if causal:
            see[b, 0] &= distance + shift >= 0
        if left is not None:
            see[b, 0] &= distance <= left
        if right is not None:
            see[b, 0] &= -distance <= right
        if lens and p.lens is not None:
            see[b, 0] &= j < p.lens[b]
    return see


def visible(p, **kw):
    see = rules(p, **kw)
    if p.mask is not None:
        see = see & p.mask
    return np.broadcast_to(see, (p.B, p.H, p.Tq, p.Tk))


def positions_bias(p, slopes):
    i, j = np.arange(p.Tq)[:, None], np.arange(p.Tk)[None, :]
    distance = np.abs(i + p.offset[:, None, None, None] - j)
    return -slopes[None, :, None, None] * distance


def softmax(x, axis=-1, sink=None):
    top = x.max(axis=axis, keepdims=True)
    if sink is not None:
        top = np.maximum(top, sink)
    top = np.where(np.isfinite(top), top, 0)
    e = np.exp(x - top)
    total = e.sum(axis=axis, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - top)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


def attend(p, q=None, k=None, v=None, scale=None, scores=None, cap="own", slopes="own", bias=True, see=None, hide=None, norm=None, after=None, product=None):
    """The three stages with whatever was replaced. Returns a dict of stages."""
    q = p.q.astype(np.float64) if q is None else q
    k = repeat(p.k, p) if k is None else k
    v = repeat(p.v, p) if v is None else v
    s = (q @ k.swapaxes(-1, -2)) * (p.scale if scale is None else scale)
    if scores is not None:
        s = scores(s)
    c = s
    own_cap = p.cap if isinstance(cap, str) else cap
    if callable(own_cap):
        c = own_cap(s)
    elif own_cap:
        c = own_cap * np.tanh(s / own_cap)
    m = c
    if p.bias is not None and bias:
        m = m + p.bias
    slopes = p.slopes if isinstance(slopes, str) else slopes
    if slopes is not None:
        m = m + positions_bias(p, np.asarray(slopes, np.float64))
    see = visible(p) if see is None else see
    m = hide(m, see) if hide is not None else np.where(see, m, -INF)
    sink = None if p.sinks is None else p.sinks.astype(np.float64)[None, :, None, None]
    w = norm(m, sink, see) if norm is not None else softmax(m, sink=sink)
    if after is not None:
        w = after(w, see)
    o = product(w, v) if product is not None else w @ v
    return {"scores": s, "masked_scores": m, "weights": w, "context": o}
