#!/usr/bin/env bash
# The rooms depend one way only. For each room this lists the rooms it may include; everything else is a fault. Public headers stand on
# public headers and the standard library; vectors stay in src/kernels.
#   check_layers.sh REPOSITORY
set -euo pipefail
cd "$1"

declare -A may_include=(
  [core]="core"
  [kernels]="core kernels"
  [reference]="core reference"
  [staged]="core kernels staged"
  [io]="core io"
  [attention]="core kernels reference staged attention"
  [nn]="core staged nn"
  [summary]="core kernels reference staged attention summary"
  [diagnose]="core kernels reference staged io attention summary diagnose"
  [measure]="core kernels reference staged io attention summary measure"
  [report]="core kernels reference staged io attention summary diagnose measure report"
  [cli]="core kernels reference staged io attention summary diagnose measure report cli"
)

faults=0
files=0
fault() {
  echo "$1"
  faults=$((faults + 1))
}

for file in $(find src cli \( -name '*.h' -o -name '*.cc' \) ! -name '*_test.cc' | sort); do
  room=${file#src/}
  room=${room%%/*}
  [ -n "${may_include[$room]+known}" ] || { fault "$file: room '$room' is not in the table of tests/layering/check_layers.sh"; continue; }
  files=$((files + 1))
  while read -r included; do
    target=${included%%/*}
    [ "$target" = regard ] && continue
    [ "$room" = kernels ] && [ "$target" = hwy ] && continue
    [[ " ${may_include[$room]} " == *" $target "* ]] || fault "$file: includes \"$included\"; $room may include ${may_include[$room]}"
  done < <(sed -n 's/^#include "\([^"]*\)".*/\1/p' "$file")
  if [ "$room" != kernels ] && grep -nE '#include *[<"](hwy/|immintrin|x86intrin|arm_neon)' "$file"; then
    fault "$file: vector code outside src/kernels"
  fi
done

while read -r line; do fault "public header: $line"; done < <(grep -nE '#include "' include/regard/*.h | grep -vE '#include "regard/' || true)
while read -r line; do fault "public header: $line"; done < <(grep -nE '#include <[a-z0-9_]+[./]' include/regard/*.h || true)

if [ "$faults" -gt 0 ] || [ "$files" -lt 20 ]; then
  echo "$faults faults in $files files"
  exit 1
fi
echo "$files files, each room stands on its own foundations only"
