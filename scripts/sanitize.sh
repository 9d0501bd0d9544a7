#!/usr/bin/env bash
# Runs memcheck, racecheck and synccheck of compute-sanitizer over a sample of every attention family's candidates, over
# the prologue kernels and over a model's other kernels: sanitize.sh [TOOL...]. In a bundle its tests/gpu/ are run, else those of build/gpu/bin.
# It runs tuner_gpu_test, jit_gpu_test and bin/attune-compile-worker, of a bundle no more than these.
# Environment:
#   COMPUTE_SANITIZER  the program (default: the one of PATH or of the CUDA toolkit); 13.2 or later is advised
#   PROGRAMS           folder of tuner_gpu_test and jit_gpu_test
#   JOBS               runs at a time (default: a quarter of the cores)
#   TIMEOUT_S          limit of a run (default: 600)
#   LOGS               folder for the tools' whole output (default: a temporary one, kept after a failure)
#   ONLY               extended regular expression of a test's name
# Prints a line per tool and test. Exit code 0 only when every test passed and nothing was found but the limits of the
# tools that are listed below; 1 otherwise, 2 usage.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$PATH:/usr/local/cuda/bin

# What a tool may report although the kernel is right, one a line: tool;family;finding;reason. The family is a pattern as
# in file names. The finding is an extended regular expression for a report whose lines stand in one, separated by blanks,
# and has to name every access of it, so that a race with something else is not taken for it. docs/sanitizers.md has the
# evidence.
ACCESS='(Read|Write) access at'
SUFFIX='( \[[0-9]+ hazards?\])?'
# What one warpgroup of wgmma hands to the other: row factors, and at the end sums and magnitudes.
HANDED="$ACCESS [^+]*::(publish|run|finish|write|publish_magnitudes)\([^+]*\+0x[0-9a-f]+ in wgmma(_cta)?\.cuh:[0-9]+$SUFFIX"
# A pass's partial sums: a warp has written its own when one lane of it arrives, and all add them up behind that.
ADDED="$ACCESS attune::Linear<[^+]*::(publish|add_up)\([^+]*\+0x[0-9a-f]+ in linear\.cuh:[0-9]+$SUFFIX"
LANE0="one arrival a warp, handoff/*-lane0"
KNOWN_LIMITS=(
  "racecheck;wgmma;^Error: Race reported between $HANDED( and $HANDED)+\$;$LANE0"
  "racecheck;linear;^Error: Race reported between $ADDED( and $ADDED)+\$;$LANE0"
  "racecheck;linear;^Warning: Maximum number;what is reported of the partial sums fills it"
  "racecheck;experts;^Error: Race reported between $ADDED( and $ADDED)+\$;$LANE0"
)

# Tests whose kernels compute wrong rows, with no report, when memcheck instruments wgmma; all other checks are made.
SPOILED_BY_WGMMA_CHECKS='^prefill/.*/d256/'

# An mbarrier that is initialized in a loop is counted once by the tools; beyond their count they know nothing.
BARRIERS=(--num-cuda-barriers 256)

if [ -x "$here/tests/gpu/tuner_gpu_test" ]; then
  PROGRAMS=${PROGRAMS:-$here/tests/gpu}
  export ATTUNE_WORKER="${ATTUNE_WORKER:-$here/bin/attune-compile-worker}"
else
  cd "$here/.."
  PROGRAMS=${PROGRAMS:-build/gpu/bin}
  # shellcheck source=scripts/env.sh
  . scripts/env.sh
