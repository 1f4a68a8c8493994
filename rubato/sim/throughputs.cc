#include "rubato/sim/throughputs.h"

#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/text.h"
#include "rubato/sim/text_file.h"
#include "rubato/sim/trace_fields.h"

namespace rubato::sim {
namespace {

constexpr int kMostMeasuredGpus = 4096;

// "('ResNet-18 (batch size 16)', 1)"
struct JobKey {
  std::pair<std::string, int> profile;
  int gpus = 0;
};

std::optional<JobKey> parse_key(std::string_view text) {
  constexpr std::string_view kOpen = "('", kMiddle = "', ";
  const auto middle = text.rfind(kMiddle);
  if (!text.starts_with(kOpen) || !text.ends_with(')') || middle == std::string_view::npos ||
      middle < kOpen.size()) {
    return std::nullopt;
  }
  TraceDraft draft;
  const auto name = text.substr(kOpen.size(), middle - kOpen.size());
  if (set_trace_field(TraceField::job_type, "job type", name, draft)) return std::nullopt;
  const auto count = text.substr(middle + kMiddle.size());
  const auto gpus = parse_integer(count.substr(0, count.size() - 1));
  if (!gpus || *gpus < 1 || *gpus > kMostMeasuredGpus) return std::nullopt;
  return JobKey{{draft.job.model, draft.job.batch}, static_cast<int>(*gpus)};
}

std::optional<WorkRate> rate_of(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const double rate = value.get<double>();
  return std::isfinite(rate) && rate >= 0 && rate <= 1e12 ? std::optional(rate) : std::nullopt;
}

class Reader {
 public:
  Reader(const Json& document, const std::string& source, const Cluster& cluster)
      : document_(document), source_(source), cluster_(cluster) {}

  Result<ThroughputBook> read() {
    if (!document_.is_object()) return wrong("", "is not an object of GPU types");
    for (int t = 0; t < cluster_.types(); ++t) {
      const GpuType type(static_cast<GpuType::rep>(t));
      if (!document_.contains(cluster_.type_name(type))) return missing(cluster_.type_name(type));
      if (auto ok = number_rows(document_.at(cluster_.type_name(type)), cluster_.type_name(type));
          !ok)
        return ok.error();
    }
    auto table =
        std::make_shared<ThroughputTable>(rows_.size(), static_cast<std::size_t>(cluster_.types()));
    for (int t = 0; t < cluster_.types(); ++t) {
      const GpuType type(static_cast<GpuType::rep>(t));
      if (auto ok = fill(*table, type); !ok) return ok.error();
    }
    ThroughputBook book;
    for (const auto& [profile, row] : rows_)
      book.speeds.emplace(profile, std::make_shared<TypedSpeed>(table, row));
    return book;
  }

 private:
  [[nodiscard]] Error wrong(const std::string& where, std::string_view what) const {
    return Error{fmt::format("{}: {}{}{}", source_, where.empty() ? "" : base::quoted(where),
                             where.empty() ? "" : " ", what)};
  }

  [[nodiscard]] Error missing(const std::string& type) const {
    std::string known;
    for (const auto& [name, jobs] : document_.items()) {
      if (known.size() > 200) break;
      known += (known.empty() ? "" : ", ") + base::quoted(name);
    }
    return Error{fmt::format("{}: has no GPU type {}; it has {}. Name the types in --cluster",
                             source_, base::quoted(type), known)};
  }

  Result<void> number_rows(const Json& jobs, const std::string& type) {
    if (!jobs.is_object()) return wrong(type, "is not an object of jobs");
    for (const auto& [name, cells] : jobs.items()) {
      const auto key = parse_key(name);
      if (!key) return wrong(name, "is not of the form ('Model (batch size B)', GPUs)");
      if (!cells.is_object()) return wrong(name, "is not an object of rates");
      rows_.emplace(key->profile, rows_.size());
    }
    return {};
  }

  Result<void> fill(ThroughputTable& table, GpuType type) const {
    for (const auto& [name, cells] : document_.at(cluster_.type_name(type)).items()) {
      const auto key = *parse_key(name);
      const std::size_t row = rows_.at(key.profile);
      for (const auto& [partner, cell] : cells.items()) {
        if (partner == "null") {
          const auto rate = rate_of(cell);
          if (!rate) return wrong(name, "has a rate that is not a number of 0 or more");
          table.set_alone(row, type, key.gpus, *rate);
          continue;
        }
        const auto other = parse_key(partner);
        const bool pair = cell.is_array() && cell.size() == 2;
        const auto own = pair ? rate_of(cell[0]) : std::nullopt;
        if (!other || !own || !rate_of(cell[1])) {
          return wrong(name, fmt::format("has {}, which is not a partner with two rates",
                                         base::quoted(partner)));
        }
        const auto other_row = rows_.find(other->profile);
        if (other->gpus != key.gpus || other_row == rows_.end()) continue;
        table.set_beside(row, other_row->second, type, key.gpus, *own);
      }
    }
    return {};
  }

  const Json& document_;
  const std::string& source_;
  const Cluster& cluster_;
  std::map<std::pair<std::string, int>, std::size_t> rows_;
};

}  // namespace

std::shared_ptr<const TypedSpeed> ThroughputBook::find(const std::string& model, int batch) const {
  const auto at = speeds.find(std::pair(model, batch));
  return at == speeds.end() ? nullptr : at->second;
}

Result<ThroughputBook> read_throughputs(const std::string& path, const Cluster& cluster) {
  auto text = read_text_file(path);
  if (!text) return text.error();
  return parse_throughputs(*text, path, cluster);
}

Result<ThroughputBook> parse_throughputs(std::string_view text, const std::string& source,
                                         const Cluster& cluster) {
  auto document = parse_json(text, source);
  if (!document) return document.error();
  return Reader(*document, source, cluster).read();
}

}  // namespace rubato::sim
