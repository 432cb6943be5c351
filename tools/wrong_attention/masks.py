"""Faults of masks and biases: F35-F54, F103, F106, F107."""

import numpy as np

from .problem import INF, attend, rules, visible
from .registry import fault

fault("F35", causal=True, also=["F52"])(lambda p: attend(p, see=visible(p, causal=False)))
fault("F36", causal=False)(lambda p: attend(p, see=visible(p, causal=True)))
fault("F37", causal=True, Tk=21, Tq=8, align="top")(lambda p: attend(p, see=visible(p, offset=p.Tk - p.Tq)))
fault("F37", causal=True, Tk=21, Tq=8, align="bottom")(lambda p: attend(p, see=visible(p, offset=0)))
fault("F38", causal=True)(lambda p: attend(p, see=visible(p, shift=1)))
fault("F38", causal=True)(lambda p: attend(p, see=visible(p, shift=-1)))
fault("F103", causal=True, Tk=21, Tq=21)(lambda p: attend(p, see=visible(p, shift=int(p.rng.integers(2, 7)))))
fault("F103", causal=True, Tk=21, Tq=21)(lambda p: attend(p, see=visible(p, shift=-int(p.rng.integers(2, 7)))))
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


def turned_window(p):
    p.left, p.right = sorted(p.rng.choice(np.arange(1, p.Tk // 2), 2, replace=False).tolist())
    return attend(p, see=visible(p, left=p.right, right=p.left))


fault("F39", causal=False)(turned_window)
fault("F106", bias=True)(lambda p: attend(p, scores=lambda s: s + p.scale * p.bias, bias=False))
fault("F106", bias=True)(lambda p: attend(p, scores=lambda s: s - p.bias, bias=False))
fault("F106", bias=True)(lambda p: attend(p, scores=lambda s: s + float(p.rng.choice([np.log(2), 0.3, 2.5])) * p.bias, bias=False))
fault("F107", bias=True, Tk=13, Tq=13)(lambda p: attend(p, scores=lambda s: s + p.bias.swapaxes(-1, -2), bias=False))
fault("F107", causal=True)(lambda p: attend(p, see=visible(p, causal=False, left=0)))
fault("F107", mask=True, Tk=13, Tq=13)(lambda p: attend(p, see=np.broadcast_to(rules(p) & p.mask.swapaxes(-1, -2), (p.B, p.H, p.Tq, p.Tk))))
