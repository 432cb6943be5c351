"""Makes testdata/gradients/autograd.safetensors: gradients of small attention problems by PyTorch's automatic differentiation, in float64.

    pip install torch numpy
    python tools/make_gradient_goldens.py testdata/gradients/autograd.safetensors

The forward pass is written out with tensors, as in a notebook; nothing of a backward pass is. Each case has the inputs in float32 (what is
random is drawn by NumPy, and rounded before it is used) and the results in float64; the metadata say what is no tensor: scale, causal,
q_offset, window_left, window_right, soft_cap, dropout, dropout_seed. The mask of dropout is made here by the words of
include/regard/attention.h and src/core/dropout.h, not by the library.
"""

import argparse

import numpy as np
import torch

import safetensors_file

# name -> shape and options
CASES = {
    "plain": dict(batch=2, heads=2, kv_heads=2, q_len=5, kv_len=5, head_dim=4, v_dim=4),
    "causal_grouped": dict(batch=1, heads=4, kv_heads=2, q_len=7, kv_len=9, head_dim=5, v_dim=3, causal=True, q_offset=2),
    "window": dict(batch=1, heads=1, kv_heads=1, q_len=9, kv_len=9, head_dim=8, v_dim=2, window_left=3, window_right=1, q_offset=0),
    "capped_biased": dict(batch=2, heads=2, kv_heads=1, q_len=4, kv_len=6, head_dim=4, v_dim=5, soft_cap=2.0, bias=(1, 2, 4, 6), scale=0.9),
    "broadcast_bias": dict(batch=2, heads=3, kv_heads=3, q_len=3, kv_len=8, head_dim=4, v_dim=4, bias=(3, 1, 8)),
    "alibi_sinks": dict(batch=1, heads=4, kv_heads=2, q_len=6, kv_len=6, head_dim=4, v_dim=4, causal=True, q_offset=0, alibi=True, sinks=True),
    "lengths_mask": dict(batch=3, heads=2, kv_heads=2, q_len=4, kv_len=7, head_dim=3, v_dim=6, kv_lens=(7, 3, 0), mask=True, sinks=True),
    "dropout": dict(batch=2, heads=2, kv_heads=1, q_len=5, kv_len=19, head_dim=4, v_dim=3, dropout=0.5, dropout_seed=7),
    "dropout_options": dict(batch=2, heads=4, kv_heads=2, q_len=6, kv_len=11, head_dim=5, v_dim=4, causal=True, q_offset=5, soft_cap=3.0, bias=(1, 4, 6, 11), alibi=True, sinks=True, dropout=0.1, dropout_seed=0x123456789abcdef0),
}


def philox4x32_7(counter, key):
    """Four words of 32 bits for each counter, a list of four arrays of uint64 below 2^32, and a key of 64 bits (Salmon et al. 2011)."""
    low = np.uint64(0xFFFFFFFF)
    c, k = list(counter), [key & 0xFFFFFFFF, key >> 32]
    for _ in range(7):
        p, q = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [q >> np.uint64(32) ^ c[1] ^ np.uint64(k[0]), q & low, p >> np.uint64(32) ^ c[3] ^ np.uint64(k[1]), p & low]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return c


