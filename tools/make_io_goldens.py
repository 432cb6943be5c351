"""Makes testdata/io/: small files by the formats' own writers, and damaged ones, for the tests of src/io.

    pip install 'numpy>=1.26' 'ml_dtypes>=0.3' 'safetensors>=0.7'
    python tools/make_io_goldens.py testdata/io

Every numeric array holds VALUES in C order: element i is ((37·i + 11) mod 101) − 47, divided by 8 in float types, without the − 47 in
unsigned types, and "i mod 3 is 1" in bool. src/io/golden_test.cc computes the same and knows what each damaged file must be told.
"""

import io
import pathlib
import struct
import sys
import warnings
import zipfile

import ml_dtypes
import numpy as np
import safetensors.numpy

SHAPE = (2, 3, 5)
NUMBERS = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"]
STRINGS = np.array([["Your", "journey", ""], ["naïve", "東京", "🙂 a"]])


def values(dtype, shape=SHAPE):
    """The array described above."""
    i = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    numbers = (37 * i + 11) % 101
    kind = np.dtype(dtype).kind
    if kind == "b":
        return i % 3 == 1
    if kind == "u":
        return numbers.astype(dtype)
    numbers = numbers - 47
    return numbers.astype(dtype) if kind == "i" else (numbers / 8).astype(dtype)


def numeric_members():
    """<type>_<byte order>_<element order> -> array, for every combination that differs."""
    members = {}
    for dtype in NUMBERS:
        for mark, word in (("<", "little"), (">", "big")):
            if dtype[1] == "1" and word == "big":
                continue
            array = values(dtype).astype(mark + dtype)
            members[f"{dtype}_{word}_c"] = array
            members[f"{dtype}_{word}_fortran"] = np.asfortranarray(array)
    members["V2_little_c"] = values("f4").astype(ml_dtypes.bfloat16)
    members["V2_little_fortran"] = np.asfortranarray(members["V2_little_c"])
    return members


