"""Reads and writes .safetensors files with NumPy alone, in reproducible bytes.

    8 bytes   length of the header, unsigned little-endian
    header    JSON object: name -> {"dtype", "shape", "data_offsets": [begin, end]}, and "__metadata__": {string: string};
              padded with spaces so that the data starts at a multiple of 8
    data      the tensors, C order, little-endian; offsets count from here
"""

import json
import pathlib

import numpy as np

# bfloat16 is no NumPy type of its own; arrays of ml_dtypes.bfloat16 say so by name. It is written here, not read.
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32", "BOOL": "bool"}
_CODES = {name: code for code, name in _DTYPES.items()} | {"bfloat16": "BF16"}


def write(path, tensors, metadata):
    """Writes `tensors` (name -> array) in the order given and `metadata` (string -> string)."""
    header, blobs, end = {"__metadata__": metadata}, [], 0
    for name, array in tensors.items():
        blob = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": _CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": [end, end + len(blob)]}
        blobs.append(blob)
        end += len(blob)
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def read(path):
    """Returns name -> array for every tensor of the file."""
    data = pathlib.Path(path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]],
                            _DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
    }