fi
tools=("$@")
[ $# -gt 0 ] || tools=(memcheck racecheck synccheck)
for tool in "${tools[@]}"; do
  [[ $tool =~ ^(memcheck|racecheck|synccheck)$ ]] ||
    { echo "$0: unknown tool: '$tool'; use memcheck, racecheck or synccheck" >&2; exit 2; }
done
COMPUTE_SANITIZER=${COMPUTE_SANITIZER:-compute-sanitizer}
for program in "$COMPUTE_SANITIZER" "$PROGRAMS/tuner_gpu_test" "$PROGRAMS/jit_gpu_test" ${ATTUNE_WORKER:+"$ATTUNE_WORKER"}; do
  command -v "$program" >/dev/null || { echo "$0: no such program: $program" >&2; exit 2; }
done
JOBS=${JOBS:-$((($(nproc) + 3) / 4))}
TIMEOUT_S=${TIMEOUT_S:-600}
keep_logs=${LOGS:+yes}
LOGS=${LOGS:-$(mktemp -d)}
mkdir -p "$LOGS"
export ATTUNE_REQUIRE_GPU=1

# Lines "<finding> <tab> <family>" of a log: each report on one line, and the kernel in it up to the first "_". A report
# that names only what was inlined has the family of the first file that is of one alone, or "?". What the tool says of
# its own limits has the family of the report in front of it, or "tool".
reports() {
  awk '
    function flush() {
      if (family == "") family = of_file
      if (finding != "") { last = family == "" ? "?" : family; print finding "\t" last }
      finding = family = of_file = ""
    }
    { is_of_tool = sub(/^========= */, ""); gsub(/\t/, " "); sub(/ +$/, "") }
    /^(Error|Warning): |^Barrier error detected|^Warpgroup MMA sequence error|^Invalid |^Potential invalid |^Program hit / {
      if ($0 !~ /^Warning: (Detected overflow|Maximum number)/) { flush(); finding = $0; is_first = 1 }
      else { flush(); print $0 "\t" (last == "" ? "tool" : last) }
    }
    $0 == "" || !is_of_tool { flush() }
    finding != "" {
      if (!is_first) finding = finding " " $0
      is_first = 0
      if (family == "" && match($0, /at [A-Za-z_][A-Za-z_0-9]*\+0x/)) {
        family = substr($0, RSTART + 3); sub(/_.*|\+.*/, "", family)
      }
      if (of_file == "" && match($0, / in (wgmma|wgrows|swapab|stream_|splitkv|tiled|slices|combine|prologue|linear|residual|argmax|quantize|per_layer|route|expert)[a-z_]*\.cuh:/)) {
        of_file = substr($0, RSTART + 4); sub(/^stream_/, "swapab_", of_file); sub(/[_.].*/, "", of_file)
      }
    }
    END { flush() }' "$1"
}

# The reason of a known limit, or nothing.
known_reason() {
  local tool=$1 family=$2 finding=$3 known
  for known in "${KNOWN_LIMITS[@]}"; do
    IFS=';' read -r known_tool known_family known_finding reason <<<"$known"
    # shellcheck disable=SC2053  # the family is a pattern
    if [ "$known_tool" = "$tool" ] && [[ $family == $known_family && $finding =~ $known_finding ]]; then
      echo "$reason"
      return
    fi
  done
}

run_one() {
  local tool=$1 program=$2 filter=$3 name=$4
  local log=$LOGS/$tool-${name//\//_}.log status=0 options=()
  [ "$tool" = memcheck ] || options=("${BARRIERS[@]}")
  if [ "$tool" = memcheck ] && [[ $name =~ $SPOILED_BY_WGMMA_CHECKS ]]; then options=(--check-warpgroup-mma no); fi
  timeout -s KILL "$TIMEOUT_S" "$COMPUTE_SANITIZER" --tool "$tool" "${options[@]}" --print-limit 0 \
    --target-processes application-only --show-backtrace no "$program" --gtest_filter="$filter" >"$log" 2>&1 || status=$?
  local counted known=0 unknown=0 first_unknown="" finding family reason notes=()
  counted=$(sed -n 's/^=* *\(RACECHECK\|ERROR\) SUMMARY: \(.*\)/\2/p' "$log" | tail -n 1)
  while IFS=$'\t' read -r finding family; do
    reason=$(known_reason "$tool" "$family" "$finding")
    if [ -n "$reason" ]; then
      known=$((known + 1))
      notes+=("$family: $reason")
    else
      unknown=$((unknown + 1))
      first_unknown=${first_unknown:-"$family: ${finding:0:200}"}
    fi
  done < <(reports "$log")
  local verdict=clean
  if [ -z "$counted" ]; then
    verdict="FAILED, the tool gave no summary"
  elif [ "$unknown" -gt 0 ]; then
    verdict="FAILED, $unknown reports, first: $first_unknown"
  elif [ "$known" -gt 0 ] && [ "$tool" = synccheck ]; then
    verdict="only known limits of the tool, $known reports, after which it ends the test"
  elif [ "$status" -ne 0 ]; then
    verdict="FAILED, exit status $status"
  elif ! grep -q '^\[  PASSED  \] [1-9]' "$log"; then
    verdict="FAILED, no test passed"
  elif [ "$known" -gt 0 ]; then
    verdict="only known limits of the tool, $known reports"
  elif ! [[ $counted =~ ^0\  ]]; then
    verdict="FAILED, reports that were not understood"
  fi
  printf '%-9s %-58s %s [%s]\n' "$tool" "$name" "$verdict" "${counted:-exit status $status}"
  [ ${#notes[@]} -eq 0 ] || printf '%s\n' "${notes[@]}" | sort -u | sed 's/^/          /'
  [[ $verdict != FAILED* ]]
}

# "<filter> <tab> <name>" of the sample.
samples() {
  "$PROGRAMS/tuner_gpu_test" --gtest_list_tests --gtest_filter='Problems/SampleOfCandidates.*' |
    sed -n 's|^  \(Runs/[0-9]*\) .*"\(.*\)".*|Problems/SampleOfCandidates.\1\t\2|p'
}

work=()
add() {
  [[ $3 =~ ${ONLY:-.} ]] || return 0
  for tool in "${tools[@]}"; do work+=("$tool" "$PROGRAMS/$1" "$2" "$3"); done
}
while IFS=$'\t' read -r filter name; do add tuner_gpu_test "$filter" "$name"; done < <(samples)
add jit_gpu_test '*PrologueKernels*Reference*:PrologueGpuTest.State*' prologue
# A run each: what racecheck reports of linear layers reaches its maximum in one test, and nothing is seen behind that. With
# 'HostDevice' the tool would follow that device's compiler.
while read -r test _; do
  add jit_gpu_test "ModelGpuTest.$test" "model/$test"
done < <("$PROGRAMS/jit_gpu_test" --gtest_list_tests --gtest_filter='ModelGpuTest.*-*HostDevice*' | sed -n 's/^  //p')
[ ${#work[@]} -gt 0 ] || { echo "$0: no test was found" >&2; exit 2; }
"$COMPUTE_SANITIZER" --version | grep -i '^version'

running=0
failed=0
for ((i = 0; i < ${#work[@]}; i += 4)); do
  if [ "$running" -ge "$JOBS" ]; then
    wait -n || failed=$((failed + 1))
    running=$((running - 1))
  fi
  run_one "${work[@]:i:4}" &
  running=$((running + 1))
done
for ((; running > 0; --running)); do wait -n || failed=$((failed + 1)); done

printf '%d runs, %d failed' $((${#work[@]} / 4)) "$failed"
if [ "$failed" -gt 0 ]; then
  printf '; logs in %s\n' "$LOGS"
  exit 1
fi
[ -n "$keep_logs" ] || rm -rf "$LOGS"
printf '; %d limits of the tools are known (docs/sanitizers.md)\n' "${#KNOWN_LIMITS[@]}"
