// Integers that kernels read, and the pages of paged caches: bookkeeping, on a fake device.
#include "runtime/state_buffer.h"

#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/page_pool.h"
#include "templates/params.h"
#include "tests/support/fake_device.h"

namespace attune {
namespace {

class StateBufferTest : public ::testing::Test {
 protected:
  StateBufferTest() {
    device.on_launch = [this](const Kernel&, const KernelLaunch&, const void* params) {
      StateParams p;
      std::memcpy(&p, params, sizeof(p));
      for (int i = 0; i < p.count; ++i) p.state[p.writes[i].at] = p.writes[i].value;
      counts.push_back(p.count);
    };
    auto loaded = std::make_shared<LoadedModule>();
    loaded->module = device.load(Binary{});
    writer = std::make_shared<StateWriter>(
        StateWriter{loaded, device.kernel(loaded->module, "write_state", 0)});
  }
  std::vector<int> on_device(const StateBuffer& buffer, std::size_t count) {
    std::vector<int> values(count);
    device.copy_to_host(std::as_writable_bytes(std::span(values)), buffer.ptr(), nullptr);
    return values;
  }

  FakeDevice device;
  std::shared_ptr<const StateWriter> writer;
  std::vector<int> counts;  // of writes, by launch
};

TEST_F(StateBufferTest, BeginsWithMinusOneAndWritesWhatWasSetInOneLaunch) {
  StateBuffer buffer(device, writer, 5);
  EXPECT_EQ(on_device(buffer, 5), (std::vector<int>{-1, -1, -1, -1, -1}));
  EXPECT_TRUE(buffer.is_current());
  buffer.set(1, 10);
  buffer.set(4, 40);
  buffer.set(1, 11);  // the last one counts
  EXPECT_FALSE(buffer.is_current());
  EXPECT_EQ(counts.size(), 0u);
  buffer.flush(nullptr);
  EXPECT_TRUE(buffer.is_current());
  EXPECT_EQ(counts, std::vector<int>{2});
  EXPECT_EQ(on_device(buffer, 5), (std::vector<int>{-1, 11, -1, -1, 40}));
  EXPECT_EQ(buffer.ptr(4), buffer.ptr() + 4 * sizeof(int));
  buffer.flush(nullptr);
  EXPECT_EQ(counts.size(), 1u);
}

TEST_F(StateBufferTest, AValueThatWasTakenBackIsNoChange) {
  StateBuffer buffer(device, writer, 2);
  buffer.set(0, 7);
  buffer.set(0, -1);
  EXPECT_TRUE(buffer.is_current());
  const Stream stream = device.create_stream();
  const Graph graph =
      device.capture(stream.get(), [&] { EXPECT_NO_THROW(buffer.flush(stream.get())); });
  buffer.set(0, 7);
  buffer.set(0, -1);
  buffer.set(0, 8);
  buffer.flush(nullptr);
  EXPECT_EQ(counts, std::vector<int>{1});
  EXPECT_EQ(on_device(buffer, 2), (std::vector<int>{8, -1}));
}

TEST_F(StateBufferTest, ManyWritesTakeAsManyLaunchesAsTheyNeed) {
  constexpr int kCount = 2 * kMaxStateWrites + 3;
  StateBuffer buffer(device, writer, kCount);
  for (int i = 0; i < kCount; ++i) buffer.set(static_cast<std::size_t>(i), 3 * i);
  buffer.flush(nullptr);
  EXPECT_EQ(counts, (std::vector<int>{kMaxStateWrites, kMaxStateWrites, 3}));
  std::vector<int> expected(kCount);
  for (int i = 0; i < kCount; ++i) expected[static_cast<std::size_t>(i)] = 3 * i;
  EXPECT_EQ(on_device(buffer, kCount), expected);
  for (int i = 0; i < kMaxStateWrites; ++i) buffer.set(static_cast<std::size_t>(i), -5);
  buffer.flush(nullptr);
  EXPECT_EQ(counts.back(), kMaxStateWrites);
  EXPECT_EQ(counts.size(), 4u);
}

TEST_F(StateBufferTest, RefusesToRecordAChangeAndKeepsIt) {
  StateBuffer buffer(device, writer, 1);
  const Stream stream = device.create_stream();
  buffer.set(0, 9);
  const Graph graph = device.capture(
      stream.get(), [&] { EXPECT_THROW(buffer.flush(stream.get()), InvalidArgument); });
  EXPECT_EQ(counts.size(), 0u);
  buffer.flush(stream.get());
  EXPECT_EQ(on_device(buffer, 1), std::vector<int>{9});
}

TEST_F(StateBufferTest, WhatAFailedLaunchLeftOutIsWrittenByTheNextFlush) {
  constexpr int kCount = kMaxStateWrites + 2;
  StateBuffer buffer(device, writer, kCount);
  for (int i = 0; i < kCount; ++i) buffer.set(static_cast<std::size_t>(i), i);
  const auto works = device.on_launch;
  int num_launches = 0;
  device.on_launch = [&](const Kernel& kernel, const KernelLaunch& shape, const void* params) {
    if (++num_launches == 2) throw CudaError("cannot launch", 1, "CUDA_ERROR", "");
    works(kernel, shape, params);
  };
  EXPECT_THROW(buffer.flush(nullptr), CudaError);
  EXPECT_FALSE(buffer.is_current());
  buffer.flush(nullptr);
  EXPECT_TRUE(buffer.is_current());
  EXPECT_EQ(counts, (std::vector<int>{kMaxStateWrites, 2}));
  std::vector<int> expected(kCount);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(on_device(buffer, kCount), expected);
}

TEST_F(StateBufferTest, WhatIsForgottenIsNotWritten) {
  StateBuffer buffer(device, writer, 2);
  buffer.set(0, 3);
  buffer.set(1, 4);
  buffer.forget(0);
  buffer.flush(nullptr);
  buffer.forget(1);  // was written
  EXPECT_TRUE(buffer.is_current());
  EXPECT_EQ(on_device(buffer, 2), (std::vector<int>{-1, 4}));
}

TEST(PagePool, GivesEachPageOnceAndLowOnesFirst) {
  PagePool pool(4);
  std::vector<int> a, b;
  pool.grow(&a, 2);
  pool.grow(&b, 1);
  EXPECT_EQ(a, (std::vector<int>{0, 1}));
  EXPECT_EQ(b, (std::vector<int>{2}));
  pool.grow(&a, 2);
  pool.grow(&a, 1);
  EXPECT_EQ(a.size(), 2u);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(PagePool, RunsOutWithNumbersAndWithoutLosingAPage) {
  PagePool pool(3);
  std::vector<int> a, b;
  pool.grow(&a, 2);
  try {
    pool.grow(&b, 2);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("needed=2 free=1 held=0"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(b.size(), 0u);
  EXPECT_EQ(pool.num_free(), 1);
  pool.shrink(&a, 1);
  pool.grow(&b, 2);
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(PagePool, NoPageIsHeldTwiceOrLostInAnyOrder) {
  constexpr int kPages = 23;
  PagePool pool(kPages);
  std::vector<std::vector<int>> held(5);
  std::mt19937 random(3);
  for (int act = 0; act < 5000; ++act) {
    std::vector<int>& pages = held[random() % held.size()];
    const int count = static_cast<int>(random() % 10);
    const int missing = count - static_cast<int>(pages.size());
    if (missing <= 0) {
      pool.shrink(&pages, count);
    } else if (missing <= pool.num_free()) {
      pool.grow(&pages, count);
    } else {
      EXPECT_THROW(pool.grow(&pages, count), InvalidArgument);
    }
    std::set<int> all;
    std::size_t num_held = 0;
    for (const auto& one : held) {
      all.insert(one.begin(), one.end());
      num_held += one.size();
    }
    ASSERT_EQ(all.size(), num_held);
    ASSERT_EQ(num_held + static_cast<std::size_t>(pool.num_free()), std::size_t{kPages});
    ASSERT_TRUE(all.empty() || (*all.begin() >= 0 && *all.rbegin() < kPages));
  }
}

}  // namespace
}  // namespace attune
