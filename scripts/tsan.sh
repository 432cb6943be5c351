#!/usr/bin/env bash
# Runs what starts threads under Clang's thread sanitizer. libomp's tool archer (on Debian: libomp-19-dev) tells the sanitizer what OpenMP orders, which
# it cannot see in GCC's; OpenBLAS is kept to one thread, since it was not built for the sanitizer.
#   scripts/tsan.sh [TEST...]
set -euo pipefail
cd "$(dirname "$0")/.."
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(attention_test staged_test invariants_test summary_test weights_test random_problems)
if [ -z "${REGARD_TSAN_BUILD:-}" ]; then
  REGARD_TSAN_BUILD=build/tsan
  cmake --preset tsan >/dev/null
  cmake --build --preset tsan --target "${tests[@]}"
fi
archer=$(ls /usr/lib/llvm-*/lib/libarcher.so | tail -1)
export OMP_TOOL_LIBRARIES=$archer OPENBLAS_NUM_THREADS=1
export TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=1 exitcode=66"
ctest --test-dir "$REGARD_TSAN_BUILD" --output-on-failure -R "^($(IFS='|'; echo "${tests[*]}"))\$"
