#include "rubato/sim/report.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>

namespace rubato::sim {
namespace {

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

// ---- table ----

struct ReportColumn {
  std::string title;
  std::function<std::optional<double>(const Metrics&)> value;
  std::function<std::string(double)> text;
  enum class Best { lowest, highest, none } best = Best::none;
  bool hide_if_zero = false;
};

std::vector<ReportColumn> columns(const std::vector<Run>& runs) {
  using Best = ReportColumn::Best;
  const auto share = [](double v) { return fmt::format("{:.1f}%", 100 * v); };
  const auto whole = [](double v) { return fmt::format("{:.0f}", v); };
  const auto ratio = [](double v) { return fmt::format("{:.2f}", v); };
  std::vector<ReportColumn> all = {
      {"avg JCT", [](const Metrics& m) { return m.avg_jct_s; }, human_duration, Best::lowest},
      {"/ bound", [](const Metrics& m) { return m.bound_ratio; },
       [](double v) { return fmt::format("{:.3f}", v); }, Best::lowest, true},
      {"p50 JCT", [](const Metrics& m) { return m.p50_jct_s; }, human_duration, Best::lowest},
      {"p90 JCT", [](const Metrics& m) { return m.p90_jct_s; }, human_duration, Best::lowest},
      {"p99 JCT", [](const Metrics& m) { return m.p99_jct_s; }, human_duration, Best::lowest},
      {"makespan", [](const Metrics& m) { return m.makespan_s; }, human_duration, Best::lowest},
      {"avg queue", [](const Metrics& m) { return m.avg_queue_s; }, human_duration, Best::lowest},
      {"GPU busy", [](const Metrics& m) { return m.gpu_busy; }, share, Best::none},
      {"efficiency", [](const Metrics& m) { return m.cluster_efficiency; }, share, Best::highest},
      {"utility", [](const Metrics& m) { return m.utility; }, share, Best::none, true},
      {"nodes advised", [](const Metrics& m) { return m.advised_nodes; },
       [](double v) { return fmt::format("{:.1f}", v); }, Best::none, true},
      {"deadlines met", [](const Metrics& m) { return static_cast<double>(m.deadlines_met); },
       whole, Best::highest, true},
      {"feasible", [](const Metrics& m) { return static_cast<double>(m.deadlines_feasible); },
       whole, Best::none, true},
      {"worth", [](const Metrics& m) { return m.worth; },
       [](double v) { return fmt::format("{:.1f}", v); }, Best::highest, true},
      {"max FTF", [](const Metrics& m) { return m.ftf_max; }, ratio, Best::lowest},
      {"unfair", [](const Metrics& m) { return m.ftf_unfair; }, share, Best::lowest},
      {"completed", [](const Metrics& m) { return static_cast<double>(m.completed); }, whole,
       Best::none},
      {"stopped",
       [](const Metrics& m) {
         return m.searches ? std::optional(static_cast<double>(m.searches->stopped)) : std::nullopt;
       },
       whole, Best::none, true},
      {"avg search", [](const Metrics& m) { return m.searches ? m.searches->avg_s : std::nullopt; },
       human_duration, Best::lowest, true},
      {"avg stage",
       [](const Metrics& m) { return m.searches ? m.searches->avg_stage_s : std::nullopt; },
       human_duration, Best::lowest, true},
      {"regret", [](const Metrics& m) { return m.searches ? m.searches->regret : std::nullopt; },
       [](double v) { return fmt::format("{:.4f}", v); }, Best::lowest, true},
      {"rejected", [](const Metrics& m) { return static_cast<double>(m.rejected); }, whole,
       Best::none, true},
      {"preempted", [](const Metrics& m) { return static_cast<double>(m.preemptions); }, whole,
       Best::none, true},
      {"resized", [](const Metrics& m) { return static_cast<double>(m.resizes); }, whole,
       Best::none, true},
      {"migrated", [](const Metrics& m) { return static_cast<double>(m.migrations); }, whole,
       Best::none, true},
      {"wall", [](const Metrics& m) { return std::optional(m.wall_s); }, human_duration,
       Best::none},
  };
  if (runs.empty() || runs.front().metrics.types.size() < 2) return all;
  // Each type's share beside that of all.
  const auto at = std::find_if(all.begin(), all.end(), [](const ReportColumn& column) {
    return column.title == "efficiency";
  });
  std::vector<ReportColumn> of_types;
  for (std::size_t t = 0; t < runs.front().metrics.types.size(); ++t) {
    const auto busy = [t](const Metrics& m) {
      return t < m.types.size() ? std::optional(m.types[t].busy) : std::nullopt;
    };
    of_types.push_back({runs.front().metrics.types[t].name + " busy", busy, share, Best::none});
  }
  all.insert(at, of_types.begin(), of_types.end());
  return all;
}

// Equal texts are equally good: the reader cannot see a difference.
std::vector<std::string> column_texts(const ReportColumn& column, const std::vector<Run>& runs) {
  std::vector<std::string> texts;
  std::optional<double> best;
  for (const auto& run : runs) {
    const auto value = column.value(run.metrics);
    texts.push_back(value ? column.text(*value) : "-");
    if (!value) continue;
    const bool better =
        !best || (column.best == ReportColumn::Best::lowest ? *value < *best : *value > *best);
    if (better) best = value;
  }
  if (column.best == ReportColumn::Best::none || !best || runs.size() < 2) return texts;
  const std::string best_text = column.text(*best);
  for (auto& text : texts) text += text == best_text ? "*" : " ";
  return texts;
}

// The first column to the left, the others to the right.
std::string in_columns(const std::vector<std::vector<std::string>>& cells) {
  std::string out;
  for (std::size_t row = 0; row < cells[0].size(); ++row) {
    for (std::size_t c = 0; c < cells.size(); ++c) {
      std::size_t width = 0;
      for (const auto& cell : cells[c]) width = std::max(width, cell.size());
      out += c == 0 ? fmt::format("{:<{}}", cells[c][row], width)
                    : fmt::format("  {:>{}}", cells[c][row], width);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

// More users than this are left to the JSON.
constexpr std::size_t kMostUsersShown = 10;

// Shares of the GPU-time that was used while all users had a job waiting, beside those of the
// weights.
std::string users_table(const std::vector<Run>& runs) {
  if (runs.empty()) return "";
  const auto& users = runs.front().metrics.users;
  if (users.size() < 2 || users.size() > kMostUsersShown) return "";
  const auto share = [](double part, double all) {
    return all > 0 ? fmt::format("{:.1f}%", 100 * part / all) : std::string("-");
  };
  double weights = 0;
  for (const auto& user : users) weights += user.weight;
  std::vector<std::vector<std::string>> cells = {{"user"}, {"jobs"}, {"weight"}};
  for (const auto& user : users) {
    cells[0].push_back(user.name.empty() ? "(none)" : user.name);
    cells[1].push_back(fmt::format("{}", user.jobs));
    cells[2].push_back(share(user.weight, weights));
  }
  for (const auto& run : runs) {
    double all = 0;
    for (const auto& user : run.metrics.users) all += user.contended_gpu_s;
    cells.push_back({run.policy});
    for (const auto& user : run.metrics.users)
      cells.back().push_back(share(user.contended_gpu_s, all));
  }
  return "\nGPU-time of users while all of them had a job waiting:\n" + in_columns(cells);
}

// ---- times on the trace's clock, exact ----

class TraceClock {
 public:
  explicit TraceClock(double origin_s) : origin_micros_(std::llround(origin_s * 1e6)) {}

  [[nodiscard]] std::string text(Time t) const {
    const std::int64_t micros = origin_micros_ + t.time_since_epoch().count();
    const std::int64_t size = micros < 0 ? -micros : micros;
    std::string out =
        fmt::format("{}{}.{:06}", micros < 0 ? "-" : "", size / 1'000'000, size % 1'000'000);
    out.erase(out.find_last_not_of('0') + 1);
    if (out.back() == '.') out.pop_back();
    return out;
  }
  [[nodiscard]] std::string text(const std::optional<Time>& t) const { return t ? text(*t) : ""; }

 private:
  std::int64_t origin_micros_;
};

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string history_text(const TraceClock& clock, const JobRecord& record) {
  std::string out;
  for (const auto& [at, gpus] : record.gpus) {
    out += fmt::format("{}{}:{}", out.empty() ? "" : ";", clock.text(at), gpus);
  }
  return out;
}

// ---- report data ----

double rounded(double seconds) { return std::round(seconds * 1000) / 1000; }
Json seconds_or_null(const std::optional<Time>& t) {
  return t ? Json(rounded(seconds(*t))) : Json(nullptr);
}

constexpr std::size_t kMostStretches = 100'000;

Json timeline(const Recorder& recorder) {
  std::vector<Stretch> shown = recorder.stretches();
  const std::size_t total = shown.size();
  if (total > kMostStretches) {  // the longest say most
    const auto length = [](const Stretch& s) { return s.end - s.start; };
    std::nth_element(shown.begin(), shown.begin() + kMostStretches, shown.end(),
                     [&](const Stretch& a, const Stretch& b) {
                       return std::tuple(-length(a).count(), a.start, a.lane) <
                              std::tuple(-length(b).count(), b.start, b.lane);
                     });
    shown.resize(kMostStretches);
  }
  std::sort(shown.begin(), shown.end(), [](const Stretch& a, const Stretch& b) {
    return std::tuple(a.start, a.lane) < std::tuple(b.start, b.lane);
  });
  Json json = {{"job", Json::array()},
               {"lane", Json::array()},
               {"width", Json::array()},
               {"start_s", Json::array()},
               {"end_s", Json::array()}};
  for (const auto& s : shown) {
    json["job"].push_back(s.job.value());
    json["lane"].push_back(s.lane);
    json["width"].push_back(s.width);
    json["start_s"].push_back(rounded(seconds(s.start)));
    json["end_s"].push_back(rounded(seconds(s.end)));
  }
  json["total"] = total;
  json["shown"] = shown.size();
  return json;
}

Json series(const Recorder& recorder) {
  const auto& steps = recorder.series();
  Json json = {{"t_s", Json::array()},
               {"queue", Json::array()},
               {"running", Json::array()},
               {"gpus_busy", Json::array()},
               {"efficiency", Json::array()}};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    json["t_s"].push_back(rounded(steps.start_s(i)));
    json["queue"].push_back(rounded(steps.mean(i, Recorder::queue)));
    json["running"].push_back(rounded(steps.mean(i, Recorder::running)));
    json["gpus_busy"].push_back(rounded(steps.mean(i, Recorder::busy)));
    json["efficiency"].push_back(rounded(steps.mean(i, Recorder::efficiency)));
    if (recorder.has_prices())
      json["price"].push_back(std::round(steps.mean(i, Recorder::price) * 1e6) / 1e6);
  }
  json["t_s"].push_back(rounded(steps.end_s()));  // closes the last stretch
  return json;
}

Json run_jobs(const Recorder& recorder) {
  Json json = {{"start_s", Json::array()},
               {"end_s", Json::array()},
               {"attained_gpu_s", Json::array()},
               {"preemptions", Json::array()},
               {"rejected", Json::object()}};
  for (std::size_t i = 0; i < recorder.jobs().size(); ++i) {
    const JobRecord& record = recorder.jobs()[i];
    json["start_s"].push_back(seconds_or_null(record.start));
    json["end_s"].push_back(seconds_or_null(record.end ? record.end : record.stopped));
    json["attained_gpu_s"].push_back(rounded(record.attained.gpu_seconds()));
    json["preemptions"].push_back(record.preemptions);
    if (!record.rejected.empty()) json["rejected"][fmt::format("{}", i)] = record.rejected;
  }
  return json;
}

Json all_jobs(const Workload& workload) {
  Json json = {{"name", Json::array()},      {"user", Json::array()}, {"model", Json::array()},
               {"submit_s", Json::array()},  {"gpus", Json::array()}, {"deadline_s", Json::array()},
               {"work_gpu_s", Json::array()}};
  for (const auto& job : workload.jobs) {
    const WorkRate rate = job.speed->on(GpuType(), job.spec->requested);
    json["name"].push_back(job.spec->name);
    json["user"].push_back(job.spec->user);
    json["model"].push_back(job.spec->model);
    json["submit_s"].push_back(rounded(seconds(job.submit)));
    json["gpus"].push_back(job.spec->requested);
    json["deadline_s"].push_back(seconds_or_null(job.spec->deadline));
    json["work_gpu_s"].push_back(rounded(rate > 0 ? job.work / rate * job.spec->requested : 0));
  }
  return json;
}

}  // namespace

std::string human_duration(double seconds) {
  if (seconds < 0.9995) return fmt::format("{:.0f}ms", seconds * 1000);
  if (seconds < 59.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  const long long minutes = (whole + 30) / 60;
  if (minutes < 48 * 60) return fmt::format("{}h{:02}m", minutes / 60, minutes % 60);
  return fmt::format("{:.1f}d", seconds / 86400);
}

Json to_json(const std::string& policy, const Metrics& m) {
  Json types = Json::array();
  for (const auto& type : m.types)
    types.push_back({{"type", type.name},
                     {"gpus", type.gpus},
                     {"busy", type.busy},
                     {"price", or_null(type.price)}});
  Json users = Json::array();
  for (const auto& user : m.users) {
    users.push_back({{"user", user.name},
                     {"jobs", user.jobs},
                     {"weight", user.weight},
                     {"gpu_s", user.gpu_s},
                     {"contended_gpu_s", user.contended_gpu_s}});
  }
  Json json = {{"policy", policy},
               {"jobs", m.jobs},
               {"completed", m.completed},
               {"rejected", m.rejected},
               {"avg_jct_s", or_null(m.avg_jct_s)},
               {"p50_jct_s", or_null(m.p50_jct_s)},
               {"p90_jct_s", or_null(m.p90_jct_s)},
               {"p99_jct_s", or_null(m.p99_jct_s)},
               {"makespan_s", or_null(m.makespan_s)},
               {"avg_queue_s", or_null(m.avg_queue_s)},
               {"p99_queue_s", or_null(m.p99_queue_s)},
               {"avg_queue_length", m.avg_queue_length},
               {"gpu_busy", m.gpu_busy},
               {"cluster_efficiency", m.cluster_efficiency},
               {"utility", or_null(m.utility)},
               {"advised_nodes", or_null(m.advised_nodes)},
               {"deadlines_total", m.deadlines_total},
               {"deadlines_met", m.deadlines_met},
               {"deadlines_feasible", m.deadlines_feasible},
               {"worth", or_null(m.worth)},
               {"ftf_mean", or_null(m.ftf_mean)},
               {"ftf_p99", or_null(m.ftf_p99)},
               {"ftf_max", or_null(m.ftf_max)},
               {"ftf_unfair", or_null(m.ftf_unfair)},
               {"preemptions", m.preemptions},
               {"resizes", m.resizes},
               {"migrations", m.migrations},
               {"failures", m.failures},
               {"shared_gpus", m.shared},
               {"bound_ratio", or_null(m.bound_ratio)},
               {"events", m.events},
               {"decisions", m.decisions},
               {"decide_ms_p50", m.decide_ms_p50},
               {"decide_ms_p99", m.decide_ms_p99},
               {"wall_s", m.wall_s},
               {"types", types},
               {"users", users}};
  if (const auto& s = m.searches) {
    json["searches"] = {{"searches", s->searches},
                        {"stopped", s->stopped},
                        {"avg_s", or_null(s->avg_s)},
                        {"avg_stage_s", or_null(s->avg_stage_s)},
                        {"regret", or_null(s->regret)}};
  }
  return json;
}

std::vector<NodeWorth> worth_of_nodes(const Metrics& metrics, const Cluster& cluster) {
  std::vector<NodeWorth> worths;
  for (std::size_t t = 0; t < metrics.types.size(); ++t) {
    const auto& type = metrics.types[t];
    if (!type.price || !metrics.makespan_s || metrics.completed == 0) continue;
    const int gpus = cluster.node_size(GpuType(static_cast<GpuType::rep>(t)));
    const double saved = *type.price * gpus * *metrics.makespan_s;
    worths.push_back(
        {type.name, gpus, *type.price, saved / static_cast<double>(metrics.completed)});
  }
  return worths;
}

std::string to_table(const std::vector<Run>& runs) {
  std::vector<std::vector<std::string>> cells;  // by column, the title first
  cells.push_back({"policy"});
  for (const auto& run : runs) cells[0].push_back(run.policy);
  for (const auto& column : columns(runs)) {
    const bool zero = std::all_of(runs.begin(), runs.end(), [&](const Run& run) {
      return column.value(run.metrics).value_or(0) == 0;
    });
    if (column.hide_if_zero && zero) continue;
    cells.push_back({column.title});
    for (auto& text : column_texts(column, runs)) cells.back().push_back(std::move(text));
  }
  return in_columns(cells) + users_table(runs);
}

std::string jobs_csv(const Workload& workload, const std::vector<Run>& runs) {
  const TraceClock clock(workload.origin_s);
  std::string out =
      "policy,job_id,submit_s,start_s,end_s,gpus,deadline_s,met,rejected,reason,earliest_deadline_"
      "s\n";
  for (const auto& run : runs) {
    for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
      const SimJob& job = workload.jobs[i];
      const JobRecord& record = run.recorder.jobs()[i];
      const bool met = job.spec->deadline && record.end && *record.end <= *job.spec->deadline;
      out +=
          fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", csv_field(run.policy),
                      csv_field(job.spec->name), clock.text(job.submit), clock.text(record.start),
                      clock.text(record.end ? record.end : record.stopped),
                      history_text(clock, record), clock.text(job.spec->deadline),
                      job.spec->deadline ? (met ? "1" : "0") : "", record.rejected.empty() ? 0 : 1,
                      record.stopped ? "stopped by its search" : csv_field(record.rejected),
                      clock.text(record.earliest));
    }
  }
  return out;
}

Json report_data(const Workload& workload, const Cluster& cluster, const std::vector<Run>& runs,
                 const ReportHeading& heading) {
  Json groups = Json::array();
  for (const auto& group : cluster.groups()) {
    groups.push_back({{"nodes", group.nodes},
                      {"gpus_per_node", group.gpus_per_node},
                      {"type", cluster.type_name(group.type)}});
  }
  Json settings = Json::array();
  for (const auto& [name, value] : heading.settings) settings.push_back({name, value});
  Json json = {
      {"version", 1},
      {"tool", heading.tool},
      {"title", fmt::format("{} on {}", workload.name, heading.cluster)},
      {"trace", {{"name", workload.name}, {"jobs", workload.jobs.size()}}},
      {"cluster", {{"spec", heading.cluster}, {"gpus", cluster.installed()}, {"groups", groups}}},
      {"settings", settings},
      {"notes", workload.warnings},
      {"jobs", all_jobs(workload)},
      {"runs", Json::array()}};
  for (const auto& run : runs) {
    json["runs"].push_back({{"policy", run.policy},
                            {"paper", run.paper},
                            {"elastic", run.elastic},
                            {"summary", to_json(run.policy, run.metrics)},
                            {"jobs", run_jobs(run.recorder)},
                            {"series", series(run.recorder)},
                            {"timeline", timeline(run.recorder)}});
  }
  return json;
}

}  // namespace rubato::sim