def write_npy(path, array, version=None):
    with open(path, "wb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # versions 2 and 3 are not needed for these headers, which is a warning
        np.lib.format.write_array(file, array, version=version)


def npy_bytes(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def write_good(folder):
    for version in (1, 2, 3):
        write_npy(folder / f"f4_version{version}.npy", values("f4"), (version, 0))
    write_npy(folder / "f4_fortran.npy", np.asfortranarray(values("f4")))
    write_npy(folder / "f8_big.npy", values(">f8"))
    write_npy(folder / "f4_scalar.npy", np.array(-4.5, "f4"))
    write_npy(folder / "f4_empty.npy", np.zeros((3, 0, 2), "f4"))
    write_npy(folder / "f4_rank1.npy", values("f4", (7,)))
    write_npy(folder / "bfloat16.npy", values("f4").astype(ml_dtypes.bfloat16))
    write_npy(folder / "strings.npy", STRINGS)
    write_npy(folder / "strings_big_fortran.npy", np.asfortranarray(STRINGS.astype(">U7")))
    write_npy(folder / "strings_utf8.npy", np.char.encode(STRINGS, "utf-8"))
    members = numeric_members()
    np.savez(folder / "numbers.npz", **members)
    np.savez_compressed(folder / "numbers_deflated.npz", **members)
    np.savez_compressed(folder / "tokens_deflated.npz", q=values("f4"), tokens=STRINGS.reshape(-1), scale=np.float64(-0.375))

    (folder / "some_unreadable.npz").write_bytes(some_unreadable())

    tensors = {np.dtype(dtype).name: values(dtype) for dtype in NUMBERS}
    tensors["bfloat16"] = values("f4").astype(ml_dtypes.bfloat16)
    tensors["scalar"] = np.array(-4.5, "f4")
    tensors["empty"] = values("f4", (4, 0))
    # One key of metadata: the writer orders several at random.
    safetensors.numpy.save_file(tensors, folder / "types.safetensors", {"tokens": '["Your", "東京"]'})
    codes = np.arange(256, dtype="u1")
    f8 = {"e4m3": codes.view(ml_dtypes.float8_e4m3fn), "e5m2": codes.view(ml_dtypes.float8_e5m2)}
    safetensors.numpy.save_file(f8, folder / "f8.safetensors")
    np.savez(folder / "f8_as_f4.npz", **{name: array.astype("f4") for name, array in f8.items()})


def zip_bytes(members, method=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about two members of one name
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=method)
    return bytearray(buffer.getvalue())


def some_unreadable():
    """An archive of which only q, k and tokens can be read, in an order in which each kind of member stands before a good one."""
    members = [
        ("objects.npy", npy_bytes(np.array([1, "a", None], object))),
        ("q.npy", npy_bytes(values("f4"))),
        ("records.npy", npy_bytes(np.zeros(3, [("a", "f4"), ("b", "i4")]))),
        ("complex.npy", npy_bytes(np.array([1 + 2j]))),
        ("readme.txt", b"no array, but room for a header"),
        ("cut.npy", npy_bytes(values("f4"))[:-1]),
        ("tokens.npy", npy_bytes(STRINGS.reshape(-1))),
    ]
    buffer = io.BytesIO(zip_bytes(members))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(zipfile.ZipInfo("packed.npy"), npy_bytes(values("f4")), compress_type=zipfile.ZIP_LZMA)
        archive.writestr(zipfile.ZipInfo("k.npy"), npy_bytes(values("f8")), compress_type=zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def patch(archive, field, value, bits):
    """Overwrites a field of the first entry in the central directory and, where it has it, in the local header."""
    offsets = {"flags": (8, 6), "packed": (20, 18), "size": (24, 22)}[field]
    central = archive.index(b"PK\x01\x02")
    for start, offset in ((central, offsets[0]), (0, offsets[1])):
        archive[start + offset:start + offset + bits // 8] = value.to_bytes(bits // 8, "little")
    return archive


def write_damaged(folder):
    q = npy_bytes(values("f4"))
    files = {
        "duplicate_names.npz": zip_bytes([("q.npy", q), ("q.npy", q)]),
        "duplicate_without_suffix.npz": zip_bytes([("q.npy", q), ("q", q)]),
        "bzip2.npz": zip_bytes([("q.npy", q)], zipfile.ZIP_BZIP2),
        "encrypted.npz": patch(zip_bytes([("q.npy", q)]), "flags", 1, 16),
        "not_npy.npz": zip_bytes([("readme.txt", b"no array")]),
        "pytorch.npz": zip_bytes([("archive/data.pkl", b"\x80\x02}q\x00."), ("archive/data/0", bytes(40))]),
        "stored_size_lies.npz": patch(zip_bytes([("q.npy", q)]), "size", 5000, 32),
        "beyond_file.npz": patch(patch(zip_bytes([("q.npy", q)]), "size", 1 << 30, 32), "packed", 1 << 30, 32),
        "deflate_bomb.npz": patch(zip_bytes([("q.npy", q)], zipfile.ZIP_DEFLATED), "size", 0xF0000000, 32),
        "deflate_size_lies.npz": patch(zip_bytes([("q.npy", q)], zipfile.ZIP_DEFLATED), "size", 5000, 32),
    }
    files["wrong_checksum.npz"] = zip_bytes([("q.npy", q)])
    files["wrong_checksum.npz"][30 + len("q.npy") + len(q) - 1] ^= 1
    # A header that agrees with a member that states too many bytes: only unpacking shows it.
    big = npy_bytes(np.zeros((64, 64), "f4"))
    files["deflate_ends_early.npz"] = patch(zip_bytes([("q.npy", big[:-4096])], zipfile.ZIP_DEFLATED), "size", len(big), 32)
    eocd64 = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 1 << 40, 1 << 40, 0, 0)
    locator = struct.pack("<IIQI", 0x07064B50, 0, 4, 1)
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    files["trillion_members.npz"] = b"PK\x03\x04" + eocd64 + locator + end
    write_npy(folder / "objects.npy", np.array([1, "a", None], object))
    write_npy(folder / "complex.npy", np.array([1 + 2j]))
    write_npy(folder / "records.npy", np.zeros(3, [("a", "f4"), ("b", "i4")]))
    write_npy(folder / "float8.npy", np.zeros(3, ml_dtypes.float8_e4m3fn))
    write_npy(folder / "latin1.npy", np.array(["é".encode("latin-1")]))
    for name, data in files.items():
        (folder / name).write_bytes(data)


def main():
    folder = pathlib.Path(sys.argv[1])
    (folder / "damaged").mkdir(parents=True, exist_ok=True)
    write_good(folder)
    write_damaged(folder / "damaged")


if __name__ == "__main__":
    main()
