#include "rubato/sim/profiles.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "rubato/base/text.h"
#include "rubato/model/goodput.h"
#include "rubato/sim/csv.h"
#include "rubato/sim/text_file.h"

namespace rubato::sim {
namespace {

constexpr int kMostNodes = 16;       // a larger K counts as this
constexpr int kMostGpusPerNode = 4;  // as measured
constexpr int kMostProfileGpus = 64;
constexpr int kLargestProfileBatch = 1'000'000'000;
constexpr double kSlowestType = 0.001, kFastestType = 1000;  // times as fast as measured

// Settings of the applications in the published simulation that are not in their files.
struct Known {
  std::string_view name;
  int per_gpu_max = 0;  // 0 = the largest measured
  int most_gpus = kMostProfileGpus;
  bool adaptive = true;
};
constexpr Known kKnown[] = {{"yolov3", 8, kMostProfileGpus, true}, {"ncf", 0, 1, false}};

// Rows of numbers under a header of known names.
class NumberTable {
 public:
  NumberTable(const ProfileText& file, std::vector<std::string_view> names)
      : reader_(file.text, file.source), names_(std::move(names)) {}

  // Calls use(values, line) for each row. It may return an error.
  [[nodiscard]] Result<void> read(
      const std::function<Result<void>(const std::vector<double>&, std::size_t)>& use) {
    CsvRow row;
    auto got = reader_.next(row);
    if (!got) return got.error();
    if (!*got) return Error{fmt::format("{}: the file is empty", reader_.source())};
    const auto header = CsvHeader::of(row, reader_);
    if (!header) return header.error();
    std::vector<std::size_t> columns;
    for (const auto name : names_) {
      const auto column = header->find(name);
      if (!column)
        return reader_.error_at(row.line, fmt::format("no column {}", base::quoted(name)));
      columns.push_back(*column);
    }
    std::vector<double> values(names_.size());
    for (;;) {
      got = reader_.next(row);
      if (!got) return got.error();
      if (!*got) return {};
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const auto value = columns[i] < row.fields.size() ? parse_double(row.fields[columns[i]])
                                                          : std::optional<double>();
        if (!value || !std::isfinite(*value) || *value < 0) {
          return reader_.error_at(row.line,
                                  fmt::format("{} must be a number of 0 or more", names_[i]));
        }
        values[i] = *value;
      }
      if (auto ok = use(values, row.line); !ok) return ok.error();
    }
  }
  [[nodiscard]] Error error_at(std::size_t line, std::string_view what) const {
    return reader_.error_at(line, what);
  }

 private:
  CsvReader reader_;
  std::vector<std::string_view> names_;
};

bool whole_between(double x, double least, double most) {
  return x == std::floor(x) && x >= least && x <= most;
}

bool plausible(double step, double sync) { return step - sync > 1e-6 && step < 1e6; }

StepSeconds lerp(const StepSeconds& a, const StepSeconds& b, double share) {
  return {a.step + share * (b.step - a.step), a.sync + share * (b.sync - a.sync)};
}

// Of a step with its accumulating passes.
double step_time(const StepSeconds& seconds, const Batch& batch) {
  return seconds.step + batch.accumulation * seconds.grad();
}

// The neighbours of `key` in a map, and how far `key` is between them. At the ends of the map, and
// if it has the key, both neighbours are the same.
template <class Map>
struct Neighbours {
  typename Map::const_iterator below, above;
  double share = 0;
};
template <class Map>
Neighbours<Map> neighbours(const Map& map, double key) {
  auto above = map.begin();
  while (above != map.end() && above->first < key) ++above;
  if (above == map.end()) return {std::prev(map.end()), std::prev(map.end()), 0};
  if (above == map.begin() || above->first == key) return {above, above, 0};
  const auto below = std::prev(above);
  return {below, above, (key - below->first) / (above->first - below->first)};
}

std::string smallest_rotation(std::string_view digits) {
  std::string best(digits);
  for (std::size_t i = 1; i < digits.size(); ++i) {
    std::string turned(digits.substr(i));
    turned += digits.substr(0, i);
    best = std::min(best, turned);
  }
  return best;
}

}  // namespace

void StepTimesByBatch::add(int per_gpu, const StepSeconds& seconds) {
  points_.insert_or_assign(per_gpu, seconds);
}

