#!/usr/bin/env bash
# Takes the numbers that bench/results/ keeps; record.sh --help says how.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'USAGE'
usage: record.sh [--cache FILE] OUT_DIR TABLE...
Tunes what a table lacks, then times its rows against the default, the floor and the ceilings of the same run.

  31b, 12b, 26b-a4b   decode and verify steps of Gemma 4, M = 1, 2, 4, 8, 16: global layers (unified and separate rows) at
                      1024 to 131072 tokens and sliding layers. 39 s* to tune 45 problems, 30 to 50 s to time them
  batch               eight sequences of 512 to 65536 tokens, M = 1 and 5, of all three. 60 s a model
  graph               31b: one kernel for a whole range of lengths. 20 s
  register-rule       31b: what the register rule drops. 30 s
  register-rule-prefill  the same of prefills of 2048 tokens: global layers, unified ones and sliding ones. 2 min
  prefill             31b: prefills of 2048 to 16384 tokens, whole and behind a prefix: global layers, sliding layers, and
                      head_dim 256 without a window. 100 s*; prefill_peers.py times other libraries
  linear              linear layers of 31B in every config
  model               31b: steps of 1 and 8 tokens of the whole model with random weights, of bf16 and of 4 bits. 3 min, 75 GB
  preset              attune tune --preset gemma4-31b, cold and warm. 52 s*
  agreement           ten tunes of it, all but the first with its binaries, and an exhaustive one (agreement.py); times.csv has every candidate's. 9 min
  small-batch         two short sequences, which the host device measures too, in a minute of 2 cores
Times are about those of an H200 with 16 cores, measured ones with a *, estimates the others. A model's parts have names
too: 31b-global, 31b-sliding, 31b-batch and so on.

OUT_DIR gets TABLE.csv, TABLE.txt and TABLE.tune.txt of each, commands.txt and gpu.txt; table.py makes Markdown of the CSVs.
The cache is OUT_DIR/tune.db, or FILE. ATTUNE names the program (default: bin/attune beside this folder, else of the PATH),
ATTUNE_DEVICE the device. A table that fails does not end the others.
USAGE
}

fail_usage() {
  printf 'record.sh: %s; see record.sh --help\n' "$*" >&2
  exit 2
}

# What `attune bench` is asked for beside the problems of a table.
bench_flags() {
  case $1 in
    *-global) echo "--kv 1024,8192,32768,131072" ;;
    *-sliding) echo "--kv 1024,131072" ;;
    small-batch) echo "--lengths 16,9" ;;
    *-batch) echo "--lengths 512,1024,2048,4096,8192,16384,32768,65536" ;;
    graph) echo "--kv 1024,2048,4096,8192,32768,131072" ;;
    register-rule) echo "--kv 131072 --register-rule" ;;
    register-rule-prefill) echo "--kv 2048 --register-rule" ;;
  esac
}

