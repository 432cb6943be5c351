#!/usr/bin/env bash
# Runs the command on CPUs that lack vector extensions, which qemu-user plays (on Debian: qemu-user): the library is built for the baseline, and finds
# the best instruction set when it starts. qemu 7.2 knows no AVX-512.
#   scripts/test_baseline.sh BUILD-TREE
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?give a build tree}
status=0
check() {  # CPU EXPECTED-DEFAULT
  local said target file
  said=$(OPENBLAS_CORETYPE=Prescott qemu-x86_64 -cpu "$1" "$build/regard" info --json 2>/dev/null)
  target=$(sed -n 's/.*"default_target": "\(.*\)".*/\1/p' <<<"$said")
  # Paths agree there, too: exit status 4 otherwise. Few rows and many have kernels of their own.
  for file in testdata/six_tokens.npz testdata/minilm/all_minilm_l6_v2.safetensors; do
    OPENBLAS_CORETYPE=Prescott qemu-x86_64 -cpu "$1" "$build/regard" run "$file" --causal >/dev/null 2>&1 || target="$target, but run $file fails"
  done
  if [ "$target" = "$2" ]; then
    echo "$1: $target"
  else
    echo "$1: expected $2, got $target"
    status=1
  fi
}
check qemu64 SCALAR
check Westmere SSE4
check Haswell AVX2
exit $status
