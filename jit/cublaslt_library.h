// libcublasLt, found and opened at run time: our own declarations, no cublasLt.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "jit/device.h"

namespace attune {

using CublasStatus = int;      // cublasStatus_t; 0 is success
using CublasLtHandle = void*;  // cublasLtHandle_t
using CublasLtObject =
    void*;  // cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t

// Values of the ABI, under the names of cublasLt.h, cublas_api.h and library_types.h.
constexpr int kCublasCompute32F = 68;             // CUBLAS_COMPUTE_32F
constexpr int kCudaReal32F = 0;                   // CUDA_R_32F
constexpr int kCudaRealBf16 = 14;                 // CUDA_R_16BF
constexpr std::int32_t kCublasTranspose = 1;      // CUBLAS_OP_T
constexpr CublasStatus kCublasInvalidValue = 7;   // CUBLAS_STATUS_INVALID_VALUE
constexpr CublasStatus kCublasNotSupported = 15;  // CUBLAS_STATUS_NOT_SUPPORTED
constexpr int kCublasLtTransA = 3;                // CUBLASLT_MATMUL_DESC_TRANSA
constexpr int kCublasLtColumns = 3;               // CUBLASLT_MATRIX_LAYOUT_COLS, uint64
constexpr int kCublasLtMaxWorkspace = 1;   // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64
constexpr int kCublasLtReductionMask = 3;  // CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32
constexpr int kCublasLtMinAlignmentA =
    5;  // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32; B, C
        // and D follow
// CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: parts of a sum go through the workspace in fp32 and are added
// by a kernel of their own. None is always admitted.
constexpr std::uint32_t kCublasLtReduceInWorkspace = 2;

struct CublasLtAlgorithm {  // cublasLtMatmulAlgo_t
  std::uint64_t data[8];
};

struct CublasLtChoice {  // cublasLtMatmulHeuristicResult_t
  CublasLtAlgorithm algorithm;
  std::size_t workspace_bytes;
  CublasStatus status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(CublasLtChoice) == 96);

// The opened library; it is never unloaded.
struct CublasLtLibrary {
  std::string path;
  std::string version;  // "13.1.0"

  std::size_t (*get_version)();
  const char* (*get_status_name)(CublasStatus status);
  CublasStatus (*create)(CublasLtHandle* handle);
  CublasStatus (*destroy)(CublasLtHandle handle);
  CublasStatus (*desc_create)(CublasLtObject* desc, int compute_type, int scale_type);
  CublasStatus (*desc_destroy)(CublasLtObject desc);
  CublasStatus (*desc_set)(CublasLtObject desc, int attribute, const void* value,
                           std::size_t bytes);
  CublasStatus (*layout_create)(CublasLtObject* layout, int type, std::uint64_t rows,
                                std::uint64_t columns, std::int64_t leading_dimension);
  CublasStatus (*layout_destroy)(CublasLtObject layout);
  CublasStatus (*layout_set)(CublasLtObject layout, int attribute, const void* value,
                             std::size_t bytes);
  CublasStatus (*preference_create)(CublasLtObject* preference);
  CublasStatus (*preference_destroy)(CublasLtObject preference);
  CublasStatus (*preference_set)(CublasLtObject preference, int attribute, const void* value,
                                 std::size_t bytes);
  CublasStatus (*choose)(CublasLtHandle handle, CublasLtObject desc, CublasLtObject a,
                         CublasLtObject b, CublasLtObject c, CublasLtObject d,
                         CublasLtObject preference, int most, CublasLtChoice* choices, int* count);
  CublasStatus (*matmul)(CublasLtHandle handle, CublasLtObject desc, const void* alpha,
                         const void* a, CublasLtObject a_layout, const void* b,
                         CublasLtObject b_layout, const void* beta, const void* c,
                         CublasLtObject c_layout, void* d, CublasLtObject d_layout,
                         const CublasLtAlgorithm* algorithm, void* workspace,
                         std::size_t workspace_bytes, void* stream);
};

// Throws DeviceUnavailable that lists every place looked at and what to install.
CublasLtLibrary open_cublaslt(const GemmSearch& search);

}  // namespace attune
