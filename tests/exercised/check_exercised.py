"""Nothing on offer goes untried: every flag of the command, and every key of files, stands in a test and in the documentation; documentation has every
public header, and no link to nowhere.

    check_exercised.py REGARD        in the repository

Flags come from the command itself (its completion for fish), keys and foreign flags from the tables that the command reads. Error messages, which
are made of parts, are checked by execution instead: scripts/coverage.sh.
"""

import glob
import os
import re
import subprocess
import sys

regard = sys.argv[1]
failures = []


def read(*patterns):
    texts = []
    for pattern in patterns:
        for path in sorted(glob.glob(pattern, recursive=True)):
            texts.append(open(path, encoding="utf-8").read())
    return "\n".join(texts)


def fail(text):
    failures.append(text)
    print(text)


def has_word(text, word):
    return re.search(r"(?<![\w-])" + re.escape(word) + r"(?![\w-])", text) is not None


tests = read("tests/**/*.cc", "tests/**/*.h", "src/**/*_test.cc", "src/io/*test_support.h", "tests/diagnose/*.py")
documents = read("README.md", "docs/*.md")

# -------------------------------------------------------------------------------------------------------------- flags

fish = subprocess.run([regard, "--completion", "fish"], capture_output=True, text=True, check=True).stdout
flags = set()
for name, kind, flag in re.findall(r"__fish_seen_subcommand_from (\w+)' -([ls]) ([\w-]+)", fish):
    flags.add((name, ("--" if kind == "l" else "-") + flag))
names = sorted({flag for _, flag in flags})
for flag in names:
    if not has_word(tests, flag):
        fail(f"{flag}: no test uses this flag")
    if not has_word(documents, flag):
        fail(f"{flag}: no document tells of this flag")

# Each foreign flag is refused with advice.
foreign = re.findall(r'^    \{"(--[\w-]+)",', read("cli/foreign_flags.cc"), re.M)
for flag in foreign:
    done = subprocess.run([regard, "run", "any.npz", flag], capture_output=True, text=True)
    if done.returncode != 1 or not done.stderr.startswith(f"regard: {flag}: not a flag of regard; use "):
        fail(f"{flag}: {done.stderr}")

# --------------------------------------------------------------------------------------------------------------- keys

table = read("src/io/problem_keys.cc")
table = table[table.index("kKeys[] = {"):]
table = table[:table.index("};")]
keys = re.findall(r'^    \{"(\w+)"', table, re.M)  # src/io/problem_keys_test.cc tries every alias
header = read("include/regard/problem.h", "docs/*.md")
for key in keys:
    if not re.search(r'(["=. ])' + re.escape(key) + r'["=]', tests):
        fail(f"{key}: no test has this key in a file")
    if not has_word(header, key):
        fail(f"{key}: neither include/regard/problem.h nor a document tells of this key")

# ------------------------------------------------------------------------------------------------------------ headers

headers = sorted(path.split("/")[-1] for path in glob.glob("include/regard/*.h"))
page = read("docs/headers.md")
for name in headers:
    if not has_word(page, name):
        fail(f"include/regard/{name}: docs/headers.md does not tell of it")

# -------------------------------------------------------------------------------------------------------------- links

for path in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"] + sorted(glob.glob("docs/*.md") + glob.glob("*/*/README.md") + glob.glob("*/README.md")):
    text = re.sub(r"```.*?```|`[^`]*`", "", open(path, encoding="utf-8").read(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not re.match(r"\w+:", target) and not os.path.exists(os.path.join(os.path.dirname(path), target)):
            fail(f"{path}: links to {target}, which is not there")

print(f"{len(headers)} headers, {len(names)} flags, {len(foreign)} foreign flags, {len(keys)} keys: {len(failures)} failures")
sys.exit(1 if failures or len(names) < 20 or len(foreign) < 20 or len(keys) < 40 else 0)
