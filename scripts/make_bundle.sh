#!/usr/bin/env bash
# Makes a relocatable folder for machines without a compiler, and OUT_DIR.tar.gz of it to copy there:
# scripts/make_bundle.sh OUT_DIR [LABEL...]
# It carries the tests of the labels (nvrtc, host and gpu by default; cpu is the fourth).
# It needs glibc of this machine or later, a driver for kernels and libnvrtc for compiling; see docs/bundle.md.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: $0 OUT_DIR [cpu|nvrtc|host|gpu]..." >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
labels=("$@")
[ $# -gt 0 ] || labels=(nvrtc host gpu)
for label in "${labels[@]}"; do
  [[ $label =~ ^(cpu|nvrtc|host|gpu)$ ]] || { echo "$0: unknown label: '$label'; use cpu, nvrtc, host or gpu" >&2; exit 2; }
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."

MAX_BYTES=$((64 << 20))
ALLOWED_LIBRARIES='^(libattune\.so|libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux-.*\.so\.[0-9]+)$'

fail() {
  printf 'make_bundle: %s\n' "$*" >&2
  exit 1
}

# Fails when a program of the bundle needs a library that a bare machine may lack.
check_libraries() {
  local file library
  while IFS= read -r -d '' file; do
    readelf -h "$file" >/dev/null 2>&1 || continue
    while read -r library; do
      [[ $library =~ $ALLOWED_LIBRARIES ]] ||
        fail "a program is not self-contained: file=${file#"$out"/} needs=$library; link it statically"
    done < <(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  done < <(find "$out/bin" "$out/lib" "$out/tests" "$out/examples" "$out/bench" -type f -print0)
}

if [ -n "$(ls -A "$out")" ] && [ ! -e "$out/run_tests.sh" ]; then
  fail "the folder holds something else: out=$out; name an empty folder or an earlier bundle"
fi
rm -rf "${out:?}"/*

cmake --preset bundle
cmake --build --preset bundle
cmake --install build/bundle --prefix "$out" --strip >/dev/null
cmake --install build/bundle --prefix "$out" --strip --component tests >/dev/null
for label in cpu nvrtc host gpu; do
  [[ " ${labels[*]} " == *" $label "* ]] || rm -rf "$out/tests/$label"
done
cp scripts/run_tests.sh scripts/sanitize.sh docs/bundle.md "$out"

check_libraries
archive=$out.tar.gz
tar -C "$(dirname "$out")" -czf "$archive" "$(basename "$out")"
bytes=$(stat -c %s "$archive")
[ "$bytes" -lt "$MAX_BYTES" ] || fail "the archive is too large: file=$archive bytes=$bytes limit=$MAX_BYTES"
# readelf complains of the files that are no programs.
glibc=$({ find "$out/bin" "$out/lib" "$out/tests" -type f -exec readelf -V {} + 2>/dev/null || true; } |
  grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1)
printf 'bundle: %s, %d programs of tests, %d MiB in %s, needs %s\n' "$out" \
  "$(find "$out"/tests/*/ -maxdepth 1 -type f -executable | wc -l)" $((bytes >> 20)) "$archive" "$glibc"
