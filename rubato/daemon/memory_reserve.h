// What the daemon does when it gets no more memory (docs/live.md, "Memory").
//
// A piece of address space is kept in reserve. When an allocation fails, the reserve is given back
// and the allocation succeeds after all: nothing is torn. From then on the daemon takes no new work
// until the reserve can be had again. If memory runs out before that, the process ends at once with
// one sentence and kOutOfMemory: all that anybody was told is in the journal, jobs train on, and
// the next start takes them over.
//
// The reserve is never touched, so it costs address space alone. It helps where the kernel says no
// (ulimit -v, strict overcommit). A cgroup's limit is enforced by a kill, which is the second case
// without the sentence.
#pragma once

#include <cstddef>

namespace rubato::daemon {

class MemoryReserve {
 public:
  static constexpr int kOutOfMemory = 1;  // exit code

  // One in a process: it is what operator new calls.
  explicit MemoryReserve(std::size_t bytes);
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;
  ~MemoryReserve();

  // Gets the reserve back if it is gone; false while it cannot be had. Of any thread.
  [[nodiscard]] bool there();
};

}  // namespace rubato::daemon
