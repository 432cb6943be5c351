#!/usr/bin/env bash
# Builds regard the other ways: by add_subdirectory, and from install trees that are static, and shared, each with tools and without; with
# programs that use them by find_package and by pkg-config (check_install.sh). Builds the library five times.
#   check_variants.sh CMAKE REPOSITORY COMPILER LIBDIR
set -euo pipefail
cmake=$1 repository=$2 compiler=$3 libdir=$4
here=$(cd "$(dirname "$0")" && pwd)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

for tools in OFF ON; do
  echo "== add_subdirectory, tools $tools"
  "$cmake" -G Ninja -S "$here/subproject" -B "$scratch/sub" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" "${launcher[@]}" \
    -DREGARD_SOURCE="$repository" -DREGARD_BUILD_TOOLS=$tools >/dev/null
  "$cmake" --build "$scratch/sub" >/dev/null
  "$scratch/sub/attention"
  if [ $tools = ON ]; then "$scratch/sub/tools" "$scratch/sub.npz"; fi
  rm -r "$scratch/sub"
done

for shared in OFF ON; do
  for tools in OFF ON; do
    [ $shared$tools = ONON ] && continue  # the tree that the other tests are of
    echo "== install tree, shared $shared, tools $tools"
    "$cmake" -G Ninja -S "$repository" -B "$scratch/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" "${launcher[@]}" \
      -DBUILD_SHARED_LIBS=$shared -DREGARD_BUILD_TOOLS=$tools >/dev/null
    "$cmake" --build "$scratch/build" >/dev/null
    "$here/check_install.sh" "$cmake" "$scratch/build" "$here" "$compiler" "$libdir" "$([ $shared = ON ] && echo 1 || echo 0)" \
      "$([ $tools = ON ] && echo 1 || echo 0)"
    rm -r "$scratch/build"
  done
done