# run FILE ARGUMENT...: what attune prints goes to FILE and the terminal, without the folders of this machine.
run() {
  local file=$1 text status=0
  shift
  text=$("$attune" "$@") || status=$?
  text=${text//"$cache"/${cache##*/}}
  printf '%s\n' "$text" | tee "$file"
  text="attune $*"
  text=${text//"$cache"/${cache##*/}}
  printf '%s\n' "${text//"$here/"/bench/}" >>commands.txt
  [ "$status" -eq 0 ] || printf 'record.sh: attune failed: status=%s arguments=%s\n' "$status" "$*" >&2
  return "$status"
}

# Caches 1.db to 10.db and exhaustive.db, and what agreement.py says of them.
agreement() {
  local i gpu caches=()
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader --id="${ATTUNE_DEVICE:-0}") || return
  for i in {1..10} exhaustive; do
    local effort=normal
    [ "$i" != exhaustive ] || effort=exhaustive
    rm -f "$i.db"
    [ "$i" = 1 ] || cp compiled.db "$i.db" || return
    run "agreement-$i.txt" tune --preset gemma4-31b --effort "$effort" --cache "$i.db" || return
    [ "$i" = exhaustive ] || caches+=("$i.db")
    if [ "$i" = 1 ]; then
      cp 1.db compiled.db && run compiled.txt cache prune --gpu "$gpu" --no-backup --cache compiled.db || return
    elif [ "$i" != exhaustive ]; then
      python3 "$here/agreement.py" "${caches[@]}" >agreement.txt || return  # what there is, should the time end
    fi
  done
  python3 "$here/agreement.py" --with exhaustive.db --csv times.csv "${caches[@]}" | tee agreement.txt
}

record() {
  local table=$1 file=$here/tables/$1.yaml
  if [ "$table" = linear ]; then
    "$here/attune-linear-bench" | tee linear.csv
    return
  fi
  if [ "$table" = model ]; then
    local config=$here/../tests/data/gemma4-configs/31b-newer.json weights
    for weights in bf16 int4; do
      run "model-$weights.txt" bench --random-weights "$config" --weights "$weights" --context 512,127000 --tokens 1,8 \
        --cache "$cache" || return
    done
    run model-invariant.txt bench --random-weights "$config" --invariant --context 512,127000 --tokens 1,8 --cache "$cache"
    return
  fi
  if [ "$table" = agreement ]; then
    agreement
    return
  fi
  if [ "$table" = preset ]; then
    local cache=${cache%/*}/preset.db
    rm -f "$cache"
    run preset-cold.txt tune --preset gemma4-31b --cache "$cache" &&
      run preset-warm.txt tune --preset gemma4-31b --cache "$cache"
    return
  fi
  run "$table.tune.txt" tune --preset "$file" --cache "$cache" || return
  # shellcheck disable=SC2046  # flags are words
  run "$table.txt" bench --preset "$file" $(bench_flags "$table") --csv "$table.csv" --cache "$cache"
}

cache=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage && exit ;;
    --cache)
      [ $# -ge 2 ] || fail_usage "--cache needs a file"
      cache=$(cd "$(dirname "$2")" && pwd -P)/$(basename "$2")
      shift 2
      ;;
    -*) fail_usage "unknown flag: '$1'" ;;
    *) break ;;
  esac
done
[ $# -ge 2 ] || fail_usage "needs OUT_DIR and a table"
out=$1
shift

tables=()
for name in "$@"; do
  case $name in
    31b | 12b | 26b-a4b) tables+=("$name-global" "$name-sliding") ;;
    batch) tables+=(31b-batch 12b-batch 26b-a4b-batch) ;;
    prefill) tables+=(prefill-global prefill-256 prefill-sliding) ;;
    preset | linear | model | agreement) tables+=("$name") ;;
    *)
      [ -e "$here/tables/$name.yaml" ] || fail_usage "unknown table: '$name'"
      tables+=("$name")
      ;;
  esac
done

attune=${ATTUNE:-$here/../bin/attune}
[ -n "${ATTUNE:-}" ] || [ -x "$attune" ] || attune=attune
attune=$(command -v "$attune") || fail_usage "no attune program: set ATTUNE, or add it to the PATH"
attune=$(cd "$(dirname "$attune")" && pwd)/$(basename "$attune")
mkdir -p "$out"
cd "$out"
cache=${cache:-$(pwd -P)/tune.db}

if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit --format=csv >gpu.txt || rm -f gpu.txt
fi
trap 'exit 130' INT
failed=()
for i in "${!tables[@]}"; do
  table=${tables[$i]}
  printf '==> %d of %d: %s, after %d s\n' $((i + 1)) ${#tables[@]} "$table" $SECONDS >&2
  record "$table" || failed+=("$table")
done
printf '==> %d tables in %d s\n' ${#tables[@]} $SECONDS >&2
[ ${#failed[@]} -eq 0 ] || { printf 'record.sh: these failed: %s\n' "${failed[*]}" >&2 && exit 1; }
