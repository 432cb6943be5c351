#!/usr/bin/env bash
# Fuzzes every target in turn, one process at a time, with Clang's libFuzzer (on Debian: clang-19 libclang-rt-19-dev libomp-19-dev).
#   scripts/fuzz.sh [SECONDS-EACH [TARGET...]]
# Inputs that reach something new gather in build/fuzz/corpus, those that break a promise in build/fuzz/findings. Ends with what was run.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=(npy npz safetensors text_rows command_line problem attention)

build=${REGARD_FUZZ_BUILD:-build/fuzz}
if [ -z "${REGARD_FUZZ_BUILD:-}" ]; then
  cmake --preset fuzz >/dev/null
  cmake --build --preset fuzz
fi
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 OMP_WAIT_POLICY=passive

status=0
for target in "${targets[@]}"; do
  corpus=$build/corpus/$target findings=$build/findings/$target
  mkdir -p "$corpus" "$findings"
  seeds=()
  for folder in fuzz/corpus/"$target" fuzz/regressions/"$target"; do [ ! -d "$folder" ] || seeds+=("$folder"); done
  case $target in npy | npz | safetensors) seeds+=(testdata/io) ;; esac
  options=(-max_total_time="$seconds" -timeout=60 -report_slow_units=60 -malloc_limit_mb=512 -rss_limit_mb=3000 -print_final_stats=1)
  options+=(-artifact_prefix="$findings/" -max_len=4096)
  [ -f fuzz/dictionaries/"$target".dict ] && options+=(-dict=fuzz/dictionaries/"$target".dict)
  "$build/fuzz/${target}_fuzzer" "${options[@]}" "$corpus" "${seeds[@]}" >"$findings/log" 2>&1 || status=1
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$findings/log")
  [ -n "$executions" ] || { tail -1 "$findings/log"; status=1; }
  printf '%s: %s executions, %s\n' "$target" "${executions:-no}" \
    "$(find "$findings" -type f ! -name log | wc -l) findings"
done
exit $status
