#!/usr/bin/env python3
"""regard beside PyTorch and ONNX Runtime, same shapes, same run: one table of times and ratios. See README.md."""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time

import shapes

# Read by libraries when they start, so they must be there before Python is. Memory that a peer gives back and asks for again in every call
# stays mapped, in huge pages: regard's results lie in memory that is there already, and a peer shall not pay for page faults.
ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(1 << 28),
}

MIN_SECONDS, _MIN_SAMPLES = 1.0, 3
# f32 attention of normal inputs errs by less than 1e-5, a wrong mask or scale by 1e-2 and more; bf16 rounds results up to 4 by 8e-3.
_LARGEST_ERROR = {"f32": 1e-4, "bf16": 2e-2}


def load_libraries():
    libraries = []
    for name in ("with_torch", "with_onnxruntime"):
        try:
            libraries.append(importlib.import_module(name))
        except ImportError as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
    return libraries


def time_call(call, threads):
    """Median seconds: CPU time of the process with one thread, wall time with more, as `regard bench` has it."""
    clock = time.process_time if threads == 1 else time.perf_counter
    samples, start = [], time.perf_counter()
    call()
    while len(samples) < _MIN_SAMPLES or time.perf_counter() - start < MIN_SECONDS:
        before = clock()
        call()
        samples.append(clock() - before)
    return statistics.median(samples)


def run_regard(command, case, threads):
    """name -> row, for a case and what it is compared with. One thread a default: then rows for two exist, too."""
    arguments = [command, "bench", "--json", "--case", case] + (["--threads", str(threads)] if threads != 1 else [])
    environment = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    result = subprocess.run(arguments, stdout=subprocess.PIPE, check=True, env=environment)
    report = json.loads(result.stdout)
    return report["machine"], {row["case"]: row for row in report["rows"]}


def checked_calls(shape, libraries, threads):
    """name -> call, of every peer whose results are right."""
    q, k, v = shapes.inputs(shape)
    d_context = shapes.context_gradient(shape)
    calls = {}
    for library in libraries:
        if shape.backward:
            if not hasattr(library, "gradient_peers"):
                continue
            peers = library.gradient_peers(shape, q, k, v, d_context, threads)
            error_of = lambda result: shapes.largest_gradient_error(shape, q, k, v, d_context, *result)
        else:
            peers, to_floats = library.peers(shape, q, k, v, threads), library.to_floats
            error_of = lambda result: shapes.largest_error(shape, q, k, v, to_floats(result))
        for name, call in peers.items():
            error = error_of(call())
            if error <= _LARGEST_ERROR[shape.dtype]:
                calls[name] = call
            else:
                print(f"{shape.name}: {name} is off by {error:.2g} and left out", file=sys.stderr)
    return calls


def measure(shape, libraries, command, threads):
    """column -> seconds, and regard's row."""
    with_staged = shape.q_len == 2048 and not shape.backward and shape.dtype == "f32"
    machine, rows = run_regard(command, shape.name + ("/staged" if with_staged else ""), threads)
    times = {name: time_call(call, threads) for name, call in checked_calls(shape, libraries, threads).items()}
    if with_staged:
        times["regard staged"] = rows[shape.name + "/staged"]["median_s"]
    return machine, rows[shape.name], times


def show(seconds):
    return f"{seconds * 1e3:.3g} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", default=shapes.DEFAULT_SHAPES, help="names of `regard bench`, such as prefill/T2048/d64/causal")
    parser.add_argument("--regard", default="regard", help="the command")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ENVIRONMENT})

    libraries = load_libraries()
    columns, lines, machine = [], [], None
    for name in arguments.shapes:
        shape = shapes.parse(name)
        machine, row, times = measure(shape, libraries, arguments.regard, arguments.threads)
        columns += [column for column in times if column not in columns]
        lines.append((shape, row, times))
        print(f"{name}: regard {show(row['median_s'])} ({row['percent_of_limit']:.0f} %); "
              + "; ".join(f"{column} {show(seconds)}" for column, seconds in times.items()), file=sys.stderr)

    print(f"{machine['cpu']}, {machine['clock_ghz']:.2f} GHz; regard {machine['regard']} ({machine['target']}); "
          + "; ".join(library.VERSION for library in libraries) + f"; {arguments.threads} thread(s)")
    bf16_peak = f" (of bf16 {machine['bf16_peak_gflops']:.1f})" if machine["bf16_peak_gflops"] else ""
    print(f"multiply-add peak {machine['peak_gflops']:.1f} GFLOP/s{bf16_peak}, reads {machine['read_gbs']:.1f} GB/s\n")
    print("| case | regard | of the limit | " + " | ".join(columns) + " | fastest peer / regard |")
    print("|---|---|---|" + "---|" * (len(columns) + 1))
    for shape, row, times in lines:
        cells = [f"{show(times[c])} ({times[c] / row['median_s']:.2f}×)" if c in times else "–" for c in columns]
        others = [seconds for column, seconds in times.items() if not column.startswith("regard")]
        best = f"**{min(others) / row['median_s']:.2f}×**" if others else "–"
        print(f"| {shape.name} | {show(row['median_s'])} | {row['percent_of_limit']:.0f} % | " + " | ".join(cells) + f" | {best} |")


if __name__ == "__main__":
    main()
