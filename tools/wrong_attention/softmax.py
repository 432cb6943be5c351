"""Faults of the softmax, of weights and of what is written: F60-F76, F102, F108, F109. `m` holds −inf where hidden."""

import numpy as np

from .problem import INF, attend, softmax
from .registry import fault


def columns(m, sink, see):
    top = m.max(-2, keepdims=True)
    e = np.exp(m - np.where(np.isfinite(top), top, 0))
    total = e.sum(-2, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


fault("F60", also=["F95"])(lambda p: attend(p, norm=columns))
fault("F61")(lambda p: attend(p, norm=lambda m, s, see: np.where(see, 1.0, 0.0)))
fault("F62", G=2)(lambda p: attend(p, norm=lambda m, s, see: softmax(m.swapaxes(1, 2).reshape(p.B, p.Tq, -1)).reshape(p.B, p.Tq, p.H, p.Tk).swapaxes(1, 2)))
fault("F62", G=2, causal=False)(lambda p: attend(p, norm=lambda m, s, see: softmax(m, axis=1)))
fault("F108", B=3)(lambda p: attend(p, norm=lambda m, s, see: softmax(m, axis=0)))
fault("F108", B=2, G=2)(lambda p: attend(p, norm=lambda m, s, see: softmax(m.reshape(-1, p.Tq, p.Tk), axis=0).reshape(m.shape)))
fault("F109")(lambda p: attend(p, norm=lambda m, s, see: softmax(m * np.log(2))))
fault("F109", bias=True)(lambda p: attend(p, norm=lambda m, s, see: softmax(m / np.log(2))))
fault("F63")(lambda p: attend(p, norm=lambda m, s, see: softmax(softmax(m))))
fault("F64")(lambda p: attend(p, norm=lambda m, s, see: np.exp(m)))
fault("F64")(lambda p: attend(p, norm=lambda m, s, see: np.where(see, m, 0)))
fault("F64", causal=False)(lambda p: attend(p, norm=lambda m, s, see: m - m.max(-1, keepdims=True) - np.log(np.exp(m - m.max(-1, keepdims=True)).sum(-1, keepdims=True))))


F32_LIMIT, F16_LIMIT = 88.722839, 11.090111  # exp of more rounds to infinity: ln 2**128, ln 65520


def overflowing(limit, subtracted=0.0):
    def norm(m, sink, see):
        with np.errstate(all="ignore"):
            x = m - subtracted
            e = np.where(x > limit, INF, np.where(x < (-103.972 if limit > 20 else -17.3286), 0, np.exp(np.minimum(x, 700))))
            total = e.sum(-1, keepdims=True)
            return e / np.where(total > np.exp(limit), INF, total)

    return norm


fault("F65", spread=11.0, d=16)(lambda p: attend(p, norm=overflowing(F32_LIMIT)))
fault("F65", spread=4.0, d=16, also=["F66"])(lambda p: attend(p, norm=overflowing(F16_LIMIT)))
fault("F66", spread=11.0, d=16)(lambda p: attend(p, norm=overflowing(F32_LIMIT, 10.0)))


@fault("F67")
def start_at_zero(p):
    low = p.rng.random((1, p.H, p.Tq, 1)) < 0.4
    p.bias = (np.where(low, -500.0, 0.0) + p.rng.normal(size=(1, p.H, p.Tq, p.Tk))).astype(np.float32)
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
        return np.where(np.abs(raw) >= 65520, np.sign(raw) * INF, s)

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


def unwritten(p, heads=slice(None), rows=slice(None)):
    r = attend(p)
    r["context"] = r["context"].copy()
    r["context"][:, heads, rows] = 0
    return r


fault("F102")(unwritten)
fault("F102", G=2)(lambda p: unwritten(p, heads=int(p.rng.integers(p.H))))
fault("F102")(lambda p: unwritten(p, rows=slice(p.Tq - int(p.rng.integers(1, 4)), None)))
