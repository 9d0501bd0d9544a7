// Clusters: ranks, shared memory of other CTAs, their barriers, multicast. args[0] is the cluster
// size.
#ifdef ATTUNE_CONFORMANCE_SM90

namespace attune {

__device__ __forceinline__ void cluster_sync() {
  barrier_cluster_arrive();
  barrier_cluster_wait();
}

// 64 threads. Every CTA reads its right neighbour's words and writes to its left neighbour's. in
// [CTAs, 64], out [CTAs, rank | read 64 | read 64 (v4) | written 64 | written 64 (v4)], 320 words.
__device__ __forceinline__ void cluster_memory(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  uint32* const words = reinterpret_cast<uint32*>(smem);  // own 64 | written 64 | written 64
  const uint32 thread = threadIdx.x;
  const uint32 size = static_cast<uint32>(p.args[0]);
  const uint32 rank = cluster_ctarank();
  const uint32 right = mapa(smem_address(smem), (rank + 1) % size);
  const uint32 left = mapa(smem_address(smem), (rank + size - 1) % size);
  uint32* const out = p.out + blockIdx.x * 320;
  words[thread] = p.in[blockIdx.x * 64 + thread];
  cluster_sync();
  if (thread == 0) out[0] = rank;
  out[64 + thread] = ld_shared_cluster(right + 4 * (63 - thread));
  st_shared_cluster(left + 256 + 4 * thread, words[thread] ^ rank);
  if (thread < 16) {
    uint32 value[4];
    ld_shared_cluster_v4(value, right + 16 * (15 - thread));
    for (uint32 i = 0; i < 4; ++i) out[128 + 4 * thread + i] = value[i];
    for (uint32 i = 0; i < 4; ++i) value[i] = value[i] + rank;
    st_shared_cluster_v4(left + 512 + 16 * thread, value);
  }
  cluster_sync();
  out[192 + thread] = words[64 + thread];
  out[256 + thread] = words[128 + thread];
}

// 32 threads. Every lane arrives args[1] times at the barrier of every CTA of the cluster, its own
// included. out [CTAs, 32], what each lane saw: bit 0 and 1 test_wait before (0) and after (1) at
// parity 0, bit 2 at parity 1 after.
__device__ __forceinline__ void cluster_arrive(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32 barrier = smem_address(smem);
  const uint32 size = static_cast<uint32>(p.args[0]);
  const uint32 count = static_cast<uint32>(p.args[1]);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 32 * count * size);
    fence_mbarrier_init();
  }
  cluster_sync();
  const uint32 before = mbarrier_test_wait_parity(barrier, 0) ? 1u : 0u;
  cluster_sync();
  for (uint32 rank = 0; rank < size; ++rank) {
    mbarrier_arrive_cluster(mapa(barrier, rank), count);
  }
  mbarrier_wait_parity(barrier, 0);
  const uint32 after = mbarrier_test_wait_parity(barrier, 0) ? 2u : 0u;
  const uint32 next = mbarrier_test_wait_parity(barrier, 1) ? 4u : 0u;
  p.out[blockIdx.x * 32 + threadIdx.x] = before | after | next;
  cluster_sync();
}

// 64 threads. CTA r loads the box at coordinates (args[4 + 2r], args[5 + 2r]) into slot r of every
// CTA in the mask args[3] >> 4r. args: 1 bytes of a box, 2 words to show.
// in is the tensor, out [CTAs, words to show].
__device__ __forceinline__ void cluster_multicast(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32 barrier = smem_address(smem);
  uint32* const words = reinterpret_cast<uint32*>(smem) + 256;
  const uint32 size = static_cast<uint32>(p.args[0]);
  const uint32 box_bytes = static_cast<uint32>(p.args[1]);
  const uint32 masks = static_cast<uint32>(p.args[3]);
  const uint32 rank = cluster_ctarank();
  fill_smem(words, p.args[2]);
  if (threadIdx.x == 0) {
    uint32 bytes = 0;
    for (uint32 from = 0; from < size; ++from) {
      if ((masks >> (4 * from + rank) & 1) != 0) bytes += box_bytes;
    }
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(barrier, bytes);
  }
  fence_proxy_async();
  cluster_sync();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_load_multicast(barrier + 1024 + rank * box_bytes, &p.map,
                                        {p.args[4 + 2 * rank], p.args[5 + 2 * rank]}, barrier,
                                        static_cast<uint16>(masks >> (4 * rank) & 15));
  }
  mbarrier_wait_parity(barrier, 0);
  copy_words(p.out + static_cast<int>(blockIdx.x) * p.args[2], words, p.args[2]);
  cluster_sync();
}

}  // namespace attune

ATTUNE_CONFORMANCE_KERNEL(cluster_memory, 64)
ATTUNE_CONFORMANCE_KERNEL(cluster_arrive, 32)
ATTUNE_CONFORMANCE_KERNEL(cluster_multicast, 64)

#endif  // ATTUNE_CONFORMANCE_SM90
