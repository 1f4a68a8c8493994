#include "rubato/api/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "rubato/base/check.h"
#include "rubato/base/text.h"
#include "rubato/core/node_states.h"

namespace rubato::api {
namespace {

// Escapes backslashes and line feeds, and in values of labels also quotes.
void append_escaped(std::string& text, std::string_view raw, bool quotes) {
  for (const char c : raw) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || (quotes && c == '"')) text += '\\';
    text += c;
  }
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return shortest(value);
}

double as_double(std::uint64_t count) { return static_cast<double>(count); }

void write_queue(MetricsWriter& out, const Metrics& metrics) {
  out.family("rubato_jobs", "gauge", "Jobs by state; PENDING is the length of the queue.");
  // Writes all states, also those without a job: a series that disappears cannot be drawn.
  for (int i = 0; i <= static_cast<int>(JobState::refused); ++i) {
    const auto state = static_cast<JobState>(i);
    const auto found = metrics.jobs.find(state);
    out.sample(found == metrics.jobs.end() ? 0 : as_double(found->second),
               {{"state", to_text(state)}});
  }
  out.counter("rubato_jobs_submitted_total", "Jobs submitted.", as_double(metrics.submitted));
  out.family("rubato_jobs_ended_total", "counter", "Jobs that are over, by how they ended.");
  out.sample(as_double(metrics.completed), {{"how", "completed"}});
  out.sample(as_double(metrics.failed), {{"how", "failed"}});
  out.sample(as_double(metrics.cancelled), {{"how", "cancelled"}});
  out.sample(as_double(metrics.refused), {{"how", "refused"}});
  out.family("rubato_waiting_seconds", "histogram",
             "Time from the submission of a job to its first start.");
  out.histogram(metrics.waiting);
}

void write_cluster(MetricsWriter& out, const Metrics& metrics) {
  out.family("rubato_nodes", "gauge", "Nodes by state.");
  for (const auto& [state, name] : kNodeStates) {
    const auto found = metrics.nodes.find(state);
    out.sample(found == metrics.nodes.end() ? 0 : as_double(found->second), {{"state", name}});
  }
  out.gauge("rubato_gpus_installed", "GPUs of all nodes.", as_double(metrics.gpus_installed));
  out.gauge("rubato_gpus_usable", "GPUs of nodes that are up.", as_double(metrics.gpus_usable));
  out.gauge("rubato_gpus_in_use", "GPUs that jobs hold.", as_double(metrics.gpus_in_use));
  out.gauge("rubato_samples_per_second", "Samples that all jobs train on in a second.",
            metrics.samples_per_second);
  out.gauge("rubato_goodput_samples_per_second",
            "The part of rubato_samples_per_second that counts towards the jobs' work.",
            metrics.goodput);
}

void write_loop(MetricsWriter& out, const Metrics& metrics) {
  out.counter("rubato_decisions_total", "Times the policy was asked.",
              as_double(metrics.decisions));
  out.family("rubato_decision_seconds", "histogram",
             "Time to ask the policy and to place its answer.");
  out.histogram(metrics.decision);
  out.family("rubato_turn_seconds", "histogram", "Time of one turn of the loop.");
  out.histogram(metrics.turn);
  out.counter("rubato_resizes_total", "Resizes of running jobs.", as_double(metrics.resizes));
  out.counter("rubato_restarts_total", "Starts of jobs after their first.",
              as_double(metrics.restarts));
  out.family("rubato_resize_pause_seconds", "histogram",
             "Time in which a job that was resized did not train.");
  out.histogram(metrics.resize_pause);
  out.counter("rubato_journal_rows_total", "Rows stored.", as_double(metrics.journal_rows));
  out.counter("rubato_journal_failures_total", "Appends that failed and were tried again.",
              as_double(metrics.journal_failures));
  out.family("rubato_journal_append_seconds", "histogram",
             "Time of one append until its rows were durable.");
  out.histogram(metrics.journal_append);
}

