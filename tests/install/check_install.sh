#!/usr/bin/env bash
# Installs a build tree, moves what was installed, and builds and runs a project with it: by find_package and by pkg-config.
#   check_install.sh CMAKE BUILD-TREE THIS-FOLDER COMPILER LIBDIR SHARED(0|1) [TOOLS(0|1)]
set -euo pipefail
cmake=$1 build=$2 source=$3/consumer compiler=$4 libdir=$5 shared=$6 tools=${7:-1}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$cmake" --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/moved"  # no file may know where it was installed
prefix=$scratch/moved

if [ "$tools" = 1 ]; then
  echo "the command:"
  "$prefix/bin/regard" --version
  grep -q '^.TH REGARD 1' "$prefix/share/man/man1/regard.1"
  bash -n "$prefix/share/bash-completion/completions/regard"
fi

echo "find_package:"
"$cmake" -S "$source" -B "$scratch/build" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" -DWITH_TOOLS="$tools" >/dev/null
"$cmake" --build "$scratch/build" >/dev/null
"$scratch/build/attention"
[ "$tools" = 0 ] || "$scratch/build/tools" "$scratch/one.npz"

echo "pkg-config:"
export PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig
kind=$([ "$shared" = 1 ] || echo --static)
programs=(attention:regard)
[ "$tools" = 0 ] || programs+=(tools:regard-tools)
for program in "${programs[@]}"; do
  read -ra flags <<<"$(pkg-config --cflags --libs $kind "${program#*:}")"
  "$compiler" -std=c++20 "$source/${program%:*}.cc" "${flags[@]}" -o "$scratch/${program%:*}"
done
export LD_LIBRARY_PATH=$prefix/$libdir
"$scratch/attention"
[ "$tools" = 0 ] || "$scratch/tools" "$scratch/two.npz"