def dropout_mask(shape, p, seed):
    """What weights are multiplied by, float64 [batch, heads, q_len, kv_len]: 0 or the float32 nearest to 1/(1 - p)."""
    b, h, i, j = np.indices(shape, dtype=np.uint64)
    words = np.stack(philox4x32_7([j // np.uint64(8), i, h, b], seed))
    word = np.take_along_axis(words, (j % np.uint64(8) // np.uint64(2)).astype(np.int64)[None], 0)[0]
    number = word >> j % np.uint64(2) * np.uint64(16) & np.uint64(0xFFFF)
    threshold = int(np.floor(float(np.float32(p)) * 65536 + 0.5))
    return np.where(number < threshold, 0.0, float(np.float32(65536 / (65536 - threshold))))


def forward(x, case):
    """context of the case's tensors, by the formulas of include/regard/attention.h."""
    heads, group = case["heads"], case["heads"] // case["kv_heads"]
    k, v = (x[name].repeat_interleave(group, dim=1) for name in ("k", "v"))
    scores = case["scale"] * x["q"] @ k.transpose(-1, -2)
    cap = case.get("soft_cap", 0)
    masked = cap * torch.tanh(scores / cap) if cap else scores
    if "bias" in x:
        masked = masked + x["bias"]
    distance = torch.arange(case["q_len"])[:, None] + case.get("q_offset", 0) - torch.arange(case["kv_len"])[None, :]
    if "alibi_slopes" in x:
        masked = masked - x["alibi_slopes"].reshape(1, heads, 1, 1) * distance.abs()
    visible = torch.ones(case["batch"], heads, case["q_len"], case["kv_len"], dtype=torch.bool)
    if case.get("causal"):
        visible = visible & (distance >= 0)
    if "window_left" in case:
        visible = visible & (distance <= case["window_left"])
    if "window_right" in case:
        visible = visible & (-distance <= case["window_right"])
    if "kv_lens" in case:
        visible = visible & (torch.arange(case["kv_len"]) < torch.tensor(case["kv_lens"])[:, None, None, None])
    if "mask" in x:
        visible = visible & x["mask"]
    exponentials = torch.where(visible, torch.exp(masked), torch.zeros((), dtype=masked.dtype))
    total = exponentials.sum(-1, keepdim=True)
    if "sinks" in x:
        total = total + torch.exp(x["sinks"]).reshape(1, heads, 1, 1)
    weights = torch.where(total > 0, exponentials / torch.where(total > 0, total, torch.ones_like(total)), exponentials)
    if "dropout" in case:
        weights = weights * torch.from_numpy(dropout_mask(tuple(weights.shape), case["dropout"], case["dropout_seed"]))
    context = weights @ v
    return context, torch.log(total).squeeze(-1)


def inputs_of(case, random):
    def normal(*shape):
        return random.standard_normal(shape).astype(np.float32)

    b, h, g, t, s, d, e = (case[n] for n in ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "v_dim"))
    tensors = {"q": normal(b, h, t, d), "k": normal(b, g, s, d), "v": normal(b, g, s, e) + np.float32(0.5), "d_context": normal(b, h, t, e)}
    if "bias" in case:
        tensors["bias"] = normal(*case["bias"])
    if case.get("alibi"):
        tensors["alibi_slopes"] = np.abs(normal(h)) / 4
    if case.get("sinks"):
        tensors["sinks"] = normal(h)
    if case.get("mask"):
        tensors["mask"] = random.random((b, 1, t, s)) < 0.7
    if "kv_lens" in case:
        tensors["kv_lens"] = np.array(case["kv_lens"], np.int32)
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    arguments = parser.parse_args()
    random = np.random.default_rng(20)
    tensors, metadata = {}, {}
    for name, case in CASES.items():
        case = {"scale": float(np.float32(1 / np.sqrt(case["head_dim"]))), **case}
        case["scale"] = float(np.float32(case["scale"]))
        inputs = inputs_of(case, random)
        x = {key: torch.from_numpy(value) for key, value in inputs.items()}
        x = {key: value.double().requires_grad_(key != "d_context") if value.is_floating_point() else value for key, value in x.items()}
        context, lse = forward(x, case)
        context.backward(x["d_context"])
        results = {"context": context.detach(), "lse": lse.detach()}
        results |= {"d_" + key: value.grad for key, value in x.items() if value.requires_grad}
        for key, value in inputs.items():
            tensors[f"{name}.{key}"] = value
        for key, value in results.items():
            tensors[f"{name}.{key}"] = value.numpy()
        for key in ("scale", "causal", "q_offset", "window_left", "window_right", "soft_cap", "dropout", "dropout_seed"):
            if key in case:
                metadata[f"{name}.{key}"] = str(case[key]).lower()
    safetensors_file.write(arguments.file, tensors, metadata)


if __name__ == "__main__":
    main()
