// What the fake libcublasLt tells tests, beside the entry points of the real one.
#pragma once

namespace attune {

struct FakeCublasLtState {
  int choices = 0;   // calls of cublasLtMatmulAlgoGetHeuristic
  int products = 0;  // calls of cublasLtMatmul
  int objects = 0;   // descriptors and handles that are alive
  int made = 0;      // so far
  // What it does wrong on purpose.
  bool refuses_to_start = false;
  bool has_no_algorithm = false;
  bool has_no_algorithm_for_few = false;  // rows of W, up to 64
  bool wants_exact_algorithms = false;    // one chosen for as many tokens as it is given
  int status_of_products = 0;
};
// Symbol: "fake_cublaslt_state".
using FakeCublasLtStateFunction = FakeCublasLtState*();

}  // namespace attune
