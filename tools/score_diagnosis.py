"""Runs `regard check --json` over the cases of tools/inject_faults.py and prints how often it was right.

    python tools/score_diagnosis.py build/release/regard OUT [--jobs 2] [--show]

A case is right when one of its ids is among the first explanation and those that tie with it; a correct output is right when the
verdict is match or rounding. The exit status is 1 when fewer than 99 % are right (pairs: 90 %; correct outputs: all).
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import subprocess
import sys


def run(command, folder, case):
    path = folder / case["name"]
    done = subprocess.run([command, "check", f"{path}.npz", "--observed", f"{path}.observed.npz", "--json", "--threads", "1"], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        return {"verdict": "error", "explanations": [], "ties": [], "summary": done.stderr.strip()}
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="print every case that is not right")
    args = parser.parse_args()
    cases = json.loads((args.folder / "cases.json").read_text())
    named = collections.defaultdict(collections.Counter)  # expected -> what was said
    right, total, ties = collections.Counter(), collections.Counter(), []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda case: run(args.command, args.folder, case), cases)
        for case, result in zip(cases, results):
            expected = case["ids"][0]
            kind = "correct" if expected == "match" else "pair" if "+" in expected else "single"
            said = [e["id"] for e in result["explanations"][: max(1, len(result["ties"]))]] or [result["verdict"]]
            good = result["verdict"] in case["ids"] if kind == "correct" else any(i in said for i in case["ids"])
            first = expected if good and expected in said else next((i for i in said if i in case["ids"]), said[0])
            named[expected][first if kind != "correct" else result["verdict"]] += 1
            right[kind] += good
            total[kind] += 1
            if kind != "correct" and result["explanations"]:
                ties.append(max(1, len(result["ties"])))
            if not good and args.show:
                print(f"{case['name']} ({case['dtype']}, {'+'.join(case['tensors'])}): {result['summary']} {said}")
    for expected in sorted(named):
        print(f"{expected:8} " + ", ".join(f"{said} {count}" for said, count in named[expected].most_common()))
    for kind in total:
        print(f"{kind}: {right[kind]} of {total[kind]} right ({100 * right[kind] / total[kind]:.2f} %)")
    if ties:
        print(f"mean length of the list of ties: {sum(ties) / len(ties):.2f}")
    needed = {"single": 0.99, "pair": 0.90, "correct": 1.0}
    sys.exit(any(right[kind] < needed[kind] * total[kind] for kind in total))


if __name__ == "__main__":
    main()
