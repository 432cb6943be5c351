#!/usr/bin/env bash
# Cross-builds for aarch64 and runs the tests of the kernels and of the paths, on NEON, under qemu-user. Debian's packages of that machine are
# unpacked into build/aarch64/sysroot; nothing is installed for it. Needs: g++-aarch64-linux-gnu qemu-user.
#   scripts/test_aarch64.sh [TEST...]
set -euo pipefail
cd "$(dirname "$0")/.."
build=$PWD/build/aarch64
sysroot=$build/sysroot
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(targets_test exp2_test softmax_f32_test stored_rows_test fused_prefill_f32_test fused_decode_f32_test edges_test equivalence_test
                                invisible_test dropout_test summary_test weights_test fused_backward_f32_test gradient_equivalence_test)
packages=(libhwy1 libhwy-dev libopenblas0-pthread libopenblas-pthread-dev libgfortran5 libgomp1 libgtest-dev libstdc++6 libgcc-s1 libc6)

if [ ! -d "$sysroot" ]; then
  apt=$build/apt  # apt's lists for that machine, apart from this one's
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/debs" "$sysroot"
  touch "$apt/status"
  options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache"
           -o Dir::State::Status="$apt/status" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" -qq update
  (cd "$apt/debs" && apt-get "${options[@]}" -qq download "${packages[@]}")
  for deb in "$apt"/debs/*.deb; do dpkg-deb -x "$deb" "$sysroot"; done
  # What Debian's alternatives would link.
  ln -sf openblas-pthread/libopenblas.so.0 "$sysroot/usr/lib/aarch64-linux-gnu/libopenblas.so.0"
  ln -sf openblas-pthread/libopenblas.so.0 "$sysroot/usr/lib/aarch64-linux-gnu/libopenblas.so"
  (cd "$sysroot/usr/include/aarch64-linux-gnu" && ln -sf openblas-pthread/*.h .)
fi

cmake -G Ninja -S . -B "$build" -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DREGARD_SYSROOT="$sysroot" -DCMAKE_BUILD_TYPE=Release \
  -DREGARD_DEVELOPER_MODE=ON -DREGARD_BUILD_TOOLS=OFF >/dev/null
cmake --build "$build" --target "${tests[@]}"
# Emulated, all random problems take long, and threads that spin keep each other from running.
export REGARD_TEST_SEED=${REGARD_TEST_SEED:-1-300} OMP_WAIT_POLICY=passive OPENBLAS_NUM_THREADS=1
ctest --test-dir "$build" --output-on-failure -R "^($(IFS='|'; echo "${tests[*]}"))\$"
