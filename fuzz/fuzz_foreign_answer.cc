// Takes any bytes as the answer of a policy in another process, which may write anything into the
// shared memory. The result must be one line of error or a decision about the jobs that are there.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/core/testing.h"
#include "rubato/model/curve.h"
#include "rubato/sim/foreign_policy.h"

namespace rubato::fuzz {
namespace {

// The first bytes become the header, the others the end of the memory, where the answer is.
class Scribbler final : public ForeignChannel {
 public:
  explicit Scribbler(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  Result<std::span<std::int64_t>> cells(std::size_t count) override {
    memory_.assign(count, 0);
    return std::span(memory_);
  }
  Result<void> ask() override {
    const auto memory = std::as_writable_bytes(std::span(memory_));
    const auto header =
        bytes_.first(std::min(bytes_.size(), kForeignHeaderCells * sizeof(std::int64_t)));
    const auto answer =
        bytes_.subspan(header.size()).first(std::min(bytes_.size() - header.size(), memory.size()));
    if (!header.empty()) std::memcpy(memory.data(), header.data(), header.size());
    if (!answer.empty())
      std::memcpy(memory.last(answer.size()).data(), answer.data(), answer.size());
    return {};
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::vector<std::int64_t> memory_;
};

Snapshot three_jobs() {
  Snapshot snapshot;
  snapshot.cluster = cluster_of("2x4:a,1x2:b");
  for (std::size_t i = 0; i < 3; ++i) {
    JobView job = job_view(job_id(i), elastic_spec(1, 4));
    job.speed = std::make_shared<ConstantSpeed>(1);
    snapshot.jobs.insert(std::move(job));
  }
  return snapshot;
}

}  // namespace
}  // namespace rubato::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  static const auto snapshot = three_jobs();
  rubato::sim::ForeignPolicy policy(std::make_unique<Scribbler>(std::span(data, size)), true);
  const auto decision = policy.decide(snapshot);
  if (!decision) {
    CHECK(!decision.error().message.empty() && decision.error().message.size() < 1000);
    return 0;
  }
  CHECK(decision->run.size() + decision->reject.size() <= snapshot.jobs.size());
  for (const auto& grant : decision->run) CHECK(snapshot.jobs.find(grant.job) != nullptr);
  return 0;
}
