// The metrics that Prometheus reads at /metrics: the list of them, and a writer of the text format.
// The core has one Metrics, updates it on the loop's thread, and answers ShowMetrics with
// metrics_text(). The HTTP server appends its own metrics (server.h).
//
// prometheus-cpp is not used: it counts in global objects behind locks and has a server of its own.
// Here one thread counts, and each caller sees only what they may see. The format itself is a few
// lines.
//
// The names of users are labels only for admins. Other users see only their own name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rubato/api/request.h"
#include "rubato/core/cluster.h"

namespace rubato::api {

class Histogram {
 public:
  // The upper bounds of the buckets, ascending. The last bucket, to infinity, is implied.
  explicit Histogram(std::vector<double> bounds);

  void observe(double value);

  [[nodiscard]] const std::vector<double>& bounds() const { return bounds_; }
  [[nodiscard]] const std::vector<std::uint64_t>& counts() const { return counts_; }  // by bucket
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

// Bounds from `least` to `most`, three for each power of ten (1, 2.5, 5).
[[nodiscard]] std::vector<double> bucket_bounds(double least, double most);

// Prometheus's text format, version 0.0.4.
class MetricsWriter {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

  // Begins a family. Its samples must follow.
  void family(std::string_view name, std::string_view type, std::string_view help);
  void sample(double value, const Labels& labels = {});
  void histogram(const Histogram& histogram, const Labels& labels = {});

  void counter(std::string_view name, std::string_view help, double value);
  void gauge(std::string_view name, std::string_view help, double value);

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void line(std::string_view suffix, const Labels& labels, double value);

  std::string name_;
  std::string text_;
};

struct Metrics {
  // --- the present state; computed for each request ---
  std::map<JobState, std::uint64_t> jobs;  // all jobs that the daemon remembers, by state
  std::map<NodeState, std::uint64_t> nodes;
  std::uint64_t gpus_installed = 0;
  std::uint64_t gpus_usable = 0;
  std::uint64_t gpus_in_use = 0;
  double samples_per_second = 0;  // sum over all running jobs, as they report it
  double goodput = 0;             // the part of it that advances their work
  // For admitted jobs that have a deadline and have not ended.
  std::optional<double> least_slack_seconds;
  std::uint64_t deadlines_ahead = 0;
  std::uint64_t deadlines_behind = 0;
  struct Share {
    std::uint64_t gpus = 0;  // in use now
    double gpu_seconds = 0;  // in total
    double weight = 1;
  };
  std::map<std::string, Share> shares;  // by user
  // By the name of the GPU type: what one more GPU would save. Empty if the policy has no prices.
  std::map<std::string, double> prices;

  // --- counters since the start of the daemon ---
  std::uint64_t submitted = 0;
  std::uint64_t refused = 0;  // part of `submitted`
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t deadlines_met = 0;
  std::uint64_t deadlines_missed = 0;
  std::uint64_t decisions = 0;
  std::uint64_t resizes = 0;
  std::uint64_t restarts = 0;
  std::uint64_t journal_rows = 0;
  std::uint64_t journal_failures = 0;  // appends that failed; each is tried again

  Histogram waiting{bucket_bounds(0.1, 1e5)};   // seconds from submission to first start
  Histogram decision{bucket_bounds(1e-5, 10)};  // seconds to ask the policy and place its answer
  Histogram turn{bucket_bounds(1e-5, 10)};      // seconds of a whole turn of the loop
  Histogram resize_pause{bucket_bounds(1e-3, 100)};  // seconds without training because of a resize
  Histogram journal_append{bucket_bounds(1e-5, 10)};  // seconds until the rows were durable
};

[[nodiscard]] std::string metrics_text(const Metrics& metrics, const Caller& caller);

}  // namespace rubato::api
