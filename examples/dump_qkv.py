"""Writes what PyTorch's scaled_dot_product_attention is called with, and what it gave, call by call, as safetensors.

    from dump_qkv import dump_qkv
    with dump_qkv("layers.safetensors", layers=[0, 3], tokens=tokenizer.convert_ids_to_tokens(ids)):
        model(ids)                                     # attn_implementation="sdpa" in transformers
    # regard check layers.safetensors --layer 3        compares PyTorch's own result, saved as layers.3.context
    # regard map layers.safetensors --html map.html    who attends to whom

    python dump_qkv.py OUT --layers 0,3 -- script.py ARGS      runs a script that calls the model, and writes the same

Calls are numbered in the order they are made. Not seen are modules that imported the function by name before, and
torch.nn.MultiheadAttention with need_weights=True, which multiplies matrices itself.
"""

import argparse
import contextlib
import json
import pathlib
import runpy
import sys

import torch
from safetensors.torch import save_file


@contextlib.contextmanager
def dump_qkv(path, layers=None, tokens=None):
    """Records the calls whose number, counted from 0, is in `layers` (None: all)."""
    original, tensors, count = torch.nn.functional.scaled_dot_product_attention, {}, 0
    fused_encoder = torch.backends.mha.get_fastpath_enabled()

    def save(name, x):  # [batch, heads, tokens, dim]
        tensors[f"layers.{count}.{name}"] = x.detach().reshape((1,) * (4 - x.dim()) + x.shape).cpu().contiguous().clone()

    def recorded(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **more):
        nonlocal count
        if hasattr(attn_mask, "_materialize"):  # causal_lower_right and the like know themselves by the function's identity
            attn_mask = attn_mask._materialize(query.device)
        result = original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **more)
        if layers is None or count in layers:
            for name, tensor in {"q": query, "k": key, "v": value, "context": result}.items():
                save(name, tensor)
            if attn_mask is not None:
                save("mask" if attn_mask.dtype == torch.bool else "bias", attn_mask)
            rules = {"scale": query.shape[-1] ** -0.5 if scale is None else scale, "causal": bool(is_causal), "q_offset": 0}
            for name, value in rules.items():  # q_offset 0: PyTorch aligns is_causal top-left
                tensors[f"layers.{count}.{name}"] = torch.tensor(value)
        count += 1
        return result

    torch.nn.functional.scaled_dot_product_attention = recorded
    torch.backends.mha.set_fastpath_enabled(False)  # it does not call the function
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = original
        torch.backends.mha.set_fastpath_enabled(fused_encoder)
        save_file(tensors, path, metadata={"tokens": json.dumps(list(tokens))} if tokens is not None else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--layers", help="numbers separated by commas; default all")
    parser.usage = "%(prog)s OUT [--layers LIST] -- SCRIPT [ARGS]"
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args, script = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
    if not script:
        parser.error("SCRIPT: missing; give the script that calls the model after --")
    sys.argv, sys.path[0] = script, str(pathlib.Path(script[0]).resolve().parent)
    with dump_qkv(args.out, args.layers and [int(n) for n in args.layers.split(",")]):
        runpy.run_path(script[0], run_name="__main__")
