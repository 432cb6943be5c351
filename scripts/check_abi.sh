#!/usr/bin/env bash
# Whether programs that were linked with the libraries of an older commit run with those of the work tree: compares the two by abidiff (on Debian:
# abigail-tools), exported symbols and the types they use. Where that is missing, the exported symbols alone.
#   scripts/check_abi.sh COMMIT
# Exit status 0: nothing that a program may use has changed or gone. Before 1.0 that is promised within a minor version only.
set -euo pipefail
cd "$(dirname "$0")/.."
commit=${1:?give the commit or tag to compare with}

scratch=$(mktemp -d)
trap 'git worktree remove --force "$scratch/old" 2>/dev/null || true; rm -rf "$scratch"' EXIT
git worktree add --detach "$scratch/old" "$commit" >/dev/null 2>&1
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
for tree in "$scratch/old:$scratch/a" "$PWD:$scratch/b"; do
  cmake -G Ninja -S "${tree%:*}" -B "${tree#*:}" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=-g1 "${launcher[@]}" >/dev/null
  cmake --build "${tree#*:}" --target regard regard_tools >/dev/null
done

exported() { nm -D --defined-only -C "$1" | cut -d' ' -f2- | grep -E '^[TVWBDR] (regard|vtable for regard|typeinfo for regard)' | cut -d' ' -f2- | sort -u; }
status=0
for library in libregard.so libregard_tools.so; do
  echo "$library:"
  if command -v abidiff >/dev/null; then
    # Bit 8 is an incompatible change, bit 4 one that a person has to judge.
    abidiff --no-added-syms --headers-dir1 "$scratch/old/include" --headers-dir2 include "$scratch/a/src/$library" "$scratch/b/src/$library" || status=1
  else
    gone=$(comm -23 <(exported "$scratch/a/src/$library") <(exported "$scratch/b/src/$library"))
    [ -z "$gone" ] || { echo "gone: $gone"; status=1; }
  fi
done
exit $status
