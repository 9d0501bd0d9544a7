#!/usr/bin/env bash
# Runs the tests of a bundle without ctest: run_tests.sh [LABEL...], labels cpu, nvrtc, host and gpu; all by default.
# Ends with one line "N passed, N failed, N skipped"; the exit code is 0 only when nothing failed.
# Without a GPU the gpu tests skip; with ATTUNE_REQUIRE_GPU=1 they fail.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
labels=("$@")
[ $# -gt 0 ] || labels=(cpu nvrtc host gpu)
export ATTUNE_WORKER="${ATTUNE_WORKER:-$here/bin/attune-compile-worker}"
export ATTUNE_MEASURE_WORKER="${ATTUNE_MEASURE_WORKER:-$here/bin/attune-measure-worker}"
export ATTUNE_TUNE_WORKER="${ATTUNE_TUNE_WORKER:-$here/bin/attune-tune-worker}"
export ATTUNE_PRESETS="${ATTUNE_PRESETS:-$here/share/attune/presets}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

# The number in a line such as "[  PASSED  ] 12 tests." of the log.
count() {
  local number
  number=$(sed -n "s/^\[  $1 \] \([0-9]*\) tests\{0,1\}[.,].*/\1/p" "$work/log" | tail -n 1)
  echo "${number:-0}"
}

run_program() {
  local program=$1 status=0 name bad
  name=$(basename "$(dirname "$program")")/$(basename "$program")
  mkdir -p "$work/cwd"
  (cd "$work/cwd" && "$program") >"$work/log" 2>&1 || status=$?
  bad=$(count 'FAILED ')
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi  # it died
  passed=$((passed + $(count 'PASSED ')))
  skipped=$((skipped + $(count 'SKIPPED')))
  failed=$((failed + bad))
  printf '%-40s %s passed, %s failed, %s skipped\n' "$name" "$(count 'PASSED ')" "$bad" "$(count 'SKIPPED')"
  if [ "$bad" -ne 0 ]; then
    printf 'exit status %s, last lines:\n' "$status"
    grep -v '^\[ RUN  \|^\[       OK' "$work/log" | tail -n 60
  fi
}

for label in "${labels[@]}"; do
  for program in "$here/tests/$label"/*; do
    [ -x "$program" ] && run_program "$program"
  done
done
[ $((passed + failed + skipped)) -gt 0 ] || { echo "no test was found: labels=${labels[*]}" >&2; exit 2; }
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
