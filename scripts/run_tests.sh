#!/usr/bin/env bash
# Runs the tests of a bundle without ctest: run_tests.sh [LABEL...], labels cpu, nvrtc, host and gpu; all by default.
# Ends with one line "N passed, N failed, N skipped"; the exit code is 0 only when nothing failed.
# Without a GPU the gpu tests skip; with ATTUNE_REQUIRE_GPU=1 they fail.
# Environment:
#   JOBS       runs at a time (default: 1). With more each program runs in 4 parts, and tests that look at the device's free
#              memory, its clocks or its time run alone behind all others
#   TIMEOUT_S  limit of a run (default: none)
#   LOGS       folder for what the programs print (default: a temporary one)
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
labels=("$@")
[ $# -gt 0 ] || labels=(cpu nvrtc host gpu)
export ATTUNE_WORKER="${ATTUNE_WORKER:-$here/bin/attune-compile-worker}"
export ATTUNE_MEASURE_WORKER="${ATTUNE_MEASURE_WORKER:-$here/bin/attune-measure-worker}"
export ATTUNE_TUNE_WORKER="${ATTUNE_TUNE_WORKER:-$here/bin/attune-tune-worker}"
export ATTUNE_PRESETS="${ATTUNE_PRESETS:-$here/share/attune/presets}"
JOBS=${JOBS:-1}
[[ $JOBS =~ ^[1-9][0-9]*$ ]] || { echo "run_tests.sh: JOBS is no count: '$JOBS'" >&2; exit 2; }

PARTS=4
ALONE='*FreesMemory*:*MemoryBack*:*WithoutGrowth*:*TimesTheSame*:*Isolation*'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
LOGS=${LOGS:-$work/logs}
mkdir -p "$LOGS"

# The number in a line such as "[  PASSED  ] 12 tests." of a log.
count() {
  local number
  number=$(sed -n "s/^\[  $1 \] \([0-9]*\) tests\{0,1\}[.,].*/\1/p" "$2" | tail -n 1)
  echo "${number:-0}"
}

# run PROGRAM FILTER WHAT [VARIABLE=VALUE...]: adds a line to $work/counts, prints one, and the log's end after a failure.
run() {
  local program=$1 filter=$2 what=$3 status=0 name log cwd passed bad skipped text begin=$SECONDS
  shift 3
  name=$(basename "$(dirname "$program")")/$(basename "$program")
  log=$LOGS/${name//\//.}${what:+.$what}.log
  cwd=$(mktemp -d -p "$work")
  (cd "$cwd" && env "$@" timeout -s KILL "${TIMEOUT_S:-0}" "$program" --gtest_filter="$filter") >"$log" 2>&1 || status=$?
  passed=$(count 'PASSED ' "$log")
  skipped=$(count 'SKIPPED' "$log")
  bad=$(count 'FAILED ' "$log")
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi  # it died
  echo "$passed $bad $skipped" >>"$work/counts"
  [ $((passed + bad + skipped)) -gt 0 ] || return 0
  text=$(printf '%-48s %s passed, %s failed, %s skipped, %d s' "$name${what:+ $what}" "$passed" "$bad" "$skipped" $((SECONDS - begin)))
  if [ "$bad" -ne 0 ]; then
    text+=$(printf '\nexit status %s, last lines:\n' "$status"; grep -v '^\[ RUN  \|^\[       OK' "$log" | tail -n 60)
  fi
  printf '%s\n' "$text"
}

programs=()
for label in "${labels[@]}"; do
  for program in "$here/tests/$label"/*; do
    [ -f "$program" ] && [ -x "$program" ] && programs+=("$program")
  done
done
running=0
for program in "${programs[@]}"; do
  if [ "$JOBS" -eq 1 ]; then
    run "$program" '*' ''
    continue
  fi
  for ((part = 0; part < PARTS; part++)); do
    if [ "$running" -ge "$JOBS" ]; then
      wait -n
      running=$((running - 1))
    fi
    run "$program" "-$ALONE" "$((part + 1))-of-$PARTS" GTEST_SHARD_INDEX=$part GTEST_TOTAL_SHARDS=$PARTS &
    running=$((running + 1))
  done
done
wait
if [ "$JOBS" -gt 1 ]; then
  for program in "${programs[@]}"; do run "$program" "$ALONE" alone; done
fi

read -r passed failed skipped < <(awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }' "$work/counts" 2>/dev/null)
[ $((passed + failed + skipped)) -gt 0 ] || { echo "no test was found: labels=${labels[*]}" >&2; exit 2; }
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
