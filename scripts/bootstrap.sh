#!/usr/bin/env bash
# Installs what a build needs and this machine lacks: Debian packages, and NVRTC where there is no CUDA toolkit.
# With --test also what only tests need: a browser.
# Does nothing on a machine that has it all. NVRTC goes to .deps/ in the repository, nothing else outside of apt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PACKAGES=(g++ cmake ninja-build libsqlitecpp-dev libsqlite3-dev libyaml-cpp-dev libzstd-dev libxxhash-dev
          libboost-context-dev libsentencepiece-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libgtest-dev python3)
TEST_PACKAGES=(chromium)  # opens the page of attune report
NVRTC_PACKAGE=nvidia-cuda-nvrtc==13.0.88
NVRTC_FOLDER=.deps/nvrtc

fail() {
  printf 'bootstrap: %s\n' "$*" >&2
  exit 1
}

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Installs the named Debian packages that are missing.
install_packages() {
  local missing=() package as_root=()
  command -v dpkg-query >/dev/null ||
    fail "this is not a Debian system: package=dpkg; install the equivalents of: ${PACKAGES[*]}"
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "cannot install packages: user=$(id -un) sudo=missing; as root run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  printf 'bootstrap: installing %s\n' "${missing[*]}"
  "${as_root[@]}" apt-get update -q ||
    fail "apt-get update failed; check the network and /etc/apt/sources.list"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
    "${missing[@]}" || fail "apt-get failed: packages=${missing[*]}; install them by hand"
}

# Whether NVRTC 13 is where attune looks for it by itself, or one was named by the user. Older ones do not know
# every architecture that the tests compile for.
has_nvrtc() {
  [ -n "${ATTUNE_NVRTC:-}" ] && return 0
  local ldconfig
  ldconfig=$(PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null || true)
  [[ $ldconfig == *libnvrtc.so.13* ]] && return 0
  compgen -G '/usr/local/cuda*/lib64/libnvrtc.so.13' >/dev/null && return 0
  compgen -G "$NVRTC_FOLDER/nvidia/*/lib/libnvrtc.so.13" >/dev/null
}

install_nvrtc() {
  python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
  printf 'bootstrap: no CUDA 13 toolkit here, taking %s from PyPI into %s\n' "$NVRTC_PACKAGE" "$NVRTC_FOLDER"
  rm -rf "$NVRTC_FOLDER.partial"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-cache-dir --no-deps \
    --only-binary=:all: --target "$NVRTC_FOLDER.partial" "$NVRTC_PACKAGE" ||
    fail "cannot get NVRTC: package=$NVRTC_PACKAGE; check the network, or set ATTUNE_NVRTC to the folder of libnvrtc"
  rm -rf "$NVRTC_FOLDER"
  mv "$NVRTC_FOLDER.partial" "$NVRTC_FOLDER"
}

case "$*" in
  '') ;;
  --test) PACKAGES+=("${TEST_PACKAGES[@]}") ;;
  *) fail "unknown arguments: '$*'; use --test or none" ;;
esac
install_packages "${PACKAGES[@]}"
has_nvrtc || install_nvrtc
