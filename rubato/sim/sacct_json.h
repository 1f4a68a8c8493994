// A job of `sacct --json`, as the fields of a trace. Slurm 22.05 was tried. Later versions write a
// number as {"set": true, "number": 3} and the state as a list; both forms are read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/sim/trace_fields.h"

namespace rubato::sim {

struct SacctCell {
  TraceField field = TraceField::unused;
  std::string_view key;  // for errors
  std::string text;
};

// `bad` says what is wrong with the object; then the cells are not complete.
struct SacctCells {
  std::vector<SacctCell> cells;
  TraceProblem bad;
};

[[nodiscard]] SacctCells sacct_cells(const Json& job);

// Whether the document is one of `sacct --json`.
[[nodiscard]] bool is_sacct(const Json& document);

}  // namespace rubato::sim
