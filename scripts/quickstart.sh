#!/usr/bin/env bash
# From a clean clone to attention weights: installs what is missing, builds the library and the command, and runs the main job on the
# real model data that is in the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t packages <scripts/build-packages.txt
scripts/install-packages.sh "${packages[@]}"
cmake --preset release >/dev/null
cmake --build --preset release

regard=build/release/regard
model=testdata/minilm/all_minilm_l6_v2.safetensors
echo
echo "\$ $regard run testdata/six_tokens.txt"
"$regard" run testdata/six_tokens.txt
echo
echo "\$ $regard run $model --layer 2"
"$regard" run "$model" --layer 2
echo
echo "\$ $regard map $model --html build/map.html"
"$regard" map "$model" --html build/map.html
cat <<NEXT

Next, paste one of these:
  $regard explain testdata/six_tokens.txt --row 1
  $regard explain $model --layer 2 --head 9 --row 60
  $regard run $model --layer 2 --save weights -o build/layer2.npz
  $regard map $model --layer 2 --head 9
  $regard info
NEXT
