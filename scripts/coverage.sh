#!/usr/bin/env bash
# Builds with coverage, runs the fast tests, and lists every place that reports an error and was never reached: each message has a test that
# provokes it, but for those that scripts/unreachable_messages.txt gives a reason for. Kernels report nothing and are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/coverage
cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -DNDEBUG" \
  -DREGARD_DEVELOPER_MODE=ON -DREGARD_COVERAGE=ON >/dev/null
cmake --build "$build"
find "$build" -name '*.gcda' -delete
ctest --test-dir "$build" --output-on-failure -L fast -j2
scripts/list_unreached_messages.py "$build" scripts/unreachable_messages.txt
