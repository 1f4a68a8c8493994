#include "rubato/client/what_if.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "rubato/base/unicode.h"
#include "rubato/core/cluster.h"
#include "rubato/jobfile/times.h"
#include "rubato/model/curve.h"
#include "rubato/sim/report.h"

namespace rubato::client::render {
namespace {

constexpr const char* kReal = "what really happened";

std::string cell(const Json& summary, const char* name, bool time) {
  const auto found = summary.find(name);
  if (found == summary.end() || !found->is_number()) return "-";
  const double value = found->get<double>();
  if (time) return human_duration(value);
  return found->is_number_integer() ? fmt::format("{:.0f}", value) : fmt::format("{:.2f}", value);
}

struct Column {
  const char* title;
  const char* name;
  bool time;
};
constexpr Column kColumns[] = {
    {"completed", "completed", false},    {"refused", "refused", false},
    {"unfinished", "unfinished", false},  {"avg JCT", "common_avg_jct_s", true},
    {"p90 JCT", "p90_jct_s", true},       {"avg wait", "avg_wait_s", true},
    {"in time", "deadlines_kept", false}, {"late", "deadlines_missed", false},
    {"GPU-hours", "gpu_hours", false},    {"resizes", "resizes", false}};

const Json& member(const Json& json, const char* name) {
  static const Json none;
  const auto found = json.is_object() ? json.find(name) : json.end();
  return found == json.end() ? none : *found;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    text += fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
    text += "\n";
  }
  return text;
}

std::string sentences(const char* title, const Json& list) {
  std::string text;
  for (const Json& one : list) {
    if (one.is_string()) text += fmt::format("  - {}\n", for_terminal(one.get<std::string>()));
  }
  return text.empty() ? text : fmt::format("\n{}\n{}", title, text);
}

// --- the report ---

using Moved =
    std::tuple<Time, std::size_t, Slice, bool>;  // when, which job, what, whether it gets it

class Replayed {
 public:
  Replayed(const Json& result, WallTime since, const Cluster& cluster)
      : since_(since), cluster_(cluster) {
    add_jobs(result.at("truth").at("jobs"));
    for (const Json& one : result.at("policies")) add_jobs(one.at("jobs"));
    std::stable_sort(workload.jobs.begin(), workload.jobs.end(),
                     [](const SimJob& a, const SimJob& b) { return a.submit < b.submit; });
    for (std::size_t i = 0; i < workload.jobs.size(); ++i)
      index_[std::stoll(workload.jobs[i].spec->model)] = i;
  }

  // One run as the recorder of the simulator would have seen it.
  sim::Run run(const std::string& policy, const Json& outcome) const {
    sim::Recorder recorder(workload, cluster_, {.history = true, .timeline = true});
    std::multimap<Time, std::function<void(Time)>> events;
    for (const Json& job : outcome.at("jobs")) add_ends(job, recorder, events);
    add_moves(outcome.at("spans"), recorder, events);
    for (const auto& [at, happens] : events) happens(at);
    sim::Run run{policy, "", true, recorder.metrics(), std::move(recorder)};
    return run;
  }

  Workload workload;

 private:
  using Events = std::multimap<Time, std::function<void(Time)>>;

  [[nodiscard]] Time time(const Json& text) const {
    const auto at = jobfile::parse_wall_time(text.get<std::string>());
    if (!at) throw std::invalid_argument("a time that cannot be read");
    return std::max(kStart, kStart + (*at - since_));
  }

  void add_jobs(const Json& jobs) {
    for (const Json& job : jobs) {
      const auto id = job.at("job").get<std::int64_t>();
      if (!known_.insert(id).second) continue;
      auto spec = std::make_shared<JobSpec>();
      spec->name = fmt::format("{} {}", id, job.at("name").get<std::string>());
      spec->user = job.at("user").get<std::string>();
      spec->model = fmt::format("{}", id);
      spec->limits = {1, cluster_.largest_type(), {}};
      if (!job.at("deadline").is_null()) spec->deadline = time(job.at("deadline"));
      workload.jobs.push_back(
          {spec, time(job.at("submitted")), 1, std::make_shared<ConstantSpeed>(1), nullptr});
    }
  }

  void add_ends(const Json& job, sim::Recorder& recorder, Events& events) const {
    const std::size_t i = index_.at(job.at("job").get<std::int64_t>());
    const JobId id(static_cast<JobId::rep>(i));
    const bool refused = job.at("state") == "REFUSED";
    const Time submit = workload.jobs[i].submit;
    if (!refused)
      events.emplace(submit, [&recorder, id](Time now) { recorder.submitted(now, id); });
    if (job.at("end").is_null()) return;
    const Time end = std::max(time(job.at("end")), submit);
    if (refused) {
      events.emplace(end, [&recorder, id, why = job.at("reason").get<std::string>()](Time now) {
        recorder.rejected(now, Reject{id, why, std::nullopt}, false);
      });
    } else {
      events.emplace(end, [&recorder, id](Time now) { recorder.finished(now, id); });
    }
  }