void write_deadlines(MetricsWriter& out, const Metrics& metrics) {
  out.family("rubato_deadline_jobs", "gauge",
             "Admitted jobs with a deadline, by whether they are expected to meet it.");
  out.sample(as_double(metrics.deadlines_ahead), {{"expected", "met"}});
  out.sample(as_double(metrics.deadlines_behind), {{"expected", "missed"}});
  out.family("rubato_deadline_slack_seconds", "gauge",
             "The least time between a job's expected end and its deadline.");
  if (metrics.least_slack_seconds) out.sample(*metrics.least_slack_seconds);
  out.family("rubato_deadlines_total", "counter", "Jobs with a deadline that are over.");
  out.sample(as_double(metrics.deadlines_met), {{"result", "met"}});
  out.sample(as_double(metrics.deadlines_missed), {{"result", "missed"}});
}

void write_prices(MetricsWriter& out, const Metrics& metrics) {
  if (metrics.prices.empty()) return;
  out.family("rubato_gpu_price", "gauge",
             "Job-seconds that one more GPU of a type would save a second.");
  for (const auto& [type, price] : metrics.prices) out.sample(price, {{"type", type}});
}

void write_shares(MetricsWriter& out, const Metrics& metrics, const Caller& caller) {
  const auto each = [&](const auto& value) {
    for (const auto& [user, share] : metrics.shares) {
      if (caller.admin || user == caller.user) out.sample(value(share), {{"user", user}});
    }
  };
  out.family("rubato_user_gpus", "gauge", "GPUs that the jobs of a user hold.");
  each([](const Metrics::Share& share) { return as_double(share.gpus); });
  out.family("rubato_user_gpu_seconds_total", "counter", "GPU time that a user has had.");
  each([](const Metrics::Share& share) { return share.gpu_seconds; });
  out.family("rubato_user_weight", "gauge", "The weight of a user in fair sharing.");
  each([](const Metrics::Share& share) { return share.weight; });
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  CHECK(std::is_sorted(bounds_.begin(), bounds_.end()));
}

void Histogram::observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<std::size_t>(bucket)];
  ++count_;
  sum_ += value;
}

std::vector<double> bucket_bounds(double least, double most) {
  CHECK(least > 0 && least < most);
  std::vector<double> bounds;
  // Computes each power by itself, so that 1e-5 is printed as 1e-05 and not with rounding errors.
  for (int power = static_cast<int>(std::floor(std::log10(least))); power < 300; ++power) {
    for (const int step : {10, 25, 50}) {
      const double bound =
          power > 0 ? step * std::pow(10, power - 1) : step / std::pow(10, 1 - power);
      if (bound > most * (1 + 1e-9)) return bounds;
      if (bound >= least * (1 - 1e-9)) bounds.push_back(bound);
    }
  }
  return bounds;
}

void MetricsWriter::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += "# HELP " + name_ + ' ';
  append_escaped(text_, help, false);
  text_ += "\n# TYPE " + name_ + ' ';
  text_ += type;
  text_ += '\n';
}

void MetricsWriter::line(std::string_view suffix, const Labels& labels, double value) {
  text_ += name_;
  text_ += suffix;
  char before = '{';
  for (const auto& [name, content] : labels) {
    text_ += before;
    text_ += name;
    text_ += "=\"";
    append_escaped(text_, content, true);
    text_ += '"';
    before = ',';
  }
  if (!labels.empty()) text_ += '}';
  text_ += ' ' + number(value) + '\n';
}

void MetricsWriter::sample(double value, const Labels& labels) { line("", labels, value); }

void MetricsWriter::histogram(const Histogram& histogram, const Labels& labels) {
  Labels with_bound = labels;
  with_bound.emplace_back("le", "");
  std::uint64_t so_far = 0;
  for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
    so_far += histogram.counts()[i];
    const std::string bound =
        i < histogram.bounds().size() ? number(histogram.bounds()[i]) : "+Inf";
    with_bound.back().second = bound;
    line("_bucket", with_bound, as_double(so_far));
  }
  line("_sum", labels, histogram.sum());
  line("_count", labels, as_double(histogram.count()));
}

void MetricsWriter::counter(std::string_view name, std::string_view help, double value) {
  family(name, "counter", help);
  sample(value);
}

void MetricsWriter::gauge(std::string_view name, std::string_view help, double value) {
  family(name, "gauge", help);
  sample(value);
}

std::string metrics_text(const Metrics& metrics, const Caller& caller) {
  MetricsWriter out;
  write_queue(out, metrics);
  write_cluster(out, metrics);
  write_prices(out, metrics);
  write_loop(out, metrics);
  write_deadlines(out, metrics);
  write_shares(out, metrics, caller);
  return out.text();
}

}  // namespace rubato::api
