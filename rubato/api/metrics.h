// What Prometheus reads at /metrics: a writer of its text format, and the list of what the daemon
// tells. The core holds one Metrics, adds to it on the loop's thread and answers ShowMetrics with
// metrics_text(); the HTTP server appends what it knows itself (server.h).
//
// Names of users are labels only in what an admin reads; others see their own name alone.
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
  // Upper ends of the buckets, rising; the one to infinity is implied.
  explicit Histogram(std::vector<double> bounds);

  void observe(double value);

  [[nodiscard]] const std::vector<double>& bounds() const { return bounds_; }
  [[nodiscard]] const std::vector<std::uint64_t>& counts() const { return counts_; }  // each bucket
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

// From `least` to `most`, three to each power of ten (1, 2.5, 5).
[[nodiscard]] std::vector<double> bucket_bounds(double least, double most);

// Prometheus's text format, version 0.0.4.
class MetricsWriter {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

  // Samples follow the family they belong to.
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
  // --- as things stand; the core sets these when it is asked ---
  std::map<JobState, std::uint64_t> jobs;  // all that the daemon knows, by state
  std::map<NodeState, std::uint64_t> nodes;
  std::uint64_t gpus_installed = 0;
  std::uint64_t gpus_usable = 0;
  std::uint64_t gpus_in_use = 0;
  double samples_per_second = 0;  // of all running jobs together, as they report it
  double goodput = 0;             // the part of it that counts towards their work
  // Of admitted jobs with a deadline that have not ended.
  std::optional<double> least_slack_seconds;
  std::uint64_t deadlines_ahead = 0;
  std::uint64_t deadlines_behind = 0;
  struct Share {
    std::uint64_t gpus = 0;  // in use now
    double gpu_seconds = 0;  // ever
    double weight = 1;
  };
  std::map<std::string, Share> shares;  // by user
  // By the name of the GPU type: what one more GPU would save; empty if the policy has no prices.
  std::map<std::string, double> prices;

  // --- counted since the daemon was started ---
  std::uint64_t submitted = 0;
  std::uint64_t refused = 0;  // of those submitted
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t deadlines_met = 0;
  std::uint64_t deadlines_missed = 0;
  std::uint64_t decisions = 0;
  std::uint64_t resizes = 0;
  std::uint64_t restarts = 0;
  std::uint64_t journal_rows = 0;
  std::uint64_t journal_failures = 0;  // appends that failed, each tried again

  Histogram waiting{bucket_bounds(0.1, 1e5)};         // from the submission to the first start
  Histogram decision{bucket_bounds(1e-5, 10)};        // asking the policy and placing its answer
  Histogram turn{bucket_bounds(1e-5, 10)};            // a whole turn of the loop
  Histogram resize_pause{bucket_bounds(1e-3, 100)};   // in which a resized job did not train
  Histogram journal_append{bucket_bounds(1e-5, 10)};  // until the rows were durable
};

[[nodiscard]] std::string metrics_text(const Metrics& metrics, const Caller& caller);

}  // namespace rubato::api
