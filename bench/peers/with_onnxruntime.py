"""ONNX Runtime on the CPU: the operators MultiHeadAttention and GroupQueryAttention of its own, and Attention of ONNX.

Inputs and outputs are bound beforehand, so that no copy between Python and the runtime is timed.
"""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

VERSION = f"ONNX Runtime {onnxruntime.__version__}"
_OPSETS = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]


class _Session:
    def __init__(self, operator, domain, attributes, inputs, output_names, outputs, threads, in_place=()):
        """inputs: name -> array or None; outputs: name -> shape; in_place: (input, output) that share memory."""
        types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int32): TensorProto.INT32}
        node = helper.make_node(operator, [name if x is not None else "" for name, x in inputs.items()], output_names,
                                domain=domain, **attributes)
        given = {name: x for name, x in inputs.items() if x is not None}
        graph = helper.make_graph(
            [node], operator,
            [helper.make_tensor_value_info(name, types[x.dtype], x.shape) for name, x in given.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()])
        model = helper.make_model(graph, opset_imports=_OPSETS, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self._binding = self._session.io_binding()
        self._values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in given.items()}
        for name, value in self._values.items():
            self._binding.bind_ortvalue_input(name, value)
        shared = {output: self._values[source] for source, output in in_place}
        for name, shape in outputs.items():
            value = shared.get(name) or onnxruntime.OrtValue.ortvalue_from_numpy(np.empty(shape, np.float32))
            self._values[name] = value
            self._binding.bind_ortvalue_output(name, value)
        self._result = output_names[0]

    def run(self):
        self._session.run_with_iobinding(self._binding)
        return self._values[self._result]


def _packed(x):
    """[1, heads, tokens, dim] -> [1, tokens, heads·dim]"""
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3).reshape(1, x.shape[2], -1))


def _unpacked(value, shape):
    return value.numpy().reshape(shape.q_len, shape.heads, shape.dim).transpose(1, 0, 2)


def _multi_head(shape, q, k, v, threads):
    packed_q = _packed(q)
    session = _Session("MultiHeadAttention", "com.microsoft", {"num_heads": shape.heads, "unidirectional": int(shape.causal)},
                       {"query": packed_q, "key": _packed(k), "value": _packed(v)}, ["output"], {"output": packed_q.shape}, threads)
    return lambda: _unpacked(session.run(), shape)


def _group_query(shape, q, k, v, threads):
    """Always causal. In decode the cache is appended to in place, as a server does."""
    packed_q, last = _packed(q), shape.kv_len - 1
    new = slice(last, None) if shape.decode else slice(None)
    past = {"past_key": k if shape.decode else None, "past_value": v if shape.decode else None}
    session = _Session(
        "GroupQueryAttention", "com.microsoft", {"num_heads": shape.heads, "kv_num_heads": shape.kv_heads},
        {"query": packed_q, "key": _packed(k[:, :, new]), "value": _packed(v[:, :, new]), **past,
         "seqlens_k": np.array([last], np.int32), "total_sequence_length": np.array(shape.kv_len, np.int32)},
        ["output", "present_key", "present_value"],
        {"output": packed_q.shape, "present_key": k.shape, "present_value": v.shape}, threads,
        in_place=[("past_key", "present_key"), ("past_value", "present_value")] if shape.decode else [])
    return lambda: _unpacked(session.run(), shape)


def _attention(shape, q, k, v, threads):
    session = _Session("Attention", "", {"is_causal": int(shape.causal)}, {"Q": q, "K": k, "V": v}, ["Y"], {"Y": q.shape}, threads)
    return lambda: session.run().numpy()[0]


def to_floats(context):
    return context


def peers(shape, q, k, v, threads):
    """name -> a call that returns context [heads, tokens, dim]. None for bf16: its operators have no such kernels for CPUs."""
    if shape.dtype != "f32":
        return {}
    result = {"ORT Attention": _attention(shape, q, k, v, threads)}
    if shape.heads == shape.kv_heads:
        result["ORT MultiHeadAttention"] = _multi_head(shape, q, k, v, threads)
    if shape.causal or shape.decode:
        result["ORT GroupQueryAttention"] = _group_query(shape, q, k, v, threads)
    return result
