#!/usr/bin/env bash
# Installs what the tests need, builds everything and runs all tests. Ends with ctest's own summary.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t packages <scripts/build-packages.txt
scripts/install-packages.sh "${packages[@]}" libgtest-dev python3 python3-venv

# The ONNX conformance cases come from the onnx package; it lives in the build folder, apart from the system's Python, and arrives
# while the compiler works.
venv=build/venv fetching=
if ! "$venv/bin/python" -c 'import numpy, onnx' 2>/dev/null; then
  /usr/bin/python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r tools/requirements.txt &
  fetching=$!
fi

cmake --preset dev >/dev/null
cmake --build --preset dev
[ -z "$fetching" ] || wait "$fetching"
ctest --preset dev
