#include "rubato/sim/foreign_policy.h"

#include <bit>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rubato/policy/all.h"
#include "rubato/sim/testing.h"

namespace rubato::sim {
namespace {

// Reads the question and writes the answer as another process would.
class Cells {
 public:
  explicit Cells(std::span<std::int64_t> cells) : cells_(cells) {}
  [[nodiscard]] std::size_t types() const { return count(ForeignHeader::types); }
  [[nodiscard]] std::size_t nodes() const { return count(ForeignHeader::nodes); }
  [[nodiscard]] std::size_t jobs() const { return count(ForeignHeader::jobs); }
  [[nodiscard]] std::size_t width() const { return count(ForeignHeader::width); }
  [[nodiscard]] std::int64_t usable(std::size_t type) const { return cells_[8 + type]; }
  [[nodiscard]] std::int64_t whole(const std::string& column, std::size_t job) const {
    const auto columns = foreign_job_columns();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].name == column) return cells_[first_column() + i * jobs() + job];
    }
    ADD_FAILURE() << column;
    return 0;
  }
  [[nodiscard]] double real(const std::string& column, std::size_t job) const {
    return std::bit_cast<double>(whole(column, job));
  }
  [[nodiscard]] double speed(std::size_t type, std::size_t job, std::size_t gpus) const {
    return std::bit_cast<double>(cells_[first_speed() + (type * jobs() + job) * width() + gpus]);
  }
  std::int64_t& gpus(std::size_t job) { return cells_[answer() + job]; }
  std::int64_t& type(std::size_t job) { return cells_[answer() + jobs() + job]; }
  std::int64_t& refused(std::size_t job) { return cells_[answer() + 2 * jobs() + job]; }
  std::int64_t& order(std::size_t place) { return cells_[answer() + 3 * jobs() + place]; }
  std::int64_t& header(ForeignHeader field) { return cells_[static_cast<std::size_t>(field)]; }

 private:
  [[nodiscard]] std::size_t count(ForeignHeader field) const {
    return static_cast<std::size_t>(cells_[static_cast<std::size_t>(field)]);
  }
  [[nodiscard]] std::size_t first_column() const { return 8 + 3 * types() + 3 * nodes(); }
  [[nodiscard]] std::size_t first_speed() const {
    return first_column() + foreign_job_columns().size() * jobs();
  }
  [[nodiscard]] std::size_t answer() const { return first_speed() + types() * jobs() * width(); }

  std::span<std::int64_t> cells_;
};

class Mirror final : public ForeignChannel {
 public:
  using Function = std::function<void(Cells&)>;
  explicit Mirror(Function function) : function_(std::move(function)) {}
  Result<std::span<std::int64_t>> cells(std::size_t count) override {
    memory_.assign(count, -7);  // what was there before does not matter
    return std::span(memory_);
  }
  Result<void> ask() override {
    Cells cells(memory_);
    function_(cells);
    return {};
  }

 private:
  Function function_;
  std::vector<std::int64_t> memory_;
};

Result<SimulationResult> run(const Workload& workload, const std::string& cluster, bool elastic,
                             Mirror::Function function) {
  ForeignPolicy policy(std::make_unique<Mirror>(std::move(function)), elastic);
  return simulate(workload, cluster_of(cluster), policy, {});
}

void first_come(Cells& cells) {
  std::int64_t room = cells.usable(0);
  for (std::size_t job = 0; job < cells.jobs(); ++job) {
    room -= cells.whole("requested", job);
    if (room < 0) return;
    cells.gpus(job) = cells.whole("requested", job);
  }
}

Workload three_jobs() {
  return workload_of({rigid_job(0, 2, 10), rigid_job(1, 4, 5), rigid_job(2, 1, 5)});
}

TEST(ForeignPolicy, DecidesLikeAPolicyOfThisProcess) {
  const auto foreign = run(three_jobs(), "1x4", false, first_come);
  ASSERT_TRUE(foreign.ok()) << foreign.error().message;
  FunctionPolicy here(in_order);
  const auto expected = simulate(three_jobs(), cluster_of("1x4"), here, {});
  ASSERT_TRUE(expected.ok());
  for (std::size_t job = 0; job < 3; ++job)
    EXPECT_EQ(foreign->recorder.jobs()[job].end, expected->recorder.jobs()[job].end) << job;
}

