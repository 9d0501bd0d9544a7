# Sourced from the repository root: points attune at the NVRTC that scripts/bootstrap.sh put into .deps/.
# A setting of the user's own comes first.
if [ -z "${ATTUNE_NVRTC:-}" ]; then
  for library in "$PWD"/.deps/nvrtc/nvidia/*/lib/libnvrtc.so.13; do
    if [ -e "$library" ]; then
      ATTUNE_NVRTC=${library%/*}
      export ATTUNE_NVRTC
    fi
  done
  unset library
fi
