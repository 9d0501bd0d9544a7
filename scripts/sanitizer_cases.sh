#!/usr/bin/env bash
# What compute-sanitizer says of single ways to synchronize (tests/sanitizer): builds the programs with nvcc, runs every
# case by itself and under racecheck and synccheck, and prints a table case x tool. docs/sanitizers.md reads it.
# Environment:
#   COMPUTE_SANITIZER  one or more versions of the tool, separated by spaces (default: the one of PATH or of the toolkit)
#   JOBS               runs at a time (default: half of the cores)
#   LOGS               folder for the tools' whole output (default: build/sanitizer_cases/logs)
#   ONLY               extended regular expression of program/case
# Exit code 1 when a case is wrong by itself; what a tool finds is the table's matter. "planted" cases have a real race.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PATH:/usr/local/cuda/bin
PROGRAMS=(copies handoff named init)
BUILD=build/sanitizer_cases
LOGS=${LOGS:-$BUILD/logs}
JOBS=${JOBS:-$((($(nproc) + 1) / 2))}
# One column each: tool and options. A kernel's mbarriers are counted from its code unless their number is said.
COLUMNS_OF_TABLE=("racecheck" "racecheck --num-cuda-barriers 64" "synccheck --num-cuda-barriers 64")
read -ra SANITIZERS <<<"${COMPUTE_SANITIZER:-compute-sanitizer}"

build() {
  local program=$BUILD/$1
  if [ "$program" -nt "tests/sanitizer/$1.cu" ] && [ "$program" -nt tests/sanitizer/case.h ]; then return; fi
  nvcc -std=c++20 -O3 -lineinfo --expt-relaxed-constexpr -gencode arch=compute_90a,code=sm_90a -I . \
    -o "$program" "tests/sanitizer/$1.cu"
}

# "clean", or the counts of errors and warnings with the first kind of finding, from a tool's log.
verdict() {
  local log=$1 status=$2 text=""
  local race sync
  race=$(sed -n 's/.*RACECHECK SUMMARY: .*(\([0-9]*\) error[s]*, \([0-9]*\) warning[s]*).*/\1E \2W/p' "$log" | tail -n 1)
  sync=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1E/p' "$log" | tail -n 1)
  text=${race:-$sync}
  [ -n "$text" ] || { echo "no summary (exit $status)"; return; }
  if [ "$text" = "0E 0W" ] || [ "$text" = 0E ]; then text=clean; fi
  if grep -q 'overflow of tracked' "$log"; then text+=" overflow"; fi
  local kind
  kind=$(sed -n 's/.*[Bb]arrier error detected\. *\([A-Z][a-z ()]*\).*/\1/p' "$log" | head -n 1)
  [ -z "$kind" ] || text+=" ($kind)"
  [ "$status" -eq 0 ] || text+=" exit $status"
  echo "$text"
}

# A line "program/case <tab> column <tab> verdict".
run_one() {
  local name=$1 column=$2 sanitizer=$3 tool=$4
  local log=$LOGS/${name//\//-}.$column.log status=0
  # shellcheck disable=SC2086
  timeout -s KILL 60 "$sanitizer" --tool $tool "$BUILD/${name%/*}" "${name#*/}" >"$log" 2>&1 || status=$?
  printf '%s\t%s\t%s\n' "$name" "$column" "$(verdict "$log" "$status")"
}

mkdir -p "$BUILD" "$LOGS"
export -f build run_one verdict
export BUILD LOGS
printf '%s\n' "${PROGRAMS[@]}" | xargs -P "$JOBS" -I{} bash -euc 'build {}'

names=()
wrong=0
for program in "${PROGRAMS[@]}"; do
  while read -r one; do
    [[ $program/$one =~ ${ONLY:-.} ]] && names+=("$program/$one")
  done < <("$BUILD/$program")
done
for name in "${names[@]}"; do
  timeout -s KILL 60 "$BUILD/${name%/*}" "${name#*/}" >"$LOGS/${name//\//-}.alone.log" 2>&1 ||
    { echo "$name is wrong by itself: $(tail -n 1 "$LOGS/${name//\//-}.alone.log")" >&2; wrong=1; }
done

columns=()
work=()
for sanitizer in "${SANITIZERS[@]}"; do
  version=$("$sanitizer" --version | sed -n 's/.*ersion \([0-9.]*\).*/\1/p' | head -n 1)
  for tool in "${COLUMNS_OF_TABLE[@]}"; do
    columns+=("$tool, ${version:-$sanitizer}")
    for name in "${names[@]}"; do work+=("$name" "${#columns[@]}" "$sanitizer" "$tool"); done
  done
done
results=$(printf '%s\0' "${work[@]}" | xargs -0 -P "$JOBS" -n 4 bash -euc 'run_one "$@"' run)
printf 'GPU: %s\n' "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)"
for i in "${!columns[@]}"; do printf '[%d] %s\n' $((i + 1)) "${columns[i]}"; done
printf '%-32s' case
for i in "${!columns[@]}"; do printf ' | [%d]%-23s' $((i + 1)) ''; done
printf '\n'
for name in "${names[@]}"; do
  printf '%-32s' "$name"
  for i in "${!columns[@]}"; do
    printf ' | %-26s' "$(awk -F'\t' -v n="$name" -v c=$((i + 1)) '$1 == n && $2 == c { print $3 }' <<<"$results")"
  done
  printf '\n'
done
exit "$wrong"
