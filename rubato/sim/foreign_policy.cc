#include "rubato/sim/foreign_policy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "rubato/policy/sorted.h"

namespace rubato::sim {
namespace {

constexpr std::array kJobColumns = {
    ForeignColumn{"id", true},         ForeignColumn{"submitted", false},
    ForeignColumn{"requested", true},  ForeignColumn{"least", true},
    ForeignColumn{"most", true},       ForeignColumn{"gpus", true},
    ForeignColumn{"type", true},       ForeignColumn{"work", false},
    ForeignColumn{"left", false},      ForeignColumn{"remaining", false},
    ForeignColumn{"rate", false},      ForeignColumn{"attained", false},
    ForeignColumn{"ran", false},       ForeignColumn{"started", true},
    ForeignColumn{"restarts", true},   ForeignColumn{"restart_cost", false},
    ForeignColumn{"deadline", false},  ForeignColumn{"weight", false},
    ForeignColumn{"goes_first", true}, ForeignColumn{"accepted", true},
    ForeignColumn{"user", true},       ForeignColumn{"model", true},
};
constexpr std::size_t kTypeColumns = 3;
constexpr std::size_t kNodeColumns = 3;

std::int64_t cell(double value) { return std::bit_cast<std::int64_t>(value); }
std::int64_t cell(int value) { return value; }
std::int64_t cell(bool value) { return value ? 1 : 0; }
std::int64_t cell(std::int64_t value) { return value; }
std::int64_t cell(std::size_t value) { return static_cast<std::int64_t>(value); }

double number(std::int64_t cell) { return std::bit_cast<double>(cell); }

std::int64_t& at(std::span<std::int64_t> cells, ForeignHeader field) {
  return cells[static_cast<std::size_t>(field)];
}
std::int64_t at(std::span<const std::int64_t> cells, ForeignHeader field) {
  return cells[static_cast<std::size_t>(field)];
}

std::int64_t number_of(std::map<std::string, std::int64_t>& known, const std::string& name) {
  return known.emplace(name, static_cast<std::int64_t>(known.size())).first->second;
}

// The answer, one job after the other.
class Answer {
 public:
  Answer(std::span<const std::int64_t> cells, std::size_t jobs) : cells_(cells), jobs_(jobs) {}
  [[nodiscard]] std::int64_t gpus(std::size_t job) const { return cells_[job]; }
  [[nodiscard]] std::int64_t type(std::size_t job) const { return cells_[jobs_ + job]; }
  [[nodiscard]] bool refused(std::size_t job) const { return cells_[2 * jobs_ + job] != 0; }
  [[nodiscard]] std::int64_t order(std::size_t place) const { return cells_[3 * jobs_ + place]; }

