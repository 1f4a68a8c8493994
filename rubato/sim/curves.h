// Measured scaling curves, from a directory with one CSV file per model. Rows are global batch
// sizes, columns are GPU counts, cells are steps per second. An empty cell, nan or 0 means that the
// job cannot run there. docs/traces.md describes the files.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "rubato/base/result.h"
#include "rubato/model/curve.h"

namespace rubato::sim {

// One file: by global batch size. A row without any usable cell is left out.
using ModelCurves = std::map<int, std::shared_ptr<const CurveSpeed>>;

struct CurveBook {
  std::map<std::string, ModelCurves, std::less<>> models;  // by file name without ".csv"

  // nullptr if that model was not measured at that batch size.
  [[nodiscard]] std::shared_ptr<const CurveSpeed> find(std::string_view model, int batch) const;
};

[[nodiscard]] Result<CurveBook> read_curves(const std::string& directory);

// Parses the text of one such file (called by the fuzzers).
[[nodiscard]] Result<ModelCurves> parse_curves(std::string_view text, const std::string& source);

}  // namespace rubato::sim
