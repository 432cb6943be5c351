"""Exports ONNX's own test cases of the Attention operator (opsets 23 to 25) in regard's terms.

    pip install -r tools/requirements.txt
    python tools/onnx_cases.py build/onnx_cases

writes one file a case and `manifest.json` into the folder. Exit status 77 (ctest's "skipped") when onnx or NumPy is missing.

A case file can be given to the command as it is: `regard run FILE --layout LAYOUT`, both from the manifest. It holds

    q, k, v                             in the case's own rank, layout and element type: bhsd for 4D cases, packed bsd for 3D ones
    mask | bias, kv_lens                where the case has them
    scale, causal, q_offset, window_left, window_right, soft_cap, num_heads, num_kv_heads
                                        scalars that differ from our default: 0-d arrays in .npz, metadata in .safetensors
    expected.context                    laid out as q: [batch, heads, q_len, v_dim], or [batch, q_len, heads·v_dim] for bsd
    expected.scores|capped|masked_scores|weights
                                        [batch, heads, q_len, kv_len], where the case asks for one

NumPy has no bfloat16, so bf16 cases are .safetensors and all others .npz. The manifest:

    {"onnx": "1.23.2", "cases": [{"name", "file", "opset", "layout": "bhsd"|"bsd", "dtype": "f32"|"f16"|"bf16",
                                  "expected": ["context", …], "attributes": {ONNX's own, for messages}}, …]}

All float tensors of a case have one element type, `dtype`, and ONNX computed the expected values in that type step by step: scores,
softmax and context are each rounded to it. A comparison must allow the rounding of `dtype`, however exact its own arithmetic is.

How ONNX's inputs and attributes map to ours, with the rules of its reference implementation (onnx/reference/ops/op_attention.py):

Q, K, V
    3D inputs are [batch, tokens, heads·dim], head-major inside a token, with q_num_heads and kv_num_heads: our bsd with
    num_heads and num_kv_heads. Y is laid out as Q; the fourth output is always [batch, heads, q_len, kv_len]. Query head h
    reads key/value head h // (heads // kv_heads). v_dim may differ from head_dim.
past_key, past_value
    [batch, kv_heads, past_len, dim], also for 3D inputs. They go before K and V along the tokens: concatenated here, so that
    kv_len is past_len + K's tokens. present_key and present_value are that concatenation; checked here, not exported.
nonpad_kv_seqlen
    kv_lens. Excludes past_key. Keys at and beyond it are not visible, causal or not.
attn_mask
    bool (true = may attend) is our mask, float is our bias, both right-aligned: rank 1 is [kv_len], rank 3 is [heads, q_len,
    kv_len]. When its last axis is shorter than kv_len it is filled up with false or −inf, also when that axis is 1: the last
    axis never broadcasts. Filled up here.
is_causal
    causal: key j is visible when j ≤ i + offset. The offset, which windows use too, is
        with nonpad_kv_seqlen   nonpad_kv_seqlen[b] − q_len, negative when queries outnumber keys (the leading rows are then empty):
                                our default with kv_lens, so no q_offset is written
        with past_key           past_len
        else                    0, also when q_len ≠ kv_len ("top-left")
left_window_size, right_window_size
    window_left, window_right: p − j ≤ left, j − p ≤ right with p = i + offset. −1 is unlimited: nothing is written. Since opset
    25.
scale
    scale; default 1/sqrt(head_dim). The reference multiplies q and k by sqrt(scale) each, rounded to their element type: in f16
    and bf16 a rounding difference from ours.
softcap
    soft_cap; 0 is off. Applied before mask and bias, so that a −inf mask stays −inf.
qk_matmul_output_mode
    What the fourth output holds: 0 scores, 1 capped, 2 masked_scores, 3 weights, rounded to Q's element type. Mode 1 without a
    softcap is the scores, as our capped is. With mode 0 and a softcap the specification says scores but the reference gives
    capped: refused here; no case does so.
softmax_precision
    Element type of the softmax (1 f32, 10 f16, 11 f64, 16 bf16), by default Q's. Not mapped: ours is f32 (f64 in the reference
    path).

A row without a visible key is zero in Y and in mode 3, decided by mask and bias, not by the scores: our empty row. The reference
multiplies hidden values by weight 0 where ours never reads them, so its cases hold finite values there.
"""

import argparse
import json
import pathlib
import sys
import warnings

try:
    import numpy as np
    import onnx
    from onnx.backend.test.case.node import collect_testcases

    import safetensors_file
except ImportError as error:
    print(f"onnx_cases.py: {error}; pip install -r tools/requirements.txt", file=sys.stderr)
    sys.exit(77)

DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
STAGES = ["scores", "capped", "masked_scores", "weights"]  # by qk_matmul_output_mode


