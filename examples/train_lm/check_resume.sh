#!/usr/bin/env bash
# A run that is killed in the middle, several times, and resumed ends with the same bytes as one that is not.
#   check_resume.sh TRAIN_LM TEXT
set -uo pipefail
train=$1
text=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
options=(--steps 300 --layers 2 --heads 2 --dim 16 --batch 4 --context 32 --dropout 0.1 --eval-every 1000 --checkpoint-every 7 --sample 20)

"$train" "$text" "${options[@]}" --out "$folder/whole" >"$folder/whole.log" || { cat "$folder/whole.log"; exit 1; }

# Kills as soon as a checkpoint is newer than the start of this run: somewhere between two checkpoints, or while one is being written.
killed=0
for _ in 1 2 3; do
  touch "$folder/start"
  "$train" "$text" "${options[@]}" --out "$folder/parts" >"$folder/parts.log" 2>&1 &
  run=$!
  while kill -0 $run 2>/dev/null && [ -z "$(find "$folder/parts/checkpoint.safetensors" -newer "$folder/start" 2>/dev/null)" ]; do
    sleep 0.01
  done
  kill -KILL $run 2>/dev/null
  wait $run 2>/dev/null
  [ $? -eq 137 ] && killed=$((killed + 1))
done
[ $killed -ge 1 ] || { echo "the run ended before it could be killed; give it more steps"; exit 1; }

"$train" "$text" "${options[@]}" --out "$folder/parts" >"$folder/parts.log" 2>&1 || { cat "$folder/parts.log"; exit 1; }
grep -q "resumed at step" "$folder/parts.log" || { echo "the last run did not resume"; cat "$folder/parts.log"; exit 1; }
for file in checkpoint heads_before heads_after; do
  cmp "$folder/whole/$file.safetensors" "$folder/parts/$file.safetensors" || exit 1
done
diff <(tail -3 "$folder/whole.log") <(tail -3 "$folder/parts.log") | grep -v tokens/s | grep '^[<>]' && { echo "the samples differ"; exit 1; }

# Other options do not go on from this file.
"$train" "$text" "${options[@]}" --seed 2 --out "$folder/whole" >/dev/null 2>"$folder/error" && { echo "another seed was accepted"; exit 1; }
grep -q "made with seed 1, not 2; give the same options" "$folder/error" || { cat "$folder/error"; exit 1; }
echo "killed $killed times and resumed: the same bytes"
