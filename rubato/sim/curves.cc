#include "rubato/sim/curves.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <system_error>
#include <vector>

#include "rubato/base/text.h"
#include "rubato/sim/csv.h"
#include "rubato/sim/text_file.h"

namespace rubato::sim {
namespace {

constexpr int kMostCurveGpus = 4096;  // the limit of CurveSpeed
constexpr int kLargestCurveBatch = 1'000'000'000;
constexpr double kFastest = 1e12;
constexpr double kSlowest = 1e-12;

std::optional<int> whole(std::string_view text, int most) {
  const auto value = parse_double(text);
  if (!value || *value != std::floor(*value) || *value < 1 || *value > most) return std::nullopt;
  return static_cast<int>(*value);
}

// The GPU counts in the header, after the batch column.
Result<std::vector<int>> read_counts(const CsvRow& row, const CsvReader& reader) {
  auto header = CsvHeader::of(row, reader);
  if (!header) return header.error();
  const auto batch = header->find("global_batch_size|batch_size|batch");
  if (!batch || *batch != 0 || row.fields.size() < 2) {
    return reader.error_at(row.line, "a curve file begins with global_batch_size,1,2,4,...");
  }
  std::vector<int> counts;
  for (std::size_t i = 1; i < row.fields.size(); ++i) {
    const auto count = whole(row.fields[i], kMostCurveGpus);
    if (!count || (!counts.empty() && *count <= counts.back())) {
      return reader.error_at(
          row.line, fmt::format("column {} is not a GPU count from 1 to {} above the one before it",
                                base::quoted(row.fields[i]), kMostCurveGpus));
    }
    counts.push_back(*count);
  }
  return counts;
}

// nullopt for a count at which the model cannot run.
Result<std::optional<WorkRate>> read_cell(std::string_view text, std::size_t line,
                                          const CsvReader& reader) {
  if (text.empty()) return std::optional<WorkRate>();
  const auto value = parse_double(text);
  if (!value) return reader.error_at(line, fmt::format("{} is not a number", base::quoted(text)));
  if (std::isnan(*value) || *value == 0) return std::optional<WorkRate>();
  if (!(*value >= kSlowest && *value <= kFastest)) {
    return reader.error_at(line,
                           fmt::format("{} steps per second make no sense", base::quoted(text)));
  }
  return std::optional<WorkRate>(*value);
}

Result<std::vector<CurvePoint>> read_points(const CsvRow& row, const std::vector<int>& counts,
                                            const CsvReader& reader) {
  std::vector<CurvePoint> points;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    auto rate = read_cell(row.fields[i + 1], row.line, reader);
    if (!rate) return rate.error();
    if (*rate) points.push_back({counts[i], **rate});
  }
  return points;
}

}  // namespace

std::shared_ptr<const CurveSpeed> CurveBook::find(std::string_view model, int batch) const {
  const auto by_batch = models.find(model);
  if (by_batch == models.end()) return nullptr;
  const auto curve = by_batch->second.find(batch);
  return curve == by_batch->second.end() ? nullptr : curve->second;
}

Result<ModelCurves> parse_curves(std::string_view text, const std::string& source) {
  CsvReader reader(text, source);
  CsvRow row;
  auto got = reader.next(row);
  if (!got) return got.error();
  if (!*got) return Error{fmt::format("{}: no curves: the file is empty", source)};
  const auto counts = read_counts(row, reader);
  if (!counts) return counts.error();

  ModelCurves curves;
  std::map<int, std::size_t> line_of;
  for (;;) {
    got = reader.next(row);
    if (!got) return got.error();
    if (!*got) break;
    if (row.fields.size() != counts->size() + 1) {
      return reader.error_at(row.line, fmt::format("{} fields where the header has {}",
                                                   row.fields.size(), counts->size() + 1));
    }
    const auto batch = whole(row.fields[0], kLargestCurveBatch);
    if (!batch) {
      return reader.error_at(row.line,
                             fmt::format("batch size {} is not a whole number from 1 to {}",
                                         base::quoted(row.fields[0]), kLargestCurveBatch));
    }
    const auto [before, fresh] = line_of.emplace(*batch, row.line);
    if (!fresh) {
      return reader.error_at(
          row.line, fmt::format("batch size {} was given on line {}", *batch, before->second));
    }
    auto points = read_points(row, *counts, reader);
    if (!points) return points.error();
    if (!points->empty()) curves.emplace(*batch, std::make_shared<CurveSpeed>(*points));
  }
  if (line_of.empty()) return Error{fmt::format("{}: no curves: only a header", source)};
  return curves;
}

Result<CurveBook> read_curves(const std::string& directory) {
  std::error_code problem;
  std::filesystem::directory_iterator entry(directory, problem);
  if (problem) {
    return Error{fmt::format("{}: cannot be opened as a directory of curves: {}", directory,
                             problem.message())};
  }
  std::vector<std::filesystem::path> files;
  while (entry != std::filesystem::directory_iterator()) {
    if (entry->path().extension() == ".csv") files.push_back(entry->path());
    entry.increment(problem);
    if (problem)
      return Error{fmt::format("{}: cannot be listed: {}", directory, problem.message())};
  }
  if (files.empty()) {
    return Error{
        fmt::format("{}: has no .csv file; curves are one MODEL.csv per model", directory)};
  }
  std::sort(files.begin(), files.end());

  CurveBook book;
  for (const auto& file : files) {
    auto text = read_text_file(file.string());
    if (!text) return text.error();
    auto curves = parse_curves(*text, file.string());
    if (!curves) return curves.error();
    book.models.emplace(file.stem().string(), std::move(*curves));
  }
  return book;
}

}  // namespace rubato::sim
