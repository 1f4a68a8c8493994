#include "rubato/daemon/memory_reserve.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace rubato::daemon {
namespace {

// g++ has macros for it, clang features.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

constexpr std::size_t kMiB = std::size_t{1} << 20U;

void limit_address_space(rlim_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = bytes;
  if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(70);
}

std::size_t used_address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// In a process of its own: what is left behind is little memory.
class MemoryReserveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer has its own memory";
  }
};

TEST_F(MemoryReserveTest, AnAllocationThatFailsGetsTheReserveAndItCanBeHadAgain) {
  EXPECT_EXIT(
      {
        MemoryReserve reserve(32 * kMiB);
        limit_address_space(used_address_space());
        std::vector<std::unique_ptr<char[]>> held;  // NOLINT(*-avoid-c-arrays)
        for (int i = 0; i < 1000 && reserve.there(); ++i)
          held.push_back(std::make_unique<char[]>(kMiB));  // NOLINT(*-avoid-c-arrays)
        if (reserve.there()) _exit(71);
        limit_address_space(RLIM_INFINITY);
        _exit(reserve.there() ? 0 : 72);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(MemoryReserveTest, WithoutTheReserveTheProcessEndsWithASentence) {
  EXPECT_EXIT(
      {
        const MemoryReserve reserve(32 * kMiB);
        limit_address_space(used_address_space());
        std::vector<std::unique_ptr<char[]>> held;  // NOLINT(*-avoid-c-arrays)
        for (int i = 0; i < 1000; ++i)
          held.push_back(std::make_unique<char[]>(kMiB));  // NOLINT(*-avoid-c-arrays)
        _exit(73);
      },
      ::testing::ExitedWithCode(MemoryReserve::kOutOfMemory), "out of memory; the daemon ends");
}

}  // namespace
}  // namespace rubato::daemon