  void add_moves(const Json& spans, sim::Recorder& recorder, Events& events) const {
    std::vector<Moved> moves;
    for (const Json& span : spans) {
      if (span.at("job").is_null()) continue;
      const auto found = index_.find(span.at("job").get<std::int64_t>());
      if (found == index_.end()) continue;
      Slice slice{NodeId(span.at("node").get<NodeId::rep>()), 0};
      for (const Json& gpu : span.at("gpus"))
        slice.mask |= std::uint64_t{1} << (gpu.get<unsigned>() % 64U);
      moves.emplace_back(time(span.at("from")), found->second, slice, true);
      if (!span.at("until").is_null())
        moves.emplace_back(time(span.at("until")), found->second, slice, false);
    }
    // What a job gives up comes before what it gets at the same time.
    std::stable_sort(moves.begin(), moves.end(), [](const Moved& a, const Moved& b) {
      return std::tuple(std::get<0>(a), std::get<1>(a), std::get<3>(a)) <
             std::tuple(std::get<0>(b), std::get<1>(b), std::get<3>(b));
    });
    std::map<std::size_t, Allocation> held;
    for (std::size_t i = 0; i < moves.size(); ++i) {
      const auto& [at, job, slice, gets] = moves[i];
      Allocation& gpus = held[job];
      gets ? gpus.add(slice) : gpus.remove(slice);
      const bool more = i + 1 < moves.size() && std::get<0>(moves[i + 1]) == at &&
                        std::get<1>(moves[i + 1]) == job;
      if (more) continue;
      const JobId id(static_cast<JobId::rep>(job));
      events.emplace(at, [&recorder, id, gpus](Time now) {
        recorder.allocation(now, id, gpus, gpus.empty() ? 0 : 1);
      });
    }
  }

  WallTime since_;
  const Cluster& cluster_;
  std::set<std::int64_t> known_;
  std::map<std::int64_t, std::size_t> index_;  // of the jobs in the workload
};

}  // namespace

std::string what_if(const Json& result, const Look& /*look*/) {
  std::vector<std::vector<std::string>> rows = {{""}};
  for (const Column& column : kColumns) rows[0].emplace_back(column.title);
  const auto add = [&](std::string name, const Json& outcome) {
    rows.push_back({std::move(name)});
    for (const Column& column : kColumns)
      rows.back().push_back(cell(member(outcome, "summary"), column.name, column.time));
  };
  add(kReal, member(result, "truth"));
  std::string repeated;
  for (const Json& one : member(result, "policies")) {
    add(text(one, "policy"), one);
    const Json& differ = member(one, "differences");
    if (!differ.is_object() || !member(differ, "p50").is_number()) continue;
    repeated = fmt::format(
        "\nThe simulated past: completion times of {} jobs differ from the real ones by {:.1f}% "
        "(median), {:.1f}% (90th percentile) and {:.1f}% (worst).\n",
        member(differ, "jobs").dump(), 100 * member(differ, "p50").get<double>(),
        100 * member(differ, "p90").get<double>(), 100 * member(differ, "worst").get<double>());
  }
  const auto common = member(member(member(result, "truth"), "summary"), "common_jobs");
  return fmt::format("From {} to {}\n\n", text(result, "since"), text(result, "until")) +
         table(rows) +
         fmt::format("\navg JCT is of the {} jobs that completed really and in every row.\n",
                     common.is_number() ? common.dump() : "0") +
         repeated + sentences("Taken as truth:", member(result, "taken_as_truth")) +
         sentences("Unknown:", member(result, "unknown"));
}

Result<Json> what_if_report(const Json& result, const std::string& tool) {
  try {
    const auto since = jobfile::parse_wall_time(result.at("since").get<std::string>());
    const std::string machines = result.at("cluster").get<std::string>();
    const auto cluster = parse_cluster(machines);
    if (!since || !cluster) return Error{"the result of the what-if cannot be read"};
    Replayed replayed(result, *since, *cluster);
    replayed.workload.name =
        fmt::format("what if, {} to {}", text(result, "since"), text(result, "until"));
    for (const char* part : {"taken_as_truth", "unknown"}) {
      const std::string title = std::string_view(part) == "unknown" ? "Unknown" : "Taken as truth";
      for (const Json& one : result.at(part))
        replayed.workload.warnings.push_back(fmt::format("{}: {}", title, one.get<std::string>()));
    }
    std::vector<sim::Run> runs;
    runs.push_back(replayed.run(kReal, result.at("truth")));
    for (const Json& one : result.at("policies"))
      runs.push_back(replayed.run(one.at("policy").get<std::string>(), one));
    return sim::report_data(replayed.workload, *cluster, runs, {tool, machines, {}});
  } catch (const std::exception& problem) {
    return Error{fmt::format("the result of the what-if cannot be read: {}", problem.what())};
  }
}

}  // namespace rubato::client::render
