#!/usr/bin/env bash
# Runs test programs under valgrind's memcheck. Vectors wider than AVX2 are unknown to it, and hidden from the programs; random problems are fewer.
# Without names, every fast test program. Left out are those that start the command, measure memory or time the machine, and the two tests that read
# every file cut and altered at every byte: hours here, seconds under the address sanitizer.
#   scripts/valgrind.sh BUILD-TREE [TEST-PROGRAM...]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?give a build tree}
shift
programs=("$@")
if [ ${#programs[@]} -eq 0 ]; then
  mapfile -t programs < <(find "$build"/src "$build"/tests -type f -name '*_test' -perm -u+x \
    ! -name cli_test ! -name page_test ! -name memory_test ! -name measure_test ! -name install_test | sort)
fi
status=0
for program in "${programs[@]}"; do
  echo "$program"
  REGARD_TEST_SEED=${REGARD_TEST_SEED:-7} OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OPENBLAS_CORETYPE=Haswell \
    valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
    "$program" --gtest_brief=1 --gtest_filter=-RobustnessTest.EveryCutIsAnError:RobustnessTest.EveryAlteredByteIsReadOrAnError ||
    [ $? -ne 99 ] || status=1  # floors that flag an idle test want more problems: what memcheck finds counts
done
exit $status
