#include "rubato/daemon/memory_reserve.h"

#include <atomic>
#include <new>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

#include "rubato/base/check.h"

namespace rubato::daemon {
namespace {

// Global, because operator new calls a function without arguments.
std::atomic<void*> g_reserve = nullptr;
std::size_t g_bytes = 0;
std::new_handler g_before = nullptr;

// Does not use operator new, which has just failed.
void* take_address_space() {
  void* space = ::mmap(nullptr, g_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return space == MAP_FAILED ? nullptr : space;
}

bool give_back() {
  void* space = g_reserve.exchange(nullptr);
  if (space == nullptr) return false;
  ::munmap(space, g_bytes);
  return true;
}

// If it returns, operator new tries again.
void when_memory_is_out() {
  if (give_back()) return;
  constexpr std::string_view kSentence =
      "rubato: out of memory; the daemon ends; jobs continue, and the next `rubato up` with more "
      "memory takes them over\n";
  static_cast<void>(!::write(STDERR_FILENO, kSentence.data(), kSentence.size()));
  ::_exit(MemoryReserve::kOutOfMemory);
}

}  // namespace

MemoryReserve::MemoryReserve(std::size_t bytes) {
  CHECK(g_reserve == nullptr && bytes > 0);
  g_bytes = bytes;
  g_reserve = take_address_space();
  g_before = std::set_new_handler(when_memory_is_out);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(g_before);
  give_back();
}

bool MemoryReserve::there() {
  if (g_reserve != nullptr) return true;
  void* space = take_address_space();
  if (space == nullptr) return false;
  void* none = nullptr;
  if (!g_reserve.compare_exchange_strong(none, space)) ::munmap(space, g_bytes);
  return true;
}

}  // namespace rubato::daemon
