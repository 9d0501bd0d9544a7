# The two commands of a newcomer: `make tune` (the main job) and `make test`. Each installs what is missing.
PRESET ?= gemma4-31b
TUNE_ARGS ?=
HOST_PRESET ?= host-small
ATTUNE = build/release/bin/attune
CMAKE_WITH_NVRTC = . scripts/env.sh && cmake

.PHONY: test tune bundle asan tsan gpu format format-check clean

test:
	scripts/bootstrap.sh --test
	$(CMAKE_WITH_NVRTC) --workflow --preset dev

tune:
	scripts/bootstrap.sh
	cmake --preset release
	cmake --build --preset release --target attune-cli attune-compile-worker attune-measure-worker
	@. scripts/env.sh; $(ATTUNE) doctor >/dev/null 2>&1; if [ $$? -eq 3 ]; then \
	  echo "no usable GPU: the whole job on the CPU first, with the preset $(HOST_PRESET)" >&2; \
	  $(ATTUNE) tune --preset $(HOST_PRESET) --device host; fi
	. scripts/env.sh && $(ATTUNE) tune --preset $(PRESET) $(TUNE_ARGS)

asan tsan gpu:
	scripts/bootstrap.sh --test
	$(CMAKE_WITH_NVRTC) --workflow --preset $@

bundle:
	scripts/bootstrap.sh
	scripts/make_bundle.sh build/attune-bundle

format format-check:
	cmake --preset dev
	cmake --build --preset dev --target $@

clean:
	rm -rf build