TEST(ForeignPolicy, SeesTheColumns) {
  bool seen = false;
  const auto result = run(three_jobs(), "1x4", false, [&](Cells& cells) {
    first_come(cells);
    if (cells.jobs() != 3 || seen) return;
    seen = true;
    EXPECT_EQ(cells.nodes(), 1U);
    EXPECT_EQ(cells.width(), 0U);
    EXPECT_EQ(cells.whole("id", 2), 2);
    EXPECT_EQ(cells.whole("gpus", 0), 2);
    EXPECT_EQ(cells.whole("type", 1), -1);
    EXPECT_EQ(cells.real("submitted", 1), 1);
    EXPECT_EQ(cells.real("remaining", 0), 8);
    EXPECT_EQ(cells.real("attained", 0), 4);
    EXPECT_EQ(cells.whole("started", 0), 1);
    EXPECT_EQ(cells.whole("started", 1), 0);
  });
  EXPECT_TRUE(result.ok());
  EXPECT_TRUE(seen);
}

TEST(ForeignPolicy, AnElasticOneSeesSpeedsAndChoosesCounts) {
  const Workload workload = workload_of({elastic_job(0, 60, {{1, 1}, {2, 1.5}, {4, 2}})});
  const auto result = run(workload, "1x4:a,1x2:b", true, [](Cells& cells) {
    if (cells.jobs() == 0) return;
    EXPECT_EQ(cells.types(), 2U);
    EXPECT_EQ(cells.width(), 5U);
    EXPECT_EQ(cells.speed(0, 0, 0), 0);
    EXPECT_EQ(cells.speed(0, 0, 2), 1.5);
    EXPECT_EQ(cells.speed(1, 0, 4), 2);
    cells.gpus(0) = 2;
    cells.type(0) = 1;
  });
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->recorder.jobs()[0].end, time_at(40));
}

TEST(ForeignPolicy, RefusesJobsAndWantsToBeAskedAgain) {
  int asked = 0;
  const auto result = run(three_jobs(), "1x4", false, [&](Cells& cells) {
    ++asked;
    first_come(cells);
    for (std::size_t job = 0; job < cells.jobs(); ++job) {
      if (cells.whole("id", job) == 1 && cells.whole("accepted", job) == 0) {
        cells.refused(job) = 1;
        cells.gpus(job) = 0;
      }
    }
    if (asked == 1) cells.header(ForeignHeader::again_at) = std::bit_cast<std::int64_t>(0.5);
  });
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->metrics.rejected, 1U);
  EXPECT_EQ(result->metrics.completed, 2U);
  EXPECT_GE(asked, 4);
}

// Each way to answer nonsense gives one sentence, and nothing is read beyond the memory.
TEST(ForeignPolicy, NonsenseIsRefusedWithASentence) {
  const auto problem = [](const Mirror::Function& function) {
    const auto result = run(three_jobs(), "1x4", false, function);
    return result.ok() ? "no problem" : result.error().message;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(problem([](Cells& c) { c.gpus(0) = -1; }), "gives -1 GPUs to job 0");
  has(problem([](Cells& c) { c.gpus(0) = std::int64_t{1} << 40U; }), "GPUs to job 0");
  has(problem([](Cells& c) { c.gpus(0) = 3; }), "which the job cannot use");
  has(problem([](Cells& c) {
        c.gpus(0) = 2;
        c.type(0) = 1;
      }),
      "GPUs of type 1; there are 1");
  has(problem([](Cells& c) { c.gpus(0) = c.refused(0) = 2; }), "runs and refuses job 0");
  has(problem([](Cells& c) { c.header(ForeignHeader::ordered) = 99; }), "orders 99 of 1 jobs");
  has(problem([](Cells& c) {
        c.header(ForeignHeader::ordered) = 1;
        c.order(0) = 5;
      }),
      "orders job 5 of 1");
  has(problem(
          [](Cells& c) { c.header(ForeignHeader::again_at) = std::bit_cast<std::int64_t>(0.0); }),
      "not in the future");
  has(problem([](Cells& c) { c.header(ForeignHeader::jobs) = 1000000; }), "no problem");
}

}  // namespace
}  // namespace rubato::sim