StepSeconds StepTimesByBatch::at(double per_gpu) const {
  const auto last = std::prev(points_.end());
  if (per_gpu > last->first && points_.size() > 1) {
    const auto before = std::prev(last);
    const auto beyond = lerp(before->second, last->second,
                             (per_gpu - before->first) / (last->first - before->first));
    // More samples never take less time, even if noise in the last two points says so.
    return {std::max(beyond.step, last->second.step), last->second.sync};
  }
  const auto near = neighbours(points_, per_gpu);
  return lerp(near.below->second, near.above->second, near.share);
}

Result<void> Application::read_placements(const ProfileText& file) {
  NumberTable table(file, {"placement", "local_bsz", "step_time", "sync_time"});
  struct Sum {
    StepSeconds seconds;
    int count = 0;
  };
  std::map<int, std::map<int, std::map<int, Sum>>> sums;  // by nodes, GPUs, local batch
  auto read = table.read([&](const std::vector<double>& v, std::size_t line) -> Result<void> {
    if (!whole_between(v[0], 1, 1e15) || !whole_between(v[1], 1, kLargestProfileBatch))
      return table.error_at(line, "placement and local_bsz must be whole numbers");
    if (!plausible(v[2], v[3])) return table.error_at(line, "no step takes that long");
    const std::string digits = fmt::format("{:.0f}", v[0]);
    int gpus = 0;
    for (const char digit : digits) {
      if (digit == '0') return table.error_at(line, "a node of a placement has no GPU");
      gpus += digit - '0';
    }
    const int per_gpu = static_cast<int>(v[1]);
    placements_[digits].add(per_gpu, {v[2], v[3]});
    Sum& sum = sums[static_cast<int>(digits.size())][gpus][per_gpu];
    sum.seconds = {sum.seconds.step + v[2], sum.seconds.sync + v[3]};
    ++sum.count;
    return {};
  });
  if (!read) return read.error();
  if (placements_.empty()) return Error{fmt::format("{}: no step times", file.source)};
  for (const auto& [nodes, by_gpus] : sums) {
    for (const auto& [gpus, by_batch] : by_gpus) {
      for (const auto& [per_gpu, sum] : by_batch)
        by_nodes_[nodes][gpus].add(per_gpu,
                                   {sum.seconds.step / sum.count, sum.seconds.sync / sum.count});
    }
  }
  return {};
}

Result<void> Application::read_scalability(const ProfileText& file) {
  NumberTable table(file, {"num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"});
  return table.read([&](const std::vector<double>& v, std::size_t line) -> Result<void> {
    if (!whole_between(v[0], 1, 1e6) || !whole_between(v[1], v[0], 1e6) ||
        !whole_between(v[2], 1, kLargestProfileBatch)) {
      return table.error_at(line, "nodes, replicas and local_bsz must be whole numbers");
    }
    if (!plausible(v[3], v[4])) return table.error_at(line, "no step takes that long");
    by_nodes_[static_cast<int>(v[0])][static_cast<int>(v[1])].add(static_cast<int>(v[2]),
                                                                  {v[3], v[4]});
    return {};
  });
}

Result<Application::Statistics> Application::read_statistics(const ProfileText& file) {
  NumberTable table(file, {"progress", "grad_sqr", "grad_var"});
  Statistics statistics;
  auto read = table.read([&](const std::vector<double>& v, std::size_t line) -> Result<void> {
    const double before = statistics.progress.empty() ? 0 : statistics.progress.back();
    if (!(v[0] > before)) return table.error_at(line, "progress must rise");
    if (!(v[1] + v[2] > 0)) return table.error_at(line, "there is no gradient");
    statistics.progress.push_back(v[0]);
    statistics.noise.push_back({v[1], v[2]});
    return {};
  });
  if (!read) return read.error();
  if (statistics.progress.empty()) return Error{fmt::format("{}: no epochs", file.source)};
  return statistics;
}

// An epoch ends at the smallest progress of all batch sizes. Training ends with the shortest of
// them.
void Application::join_statistics() {
  std::size_t epochs = std::numeric_limits<std::size_t>::max();
  for (const auto& [batch, of] : statistics_) epochs = std::min(epochs, of.progress.size());
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    double first = std::numeric_limits<double>::infinity();
    for (const auto& [batch, of] : statistics_) first = std::min(first, of.progress[epoch]);
    progress_.push_back(first);
  }
}

