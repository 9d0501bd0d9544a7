// Bulk copies of boxes of a tensor map.
#ifdef ATTUNE_CONFORMANCE_SM90

namespace attune {

// args: 0 rank, 1 offset of the box in shared memory, 2 its bytes, 3 words to show, 4..
// coordinates.
__device__ __forceinline__ void load_box(const ConformanceParams& p, uint32 smem, uint32 barrier) {
  const int* const at = p.args + 4;
  const void* const map = &p.map;
  switch (p.args[0]) {
    case 1:
      cp_async_bulk_tensor_load(smem, map, {at[0]}, barrier);
      break;
    case 2:
      cp_async_bulk_tensor_load(smem, map, {at[0], at[1]}, barrier);
      break;
    case 3:
      cp_async_bulk_tensor_load(smem, map, {at[0], at[1], at[2]}, barrier);
      break;
    case 4:
      cp_async_bulk_tensor_load(smem, map, {at[0], at[1], at[2], at[3]}, barrier);
      break;
    default:
      cp_async_bulk_tensor_load(smem, map, {at[0], at[1], at[2], at[3], at[4]}, barrier);
  }
}

__device__ __forceinline__ void store_box(const ConformanceParams& p, uint32 smem) {
  const int* const at = p.args + 4;
  const void* const map = &p.map;
  switch (p.args[0]) {
    case 1:
      cp_async_bulk_tensor_store(map, {at[0]}, smem);
      break;
    case 2:
      cp_async_bulk_tensor_store(map, {at[0], at[1]}, smem);
      break;
    case 3:
      cp_async_bulk_tensor_store(map, {at[0], at[1], at[2]}, smem);
      break;
    case 4:
      cp_async_bulk_tensor_store(map, {at[0], at[1], at[2], at[3]}, smem);
      break;
    default:
      cp_async_bulk_tensor_store(map, {at[0], at[1], at[2], at[3], at[4]}, smem);
  }
}

// 128 threads. in is the tensor, out the shared memory around the box.
__device__ __forceinline__ void tensor_load(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32 barrier = smem_address(smem);
  uint32* const words = reinterpret_cast<uint32*>(smem) + 256;
  fill_smem(words, p.args[3]);
  if (threadIdx.x == 0) {
    prefetch_tensormap(&p.map);
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier, static_cast<uint32>(p.args[2]));
    load_box(p, barrier + 1024 + static_cast<uint32>(p.args[1]), barrier);
  }
  mbarrier_wait_parity(barrier, 0);
  copy_words(p.out, words, p.args[3]);
}

// 128 threads. in is the box, out the tensor.
__device__ __forceinline__ void tensor_store(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  copy_words(reinterpret_cast<uint32*>(smem + p.args[1]), p.in, p.args[2] / 4);
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  store_box(p, smem_address(smem) + static_cast<uint32>(p.args[1]));
  cp_async_bulk_commit_group();
  cp_async_bulk_wait_group<0>();
}

}  // namespace attune

ATTUNE_CONFORMANCE_KERNEL(tensor_load, 128)
ATTUNE_CONFORMANCE_KERNEL(tensor_store, 128)

#endif  // ATTUNE_CONFORMANCE_SM90
