// A policy that another process decides, in any language.
//
// Both processes see one memory of 8-byte cells, each an int64 or a double. It holds a snapshot as
// columns, with one cell for each GPU type, node or job, and room for the answer. So a policy that
// thinks in arrays reads and writes them where they are. One question and one answer:
//
//   header          kHeaderCells cells, as Header names them
//   GPU types       usable, installed, node size: a column each, one cell a type
//   nodes           GPUs, type, GPUs that may be given out: a column each, one cell a node
//   jobs            a column for each of foreign_job_columns(), one cell a job, in order of id
//   speeds          if the policy is elastic: for each type and job, its work per second on 0 to
//                   width - 1 GPUs; 0 where it may not run
//   answer          three columns with one cell a job: GPUs (0 = it does not run), GPU type, and
//                   1 for a job that is refused; then the order in which GPUs are placed: indices
//                   of jobs, as many as the header says. Jobs that it does not name follow by id.
//
// Jobs that are not the policy's to decide about are left out (policy/staying.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/policy/policy.h"

namespace rubato::sim {

// The cells of the header. The last three are the answer's.
enum class ForeignHeader : std::size_t {
  now,  // seconds, a double
  types,
  nodes,
  jobs,
  width,     // of the speeds; 0 = there are none
  ordered,   // cells of the order
  again_at,  // seconds, a double; infinite = only when something happens
  unused
};
inline constexpr std::size_t kForeignHeaderCells = 8;

struct ForeignColumn {
  std::string_view name;
  bool whole = false;  // int64, otherwise a double
};
[[nodiscard]] std::span<const ForeignColumn> foreign_job_columns();

// How the other process is reached.
class ForeignChannel {
 public:
  ForeignChannel() = default;
  ForeignChannel(const ForeignChannel&) = delete;
  ForeignChannel& operator=(const ForeignChannel&) = delete;
  virtual ~ForeignChannel() = default;

  // At least so many shared cells. They may move from one call to the next.
  [[nodiscard]] virtual Result<std::span<std::int64_t>> cells(std::size_t count) = 0;
  // The question is in the cells. Returns when the answer is.
  [[nodiscard]] virtual Result<void> ask() = 0;
};

class ForeignPolicy final : public Policy {
 public:
  // An elastic policy chooses the numbers of GPUs itself.
  ForeignPolicy(std::unique_ptr<ForeignChannel> channel, bool elastic);

  [[nodiscard]] Result<Decision> decide(const Snapshot& snapshot) override;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const override;
  // What it remembers is in the other process.
  [[nodiscard]] Json save() const override { return Json::object(); }
  [[nodiscard]] Result<void> load(const Json& state) override;

 private:
  // Work per second by type and count, of a job that has not changed.
  struct Speeds {
    std::shared_ptr<const SpeedModel> model;
    std::shared_ptr<const JobSpec> spec;
    std::vector<double> rates;
  };
  struct Shape {
    std::size_t types = 0, nodes = 0, jobs = 0, width = 0;
    [[nodiscard]] std::size_t answer() const;  // where it begins
    [[nodiscard]] std::size_t cells() const { return answer() + 4 * jobs; }
  };

  [[nodiscard]] Shape shape_of(const Snapshot& snapshot) const;
  void write(const Snapshot& snapshot, const Shape& shape, std::span<std::int64_t> cells);
  void write_job(const JobView& job, Time now, std::size_t place, std::size_t jobs,
                 std::span<std::int64_t> columns);
  void write_speeds(const Snapshot& snapshot, const Shape& shape, std::span<std::int64_t> cells);
  [[nodiscard]] const std::vector<double>& speeds_of(const JobView& job, const Shape& shape);
  [[nodiscard]] static Result<Decision> read(const Snapshot& snapshot, const Shape& shape,
                                             std::span<const std::int64_t> cells);

  std::unique_ptr<ForeignChannel> channel_;
  bool elastic_;
  Staying staying_;
  std::map<std::string, std::int64_t> users_, models_;  // numbers in order of appearance
  std::unordered_map<std::size_t, Speeds> speeds_;      // by job
  std::size_t speeds_width_ = 0;
};

}  // namespace rubato::sim