void Application::set_limits() {
  Known known;
  for (const Known& one : kKnown) {
    if (one.name == name_) known = one;
  }
  int least = std::numeric_limits<int>::max();
  int most = 1;
  for (const auto& [digits, times] : placements_) {
    least = std::min(least, times.points().begin()->first);
    most = std::max(most, times.points().rbegin()->first);
  }
  limits_.initial = statistics_.begin()->first;
  limits_.largest = statistics_.rbegin()->first;
  limits_.per_gpu_min = least;
  limits_.per_gpu_max = std::max(least, known.per_gpu_max == 0 ? most : known.per_gpu_max);
  most_gpus_ = std::max(1, std::min(known.most_gpus, limits_.largest / least));
  adaptive_ = known.adaptive;
}

Result<std::shared_ptr<const Application>> Application::parse(const ApplicationTexts& texts) {
  std::shared_ptr<Application> made(new Application());
  made->name_ = texts.name;
  made->type_speeds_ = texts.type_speeds;
  if (auto ok = made->read_placements(texts.placements); !ok) return ok.error();
  if (!texts.scalability.source.empty()) {
    if (auto ok = made->read_scalability(texts.scalability); !ok) return ok.error();
  }
  for (const auto& [batch, file] : texts.validation) {
    auto statistics = read_statistics(file);
    if (!statistics) return statistics.error();
    made->statistics_.emplace(batch, std::move(*statistics));
  }
  if (made->statistics_.empty()) {
    return Error{
        fmt::format("{}: no validation-BATCH.csv beside placements.csv", texts.placements.source)};
  }
  made->join_statistics();
  made->set_limits();
  return std::shared_ptr<const Application>(std::move(made));
}

GradientNoise Application::noise(double batch, int epoch) const {
  const auto near = neighbours(statistics_, batch);
  const auto at = static_cast<std::size_t>(epoch);
  const GradientNoise& below = near.below->second.noise[at];
  const GradientNoise& above = near.above->second.noise[at];
  return {below.sqr + near.share * (above.sqr - below.sqr),
          below.var + near.share * (above.var - below.var)};
}

StepSeconds Application::step_seconds(const Allocation& gpus, int per_gpu) const {
  std::string digits;
  for (const auto& slice : gpus.slices())
    digits += slice.gpus() > 9 ? '?' : static_cast<char>('0' + slice.gpus());
  const auto measured = placements_.find(smallest_rotation(digits));
  return on(gpus.type(), measured != placements_.end()
                             ? measured->second.at(per_gpu)
                             : step_seconds(gpus.nodes(), gpus.gpus(), per_gpu));
}

StepSeconds Application::across_gpus(const ByGpus& row, double gpus, int per_gpu) {
  const auto near = neighbours(row, gpus);
  return lerp(near.below->second.at(per_gpu), near.above->second.at(per_gpu), near.share);
}

StepSeconds Application::step_seconds(int nodes, int gpus, int per_gpu) const {
  nodes = std::max(nodes, (gpus + kMostGpusPerNode - 1) / kMostGpusPerNode);
  nodes = std::min(nodes, kMostNodes);
  const double per_node = static_cast<double>(gpus) / nodes;
  const auto near = neighbours(by_nodes_, nodes);
  return lerp(across_gpus(near.below->second, per_node * near.below->first, per_gpu),
              across_gpus(near.above->second, per_node * near.above->first, per_gpu), near.share);
}

StepSeconds Application::packed_step_seconds(int gpus, int per_gpu) const {
  const int full = gpus / kMostGpusPerNode;
  const int rest = gpus % kMostGpusPerNode;
  // In the smallest rotation, the node that is not full comes first.
  std::string digits = rest > 0 ? std::to_string(rest) : "";
  digits.append(static_cast<std::size_t>(full), '0' + kMostGpusPerNode);
  const auto measured = placements_.find(digits);
  if (measured != placements_.end()) return measured->second.at(per_gpu);
  return step_seconds(1, gpus, per_gpu);
}

WorkRate Application::rate(const StepSeconds& seconds, int gpus, const Batch& batch,
                           int epoch) const {
  const double steps_a_second = 1 / step_time(seconds, batch);
  return steps_a_second * step_worth(batch.global(gpus), epoch);
}

double Application::step_worth(double batch, int epoch) const {
  // Below the initial batch, a sample is worth as much as at the initial batch.
  return noise(batch, epoch).gain(batch / limits_.initial);
}

