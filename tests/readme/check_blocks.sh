#!/usr/bin/env bash
# Runs the commands that Markdown files show and compares what they print.
#   check_blocks.sh REGARD FILE-OR-FOLDER...
#
# A block fenced with ```console holds lines "$ command" followed by the output shown. Output is compared line by line, standard error after
# standard output; in a shown line "…" stands for anything, and a line that is only "…" for any number of lines. Numbers that differ from
# machine to machine are therefore shown as "…". `regard` and build/release/regard both mean the program under test. Commands run in a
# scratch copy of the folders they read, in the order shown; a command that ends with a status other than 0 shows it as "[status 3]".
set -uo pipefail

regard=$1
shift
root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r testdata examples "$scratch"
mkdir -p "$scratch/build/release"
ln -s "$regard" "$scratch/build/release/regard"
ln -s "$regard" "$scratch/regard"

documents=()
for place in "$@"; do
  while read -r document; do documents+=("$document"); done < <(find "$place" -name '*.md' | sort)
done

# matches EXPECTED ACTUAL: files; "…" as described above.
matches() {
  python3 - "$1" "$2" <<'PYTHON'
import re, sys
shown, got = (open(path, encoding="utf-8").read().splitlines() for path in sys.argv[1:3])
pattern = "".join("(?:.*\n)*?" if line.strip() == "…" else ".*?".join(map(re.escape, line.rstrip().split("…"))) + "[ \t]*\n" for line in shown)
sys.exit(0 if re.fullmatch(pattern, "".join(line + "\n" for line in got)) else 1)
PYTHON
}

commands=0
failures=0
check() {  # COMMAND, with the output shown in $scratch/shown
  commands=$((commands + 1))
  (cd "$scratch" && PATH="$scratch:$PATH" bash -c "$1" >"$scratch/got" 2>"$scratch/errors"; status=$?
   cat "$scratch/errors" >>"$scratch/got"
   if [ $status -ne 0 ]; then echo "[status $status]" >>"$scratch/got"; fi)
  if ! matches "$scratch/shown" "$scratch/got"; then
    failures=$((failures + 1))
    echo "$document: \$ $1"
    diff "$scratch/shown" "$scratch/got"
  fi
}

for document in "${documents[@]}"; do
  in_block=0
  command=
  while IFS= read -r line || [ -n "$line" ]; do
    if [ $in_block -eq 0 ]; then
      [ "$line" = '```console' ] && in_block=1
      continue
    fi
    case "$line" in
      '```'*)
        [ -n "$command" ] && check "$command"
        command=
        in_block=0
        ;;
      '$ '*)
        [ -n "$command" ] && check "$command"
        command=${line#\$ }
        : >"$scratch/shown"
        ;;
      *) printf '%s\n' "$line" >>"$scratch/shown" ;;
    esac
  done <"$root/$document"
done

# A C++ block of more than three lines that uses the public API is part of an example that is compiled and run.
for document in "${documents[@]}"; do
  python3 - "$root/$document" <<'PYTHON' || failures=$((failures + 1))
import glob, re, sys
squeeze = lambda text: re.sub(r"\s+", "", text)
compiled = [squeeze(open(path, encoding="utf-8").read()) for path in glob.glob("examples/*.cc") + glob.glob("examples/*.h") + glob.glob("include/regard/*.h")]
missing = [block for block in re.findall(r"```cpp\n(.*?)```", open(sys.argv[1], encoding="utf-8").read(), re.S)
           if "regard::" in block and block.count("\n") > 3 and not any(squeeze(block) in text for text in compiled)]
for block in missing:
    print(f"{sys.argv[1]}: not found in examples/:\n{block}")
sys.exit(1 if missing else 0)
PYTHON
done

echo "$commands commands, $failures failures"
[ "$commands" -gt 0 ] && [ "$failures" -eq 0 ]
