// How the simulated jobs slow each other down, from a file (--contention FILE). The file is one of:
//
//   a measured table (CSV)  speed beside another job / speed alone, for every pair of (network,
//       GPUs, nodes), as published with DeepShare (ICPADS'23). Read as there: the lowest entry over
//       all jobs that it meets on a node counts; jobs inside one node neither suffer nor hurt. For
//       a count or spread that was not measured, the nearest one counts.
//   two numbers per network (CSV)  columns model, sensitivity, pressure (model/contention.h)
//   links (JSON)  the interface of a node and the PCIe switches inside it have a bandwidth, and a
//       step of a network sends some bytes through every link that it uses
//
// docs/contention.md has the formats, what each predicts, and how far each is off.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/model/contention.h"

namespace rubato::sim {

// What a row or a column of a measured table is about.
struct MeasuredShape {
  std::string model;
  int gpus = 0;
  int nodes = 0;
};

class ContentionTable final : public ContentionModel {
 public:
  // kept[i][j]: what i keeps beside j.
  ContentionTable(std::vector<MeasuredShape> shapes, std::vector<std::vector<double>> kept);

  [[nodiscard]] double kept(const Tenant& job, std::span<const Tenant> others) const override;
  [[nodiscard]] bool knows(std::string_view model) const override { return rows_.contains(model); }

  [[nodiscard]] const std::vector<MeasuredShape>& shapes() const { return shapes_; }
  [[nodiscard]] const std::vector<std::vector<double>>& entries() const { return kept_; }
  // The same table without the rows and columns of one spread.
  [[nodiscard]] ContentionTable without(int gpus, int nodes) const;

  ContentionTable(ContentionTable&&) noexcept = default;
  ContentionTable& operator=(ContentionTable&&) noexcept = default;

 private:
  [[nodiscard]] std::optional<std::size_t> nearest(const Tenant& tenant) const;

  std::vector<MeasuredShape> shapes_;
  std::vector<std::vector<double>> kept_;
  std::map<std::string, std::vector<std::size_t>, std::less<>> rows_;  // by network
};

// What one step of a network sends through each link that its job uses.
struct LinkUse {
  double step_s = 1;  // a step alone
  double bytes = 0;
};

// A job uses the interface of each of its nodes if it spans several, and the uplink of each of its
// switches if it spans several switches. Alone, a step computes and then sends at full bandwidth.
// Beside others, a transfer gets an equal share of the link with those that use it at that moment;
// each uses it for the share of time that it would need alone. The slowest link decides. A transfer
// stops while a job with a lower Tenant::turn uses the link, and does not see those with a higher
// one.
class LinkContention final : public ContentionModel {
 public:
  struct Links {
    double interface_bytes_s = 0;
    double switch_bytes_s = 0;
    int gpus_per_switch = 4;
  };
  using Uses = std::map<std::string, LinkUse, std::less<>>;

  LinkContention(Links links, Uses uses) : links_(links), uses_(std::move(uses)) {}

  [[nodiscard]] double kept(const Tenant& job, std::span<const Tenant> others) const override;
  [[nodiscard]] bool knows(std::string_view model) const override { return uses_.contains(model); }
  [[nodiscard]] const Links& links() const { return links_; }
  [[nodiscard]] const Uses& uses() const { return uses_; }

  // Seconds that a second of training alone sends through each link that the job uses. The keys are
  // the same for the same link.
  [[nodiscard]] std::map<std::size_t, double> demand(const Tenant& job) const;

  // The share of its step, up to 1, in which such a job keeps a link of this bandwidth busy.
  [[nodiscard]] static double busy(const LinkUse& use, double bytes_s);

 private:
  Links links_;
  Uses uses_;
};

using ReadContention = std::shared_ptr<const ContentionModel>;

[[nodiscard]] Result<ReadContention> read_contention(const std::string& path);
// The same for text in memory (called by the fuzzers).
[[nodiscard]] Result<ReadContention> parse_contention(std::string_view text,
                                                      const std::string& source);

// How far a model is off on the entries of a table.
struct FitError {
  std::size_t entries = 0;
  double mean = 0;       // mean absolute error of the share that is kept
  double worst = 0;      // the largest
  double r_squared = 0;  // share of the variance that it explains
};
[[nodiscard]] FitError error_of(const ContentionModel& model, const ContentionTable& table);

// The two numbers of every network, by least squares on the slowdowns of a table. The largest
// sensitivity is 1.
[[nodiscard]] PairLoss::Numbers fit_pairs(const ContentionTable& table);
// The share of its step in which each network keeps the interface of a node busy, by least squares
// on the shares that are kept. Steps last a second, and the bytes are those of this bandwidth.
[[nodiscard]] LinkContention::Uses fit_links(const ContentionTable& table,
                                             double interface_bytes_s);

[[nodiscard]] std::string to_csv(const PairLoss::Numbers& numbers);
[[nodiscard]] std::string to_json_text(const LinkContention& links);

}  // namespace rubato::sim
