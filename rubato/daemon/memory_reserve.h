// What the daemon does when it gets no more memory (docs/internals.md, "Memory").
//
// A piece of address space is kept in reserve. When an allocation fails, the reserve is freed and
// the allocation succeeds, so no operation is interrupted halfway. From then on the daemon accepts
// no submissions until it can allocate the reserve again. If memory runs out before that, the
// process ends at once with one sentence and kOutOfMemory. All answers are in the journal, training
// continues, and the next start takes the jobs over.
//
// The reserve is never written, so it costs only address space. It helps if the kernel refuses
// memory (ulimit -v, strict overcommit). If a cgroup's limit is reached, the kernel kills the
// process: this is the second case without the sentence.
#pragma once

#include <cstddef>

namespace rubato::daemon {

class MemoryReserve {
 public:
  static constexpr int kOutOfMemory = 1;  // exit code

  // At most one in a process, because operator new calls it.
  explicit MemoryReserve(std::size_t bytes);
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;
  ~MemoryReserve();

  // Allocates the reserve again if it is gone. False if that fails. From any thread.
  [[nodiscard]] bool there();
};

}  // namespace rubato::daemon
