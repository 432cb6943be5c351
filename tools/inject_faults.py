"""Makes attention problems with outputs that are wrong in one known way, in two, or only rounded, to score `regard check` with.

    python tools/inject_faults.py OUT --count 20                     every fault of the catalogue, 20 problems each
    python tools/inject_faults.py OUT --faults F01,F16 --count 50
    python tools/inject_faults.py OUT --pairs 200
    python tools/inject_faults.py OUT --correct 10000

Each case is OUT/NAME.npz (the problem) and OUT/NAME.observed.npz (what somebody's program gave); OUT/cases.json lists them with the
ids that are right. tools/score_diagnosis.py runs the command over them. The attention below is written for this file alone, whole
matrices in double precision, and shares nothing with the library.
"""

import argparse
import json
import pathlib

import numpy as np

INF = np.inf


# ------------------------------------------------------------------------------------------------------- the problem


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


# ------------------------------------------------------------------------------------------------------- the faults
# Each entry: what the problem must have, and the wrong computation.

FAULTS, MULTIHEAD = {}, {"G": 3, "group": 1}


def fault(name, also=(), **want):
    def register(function):
        FAULTS.setdefault(name, []).append((want, function, tuple(also)))
        return function

    return register


fault("F01")(lambda p: attend(p, scale=1))
fault("F02")(lambda p: attend(p, scale=1 / p.d))
fault("F03")(lambda p: attend(p, scale=np.sqrt(p.d)))
fault("F04", also=["F05"], G=2)(lambda p: attend(p, scale=1 / np.sqrt(p.d * p.H)))
fault("F04", also=["F05"], d=6)(lambda p: attend(p, scale=1 / np.sqrt(64)))
fault("F05", also=["F04"])(lambda p: attend(p, scale=0.0))
fault("F05", also=["F04"], d=16)(lambda p: attend(p, scale=0.5))
fault("F05", also=["F04", "F87"])(lambda p: attend(p, scale=p.scale * float(p.rng.choice([p.rng.uniform(0.2, 0.8), p.rng.uniform(1.25, 3)]))))