std::vector<StepSeconds> Application::all_step_seconds(int gpus, int node_gpus, int per_gpu) const {
  std::vector<StepSeconds> all;
  for (const auto& [digits, times] : placements_) {
    int sum = 0;
    for (const char digit : digits) sum += digit - '0';
    const bool fits = *std::max_element(digits.begin(), digits.end()) - '0' <= node_gpus;
    if (sum == gpus && fits) all.push_back(times.at(per_gpu));
  }
  for (int nodes = (gpus + node_gpus - 1) / node_gpus; nodes <= gpus; ++nodes) {
    all.push_back(step_seconds(nodes, gpus, per_gpu));
    if (nodes >= kMostNodes) break;  // more count as many
  }
  return all;
}

std::vector<WorkRate> Application::best_rates(GpuType type, int gpus, int node_gpus,
                                              int owners_batch, bool tuned) const {
  std::map<double, double> shortest;  // step time by global batch
  const auto consider = [&](const std::vector<StepSeconds>& placements, const Batch& batch) {
    double time = std::numeric_limits<double>::infinity();
    for (const auto& seconds : placements)
      time = std::min(time, step_time(on(type, seconds), batch));
    const auto [at, fresh] = shortest.try_emplace(batch.global(gpus), time);
    if (!fresh) at->second = std::min(at->second, time);
  };
  if (const auto owners = spread_batch(limits_, gpus, owners_batch))
    consider(all_step_seconds(gpus, node_gpus, owners->per_gpu), *owners);
  for (int per_gpu = limits_.per_gpu_min; tuned && per_gpu <= limits_.per_gpu_max; ++per_gpu) {
    if (Batch{per_gpu, 0}.global(gpus) > limits_.largest) break;
    const auto placements = all_step_seconds(gpus, node_gpus, per_gpu);
    for (Batch batch{per_gpu, 0}; batch.global(gpus) <= limits_.largest; ++batch.accumulation) {
      if (batch.global(gpus) >= limits_.initial) consider(placements, batch);
      if (!limits_.accumulate) break;
    }
  }
  if (shortest.empty()) return {};
  std::vector<WorkRate> best(progress_.size(), 0);
  for (const auto& [batch, time] : shortest) {
    for (std::size_t epoch = 0; epoch < best.size(); ++epoch)
      best[epoch] = std::max(best[epoch], step_worth(batch, static_cast<int>(epoch)) / time);
  }
  return best;
}

ApplicationSpeed::ApplicationSpeed(std::shared_ptr<const Application> application, int batch)
    : application_(std::move(application)), batch_(batch) {
  for (int gpus = 1; gpus <= application_->most_gpus(); ++gpus) counts_.push_back(gpus);
  steps_after_.resize(static_cast<std::size_t>(application_->epochs()), 0);
  for (int epoch = application_->epochs() - 1; epoch > 0; --epoch) {
    const Work of_epoch =
        application_->progress_after(epoch) - application_->progress_after(epoch - 1);
    const auto at = static_cast<std::size_t>(epoch);
    steps_after_[at - 1] = steps_after_[at] + of_epoch / application_->step_worth(batch_, epoch);
  }
}

double ApplicationSpeed::steps_left(Work left) const {
  const Work done = application_->work() - left;
  int epoch = 0;
  while (epoch + 1 < application_->epochs() && application_->progress_after(epoch) <= done) ++epoch;
  const Work of_epoch = std::max(application_->progress_after(epoch) - done, 0.0);
  return of_epoch / application_->step_worth(batch_, epoch) +
         steps_after_[static_cast<std::size_t>(epoch)];
}

StepSeconds ApplicationSpeed::step_seconds(const Shape& shape, const Batch& batch) const {
  return application_->on(shape.type,
                          shape.nodes == 0
                              ? application_->packed_step_seconds(shape.gpus, batch.per_gpu)
                              : application_->step_seconds(shape.nodes, shape.gpus, batch.per_gpu));
}

double ApplicationSpeed::seconds_left(const Shape& shape, Work left) const {
  const auto batch = spread_batch(application_->limits(), shape.gpus, batch_);
  if (!batch) return std::numeric_limits<double>::infinity();
  const auto seconds = step_seconds(shape, *batch);
  return steps_left(left) * step_time(seconds, *batch);
}