def attention_cases():
    """The cases of the operator itself; `_expanded` ones repeat them for its decomposition into smaller operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # collecting runs the cases of all operators, some of which divide by zero on purpose
        cases = collect_testcases("Attention")
    return [case for case in cases if "_expanded" not in case.name]


def packed(x):
    """[batch, heads, tokens, dim] -> [batch, tokens, heads·dim]."""
    batch, heads, tokens, dim = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, tokens, heads * dim)


def with_past(past, new):
    """`past` [batch, kv_heads, past_len, dim], if any, before `new`, in new's layout."""
    if past is None:
        return new
    return np.concatenate((packed(past), new), axis=1) if new.ndim == 3 else np.concatenate((past, new), axis=2)


def filled_up(attn_mask, kv_len):
    missing = kv_len - attn_mask.shape[-1]
    fill = np.full((*attn_mask.shape[:-1], missing), False if attn_mask.dtype == bool else -np.inf, attn_mask.dtype)
    return np.concatenate((attn_mask, fill), axis=-1)


def convert(inputs, outputs, attributes):
    """One case: ONNX's named arrays and attributes -> (tensors, scalars, expected), all under our names."""
    is_packed = inputs["Q"].ndim == 3
    q = inputs["Q"]
    k = with_past(inputs.get("past_key"), inputs["K"])
    v = with_past(inputs.get("past_value"), inputs["V"])
    for name, ours in (("present_key", k), ("present_value", v)):
        if name in outputs:
            assert np.array_equal(packed(outputs[name]) if is_packed else outputs[name], ours), name

    tensors = {"q": q, "k": k, "v": v}
    if "attn_mask" in inputs:
        attn_mask = filled_up(inputs["attn_mask"], k.shape[1 if is_packed else 2])
        tensors["mask" if attn_mask.dtype == bool else "bias"] = attn_mask
    if "nonpad_kv_seqlen" in inputs:
        tensors["kv_lens"] = inputs["nonpad_kv_seqlen"]

    scalars = {}
    if "scale" in attributes:
        scalars["scale"] = np.float32(attributes["scale"])
    if attributes.get("is_causal", 0):
        scalars["causal"] = np.bool_(True)
    for ours, theirs in (("window_left", "left_window_size"), ("window_right", "right_window_size")):
        if attributes.get(theirs, -1) >= 0:
            scalars[ours] = np.int64(attributes[theirs])
    if scalars.keys() & {"causal", "window_left", "window_right"} and "kv_lens" not in tensors:
        scalars["q_offset"] = np.int64(inputs["past_key"].shape[2] if "past_key" in inputs else 0)
    if attributes.get("softcap", 0) > 0:
        scalars["soft_cap"] = np.float32(attributes["softcap"])
    if is_packed:
        scalars["num_heads"] = np.int64(attributes["q_num_heads"])
        scalars["num_kv_heads"] = np.int64(attributes["kv_num_heads"])

    expected = {"context": outputs["Y"]}
    if "qk_matmul_output" in outputs:
        mode = attributes.get("qk_matmul_output_mode", 0)
        if mode == 0 and "soft_cap" in scalars:
            raise ValueError("qk_matmul_output_mode 0 with a softcap: the specification and the reference disagree")
        expected[STAGES[mode]] = outputs["qk_matmul_output"]
    return tensors, scalars, expected


def write_case(path, tensors, scalars, expected):
    """`path` without suffix. Returns the file's name."""
    tensors = tensors | {f"expected.{name}": array for name, array in expected.items()}
    if any(array.dtype.name == "bfloat16" for array in tensors.values()):
        path = path.with_suffix(".safetensors")
        metadata = {name: json.dumps(value.item()) for name, value in scalars.items()}
        safetensors_file.write(path, tensors, metadata)
    else:
        path = path.with_suffix(".npz")
        np.savez(path, **tensors, **scalars)
    return path.name


def main():
    parser = argparse.ArgumentParser(description="Exports ONNX's Attention test cases in regard's terms.")
    parser.add_argument("folder", type=pathlib.Path, help="where to write; made when missing")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    entries = []
    for case in attention_cases():
        node = case.model.graph.node[0]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        inputs, outputs = case.data_sets[0]
        tensors, scalars, expected = convert(dict(zip(filter(None, node.input), inputs, strict=True)),
                                             dict(zip(filter(None, node.output), outputs, strict=True)), attributes)
        name = case.name.removeprefix("test_")
        entries.append({
            "name": name,
            "file": write_case(folder / name, tensors, scalars, expected),
            "opset": next(o.version for o in case.model.opset_import if o.domain in ("", "ai.onnx")),
            "layout": "bsd" if "num_heads" in scalars else "bhsd",
            "dtype": DTYPES[tensors["q"].dtype.name],
            "expected": list(expected),
            "attributes": attributes,
        })

    opsets = {entry["opset"] for entry in entries}
    if not opsets >= {23, 24, 25}:
        sys.exit(f"onnx_cases.py: onnx {onnx.__version__} has cases of opsets {sorted(opsets)} only; 23 to 25 are expected, "
                 "pip install 'onnx>=1.23'")
    manifest = {"onnx": onnx.__version__, "cases": entries}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"{len(entries)} cases of onnx {onnx.__version__} written to {folder}")


if __name__ == "__main__":
    main()
