#!/usr/bin/env bash
# Takes the numbers that bench/results/ keeps: bench/record.sh OUT_DIR [ATTUNE]
# Tunes the preset gemma4-31b cold and again warm into a fresh cache, then times the rows of the design's table against
# the default, the floor and the ceilings of the same run, and what the register rule drops.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: $0 OUT_DIR [ATTUNE]" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
attune=${2:-attune}
cache=$(mktemp -d)/tune.db
trap 'rm -rf "$(dirname "$cache")"' EXIT

run() {  # run NAME ARGUMENT...: the command and what it printed, into NAME.txt
  local name=$1
  shift
  printf '$ attune %s\n' "$*" >"$out/$name.txt"
  "$attune" "$@" --cache "$cache" >>"$out/$name.txt" 2>"$out/$name.err" || {
    cat "$out/$name.err" >&2
    return 1
  }
  rm -f "$out/$name.err"
}

global=h32x4/d512/contiguous/bf16
sliding=h32x16/d256/w1024/ring/bf16

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit --format=csv >"$out/gpu.txt"
run tune-cold tune --preset gemma4-31b
run tune-warm tune --preset gemma4-31b
run bench-graph bench "decode/b1/q1/kv1-131072/$global" "verify/b1/q8/kv1024-131072/$global" \
  --kv 1024,2048,4096,8192,32768,131072 --csv "$out/graph.csv"
for point in 1024:1-1024 8192:4096-8192 32768:16384-32768 131072:65536-131072; do
  kv=${point%%:*} range=${point##*:}
  run "bench-global-$kv" bench "decode/b1/q1/kv$range/$global" "verify/b1/q2/kv$range/$global" \
    "verify/b1/q4/kv$range/$global" "verify/b1/q8/kv$range/$global" "verify/b1/q16/kv$range/$global" \
    --kv "$kv" --csv "$out/global-$kv.csv"
done
run bench-sliding bench "decode/b1/q1/kv1024-131072/$sliding" "verify/b1/q2/kv1024-131072/$sliding" \
  "verify/b1/q4/kv1024-131072/$sliding" "verify/b1/q8/kv1024-131072/$sliding" "verify/b1/q16/kv1024-131072/$sliding" \
  --kv 1024,131072 --csv "$out/sliding.csv"
run register-rule bench "decode/b1/q1/kv65536-131072/$global" "verify/b1/q8/kv65536-131072/$global" \
  --kv 131072 --register-rule --csv "$out/register-rule.csv"
run cache-list cache list
cp "$cache" "$out/tune.db"
