#!/usr/bin/env bash
# Makes the Debian package, unpacks it with dpkg into an empty root, and runs what is there.
#   check_deb.sh CPACK BUILD-TREE
set -euo pipefail
cpack=$1 build=$2

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$cpack" -G DEB --config "$build/CPackConfig.cmake" -B "$scratch" >"$scratch/log" || { cat "$scratch/log"; exit 1; }
package=$(ls "$scratch"/*.deb)
dpkg-deb --field "$package" Package Version Depends
dpkg-deb --field "$package" Depends | grep -q 'libopenblas\|libblas' || { echo "the package does not say that it needs a BLAS"; exit 1; }

root=$scratch/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
touch "$root/var/lib/dpkg/status"
# What it depends on is on this machine, not in that root; configuring it would run ldconfig there.
dpkg --root="$root" --log=/dev/null --force-not-root --force-depends --unpack "$package" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }

"$root/usr/bin/regard" --version
printf '1 2\n3 -4\n' | "$root/usr/bin/regard" run - --json | grep -q '"agrees": true'
gzip -cd "$root/usr/share/man/man1/regard.1.gz" 2>/dev/null | head -1 || head -1 "$root/usr/share/man/man1/regard.1"
grep -q 'Apache License' "$root/usr/share/doc/regard/copyright"
bash -n "$root/usr/share/bash-completion/completions/regard"