 private:
  std::span<const std::int64_t> cells_;
  std::size_t jobs_;
};

// All jobs, those that the answer orders first.
Result<std::vector<std::size_t>> order_of(const Answer& answer, std::size_t jobs,
                                          std::int64_t ordered) {
  if (ordered < 0 || ordered > static_cast<std::int64_t>(jobs)) {
    return Error{fmt::format("orders {} of {} jobs", ordered, jobs)};
  }
  std::vector<std::size_t> order;
  order.reserve(jobs);
  std::vector<bool> named(jobs);
  for (std::size_t place = 0; place < static_cast<std::size_t>(ordered); ++place) {
    const std::int64_t job = answer.order(place);
    if (job < 0 || job >= static_cast<std::int64_t>(jobs)) {
      return Error{fmt::format("orders job {} of {}", job, jobs)};
    }
    if (named[static_cast<std::size_t>(job)]) return Error{"orders a job twice"};
    named[static_cast<std::size_t>(job)] = true;
    order.push_back(static_cast<std::size_t>(job));
  }
  for (std::size_t job = 0; job < jobs; ++job) {
    if (!named[job]) order.push_back(job);
  }
  return order;
}

}  // namespace

std::span<const ForeignColumn> foreign_job_columns() { return kJobColumns; }

ForeignPolicy::ForeignPolicy(std::unique_ptr<ForeignChannel> channel, bool elastic)
    : channel_(std::move(channel)), elastic_(elastic) {}

std::size_t ForeignPolicy::Shape::answer() const {
  return kForeignHeaderCells + kTypeColumns * types + kNodeColumns * nodes +
         kJobColumns.size() * jobs + types * jobs * width;
}

int ForeignPolicy::least_gpus(const JobSpec& spec, const SpeedModel& speed) const {
  return elastic_ && !speed.measured().empty() ? spec.limits.smallest() : spec.requested;
}

Result<void> ForeignPolicy::load(const Json& /*state*/) {
  return Error{"the state of a policy in another process cannot be loaded"};
}

Result<Decision> ForeignPolicy::decide(const Snapshot& snapshot) {
  const Snapshot& rest = staying_.rest_of(snapshot, true);
  const Shape shape = shape_of(rest);
  const auto cells = channel_->cells(shape.cells());
  if (!cells) return cells.error();
  write(rest, shape, *cells);
  if (auto answered = channel_->ask(); !answered) return answered.error();
  auto decision = read(rest, shape, *cells);
  if (!decision) {
    return Error{fmt::format("the policy's answer at {} s {}", seconds(snapshot.now),
                             decision.error().message)};
  }
  staying_.add_to(*decision);
  decision->as_of = snapshot.as_of;
  return decision;
}

ForeignPolicy::Shape ForeignPolicy::shape_of(const Snapshot& snapshot) const {
  Shape shape{static_cast<std::size_t>(snapshot.cluster.types()), snapshot.cluster.nodes().size(),
              snapshot.jobs.size(), 0};
  if (!elastic_) return shape;
  int most = 0;
  for (const JobView& job : snapshot.jobs)
    most = std::max({most, job.spec->limits.max, job.spec->requested});
  shape.width = static_cast<std::size_t>(std::min(most, snapshot.cluster.largest_type())) + 1;
  return shape;
}

void ForeignPolicy::write(const Snapshot& snapshot, const Shape& shape,
                          std::span<std::int64_t> cells) {
  at(cells, ForeignHeader::now) = cell(seconds(snapshot.now));
  at(cells, ForeignHeader::types) = cell(shape.types);
  at(cells, ForeignHeader::nodes) = cell(shape.nodes);
  at(cells, ForeignHeader::jobs) = cell(shape.jobs);
  at(cells, ForeignHeader::width) = cell(shape.width);
  at(cells, ForeignHeader::ordered) = 0;
  at(cells, ForeignHeader::again_at) = cell(std::numeric_limits<double>::infinity());
  std::span<std::int64_t> rest = cells.subspan(kForeignHeaderCells);
  for (std::size_t t = 0; t < shape.types; ++t) {
    rest[t] = snapshot.cluster.usable(type_at(t));
    rest[shape.types + t] = snapshot.cluster.installed(type_at(t));
    rest[2 * shape.types + t] = snapshot.cluster.node_size(type_at(t));
  }
  rest = rest.subspan(kTypeColumns * shape.types);
  for (std::size_t n = 0; n < shape.nodes; ++n) {
    const Node& node = snapshot.cluster.nodes()[n];
    rest[n] = node.gpus;
    rest[shape.nodes + n] = node.type.value();
    rest[2 * shape.nodes + n] = std::popcount(node.usable());
  }
  rest = rest.subspan(kNodeColumns * shape.nodes);
  std::size_t place = 0;
  for (const JobView& job : snapshot.jobs) write_job(job, snapshot.now, place++, shape.jobs, rest);
  if (shape.width > 0) write_speeds(snapshot, shape, rest.subspan(kJobColumns.size() * shape.jobs));
  std::fill_n(cells.begin() + static_cast<std::ptrdiff_t>(shape.answer()), 4 * shape.jobs, 0);
}

void ForeignPolicy::write_job(const JobView& job, Time now, std::size_t place, std::size_t jobs,
                              std::span<std::int64_t> columns) {
  const JobSpec& spec = *job.spec;
  const double never = std::numeric_limits<double>::infinity();
  // In the order of kJobColumns.
  const std::array<std::int64_t, kJobColumns.size()> row = {
      cell(std::int64_t{job.id.value()}),
      cell(seconds(job.submitted)),
      cell(spec.requested),
      cell(elastic_ ? spec.limits.smallest() : spec.requested),
      cell(elastic_ ? std::max(spec.limits.max, spec.requested) : spec.requested),
      cell(job.target.gpus()),
      cell(job.target.empty() ? -1 : int{job.target.type().value()}),
      cell(job.work),
      cell(job.progress.left(now)),
      cell(remaining_micros(job, now) / 1e6),
      cell(job.progress.rate),
      cell(job.attained(now).gpu_seconds()),
      cell(seconds(job.ran(now))),
      cell(job.has_run()),
      cell(job.restarts),
      cell(seconds(spec.restart_cost)),
      cell(spec.deadline ? seconds(*spec.deadline) : never),
      cell(spec.weight),
      cell(spec.goes_first),
      cell(job.accepted()),
      number_of(users_, spec.user),
      number_of(models_, spec.model)};
  for (std::size_t column = 0; column < row.size(); ++column)
    columns[column * jobs + place] = row[column];
}

const std::vector<double>& ForeignPolicy::speeds_of(const JobView& job, const Shape& shape) {
  Speeds& known = speeds_[job.id.index()];
  if (known.model == job.speed && known.spec == job.spec) return known.rates;
  known = {job.speed, job.spec, std::vector<double>(shape.types * shape.width)};
  for (std::size_t t = 0; t < shape.types; ++t) {
    for (std::size_t gpus = 1; gpus < shape.width; ++gpus) {
      const int count = static_cast<int>(gpus);
      if (job.spec->limits.legal(count) || count == job.spec->requested)
        known.rates[t * shape.width + gpus] = job.speed->on(type_at(t), count);
    }
  }
  return known.rates;
}

void ForeignPolicy::write_speeds(const Snapshot& snapshot, const Shape& shape,
                                 std::span<std::int64_t> cells) {
  if (shape.width != speeds_width_ || speeds_.size() > 2 * shape.jobs + 100) speeds_.clear();
  speeds_width_ = shape.width;
  std::size_t place = 0;
  for (const JobView& job : snapshot.jobs) {
    const std::vector<double>& rates = speeds_of(job, shape);
    for (std::size_t t = 0; t < shape.types; ++t) {
      for (std::size_t gpus = 0; gpus < shape.width; ++gpus)
        cells[(t * shape.jobs + place) * shape.width + gpus] = cell(rates[t * shape.width + gpus]);
    }
    ++place;
  }
}

Result<Decision> ForeignPolicy::read(const Snapshot& snapshot, const Shape& shape,
                                     std::span<const std::int64_t> cells) {
  Decision decision;
  const Answer answer(cells.subspan(shape.answer()), shape.jobs);
  const auto order = order_of(answer, shape.jobs, at(cells, ForeignHeader::ordered));
  if (!order) return order.error();
  std::vector<JobId> ids;
  ids.reserve(shape.jobs);
  for (const JobView& job : snapshot.jobs) ids.push_back(job.id);
  for (const std::size_t place : *order) {
    const std::int64_t gpus = answer.gpus(place);
    const JobId id = ids[place];
    if (answer.refused(place)) decision.reject.push_back({id, "the policy refuses it", {}});
    if (gpus == 0) continue;
    if (answer.refused(place)) return Error{fmt::format("runs and refuses job {}", id.value())};
    if (gpus < 0 || gpus > snapshot.cluster.installed()) {
      return Error{fmt::format("gives {} GPUs to job {}", gpus, id.value())};
    }
    const std::int64_t type = answer.type(place);
    if (type < 0 || type >= static_cast<std::int64_t>(shape.types)) {
      return Error{
          fmt::format("gives job {} GPUs of type {}; there are {}", id.value(), type, shape.types)};
    }
    decision.run.push_back(
        {id, Count{type_at(static_cast<std::size_t>(type)), static_cast<int>(gpus)}});
  }
  const double again_at = number(at(cells, ForeignHeader::again_at));
  if (std::isnan(again_at) || again_at <= seconds(snapshot.now)) {
    return Error{
        fmt::format("wants to be asked again at {} s, which is not in the future", again_at)};
  }
  if (again_at < kLongestSeconds) {
    decision.again_at = std::max(time_at(again_at), snapshot.now + Duration(1));
  }
  return decision;
}

}  // namespace rubato::sim
