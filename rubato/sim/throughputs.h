// Measured throughputs per GPU type, alone and in pairs, from a JSON file as published with Gavel:
//   {"v100": {"('ResNet-18 (batch size 16)', 1)": {"null": 21.4, "('LM (batch size 5)', 1)":
//   [own, other], ...}, ...}, ...}
// The numbers are steps/s of a model at a batch size on a number of GPUs; 0 = cannot run.
// docs/traces.md describes the file.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "rubato/base/result.h"
#include "rubato/core/cluster.h"
#include "rubato/model/typed_speed.h"

namespace rubato::sim {

struct ThroughputBook {
  // By model and batch size (0 = the name has none); jobs of one entry share the object.
  std::map<std::pair<std::string, int>, std::shared_ptr<const TypedSpeed>, std::less<>> speeds;

  // nullptr if it was not measured.
  [[nodiscard]] std::shared_ptr<const TypedSpeed> find(const std::string& model, int batch) const;
};

// Reads the GPU types of the cluster; fails if the file lacks one of them.
[[nodiscard]] Result<ThroughputBook> read_throughputs(const std::string& path,
                                                      const Cluster& cluster);

// The same for text in memory (called by the fuzzers).
[[nodiscard]] Result<ThroughputBook> parse_throughputs(std::string_view text,
                                                       const std::string& source,
                                                       const Cluster& cluster);

}  // namespace rubato::sim
