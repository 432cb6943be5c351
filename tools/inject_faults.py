"""Makes attention problems with outputs that are wrong in one known way, in two, or only rounded, to score `regard check` with.

    python tools/inject_faults.py OUT --count 20                     every fault of the catalogue, 20 problems each
    python tools/inject_faults.py OUT --faults F01,F16 --count 50
    python tools/inject_faults.py OUT --pairs 200
    python tools/inject_faults.py OUT --correct 10000

Each case is OUT/NAME.npz (the problem) and OUT/NAME.observed.npz (what somebody's program gave); OUT/cases.json lists them with the
ids that are right. tools/score_diagnosis.py runs the command over them. The wrong attention is tools/wrong_attention/: whole
matrices in double precision, which share nothing with the library.
"""

import argparse
import json
import pathlib

import numpy as np

from wrong_attention import caches, masks, positions, projections, scale_and_layout, softmax  # noqa: F401 (they register their faults)
from wrong_attention.correct import FAMILIES, correct
from wrong_attention.pairs import PAIR_PARTS
from wrong_attention.problem import Problem, attend
from wrong_attention.registry import FAULTS
from wrong_attention.writing import write


def differs(p, want, wrong):
    """Whether a fault shows at all in this problem: more than 2 % somewhere beyond what bf16 could do."""
    if want.get("inputs_only") or "G" in want and want.get("observe"):
        return True
    right = attend(p)["context"]
    if np.isnan(right).all():
        return True
    size = np.nanmax(np.abs(right))
    return bool((np.isnan(right) != np.isnan(wrong["context"])).any() or np.nanmax(np.abs(right - wrong["context"])) > 0.05 * size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--faults", default="all", help="ids, separated by commas")
    parser.add_argument("--count", type=int, default=0, help="problems of each fault")
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--correct", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    cases = []
    wanted = sorted(FAULTS) if args.faults == "all" else args.faults.split(",")
    for fault_id in wanted if args.count else []:
        for n in range(args.count):
            rng = np.random.default_rng([args.seed, int(fault_id[1:]), n])
            want, make, also = FAULTS[fault_id][n % len(FAULTS[fault_id])]
            for _ in range(20):
                p = Problem(rng, **want)
                with np.errstate(all="ignore"):
                    result = make(p)
                    if differs(p, want, result):
                        break
            tensors = {"weights": ["context", "weights"], "projected": ["projected"], "lse": ["context", "lse"]}.get(want.get("observe"), ["context"] if n % 2 == 0 or "weights" not in result else ["context", "weights"])
            write(args.out, cases, f"{fault_id}_{n}", p, result, [fault_id, *also], ["f32", "bf16", "f16"][n // 2 % 3], tensors)
    rng = np.random.default_rng([args.seed, 1])
    while sum("+" in c["name"] for c in cases) < args.pairs:
        a, b = sorted(rng.choice(sorted(PAIR_PARTS), 2, replace=False))
        (want_a, part_a), (want_b, part_b) = PAIR_PARTS[a], PAIR_PARTS[b]
        if any(want_a[key] != want_b[key] for key in want_a.keys() & want_b.keys()):
            continue
        p = Problem(rng, **{**want_a, **want_b})
        edits_a, edits_b = part_a(p), part_b(p)
        if edits_a.keys() & edits_b.keys() or {"see", "hide"} <= edits_a.keys() | edits_b.keys():
            continue
        n = len(cases)
        write(args.out, cases, f"{a}+{b}_{n}", p, attend(p, **edits_a, **edits_b), [f"{a}+{b}"], ["f32", "bf16", "f16"][n % 3], ["context"] if n % 2 else ["context", "weights"])
    for n in range(args.correct):
        rng = np.random.default_rng([args.seed, 2, n])
        family = FAMILIES[n % len(FAMILIES)]
        with np.errstate(all="ignore"):
            p, result, kind = correct(rng, family)
        dtype = kind if kind in ("bf16", "f16") and rng.random() < 0.5 else "f32"
        write(args.out, cases, f"correct_{family}_{n}", p, result, ["match", "rounding"], dtype, ["context"] if n % 2 else ["context", "weights"])
    (args.out / "cases.json").write_text(json.dumps(cases, indent=1))
    print(f"{len(cases)} cases in {args.out}")


if __name__ == "__main__":
    main()
