"""Calls PyTorch and ONNX Runtime wrongly, in the ways their users do, and lets `regard check` name the mistake.

    python tools/peer_faults.py OUT --count 20 [--seed 3]        writes cases as tools/inject_faults.py does
    python tools/score_diagnosis.py build/release/regard OUT --show      scores them

With --score COMMAND both at once; the exit status is 77 where neither torch nor onnxruntime is installed. The outputs are theirs: no
attention is computed here but where a fault is in what users write around the call.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

from wrong_attention.problem import Problem, visible
from wrong_attention.writing import write

try:
    import torch
except ImportError:
    torch = None
try:
    import onnx
    import onnxruntime
except ImportError:
    onnxruntime = None

PEERS = []  # (name, ids that are right, what the problem must have, the wrong call)


def peer(name, *ids, **want):
    def register(function):
        PEERS.append((name, list(ids), want, function))
        return function

    return register


# ------------------------------------------------------------------------------------------------------------------ PyTorch


def tensors(p):
    return [torch.from_numpy(np.ascontiguousarray(x)) for x in (p.q, p.k, p.v)]


def sdpa(p, q=None, k=None, v=None, mask=None, grouped=True, **more):
    q, k, v = (mine if theirs is None else theirs for mine, theirs in zip(tensors(p), (q, k, v)))
    return {"context": torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=grouped, **more).numpy()}


def mask_of(p):
    return torch.from_numpy(visible(p).copy())


SQUARE = {"Tk": 13, "Tq": 13, "align": "top"}
HEADS = {"G": 3, "group": 1, "d": 8, "dv": 8}

if torch:
    peer("sdpa_right", "match", "rounding", mask=True)(lambda p: sdpa(p, mask=mask_of(p)))
    peer("sdpa_top_left_for_bottom_right", "F37", causal=True, Tk=21, Tq=8, align="bottom")(lambda p: sdpa(p, is_causal=True))
    peer("sdpa_causal_left_out", "F35", "F52", causal=True)(lambda p: sdpa(p))
    peer("sdpa_causal_in_an_encoder", "F36", causal=False, **SQUARE)(lambda p: sdpa(p, is_causal=True))
    peer("sdpa_scale_left_out", "F01")(lambda p: sdpa(p, mask=mask_of(p), scale=1.0))
    peer("sdpa_scaled_twice", "F02")(lambda p: sdpa(p, q=tensors(p)[0] / math.sqrt(p.d), mask=mask_of(p)))
    peer("sdpa_scale_of_the_model_size", "F04", "F05", G=2)(lambda p: sdpa(p, mask=mask_of(p), scale=(p.d * p.H) ** -0.5))
    peer("sdpa_mask_inverted", "F41", mask=True, causal=False)(lambda p: sdpa(p, mask=~mask_of(p)))
    peer("sdpa_bool_mask_as_float", "F42", mask=True, causal=False)(lambda p: sdpa(p, mask=mask_of(p).float()))
    peer("sdpa_integers_inverted", "F42", "F45", mask=True, causal=False)(lambda p: sdpa(p, mask=(~mask_of(p).int()).float()))
    peer("sdpa_float_mask_as_bool", "F43", bias=True, causal=False)(lambda p: sdpa(p, mask=torch.from_numpy(p.bias).bool().logical_not()))
    peer("sdpa_mask_left_out", "F52", "F44", "F49", mask=True, causal=False)(lambda p: sdpa(p))
    peer("sdpa_fill_too_weak", "F45", "F50", mask=True, causal=False)(lambda p: sdpa(p, mask=torch.where(mask_of(p), 0.0, -1.0)))
    peer("sdpa_tril_off_by_one", "F38", causal=True, **SQUARE)(lambda p: sdpa(p, mask=torch.ones(p.Tq, p.Tk).tril(1).bool()))
    peer("sdpa_groups_repeated", "F16", G=2, group=2)(lambda p: sdpa(p, k=tensors(p)[1].repeat(1, p.group, 1, 1), v=tensors(p)[2].repeat(1, p.group, 1, 1), mask=mask_of(p)))
    peer("sdpa_groups_along_tokens", "F17", G=2, group=2)(lambda p: sdpa(p, *[tensors(p)[0]] + [x.repeat_interleave(p.group, 2).view(p.B, p.H, p.Tk, -1) for x in tensors(p)[1:]], mask=mask_of(p)))
    peer("sdpa_q_and_k_exchanged", "F94", group=1, causal=False, **SQUARE)(lambda p: sdpa(p, q=tensors(p)[1], k=tensors(p)[0]))
    peer("sdpa_k_for_v", "F19", "F18", dv=8, d=8)(lambda p: sdpa(p, v=tensors(p)[1], mask=mask_of(p)))
    packed = lambda x: x.transpose(1, 2).contiguous()  # [batch, tokens, heads, dim], as a projection gives it
    peer("sdpa_heads_by_view", "F10", "F13", **HEADS)(lambda p: sdpa(p, *[packed(x).view(x.shape) for x in tensors(p)], mask=mask_of(p)))
    peer("sdpa_tokens_for_heads", "F100", G=3, group=1, d=8, dv=8, causal=False, Tk=9, Tq=9)(lambda p: {"context": sdpa(p, *[packed(x) for x in tensors(p)])["context"].swapaxes(1, 2)})
    peer("sdpa_merged_without_transpose", "F11", **HEADS)(lambda p: {"context": sdpa(p, mask=mask_of(p))["context"].reshape(p.B, p.Tq, p.H * p.dv)})

    def by_hand(p, fill=None, softmax=lambda s: s.softmax(-1), after=lambda w: w):
        """What courses and ports write."""
        q, k, v = tensors(p)
        k, v = (x.repeat_interleave(p.group, 1) for x in (k, v))
        s = q @ k.transpose(-2, -1) / math.sqrt(p.d)
        s = s.masked_fill(~mask_of(p), -torch.inf) if fill is None else fill(s)
        w = after(softmax(s))
        return {"weights": w.numpy(), "context": (w @ v).numpy()}

    peer("softmax_over_queries", "F60", "F95", causal=False)(lambda p: by_hand(p, softmax=lambda s: s.softmax(-2)))
    peer("softmax_over_heads", "F62", G=2, causal=False)(lambda p: by_hand(p, softmax=lambda s: s.softmax(1)))
    peer("softmax_over_a_batch_of_one", "F61", B=1, causal=False)(lambda p: by_hand(p, softmax=lambda s: s.softmax(0)))
    peer("softmax_twice", "F63", causal=False)(lambda p: by_hand(p, softmax=lambda s: s.softmax(-1).softmax(-1)))
    peer("log_softmax", "F64", causal=False)(lambda p: by_hand(p, softmax=lambda s: s.log_softmax(-1)))
    peer("mask_after_softmax", "F51", mask=True, causal=False)(lambda p: by_hand(p, fill=lambda s: s, after=lambda w: w * mask_of(p)))
    peer("mask_times_scores", "F50", "F45", mask=True, causal=False)(lambda p: by_hand(p, fill=lambda s: s * mask_of(p)))
    peer("masked_fill_1e-9", "F45", "F50", mask=True, causal=False)(lambda p: by_hand(p, fill=lambda s: s.masked_fill(~mask_of(p), -1e-9)))
    peer("autocast_bf16", "match", "rounding", mask=True)(lambda p: {"context": torch.nn.functional.scaled_dot_product_attention(*[x.bfloat16() for x in tensors(p)], mask_of(p), enable_gqa=True).float().numpy()})

    def with_empty_rows(p):
        p.mask[:, :, 1::3] = False
        return mask_of(p)

    peer("empty_rows_nan", "F47", "F44", "F46", mask=True, causal=False)(lambda p: (with_empty_rows(p), by_hand(p))[1])
    peer("empty_rows_lowest_float", "F48", "F44", "F45", "F46", mask=True, causal=False)(lambda p: by_hand(p, fill=lambda s: s.masked_fill(~with_empty_rows(p), torch.finfo(s.dtype).min)))

    def multihead(p, **more):
        """torch.nn.MultiheadAttention with its projections in the problem."""
        size = p.H * p.d
        module = torch.nn.MultiheadAttention(size, p.H, batch_first=more.pop("batch_first", True), dropout=more.pop("dropout", 0.0)).train(more.pop("train", False))
        with torch.no_grad():
            module.in_proj_bias.normal_(), module.out_proj.bias.normal_()
        x = torch.randn(p.B, p.Tk, size)
        parts = [t.detach().numpy().copy() for t in (*module.in_proj_weight.chunk(3), module.out_proj.weight)]
        biases = [t.detach().numpy().copy() for t in (*module.in_proj_bias.chunk(3), module.out_proj.bias)]
        names = ("query", "key", "value", "out")
        p.extra = {"inputs": x.numpy(), "num_heads": np.array(p.H), **{f"w_{n}": w for n, w in zip(names, parts)}, **{f"b_{n}": b for n, b in zip(names, biases)}}
        return module, x, parts, biases

    MHA = {"G": 3, "group": 1, "d": 8, "dv": 8, "B": 3, "causal": False, **SQUARE}

    @peer("mha_right", "match", "rounding", **MHA)
    def mha_right(p):
        module, x, _, _ = multihead(p)
        return {"projected": module(x, x, x)[0].detach().numpy()}

    @peer("mha_before_out_proj", "F98", **MHA)
    def mha_before_out_proj(p):
        module, x, _, _ = multihead(p)
        with torch.no_grad():
            module.out_proj.weight.copy_(torch.eye(p.H * p.d)), module.out_proj.bias.zero_()
        return {"projected": module(x, x, x)[0].detach().numpy()}

    @peer("mha_weights_transposed", "F96", **MHA)
    def mha_weights_transposed(p):
        module, x, parts, _ = multihead(p)
        with torch.no_grad():
            module.in_proj_weight.copy_(torch.cat([torch.from_numpy(w.T.copy()) for w in parts[:3]]))
        return {"projected": module(x, x, x)[0].detach().numpy()}

    @peer("mha_without_bias", "F97", **MHA)
    def mha_without_bias(p):
        module, x, _, _ = multihead(p)
        with torch.no_grad():
            module.in_proj_bias.zero_()
        return {"projected": module(x, x, x)[0].detach().numpy()}

    @peer("mha_batch_first_forgotten", "F12", **{**MHA, "Tk": 9, "Tq": 9})
    def mha_batch_first_forgotten(p):
        module, x, _, _ = multihead(p, batch_first=False)
        return {"projected": module(x, x, x)[0].detach().numpy()}

    @peer("mha_weights_averaged", "F76", **MHA)
    def mha_weights_averaged(p):
        module, x, _, _ = multihead(p)
        y, w = module(x, x, x, average_attn_weights=True)
        return {"projected": y.detach().numpy(), "weights": np.repeat(w.detach().numpy()[:, None], p.H, 1)}

    @peer("mha_in_training_mode", "F75", "F76", **MHA)
    def mha_in_training_mode(p):
        module, x, _, _ = multihead(p, dropout=0.3, train=True)
        y, w = module(x, x, x, average_attn_weights=False)
        return {"projected": y.detach().numpy(), "weights": w.detach().numpy()}


# ------------------------------------------------------------------------------------------------------------- ONNX Runtime


def ort(p, mask=None, packed=False, **attributes):
    """The operator Attention of ONNX on [batch, heads, tokens, dim], or on [batch, tokens, heads·dim]."""
    feeds = {"Q": p.q, "K": p.k, "V": p.v}
    if packed:
        feeds = {name: np.ascontiguousarray(x.swapaxes(1, 2)).reshape(p.B, x.shape[2], -1) for name, x in feeds.items()}
        attributes = {"q_num_heads": p.H, "kv_num_heads": p.G, **attributes}
    if mask is not None:
        feeds["mask"] = mask
    types = {np.dtype(np.float32): onnx.TensorProto.FLOAT, np.dtype(bool): onnx.TensorProto.BOOL}
    inputs = [onnx.helper.make_tensor_value_info(name, types[x.dtype], x.shape) for name, x in feeds.items()]
    output = onnx.helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, None)
    node = onnx.helper.make_node("Attention", list(feeds), ["Y"], **attributes)
    graph = onnx.helper.make_graph([node], "attention", inputs, [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=11)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return {"context": session.run(None, feeds)[0]}


def dense(p):
    return np.ascontiguousarray(np.broadcast_to(visible(p), (p.B, p.H, p.Tq, p.Tk)))


if onnxruntime:
    peer("ort_right", "match", "rounding", mask=True)(lambda p: ort(p, dense(p)))
    peer("ort_right_packed", "match", "rounding", mask=True)(lambda p: ort(p, dense(p), packed=True))
    peer("ort_top_left_for_bottom_right", "F37", causal=True, Tk=21, Tq=8, align="bottom")(lambda p: ort(p, is_causal=1))
    peer("ort_causal_left_out", "F35", "F52", causal=True)(lambda p: ort(p))
    peer("ort_scale_left_out", "F01")(lambda p: ort(p, dense(p), scale=1.0))
    peer("ort_scale_squared", "F02")(lambda p: ort(p, dense(p), scale=1.0 / p.d))
    peer("ort_mask_inverted", "F41", mask=True, causal=False)(lambda p: ort(p, ~dense(p)))
    peer("ort_bool_mask_as_float", "F42", mask=True, causal=False)(lambda p: ort(p, dense(p).astype(np.float32)))
    peer("ort_soft_cap_left_out", "F71", cap=True)(lambda p: ort(p, dense(p)))
    peer("ort_another_soft_cap", "F71", cap=True)(lambda p: ort(p, dense(p), softcap=2.5 * p.cap))
    peer("ort_groups_tiled", "F16", G=2, group=2)(lambda p: ort(tiled(p), dense(p)))
    peer("ort_half_as_many_heads", "F101", G=3, group=2, d=8, dv=8, causal=False)(lambda p: other_heads(p, p.H // 2))
    peer("ort_twice_as_many_heads", "F101", G=3, group=1, d=8, dv=8, causal=False)(lambda p: other_heads(p, p.H * 2))
    peer("ort_heads_by_view", "F10", "F13", **HEADS)(lambda p: ort(viewed(p), dense(p), packed=True))

    class Changed:
        """A problem with some things replaced for the call alone."""

        def __init__(self, p, **what):
            self.__dict__.update({**p.__dict__, **what})

    def tiled(p):
        return Changed(p, k=np.tile(p.k, (1, p.group, 1, 1)), v=np.tile(p.v, (1, p.group, 1, 1)), G=p.H)

    def other_heads(p, heads):
        p.k, p.v, p.G, p.group = (*(np.repeat(x, p.group, 1) for x in (p.k, p.v)), p.H, 1)
        return ort(p, packed=True, q_num_heads=heads, kv_num_heads=heads)

    def viewed(p):
        """[batch, heads, tokens, dim] handed over as [batch, tokens, heads·dim] without moving anything."""
        as_packed = lambda x: x.reshape(p.B, x.shape[2], p.H, x.shape[3]).swapaxes(1, 2)
        return Changed(p, q=as_packed(p.q), k=as_packed(p.k), v=as_packed(p.v))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=5, help="problems of each mistake")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="mistakes with this in their names")
    parser.add_argument("--score", metavar="COMMAND", help="run this regard over the cases")
    args = parser.parse_args()
    if not PEERS:
        print("skipped: neither torch nor onnxruntime with onnx is installed")
        sys.exit(77)
    args.out.mkdir(parents=True, exist_ok=True)
    cases = []
    for kind, (name, ids, want, call) in enumerate(PEERS):
        for n in range(args.count if not args.only or args.only in name else 0):
            rng = np.random.default_rng([args.seed, kind, n])
            if torch:
                torch.manual_seed(1000 * kind + n)
            p = Problem(rng, **want)
            result = call(p)
            write(args.out, cases, f"{name}_{n}", p, result, ids, "f32", list(result))
    (args.out / "cases.json").write_text(json.dumps(cases, indent=1))
    print(f"{len(cases)} cases of {', '.join(m.__name__ + ' ' + m.__version__ for m in (torch, onnxruntime) if m)}")
    if args.score:
        scorer = pathlib.Path(__file__).with_name("score_diagnosis.py")
        sys.exit(subprocess.run([sys.executable, scorer, args.score, args.out, "--show"]).returncode)


if __name__ == "__main__":
    main()
