#!/usr/bin/env python3
"""Lists the places that report an error and that no test reached, from a coverage build that ran the tests.

    list_unreached_messages.py BUILD-TREE EXCEPTIONS

EXCEPTIONS has a line "file: text of the line" for each place that no test can reach on an ordinary machine, with the reason in a comment above.
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

build, exceptions = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
root = pathlib.Path.cwd()
REPORT = re.compile(r"\b(Fail\w*|Status::Failure|throw (\w+::)*(Usage)?Error|FailValue)\(|\bError\(ErrorCode::")
DEFINITION = re.compile(r"\[\[noreturn\]\]|^\w.*\) (noexcept )?\{$|^static ")

hits = collections.defaultdict(lambda: collections.defaultdict(int))
for data in build.rglob("*.gcda"):
    done = subprocess.run(["gcov", "--json-format", "--stdout", str(data)], capture_output=True, text=True, cwd=build)
    for line in done.stdout.splitlines():
        if not line.startswith("{"):
            continue
        report = json.loads(line)
        for source in report["files"]:
            path = os.path.normpath(os.path.join(report["current_working_directory"], source["file"]))
            if not path.startswith(str(root) + os.sep) or path.startswith(str(build)):
                continue
            for entry in source["lines"]:
                hits[os.path.relpath(path, root)][entry["line_number"]] += entry["count"]

allowed = {line.strip() for line in exceptions.read_text().splitlines() if line.strip() and not line.startswith("#")}
used = set()
places = 0
unreached = []
for file in sorted(hits):
    if not file.startswith(("src/", "cli/")) or file.endswith("_test.cc"):
        continue
    text = (root / file).read_text().splitlines()
    for number, line in enumerate(text, 1):
        if not REPORT.search(line) or DEFINITION.search(line) or line.lstrip().startswith("//"):
            continue
        # A statement may stand on several lines; the compiler counts some of them.
        counts = [hits[file][n] for n in range(number, min(number + 6, len(text) + 1)) if n in hits[file]]
        own = [hits[file][number]] if number in hits[file] else counts[:1]
        if not own:
            continue
        places += 1
        if max(own) > 0:
            continue
        key = f"{file}: {line.strip()}"
        used.add(key)
        if key not in allowed:
            unreached.append(f"{file}:{number}: {line.strip()}")

for place in unreached:
    print(place)
for key in sorted(allowed - used):
    print(f"no longer true, take it out of {exceptions}: {key}")
print(f"{places} places report errors: {len(unreached)} not reached by a test, {len(allowed)} known to be out of reach")
sys.exit(1 if unreached or allowed - used or places < 100 else 0)