@fault("F06", Tk=33)
def compound(p):
    block = int(p.rng.choice([4, 8, 16]))
    return attend(p, scores=lambda s: s * 1.4426950408889634 ** (np.arange(p.Tk) // block))


fault("F07")(lambda p: attend(p, scale=1, after=lambda w, see: w * p.scale))
fault("F08")(lambda p: attend(p, product=lambda w, v: float(p.rng.uniform(1.2, 3)) * (w @ v)))


def by_view(x):
    """[B,H,T,d] whose memory is [B,T,H,d], read as [B,H,T,d]."""
    b, h, t, d = x.shape
    return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(b, h, t, d)


fault("F10", also=["F13"], **MULTIHEAD)(lambda p: attend(p, q=by_view(p.q.astype(float)), k=by_view(repeat(p.k, p)), v=by_view(repeat(p.v, p))))


@fault("F11", **MULTIHEAD)
def merge(p):
    r = attend(p)
    o = r["context"]
    r["context"] = o.reshape(p.B, p.Tq, p.H * p.dv).reshape(p.B, p.Tq, p.H, p.dv).swapaxes(1, 2)
    return r


@fault("F12", B=3, causal=False, Tk=9, Tq=9)
def along_batch(p):
    q, k, v = (x.transpose(2, 1, 0, 3) for x in (p.q.astype(float), repeat(p.k, p), repeat(p.v, p)))
    w = softmax(q @ k.swapaxes(-1, -2) * p.scale)
    return {"context": (w @ v).transpose(2, 1, 0, 3)}


fault("F13", also=["F14"], **MULTIHEAD)(lambda p: attend(p, k=by_view(repeat(p.k, p))))
fault("F13", **MULTIHEAD)(lambda p: attend(p, q=by_view(p.q.astype(float))))
fault("F13")(lambda p: attend(p, k=np.repeat(np.ascontiguousarray(p.k.astype(float).swapaxes(2, 3)).reshape(p.k.shape), p.group, 1)))
fault("F14", also=["F13"], **MULTIHEAD)(lambda p: attend(p, v=by_view(repeat(p.v, p))))
fault("F15", G=3)(lambda p: attend(p, k=np.repeat(p.k[:, :1].astype(float), p.H, 1), v=np.repeat(p.v[:, :1].astype(float), p.H, 1)))
fault("F15", G=2)(lambda p: attend(p, v=np.repeat(p.v[:, :1].astype(float), p.H, 1)))
fault("F16", G=2, group=2)(lambda p: attend(p, k=np.tile(p.k, (1, 2, 1, 1)).astype(float), v=np.tile(p.v, (1, 2, 1, 1)).astype(float)))
fault("F16", G=2, group=3)(lambda p: attend(p, k=np.tile(p.k, (1, 3, 1, 1)).astype(float), v=np.tile(p.v, (1, 3, 1, 1)).astype(float)))
along_tokens = lambda x, p: np.repeat(x.astype(float), p.group, 2).reshape(p.B, p.H, p.Tk, x.shape[-1])
fault("F17", G=2, group=2)(lambda p: attend(p, k=along_tokens(p.k, p), v=along_tokens(p.v, p)))


@fault("F18", G=3, group=1, d=8, dv=8, Tk=13, Tq=13)
def fused_order(p):
    blocks = np.concatenate([p.q, p.k, p.v], axis=1).astype(float)  # heads side by side: q…, k…, v…
    per_head = blocks.reshape(p.B, p.H, 3, p.Tk, p.d)
    return attend(p, q=per_head[:, :, 0], k=per_head[:, :, 1], v=per_head[:, :, 2])


fault("F19", d=8, dv=8)(lambda p: attend(p, v=repeat(p.k, p)))


@fault("F20", B=2, G=3, group=1, mask=True)
def tiled_mask(p):
    m = np.tile(p.mask[:, 0], (p.H, 1, 1)).reshape(p.B, p.H, p.Tq, p.Tk)
    return attend(p, see=rules(p) & m)


@fault("F21", mask=True, Tk=21, Tq=12)
def square_mask(p):
    rows = (np.arange(p.Tq)[:, None] * p.Tq + np.arange(p.Tk)[None, :]) % (p.Tq * p.Tk)
    m = p.mask.reshape(p.B, 1, -1)[..., rows.ravel()].reshape(p.mask.shape)
    return attend(p, see=np.broadcast_to(rules(p) & m, (p.B, p.H, p.Tq, p.Tk)))


# Positions. The problem's q and k are rotated by the right rule; the wrong ones are made from the same unrotated tensors.
def rotate(x, pos, pairing="halves", base=10000.0):
    d = x.shape[-1]
    angle = pos[..., None] * base ** (-np.arange(d // 2) * 2 / d)
    cos, sin = np.cos(angle), np.sin(angle)
    out = np.empty_like(x)
    if pairing == "halves":
        a, b = x[..., : d // 2], x[..., d // 2 :]
        out[..., : d // 2], out[..., d // 2 :] = a * cos - b * sin, a * sin + b * cos
    else:
        a, b = x[..., 0::2], x[..., 1::2]
        out[..., 0::2], out[..., 1::2] = a * cos - b * sin, a * sin + b * cos
    return out


def rope(name, with_pre=True, also=(), pairing="halves", **want):
    def register(function):
        def make(p):
            qpre, kpre = p.q.astype(float), p.k.astype(float)
            kpos = np.broadcast_to(np.arange(p.Tk, dtype=float), (p.B, p.Tk))
            if want.get("row_positions"):
                kpos = np.maximum(np.arange(p.Tk)[None, :] - np.arange(p.B)[:, None] * 3.0, 0)
                p.extra["positions"] = kpos.astype(np.int64)
            qpos = np.take_along_axis(kpos, np.clip(np.arange(p.Tq)[None, :] + p.offset[:, None], 0, p.Tk - 1), 1)
            p.q = rotate(qpre, qpos[:, None], pairing).astype(np.float32)
            p.k = rotate(kpre, kpos[:, None], pairing).astype(np.float32)
            if with_pre:
                p.extra["q_pre_rope"], p.extra["k_pre_rope"] = qpre.astype(np.float32), kpre.astype(np.float32)
            q, k = function(p, qpre, kpre, qpos[:, None], kpos[:, None])
            return attend(p, q=q, k=np.repeat(k, p.group, 1))

        fault(name, also=also, align="bottom", **{k: v for k, v in want.items() if k != "row_positions"})(make)
        return function

    return register


other_pairing = lambda p, q, k, qp, kp: (rotate(q, qp, "neighbours"), rotate(k, kp, "neighbours"))
rope("F25", d=8)(other_pairing)
rope("F25", d=8, with_pre=False)(other_pairing)
rope("F25", d=8, pairing="neighbours")(lambda p, q, k, qp, kp: (rotate(q, qp), rotate(k, kp)))


@rope("F26", d=8, pairing="neighbours")
def output_order(p, q, k, qp, kp):
    r = rotate(q, qp, "neighbours")
    return np.concatenate([r[..., 0::2], r[..., 1::2]], -1), rotate(k, kp, "neighbours")


rope("F27", d=8)(lambda p, q, k, qp, kp: (rotate(q, qp + 1), rotate(k, kp)))
rope("F27", d=8, Tk=21, Tq=5)(lambda p, q, k, qp, kp: (rotate(q, np.arange(p.Tq, dtype=float)[None, None]), rotate(k, kp)))
rope("F28", d=8, B=3, row_positions=True, Tk=21, Tq=21)(lambda p, q, k, qp, kp: (rotate(q, np.arange(p.Tq, dtype=float)[None, None]), rotate(k, np.arange(p.Tk, dtype=float)[None, None])))
rope("F29", d=8, G=3, group=1)(lambda p, q, k, qp, kp: tuple(rotate(x, np.arange(x.shape[1], dtype=float)[None, :, None]) for x in (q, k)))
fault("F30", slopes=True, G=2)(lambda p: attend(p, slopes=2.0 ** (-8 * np.arange(p.H) / p.H)))
fault("F30", slopes=True, G=3)(lambda p: attend(p, slopes=2.0 ** (-8 * (np.arange(p.H) + 1) / p.H)))

# Masks.
fault("F35", causal=True, also=["F52"])(lambda p: attend(p, see=visible(p, causal=False)))
fault("F36", causal=False)(lambda p: attend(p, see=visible(p, causal=True)))
fault("F37", causal=True, Tk=21, Tq=8, align="top")(lambda p: attend(p, see=visible(p, offset=p.Tk - p.Tq)))
fault("F37", causal=True, Tk=21, Tq=8, align="bottom")(lambda p: attend(p, see=visible(p, offset=0)))
fault("F38", causal=True)(lambda p: attend(p, see=visible(p, shift=1)))
fault("F38", causal=True)(lambda p: attend(p, see=visible(p, shift=-1)))
fault("F39", causal=True, window=True)(lambda p: attend(p, see=visible(p, left=p.left + 1)))
fault("F39", causal=True, window=True)(lambda p: attend(p, see=visible(p, left=p.left - 1)))
fault("F40", causal=True, window=True, also=["F52"])(lambda p: attend(p, see=visible(p, left=None)))
fault("F41", mask=True)(lambda p: attend(p, see=rules(p) & np.broadcast_to(~p.mask, (p.B, p.H, p.Tq, p.Tk))))
fault("F42", mask=True, causal=False)(lambda p: attend(p, hide=lambda m, see: m + see))
fault("F42", mask=True, causal=True)(lambda p: attend(p, hide=lambda m, see: np.where(rules(p), m + p.mask, -INF)))
fault("F43", bias=True)(lambda p: attend(p, bias=False, see=np.broadcast_to(rules(p) & (p.bias == 0), (p.B, p.H, p.Tq, p.Tk))))
fault("F44", mask=True, also=["F52", "F49"])(lambda p: attend(p, see=np.broadcast_to(rules(p), (p.B, p.H, p.Tq, p.Tk))))
fault("F45", mask=True, also=["F50"])(lambda p: attend(p, hide=lambda m, see: np.where(rules(p), np.where(see, m, -1e-9), -INF)))
fault("F45", mask=True)(lambda p: attend(p, hide=lambda m, see: np.where(rules(p), np.where(see, m, m - 3.5), -INF)))


@fault("F46", mask=True, causal=True, Tk=13, Tq=13)
def two_minima(p):
    empty_from = p.Tq // 2
    p.mask = p.mask.copy()
    p.mask[:, :, empty_from:, : p.Tk] = False
    p.mask[:, :, :2] = False
    big = np.finfo(np.float32).min.astype(np.float64)
    n = (~rules(p)).astype(float) + (~p.mask)
    m_of = lambda m, see: np.where(n >= 2, -INF, np.where(n == 1, big, m))

    def norm(m, sink, see):
        with np.errstate(all="ignore"):
            e = np.exp(m - m.max(-1, keepdims=True))
            return e / e.sum(-1, keepdims=True)

    return attend(p, hide=m_of, norm=norm)


def with_empty_rows(p):
    p.mask = p.mask.copy()
    p.mask[:, :, 1::3] = False
    return ~visible(p).any(-1, keepdims=True)


def empty_nan(p):
    empty = with_empty_rows(p)
    return attend(p, after=lambda w, see: np.where(empty, np.nan, w))


def empty_mean(p):
    empty = with_empty_rows(p)
    return attend(p, after=lambda w, see: np.where(empty, 1 / p.Tk, w))


fault("F47", mask=True, also=["F44", "F46"])(empty_nan)
fault("F48", mask=True, also=["F44", "F45", "F46"])(empty_mean)
fault("F49", lens=True, also=["F52"])(lambda p: attend(p, see=visible(p, lens=False)))
fault("F50", mask=True, also=["F45"])(lambda p: attend(p, hide=lambda m, see: np.where(rules(p), m * p.mask, -INF)))
fault("F51", mask=True)(lambda p: attend(p, see=np.broadcast_to(rules(p), (p.B, p.H, p.Tq, p.Tk)), after=lambda w, see: w * p.mask))
fault("F52", mask=True, causal=False, also=["F44", "F49"])(lambda p: attend(p, see=np.ones((p.B, p.H, p.Tq, p.Tk), bool)))
fault("F52", mask=True, causal=True)(lambda p: attend(p, see=np.ones((p.B, p.H, p.Tq, p.Tk), bool)))
fault("F53", segments=True, causal=True, Tk=21, Tq=21, align="top")(lambda p: attend(p, see=visible(p, segments=False)))
fault("F53", segments=True, causal=False, Tk=21, Tq=21, align="top", also=["F52", "F49"])(lambda p: attend(p, see=visible(p, segments=False)))
fault("F54", segments=True, pads=True, Tk=21, Tq=21, align="top")(lambda p: attend(p, see=visible(p, see_pads=True)))


# Softmax. `m` holds −inf where hidden.
def columns(m, sink, see):
    top = m.max(-2, keepdims=True)
    e = np.exp(m - np.where(np.isfinite(top), top, 0))
    total = e.sum(-2, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


fault("F60", also=["F95"])(lambda p: attend(p, norm=columns))
fault("F61")(lambda p: attend(p, norm=lambda m, s, see: np.where(see, 1.0, 0.0)))
fault("F62", G=2)(lambda p: attend(p, norm=lambda m, s, see: softmax(m.swapaxes(1, 2).reshape(p.B, p.Tq, -1)).reshape(p.B, p.Tq, p.H, p.Tk).swapaxes(1, 2)))
fault("F63")(lambda p: attend(p, norm=lambda m, s, see: softmax(softmax(m))))
fault("F64")(lambda p: attend(p, norm=lambda m, s, see: np.exp(m)))
fault("F64")(lambda p: attend(p, norm=lambda m, s, see: np.where(see, m, 0)))


def overflowing(limit, subtracted=0.0):
    def norm(m, sink, see):
        with np.errstate(all="ignore"):
            x = m - subtracted
            e = np.where(x > limit, INF, np.where(x < (-103.972 if limit > 20 else -17.3286), 0, np.exp(np.minimum(x, 700))))
            total = e.sum(-1, keepdims=True)
            return e / np.where(total > np.exp(limit), INF, total)

    return norm


fault("F65", spread=11.0, d=16)(lambda p: attend(p, norm=overflowing(88.72)))
fault("F65", spread=4.0, d=16, also=["F66"])(lambda p: attend(p, norm=overflowing(11.09)))
fault("F66", spread=11.0, d=16)(lambda p: attend(p, norm=overflowing(88.72, 10.0)))


@fault("F67")
def start_at_zero(p):
    p.bias = np.where(p.rng.random((1, p.H, p.Tq, 1)) < 0.4, -500.0, 0.0).astype(np.float32) * np.ones((1, 1, 1, p.Tk), np.float32)
    lost = lambda m: m.max(-1, keepdims=True) < -200
    return attend(p, after=lambda w, see: np.where(np.broadcast_to(p.bias < -200, w.shape), 0, w))


def blockwise(p, block, kind):
    def norm(m, sink, see):
        w, run, total = np.zeros_like(m), np.full(m.shape[:-1], -INF), np.zeros(m.shape[:-1])
        for first in range(0, p.Tk, block):
            part = m[..., first : first + block]
            new = np.maximum(run, part.max(-1))
            safe = np.where(np.isfinite(new), new, 0)
            factor = np.where(np.isfinite(run), np.exp(np.where(np.isfinite(run), run, 0) - safe), 0)
            e = np.exp(part - safe[..., None])
            if kind == "accumulator":
                total = total * factor
            w[..., first : first + block] = e
            total = total + e.sum(-1)
            run = new
        return w / np.maximum(total, 1e-300)[..., None]

    return attend(p, norm=norm)


fault("F68", Tk=33)(lambda p: blockwise(p, int(p.rng.choice([4, 8, 16])), "accumulator"))
fault("F68", Tk=33)(lambda p: blockwise(p, int(p.rng.choice([4, 8, 16])), "both"))


@fault("F69", causal=False)
def tail(p):
    block = int(p.rng.choice([8, 16]))
    padded = -p.Tk % block
    if padded == 0:
        padded = 3
    return attend(p, norm=lambda m, s, see: softmax(np.concatenate([m, np.zeros(m.shape[:-1] + (padded,))], -1))[..., : p.Tk])


fault("F70", cap=True, mask=True, causal=False)(lambda p: attend(p, hide=lambda m, see: np.where(see, m, -p.cap)))
fault("F70", cap=True, causal=True)(lambda p: attend(p, hide=lambda m, see: np.where(see, m, -p.cap)))
fault("F71", cap=True)(lambda p: attend(p, cap=lambda s: s * np.tanh(s / p.cap)))
fault("F71", cap=True)(lambda p: attend(p, cap=None))
fault("F71", cap=True)(lambda p: attend(p, cap=p.cap * float(p.rng.uniform(1.3, 2.5))))
fault("F72", sinks=True)(lambda p: attend(p, norm=lambda m, s, see: softmax(m)))
fault("F72", sinks=True)(lambda p: attend(p, norm=lambda m, s, see: softmax(m, sink=s + np.log(2))))
fault("F72", sinks=True)(lambda p: attend(p, norm=lambda m, s, see: softmax(m, sink=s * p.scale)))


@fault("F73", spread=120.0, d=16)
def overflow(p):
    def scores(s):
        raw = s / p.scale
        return np.where(np.abs(raw) > 65519, np.sign(raw) * INF, s)

    def norm(m, sink, see):
        with np.errstate(all="ignore"):
            e = np.exp(m - m.max(-1, keepdims=True))
            e = e / e.sum(-1, keepdims=True)
        bad = (m == INF).any(-1, keepdims=True)
        return np.where(bad & np.isfinite(m) | bad & (m == INF), np.nan, np.where(np.isnan(e), 0, e))

    return attend(p, scores=scores, norm=norm)


@fault("F75", observe="weights")
def dropout(p):
    rate = float(p.rng.choice([0.1, 0.3, 0.5]))
    return attend(p, after=lambda w, see: w * (p.rng.random(w.shape) >= rate) / (1 - rate))


@fault("F76", observe="weights", G=2)
def head_mean(p):
    r = attend(p)
    r["weights"] = np.broadcast_to(r["weights"].mean(1, keepdims=True), r["weights"].shape)
    return r


@fault("F80", lens=True)
def nan_through(p):
    for b in range(p.B):
        p.v[b, :, p.lens[b] :] = np.nan
    return attend(p)  # 0·NaN


@fault("F81")
def swallowed(p):
    p.v[:, :, 0, 0] = np.nan
    r = attend(p)
    r["context"] = np.nan_to_num(r["context"])
    return r


@fault("F82", causal=False)
def lse_base(p):
    split = int(p.rng.integers(2, p.Tk - 1))

    def norm(m, sink, see):
        parts = [m[..., :split], m[..., split:]]
        lse = [np.log(np.exp(x).sum(-1)) / np.log(2) for x in parts]
        total = np.exp(lse[0]) + np.exp(lse[1])
        return np.concatenate([softmax(x) * (np.exp(l) / total)[..., None] for x, l in zip(parts, lse)], -1)

    return attend(p, norm=norm)


@fault("F83", causal=False)
def twice(p):
    split = int(p.rng.integers(2, p.Tk - 1))
    return attend(p, norm=lambda m, s, see: softmax(m + np.log(2) * (np.arange(p.Tk) < split)))


@fault("F84", causal=False)
def hole(p):
    slot = p.Tk - 1
    k, v = repeat(p.k, p), repeat(p.v, p)
    k[:, :, slot], v[:, :, slot] = 0, 0
    return attend(p, k=k, v=v)


fault("F84", causal=False)(lambda p: attend(p, k=np.roll(repeat(p.k, p), 1, 2), v=np.roll(repeat(p.v, p), 1, 2)))


@fault("F87", G=3)
def cache_scale(p):
    factor = p.rng.uniform(0.3, 3, p.G)
    return attend(p, k=np.repeat(p.k * factor[None, :, None, None], p.group, 1))


fault("F94", group=1, Tk=13, Tq=13)(lambda p: attend(p, q=p.k.astype(float), k=p.q.astype(float)))
fault("F94", group=2, Tk=13, Tq=13)(lambda p: attend(p, q=repeat(p.k, p), k=p.q.astype(float)))
fault("F95", Tk=13, Tq=13, also=["F60"])(lambda p: attend(p, product=lambda w, v: w.swapaxes(-1, -2) @ v))


def projected(name, wrong, **want):
    """q, k, v from inputs; `wrong` says how they were projected instead."""

    def make(p):
        size = p.H * p.d
        normal = lambda *shape: p.rng.normal(size=shape) / np.sqrt(size)
        x = p.rng.normal(size=(p.B, p.Tk, size)).astype(np.float32)
        w = {n: normal(size, size).astype(np.float32) for n in ("query", "key", "value", "out")}
        b = {n: normal(size).astype(np.float32) for n in w}
        heads = lambda y: y.reshape(p.B, p.Tk, p.H, p.d).swapaxes(1, 2)
        right = {n: heads(x.astype(float) @ w[n].T + b[n]) for n in ("query", "key", "value")}
        bad = {n: heads(wrong(x.astype(float), w[n].astype(float), b[n])) for n in right}
        p.extra = {"inputs": x, "num_heads": np.array(p.H), **{f"w_{n}": a for n, a in w.items()}, **{f"b_{n}": a for n, a in b.items()}}
        return attend(p, q=bad["query"], k=bad["key"], v=bad["value"]) if right else None

    fault(name, group=1, G=3, d=4, dv=4, Tk=13, Tq=13, align="top", inputs_only=True, **want)(make)


projected("F96", lambda x, w, b: x @ w + b)
projected("F97", lambda x, w, b: x @ w.T)


@fault("F98", group=1, G=3, d=4, dv=4, Tk=13, Tq=13, align="top", inputs_only=True, observe="projected")
def out_left_out(p):
    size = p.H * p.d
    x = p.rng.normal(size=(p.B, p.Tk, size)).astype(np.float32)
    w = {n: (p.rng.normal(size=(size, size)) / np.sqrt(size)).astype(np.float32) for n in ("query", "key", "value", "out")}
    heads = lambda y: y.reshape(p.B, p.Tk, p.H, p.d).swapaxes(1, 2)
    q, k, v = (heads(x.astype(float) @ w[n].T) for n in ("query", "key", "value"))
    p.extra = {"inputs": x, "num_heads": np.array(p.H), **{f"w_{n}": a for n, a in w.items()}}
    r = attend(p, q=q, k=k, v=v)
    r["projected"] = r["context"].swapaxes(1, 2).reshape(p.B, p.Tk, size)
    return r


@fault("F99", also=["F15", "F16"], **MULTIHEAD)
def permuted(p):
    r = attend(p)
    order = np.roll(np.arange(p.H), int(p.rng.integers(1, p.H)))
    r["context"], r["weights"] = r["context"][:, order], r["weights"][:, order]
    return r


# Pairs: arguments of attend that combine.
PAIR_PARTS = {
    "F01": ({}, lambda p: {"scale": 1}),
    "F02": ({}, lambda p: {"scale": 1 / p.d}),
    "F05": ({"d": 16}, lambda p: {"scale": 0.5}),
    "F35": ({"causal": True}, lambda p: {"see": visible(p, causal=False)}),
    "F38": ({"causal": True}, lambda p: {"see": visible(p, shift=1)}),
    "F16": ({"G": 2, "group": 2}, lambda p: {"k": np.tile(p.k, (1, 2, 1, 1)).astype(float), "v": np.tile(p.v, (1, 2, 1, 1)).astype(float)}),
    "F10": ({"G": 3, "group": 1}, lambda p: {"q": by_view(p.q.astype(float)), "k": by_view(repeat(p.k, p)), "v": by_view(repeat(p.v, p))}),
    "F63": ({}, lambda p: {"norm": lambda m, s, see: softmax(softmax(m))}),
    "F60": ({}, lambda p: {"norm": columns}),
    "F71": ({"cap": True}, lambda p: {"cap": None}),
    "F41": ({"mask": True}, lambda p: {"see": rules(p) & np.broadcast_to(~p.mask, (p.B, p.H, p.Tq, p.Tk))}),
    "F42": ({"mask": True, "causal": False}, lambda p: {"hide": lambda m, see: m + see}),
    "F08": ({}, lambda p: {"product": lambda w, v: 1.7 * (w @ v)}),
}


# ---------------------------------------------------------------------------------------------------- correct outputs


def to_bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return np.where(np.isnan(x), np.float32(np.nan), rounded.astype(np.uint32).view(np.float32))


def rounder(kind):
    return {"f16": lambda x: np.asarray(x, np.float32).astype(np.float16).astype(np.float32), "bf16": to_bf16,
            "tf32": lambda x: ((np.asarray(x, np.float32).view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32), "f32": lambda x: np.asarray(x, np.float32)}[kind]


FAMILIES = ["f32", "bf16", "f16", "tf32", "f16_everywhere", "blockwise", "reversed", "sequential", "approximate_exp", "f16_inputs", "huge_scores", "empty_rows", "one_token", "one_dim", "one_head", "weights_bf16"]


def correct(rng, family):
    want = {"mask": rng.random() < 0.3, "lens": rng.random() < 0.2, "window": rng.random() < 0.2, "cap": rng.random() < 0.1, "sinks": rng.random() < 0.15}
    if family == "one_token":
        want.update(Tq=1, Tk=int(rng.choice([1, 1, 2, 9])), lens=False, window=False)
    if family == "one_dim":
        want.update(d=1, dv=1)
    if family == "one_head":
        want.update(G=1, group=1)
    if family == "empty_rows":
        want.update(mask=True)
    p = Problem(rng, **want)
    if family == "empty_rows":
        with_empty_rows(p)
    if family == "f16_inputs":
        p.q, p.k, p.v = (x.astype(np.float16) for x in (p.q, p.k, p.v))
    if family == "huge_scores":
        p.q *= 1000 / max(1e-3, float(np.abs(np.einsum("bhid,bhjd->bhij", p.q, repeat(p.k, p))).max() * p.scale))
    kind = family if family in ("bf16", "f16", "tf32") else str(rng.choice(["f32", "bf16", "f16"])) if family in ("huge_scores", "empty_rows", "one_token", "one_dim", "one_head") else "f32"
    r = rounder("f16" if family == "f16_everywhere" else kind)
    q, k, v = r(p.q), r(repeat(p.k, p)), r(repeat(p.v, p))
    order = np.arange(p.d)[::-1] if family == "reversed" else np.arange(p.d)
    if family in ("sequential", "f16_everywhere"):
        s = np.zeros((p.B, p.H, p.Tq, p.Tk), np.float32)
        for n in range(p.d):
            s = r(s + r(q[..., :, None, n] * k[..., None, :, n]))
    else:
        s = (q[..., order] @ k[..., order].swapaxes(-1, -2)).astype(np.float32)
    s = r(s * np.float32(p.scale))
    if p.cap:
        s = r(np.float32(p.cap) * np.tanh(s / np.float32(p.cap)))
    see = visible(p)
    m = np.where(see, s, np.float32(-np.inf))
    sink = None if p.sinks is None else p.sinks[None, :, None, None]
    top = m.max(-1, keepdims=True) if sink is None else np.maximum(m.max(-1, keepdims=True), sink)
    top = np.where(np.isfinite(top), top, 0).astype(np.float32)
    x = r(m - top)
    if family == "approximate_exp":
        whole = np.floor(np.maximum(x, -80) * np.float32(1.442695))
        rest = (np.maximum(x, -80) - whole * np.float32(0.6931472)).astype(np.float32)
        e = np.where(m == -np.inf, 0, (1 + rest * (1 + rest * (np.float32(0.5) + rest * (np.float32(0.16667) + rest * np.float32(0.0424))))) * 2.0**whole).astype(np.float32)
    else:
        e = r(np.exp(x))
    if family in ("sequential", "f16_everywhere"):
        total = np.zeros(e.shape[:-1] + (1,), np.float32)
        for n in range(p.Tk):
            total = r(total + e[..., n : n + 1])
    elif family == "blockwise":
        total = sum(e[..., n : n + 4].sum(-1, keepdims=True) for n in range(0, p.Tk, 4))
    else:
        total = e[..., ::-1].sum(-1, keepdims=True, dtype=np.float32)
    if sink is not None:
        total = r(total + np.exp(sink - top))
    w = r(np.divide(e, total, out=np.zeros_like(e), where=total > 0))
    o = r((to_bf16(w) if family == "weights_bf16" else w) @ v)
    return p, {"weights": w.astype(np.float64), "context": o.astype(np.float64)}, kind


# --------------------------------------------------------------------------------------------------------------- writing


def store(x, dtype):
    with np.errstate(all="ignore"):
        if dtype == "bf16":
            return (to_bf16(x).view(np.uint32) >> 16).astype(np.uint16).view("V2")
        return np.asarray(x).astype({"f16": np.float16, "f32": np.float32}[dtype])


def write(out, cases, name, p, result, ids, dtype, tensors):
    p_inputs = "inputs" in p.extra
    path = out / f"{name}.npz"
    if p_inputs:
        np.savez(path, causal=np.array(p.causal), q_offset=np.array(0), **p.extra)
    else:
        p.save(path)
    np.savez(out / f"{name}.observed.npz", **{t: store(result[t], dtype) for t in tensors})
    cases.append({"name": name, "ids": ids, "dtype": dtype, "tensors": list(tensors)})


def differs(p, want, wrong):
    """Whether a fault shows at all in this problem: more than 2 % somewhere beyond what bf16 could do."""
    if want.get("inputs_only") or "G" in want and want.get("observe"):
        return True
    right = attend(p)["context"]
    if np.isnan(right).all():
        return True
    size = np.nanmax(np.abs(right))
    return bool((np.isnan(right) != np.isnan(wrong["context"])).any() or np.nanmax(np.abs(right - wrong["context"])) > 0.05 * size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--faults", default="all", help="ids, separated by commas")
    parser.add_argument("--count", type=int, default=0, help="problems of each fault")
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--correct", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    cases = []
    wanted = sorted(FAULTS) if args.faults == "all" else args.faults.split(",")
    for fault_id in wanted if args.count else []:
        for n in range(args.count):
            rng = np.random.default_rng([args.seed, int(fault_id[1:]), n])
            want, make, also = FAULTS[fault_id][n % len(FAULTS[fault_id])]
            for _ in range(20):
                p = Problem(rng, **want)
                with np.errstate(all="ignore"):
                    result = make(p)
                    if differs(p, want, result):
                        break
            tensors = {"weights": ["context", "weights"], "projected": ["projected"]}.get(want.get("observe"), ["context"] if n % 2 == 0 or "weights" not in result else ["context", "weights"])
            write(args.out, cases, f"{fault_id}_{n}", p, result, [fault_id, *also], ["f32", "bf16", "f16"][n // 2 % 3], tensors)
    rng = np.random.default_rng([args.seed, 1])
    while sum("+" in c["name"] for c in cases) < args.pairs:
        a, b = sorted(rng.choice(sorted(PAIR_PARTS), 2, replace=False))
        (want_a, part_a), (want_b, part_b) = PAIR_PARTS[a], PAIR_PARTS[b]
        if any(want_a[key] != want_b[key] for key in want_a.keys() & want_b.keys()):
            continue
        p = Problem(rng, **{**want_a, **want_b})
        edits_a, edits_b = part_a(p), part_b(p)
        if edits_a.keys() & edits_b.keys() or {"see", "hide"} <= edits_a.keys() | edits_b.keys():
            continue
        n = len(cases)
        write(args.out, cases, f"{a}+{b}_{n}", p, attend(p, **edits_a, **edits_b), [f"{a}+{b}"], ["f32", "bf16", "f16"][n % 3], ["context"] if n % 2 else ["context", "weights"])
    for n in range(args.correct):
        rng = np.random.default_rng([args.seed, 2, n])
        family = FAMILIES[n % len(FAMILIES)]
        with np.errstate(all="ignore"):
            p, result, kind = correct(rng, family)
        dtype = kind if kind in ("bf16", "f16") and rng.random() < 0.5 else "f32"
        write(args.out, cases, f"correct_{family}_{n}", p, result, ["match", "rounding"], dtype, ["context"] if n % 2 else ["context", "weights"])
    (args.out / "cases.json").write_text(json.dumps(cases, indent=1))
    print(f"{len(cases)} cases in {args.out}")


if __name__ == "__main__":
    main()