WorkRate ApplicationSpeed::rate(const Shape& shape) const {
  const auto batch = spread_batch(application_->limits(), shape.gpus, batch_);
  if (!batch) return 0;
  return application_->rate(step_seconds(shape, *batch), shape.gpus, *batch,
                            application_->epochs() / 2);
}

std::shared_ptr<const Application> ProfileBook::find(std::string_view name) const {
  const auto found = applications.find(name);
  return found == applications.end() ? nullptr : found->second;
}

namespace {

std::optional<int> validation_batch(std::string_view stem) {
  constexpr std::string_view kPrefix = "validation-";
  if (!stem.starts_with(kPrefix)) return std::nullopt;
  const auto batch = parse_integer(stem.substr(kPrefix.size()));
  if (!batch || *batch < 1 || *batch > kLargestProfileBatch) return std::nullopt;
  return static_cast<int>(*batch);
}

Result<ProfileText> read_profile_text(const std::filesystem::path& path) {
  auto text = read_text_file(path.string());
  if (!text) return text.error();
  return ProfileText{path.string(), std::move(*text)};
}

Result<std::vector<std::filesystem::path>> sorted_entries(const std::filesystem::path& directory) {
  std::error_code problem;
  std::vector<std::filesystem::path> paths;
  std::filesystem::directory_iterator entry(directory, problem);
  while (!problem && entry != std::filesystem::directory_iterator()) {
    paths.push_back(entry->path());
    entry.increment(problem);
  }
  if (problem) {
    return Error{fmt::format("{}: cannot be read as a directory of profiles: {}",
                             directory.string(), problem.message())};
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Result<std::shared_ptr<const Application>> read_application(
    const std::filesystem::path& folder, const std::vector<double>& type_speeds) {
  ApplicationTexts texts;
  texts.type_speeds = type_speeds;
  texts.name = folder.filename().string();
  auto placements = read_profile_text(folder / "placements.csv");
  if (!placements) return placements.error();
  texts.placements = std::move(*placements);
  const auto files = sorted_entries(folder);
  if (!files) return files.error();
  for (const auto& file : *files) {
    const auto batch = validation_batch(file.stem().string());
    if (!batch && file.filename() != "scalability.csv") continue;
    auto text = read_profile_text(file);
    if (!text) return text.error();
    (batch ? texts.validation[*batch] : texts.scalability) = std::move(*text);
  }
  return Application::parse(texts);
}

}  // namespace

Result<ProfileBook> read_profiles(const std::string& directory,
                                  const std::vector<double>& type_speeds) {
  const auto folders = sorted_entries(directory);
  if (!folders) return folders.error();
  ProfileBook book;
  for (const auto& folder : *folders) {
    if (!std::filesystem::is_directory(folder)) continue;
    auto application = read_application(folder, type_speeds);
    if (!application) return application.error();
    book.applications.emplace((*application)->name(), std::move(*application));
  }
  if (book.applications.empty()) {
    return Error{
        fmt::format("{}: has no folder; profiles are one folder an application with placements.csv",
                    directory)};
  }
  return book;
}

Result<std::vector<double>> parse_type_speeds(std::string_view text, const Cluster& cluster) {
  std::vector<std::string> names(static_cast<std::size_t>(cluster.types()));
  for (std::size_t t = 0; t < names.size(); ++t) names[t] = cluster.type_name(type_at(t));
  std::vector<double> speeds(names.size(), 1);
  std::vector<bool> given(names.size(), false);
  for (const auto item : split(text, ',')) {
    const auto equals = item.find('=');
    const auto name = trim(item.substr(0, equals));
    const auto at = std::find(names.begin(), names.end(), name);
    if (equals == std::string_view::npos || at == names.end()) {
      return Error{fmt::format("{} is not TYPE=SPEED with a GPU type of the cluster ({})",
                               base::quoted(item), fmt::join(names, ", "))};
    }
    const auto type = static_cast<std::size_t>(at - names.begin());
    const auto speed = parse_double(trim(item.substr(equals + 1)));
    if (!speed || !(*speed >= kSlowestType && *speed <= kFastestType)) {
      return Error{fmt::format("{}: the speed must be a number from {} to {}", base::quoted(item),
                               kSlowestType, kFastestType)};
    }
    if (given[type]) return Error{fmt::format("GPU type {} is given twice", base::quoted(name))};
    given[type] = true;
    speeds[type] = *speed;
  }
  return speeds;
}

}  // namespace rubato::sim
