"""Cases as files: NAME.npz is the problem, NAME.observed.npz what somebody's program gave."""

import numpy as np


def to_bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return np.where(np.isnan(x), np.float32(np.nan), rounded.astype(np.uint32).view(np.float32))


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
