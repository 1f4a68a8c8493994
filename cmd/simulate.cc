#include <algorithm>
#include <atomic>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <string_view>
#include <thread>

#include "cmd/command_line.h"
#include "cmd/policy_socket.h"
#include "cmd/progress_bar.h"
#include "cmd/report_page.h"
#include "rubato/base/text.h"
#include "rubato/cells/celled_policy.h"
#include "rubato/policy/all.h"
#include "rubato/policy/measuring.h"
#include "rubato/sim/bound.h"
#include "rubato/sim/contention.h"
#include "rubato/sim/deadline_bound.h"
#include "rubato/sim/failures.h"
#include "rubato/sim/report.h"
#include "rubato/sim/simulation.h"
#include "rubato/sim/text_file.h"
#include "rubato/sim/trace_verdict.h"
#include "rubato/sim/workload.h"

namespace rubato::cmd {
namespace {

struct SimulateFlags {
  std::string trace, format, cluster,
      placement = "count", curves, profiles, type_speeds, throughputs, failures, contention,
      contention_knowledge = "measured", link_order = "fair", searches = "stop";
  std::string deadlines, cells;
  bool utilities = false, adapt_batches = false;
  double opportunistic = 0;
  std::vector<std::string> policies, policy_sockets;
  double from = 0, until = kLongestSeconds;
  std::optional<double> restart_cost;
  double interval = 0, interference = 0, quiet_loss = kQuietLoss, skew_limit = kSkewLimit,
         failure_rate = 0, repair_time = 3600;
  std::uint64_t seed = 1;
  unsigned threads = 0;
  std::string knowledge = "oracle";
  double measuring_time = 20;
  bool bound = false;
  bool rigid = false;
  bool advise = false;
  bool json = false;
  std::string jobs_csv, html;
  std::string command;
};

// Everything that the simulations need. It is read and checked before the first one starts.
struct Comparison {
  Cluster cluster;
  Workload workload;
  TraceVerdict verdict;
  std::vector<std::unique_ptr<PolicyEntry>> foreign;  // policies of other processes
  std::vector<ChosenPolicy> chosen;
  Quotas quotas;
  std::vector<std::unique_ptr<Policy>> policies;
  SimulationOptions options;
};

}  // namespace

Result<std::vector<double>> read_numbers(const std::string& path) {
  const auto text = read_text_file(path);
  if (!text) return text.error();
  std::vector<double> numbers;
  std::size_t line = 0;
  for (const auto raw : split(*text, '\n')) {
    ++line;
    const auto item = trim(raw);
    if (item.empty()) continue;
    const auto value = parse_double(item);
    if (!value && line == 1) continue;
    if (!value || !(*value >= 0) || !std::isfinite(*value)) {
      return Error{
          fmt::format("{}:{}: {} is not a number of 0 or more", path, line, base::quoted(item))};
    }
    numbers.push_back(*value);
  }
  if (numbers.empty()) return Error{fmt::format("{}: holds no numbers", path)};
  return numbers;
}

namespace {

Result<Duration> seconds_flag(const char* flag, double value) {
  if (value >= 0 && value <= kLongestSeconds) return from_seconds(value);
  return Error{fmt::format("{} {}: must be seconds, 0 or more", flag, value)};
}

Result<std::vector<NodeEvent>> node_events(const SimulateFlags& flags, const Cluster& cluster,
                                           const Workload& workload) {
  if (!flags.failures.empty()) return read_failures(flags.failures, cluster);
  if (flags.failure_rate == 0) return std::vector<NodeEvent>();
  // The length of a run is not known in advance. Failures are drawn until a month after the last
  // submission.
  const Duration horizon = (workload.jobs.back().submit - kStart) + from_seconds(30 * 86400.0);
  return random_failures(cluster, flags.failure_rate, flags.repair_time, horizon, flags.seed);
}

Result<std::vector<ChosenPolicy>> chosen_policies(const SimulateFlags& flags,
                                                  const Cluster& cluster) {
  std::vector<ChosenPolicy> chosen;
  for (const auto& list : flags.policies) {
    auto some = parse_policies(list);
    if (!some) return some.error();
    chosen.insert(chosen.end(), some->begin(), some->end());
  }
  for (const auto& policy : chosen) {
    if (auto fits = policy.check(cluster); !fits) return fits.error();
  }
  return chosen;
}

Result<void> add_foreign_policies(const SimulateFlags& flags, Comparison& c) {
  for (const auto& path : flags.policy_sockets) {
    auto entry = policy_at_socket(path);
    if (!entry) return entry.error();
    c.foreign.push_back(std::make_unique<PolicyEntry>(std::move(*entry)));
    const auto none = std::make_shared<KeyValues>(std::map<std::string, std::string>());
    c.chosen.push_back({c.foreign.back().get(), c.foreign.back()->name, none});
  }
  if (c.chosen.empty())
    return Error{"no policy: name one with --policy; `rubato policies` lists them"};
  return {};
}

// Only the jobs that are submitted in this part of the trace, on its own clock from the first
// submission on.
Result<void> cut(const SimulateFlags& flags, Trace& trace) {
  if (trace.jobs.empty()) return {};
  const double first = trace.jobs.front().submit_s;
  std::erase_if(trace.jobs, [&](const TraceJob& job) {
    return job.submit_s - first < flags.from || job.submit_s - first >= flags.until;
  });
  if (!trace.jobs.empty()) return {};
  return Error{fmt::format("{}: no job is submitted from {} s until {} s after the first one",
                           trace.name, flags.from, flags.until)};
}

Result<std::string> read_policy_text(const std::string& path) { return read_text_file(path); }

using Policies = std::vector<std::unique_ptr<Policy>>;

Result<Policies> make_policies(const Comparison& c) {
  Policies policies;
  for (const auto& policy : c.chosen) {
    const auto one = [&]() -> MadePolicy {
      auto made = policy.make({read_numbers, read_policy_text, c.options.contention});
      if (!made) return made;
      // A policy that chooses the number of GPUs and does not know the curves must measure them.
      const bool measures = c.options.knowledge.knowing == Knowing::measured || (*made)->learns();
      if (!policy.entry->elastic || !measures) return made;
      return measure_first(std::move(*made), c.options.knowledge.measuring_time);
    };
    const QuietRule rule{c.options.quiet_loss,
                         c.options.contention_known ? c.options.contention.get() : nullptr};
    auto made = with_cells({one, policy.entry->elastic, policy.admits()}, c.quotas,
                           c.options.placement, rule, c.options.skew_limit);
    if (!made) return made.error();
    policies.push_back(std::move(*made));
  }
  return policies;
}

// Networks that the contention file does not have.
void note_unknown_models(const ContentionModel& contention, Workload& workload) {
  std::map<std::string, std::size_t> unknown;
  for (const auto& job : workload.jobs) {
    if (!contention.knows(job.spec->model)) ++unknown[job.spec->model];
  }
  for (const auto& [model, jobs] : unknown) {
    workload.warnings.push_back(
        fmt::format("{}: model {} is not in the contention file: its {} neither suffer nor hurt",
                    workload.name, base::quoted(model), plural(static_cast<int>(jobs), "job")));
  }
}

Result<Comparison> prepare(const SimulateFlags& flags) {
  Comparison c;
  auto cluster = parse_cluster(flags.cluster);
  if (!cluster) return cluster.error();
  c.cluster = std::move(*cluster);
  auto placement = parse_placement(flags.placement);
  if (!placement) return placement.error();
  c.options.placement = *placement;
  const auto interval = seconds_flag("--interval", flags.interval);
  if (!interval) return interval.error();
  c.options.interval = *interval;
  if (!(flags.interference >= 0 && flags.interference < 1)) {
    return Error{
        fmt::format("--interference {}: must be a share of the speed, 0 or more and below 1",
                    flags.interference)};
  }
  if (flags.interference > 0)
    c.options.contention = std::make_shared<FixedLoss>(flags.interference);
  if (!flags.contention.empty()) {
    if (c.options.placement == Placement::count) {
      return Error{
          "--contention is about jobs on the same nodes, and with --placement count nodes do not "
          "matter: choose another placement, for example pack"};
    }
    auto contention = read_contention(flags.contention);
    if (!contention) return contention.error();
    c.options.contention = std::move(*contention);
  }
  auto order = parse_link_order(flags.link_order);
  if (!order) return order.error();
  c.options.link_order = *order;
  if (*order != LinkOrder::fair &&
      dynamic_cast<const LinkContention*>(c.options.contention.get()) == nullptr) {
    return Error{
        fmt::format("--link-order {} is about links: give --contention a file of links (JSON)",
                    flags.link_order)};
  }
  c.options.searches_stop = flags.searches == "stop";
  c.options.quiet_loss = flags.quiet_loss;
  c.options.skew_limit = flags.skew_limit;
  c.options.contention_known = flags.contention_knowledge == "oracle";
  if (flags.restart_cost) {
    if (auto ok = seconds_flag("--restart-cost", *flags.restart_cost); !ok) return ok.error();
  }

  auto knowing = parse_knowing(flags.knowledge);
  if (!knowing) return knowing.error();
  const auto measuring_time = seconds_flag("--measuring-time", flags.measuring_time);
  if (!measuring_time) return measuring_time.error();
  c.options.knowledge = {*knowing, *measuring_time, flags.seed};

  auto chosen = chosen_policies(flags, c.cluster);
  if (!chosen) return chosen.error();
  c.chosen = std::move(*chosen);
  if (auto ok = add_foreign_policies(flags, c); !ok) return ok.error();
  if (!flags.cells.empty()) {
    if (!flags.policy_sockets.empty())
      return Error{"--cells needs one policy for each tenant, and --policy-socket is only one"};
    const auto text = read_text_file(flags.cells);
    if (!text) return text.error();
    auto quotas = parse_quotas(*text, flags.cells, c.cluster);
    if (!quotas) return quotas.error();
    c.quotas = std::move(*quotas);
  }
  auto policies = make_policies(c);
  if (!policies) return policies.error();
  c.policies = std::move(*policies);

  std::optional<TraceFormat> format;
  if (!flags.format.empty()) {
    auto named = parse_trace_format(flags.format);
    if (!named) return named.error();
    format = *named;
  }
  auto trace = read_trace(flags.trace, format);
  if (!trace) return trace.error();
  if (auto ok = cut(flags, *trace); !ok) return ok.error();
  WorkloadOptions options;
  options.restart_cost_s = flags.restart_cost;
  options.seed = flags.seed;
  // All policies get the same workload, so that their runs can be compared.
  options.assign_curves =
      !flags.rigid && std::any_of(c.chosen.begin(), c.chosen.end(),
                                  [](const ChosenPolicy& p) { return p.entry->elastic; });
  if (!flags.deadlines.empty()) {
    const auto tightness = parse_tightness("--deadlines", flags.deadlines);
    if (!tightness) return tightness.error();
    options.tightness = *tightness;
  }
  options.utilities = flags.utilities;
  options.opportunistic = flags.opportunistic;
  options.adapt_batches = flags.adapt_batches;
  if (flags.adapt_batches && flags.throughputs.empty())
    return Error{"--adapt-batches needs the speed with each batch size: give --throughputs FILE"};
  if (!flags.curves.empty()) {
    auto curves = read_curves(flags.curves);
    if (!curves) return curves.error();
    options.curves = std::move(*curves);
  }
  if (!flags.type_speeds.empty() && flags.profiles.empty())
    return Error{"--type-speeds is about jobs with a profile: give --profiles DIR as well"};
  if (!flags.profiles.empty()) {
    std::vector<double> type_speeds;
    if (!flags.type_speeds.empty()) {
      auto speeds = parse_type_speeds(flags.type_speeds, c.cluster);
      if (!speeds) return Error{fmt::format("--type-speeds: {}", speeds.error().message)};
      type_speeds = std::move(*speeds);
    }
    auto profiles = read_profiles(flags.profiles, type_speeds);
    if (!profiles) return profiles.error();
    options.profiles = std::move(*profiles);
  }
  if (!flags.throughputs.empty()) {
    auto throughputs = read_throughputs(flags.throughputs, c.cluster);
    if (!throughputs) return throughputs.error();
    options.throughputs = std::move(*throughputs);
  }
  auto workload = make_workload(*trace, options);
  if (!workload) return workload.error();
  c.workload = std::move(*workload);
  if (!flags.contention.empty()) note_unknown_models(*c.options.contention, c.workload);
  c.verdict = judge(*trace, c.workload, c.cluster);

  auto events = node_events(flags, c.cluster, c.workload);
  if (!events) return events.error();
  c.options.node_events = std::move(*events);
  c.options.record.history = !flags.jobs_csv.empty();
  c.options.record.timeline = !flags.html.empty();
  return c;
}

// Runs the policies on several threads. The runs share nothing, so the results do not depend on the
// number of threads.
std::vector<Result<SimulationResult>> run_all(const Comparison& c, const Cluster& cluster,
                                              const Policies& policies, unsigned threads) {
  std::vector<std::optional<Result<SimulationResult>>> results(policies.size());
  {
    ProgressBar progress("simulating", c.workload.jobs.size() * policies.size());
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t i = next++; i < results.size(); i = next++) {
        SimulationOptions options = c.options;
        options.record.rigid = !c.chosen[i].entry->elastic;
        results[i].emplace(simulate(c.workload, cluster, *policies[i], options, &progress.done()));
      }
    };
    if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::thread> crew;
    for (unsigned t = 1; t < std::min<std::size_t>(threads, results.size()); ++t)
      crew.emplace_back(work);
    work();
    for (auto& thread : crew) thread.join();
  }
  std::vector<Result<SimulationResult>> all;
  all.reserve(results.size());
  for (auto& result : results) all.push_back(std::move(*result));
  return all;
}

std::string html_page(const Comparison& c, const std::vector<Run>& runs,
                      const SimulateFlags& flags) {
  ReportHeading heading{"rubato " RUBATO_VERSION, flags.cluster, {}};
  heading.settings = {
      {"placement", flags.placement},
      {"restart cost",
       flags.restart_cost ? fmt::format("{} s", *flags.restart_cost) : "as in the trace"},
      {"decisions",
       flags.interval == 0 ? "at every event" : fmt::format("every {} s", flags.interval)},
      {"seed", fmt::format("{}", flags.seed)},
      {"command", flags.command}};
  return report_page(report_data(c.workload, c.cluster, runs, heading));
}

// Bounds that no schedule of these jobs can exceed.
struct Limits {
  Bound jct;
  DeadlineBound deadlines;
};
struct AllLimits {
  Limits plain;
  std::optional<Limits> sharing;  // for schedules in which jobs share GPUs, if a policy did that

  [[nodiscard]] const Limits& of(const Metrics& metrics) const {
    return metrics.shared && sharing ? *sharing : plain;
  }
};

Limits find_limits(const Comparison& c, bool sharing) {
  BoundOptions jct;
  jct.sharing = sharing;
  DeadlineOptions deadlines;
  deadlines.sharing = sharing;
  return {lower_bound(c.workload, c.cluster, jct),
          deadline_bound(c.workload, c.cluster, deadlines)};
}

AllLimits find_limits(const Comparison& c, const std::vector<Run>& runs) {
  AllLimits limits{find_limits(c, false), {}};
  if (std::any_of(runs.begin(), runs.end(), [](const Run& run) { return run.metrics.shared; }))
    limits.sharing = find_limits(c, true);
  return limits;
}

Json limits_json(const Limits& limits) {
  return {{"jobs", limits.jct.jobs},
          {"avg_jct_s", limits.jct.avg_jct_s()},
          {"alone_s", limits.jct.alone_s},
          {"srpt_s", limits.jct.srpt_s},
          {"priced_s", limits.jct.priced_s},
          {"deadlines",
           {{"total", limits.deadlines.total},
            {"feasible", limits.deadlines.feasible},
            {"most", limits.deadlines.most()}}}};
}

void print_limits(const Limits& limits, std::string_view whose) {
  const Bound& jct = limits.jct;
  fmt::print(
      "\nNo schedule {} that completes all of them has an average JCT below {} ({:.0f} s: alone "
      "{:.0f}, one machine {:.0f}, prices {:.0f}).\n",
      whose, human_duration(jct.avg_jct_s()), jct.avg_jct_s(), jct.alone_s, jct.srpt_s,
      jct.priced_s);
  const DeadlineBound& deadlines = limits.deadlines;
  if (deadlines.total == 0) return;
  fmt::print("No schedule {} keeps more than {} of the {} deadlines; {} are feasible alone.\n",
             whose, deadlines.most(), deadlines.total, deadlines.feasible);
}

// The same workload with one more node of a type, by run.
struct OneMoreNode {
  std::string type;
  int gpus = 0;
  std::vector<Metrics> metrics;
};

Result<std::vector<OneMoreNode>> with_one_more_node(const Comparison& c, unsigned threads) {
  std::vector<OneMoreNode> all;
  std::vector<std::string> names;
  for (int t = 0; t < c.cluster.types(); ++t)
    names.push_back(c.cluster.type_name(GpuType(static_cast<GpuType::rep>(t))));
  for (int t = 0; t < c.cluster.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    auto groups = c.cluster.groups();
    groups.push_back({1, c.cluster.node_size(type), type});
    const auto policies = make_policies(c);
    if (!policies) return policies.error();
    OneMoreNode more{names[type.index()], c.cluster.node_size(type), {}};
    for (const auto& result : run_all(c, Cluster(groups, names), *policies, threads)) {
      if (!result) return result.error();
      more.metrics.push_back(result->metrics);
    }
    all.push_back(std::move(more));
  }
  return all;
}

// What the policy's own prices said, if it has some.
std::optional<NodeWorth> by_price(const Comparison& c, const Run& run, const std::string& type) {
  for (const auto& worth : worth_of_nodes(run.metrics, c.cluster)) {
    if (worth.type == type) return worth;
  }
  return std::nullopt;
}

Json advice_json(const Comparison& c, const std::vector<OneMoreNode>& nodes, const Run& run,
                 std::size_t place) {
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  Json list = Json::array();
  for (const auto& node : nodes) {
    const Metrics& more = node.metrics[place];
    const auto worth = by_price(c, run, node.type);
    list.push_back({{"type", node.type},
                    {"node_gpus", node.gpus},
                    {"avg_jct_s", or_null(more.avg_jct_s)},
                    {"completed", more.completed},
                    {"deadlines_met", more.deadlines_met},
                    {"price", worth ? Json(worth->price) : Json()},
                    {"price_saves_s", worth ? Json(worth->saves_s) : Json()}});
  }
  return list;
}

void print_advice(const Comparison& c, const std::vector<OneMoreNode>& nodes, const Run& run,
                  std::size_t place) {
  for (const auto& node : nodes) {
    const Metrics& more = node.metrics[place];
    if (!run.metrics.avg_jct_s || !more.avg_jct_s) continue;
    const double change = 100 * (*more.avg_jct_s / *run.metrics.avg_jct_s - 1);
    fmt::print(
        "\n{}: with one more node of {} (type {}) the average JCT is {} instead of {} "
        "({:+.1f}%)",
        run.policy, plural(node.gpus, "GPU"), node.type, human_duration(*more.avg_jct_s),
        human_duration(*run.metrics.avg_jct_s), change);
    if (run.metrics.deadlines_total > 0) {
      fmt::print(", and {} deadlines are met instead of {}", more.deadlines_met,
                 run.metrics.deadlines_met);
    }
    fmt::print(".\n");
    if (more.completed != run.metrics.completed) {
      fmt::print(
          "  {} jobs complete instead of {}, so the two averages are not of the same jobs.\n",
          more.completed, run.metrics.completed);
    }
    if (const auto worth = by_price(c, run, node.type)) {
      fmt::print(
          "  By its price alone, {:.3g} job-seconds a second for a GPU, it would be {:+.1f}%.\n",
          worth->price, -100 * worth->saves_s / *run.metrics.avg_jct_s);
    }
  }
}

using Tenants = std::vector<std::vector<TenantReport>>;  // by run

void print_runs(const Comparison& c, const std::vector<Run>& runs, const Tenants& tenants,
                const std::optional<AllLimits>& limits, const std::vector<OneMoreNode>& advice,
                bool json) {
  if (json) {
    Json list = Json::array();
    for (std::size_t i = 0; i < runs.size(); ++i) {
      list.push_back(to_json(runs[i].policy, runs[i].metrics));
      if (!tenants[i].empty()) list.back()["tenants"] = to_json(tenants[i]);
      if (!advice.empty()) list.back()["advice"] = advice_json(c, advice, runs[i], i);
    }
    Json all = {{"trace", to_json(c.verdict)}, {"runs", list}};
    if (limits) all["bound"] = limits_json(limits->plain);
    if (limits && limits->sharing) all["bound"]["sharing"] = limits_json(*limits->sharing);
    fmt::print("{}\n", all.dump(2));
    return;
  }
  fmt::print("{}: {} jobs on {} GPUs, {}\n{}", c.workload.name, c.workload.jobs.size(),
             c.cluster.installed(), to_text(c.verdict), to_table(runs));
  if (runs.size() > 1) fmt::print("\n* best of its column\n");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!tenants[i].empty()) fmt::print("\n{}\n{}", runs[i].policy, to_text(tenants[i]));
  }
  if (limits) print_limits(limits->plain, "of these jobs");
  if (limits && limits->sharing) print_limits(*limits->sharing, "in which jobs share GPUs");
  for (std::size_t i = 0; i < runs.size(); ++i) print_advice(c, advice, runs[i], i);
}

// If not all jobs of the bound have completed, their average cannot be compared with it.
void compare(const Bound& bound, Metrics& metrics) {
  if (metrics.completed == bound.jobs && metrics.avg_jct_s && bound.avg_jct_s() > 0)
    metrics.bound_ratio = *metrics.avg_jct_s / bound.avg_jct_s();
}

int run(const SimulateFlags& flags) {
  auto prepared = prepare(flags);
  if (!prepared) return bad_input(prepared.error());
  const Comparison& c = *prepared;
  for (const auto& warning : c.workload.warnings) fmt::print(stderr, "rubato: note: {}\n", warning);
  auto results = run_all(c, c.cluster, c.policies, flags.threads);
  std::vector<Run> runs;
  Tenants tenants;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) {
      fmt::print(stderr, "rubato: {}: {}\n", c.chosen[i].canonical, results[i].error().message);
      return 1;
    }
    runs.push_back({c.chosen[i].canonical, c.chosen[i].entry->paper, c.chosen[i].entry->elastic,
                    results[i]->metrics, std::move(results[i]->recorder)});
    tenants.push_back(std::move(results[i]->tenants));
  }
  std::optional<AllLimits> limits;
  if (flags.bound) {
    limits = find_limits(c, runs);
    for (auto& run : runs) compare(limits->of(run.metrics).jct, run.metrics);
  }
  if (!flags.jobs_csv.empty()) {
    if (auto ok = write_file(flags.jobs_csv, jobs_csv(c.workload, runs)); !ok)
      return bad_input(ok.error());
  }
  if (!flags.html.empty()) {
    if (auto ok = write_file(flags.html, html_page(c, runs, flags)); !ok) {
      return bad_input(ok.error());
    }
  }
  std::vector<OneMoreNode> advice;
  if (flags.advise) {
    auto nodes = with_one_more_node(c, flags.threads);
    if (!nodes) {
      fmt::print(stderr, "rubato: {}\n", nodes.error().message);
      return 1;
    }
    advice = std::move(*nodes);
  }
  print_runs(c, runs, tenants, limits, advice, flags.json);
  if (!flags.html.empty()) fmt::print(stderr, "report written to {}\n", flags.html);
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, Action& chosen, const std::string& command_line) {
  auto* command = app.add_subcommand(
      "simulate",
      "Run a trace on a simulated cluster under one or more policies, and "
      "compare them. simulate prints what is odd about the trace, then a table with one row per "
      "policy, and marks the best value of each column.");
  auto flags = std::make_shared<SimulateFlags>();
  flags->command = command_line;
  command
      ->add_option(
          "--trace", flags->trace,
          "file with the jobs, plain or compressed with gzip; docs/traces.md lists the formats")
      ->type_name("FILE")
      ->required();
  command
      ->add_option(
          "--cluster", flags->cluster,
          "nodes and GPUs per node, with GPU types if there are several: 16x8, or 8x8:v100,4x4:k80")
      ->type_name("NODESxGPUS")
      ->required();
  command
      ->add_option("--policy", flags->policies,
                   "policies to compare, separated by commas, as `rubato policies` lists them; may "
                   "be repeated")
      ->type_name("POLICY,...")
      ->take_all();
  command
      ->add_option("--policy-socket", flags->policy_sockets,
                   "unix socket at which another program decides, as policies in Python do "
                   "(docs/python.md); may be repeated")
      ->type_name("PATH")
      ->take_all();
  command
      ->add_option("--from", flags->from,
                   "leave out jobs that are submitted earlier than this after the first one")
      ->type_name("SECONDS")
      ->check(from_to(0, kLongestSeconds));
  command
      ->add_option("--until", flags->until,
                   "leave out jobs that are submitted this long after the first one, or later")
      ->type_name("SECONDS")
      ->check(from_to(0, kLongestSeconds));
  command
      ->add_option("--format", flags->format,
                   "format of the trace (default: detected from the file)")
      ->type_name("NAME");
  command
      ->add_option(
          "--placement", flags->placement,
          "which GPUs a job gets: count (any, nodes do not matter), pack (fewest nodes), "
          "emptiest (fills the emptiest node first), spread (most nodes), even (fewest nodes, "
          "evenly), buddy (aligned blocks; jobs move), netpack (network packing), quiet (where "
          "nobody loses much speed to a neighbour, else the job waits), gaps (GPUs that others "
          "left "
          "over) or skew (pack for jobs with one large tensor, gaps for others)")
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option(
          "--restart-cost", flags->restart_cost,
          "time that a job loses at its start and whenever its GPUs change (default: that of the "
          "trace; else 30 for jobs with --profiles, and 0 for others)")
      ->type_name("SECONDS");
  command
      ->add_option("--interval", flags->interval,
                   "time between two decisions; 0 means a decision at every event")
      ->type_name("SECONDS")
      ->capture_default_str();
  command
      ->add_option("--cells", flags->cells,
                   "cells of tenants, a line each: TENANT CELLS [USER ...], for example vision "
                   "2xnode,1x4 ada ben; tenants are users of the trace (docs/cells.md)")
      ->type_name("FILE");
  command
      ->add_option("--curves", flags->curves,
                   "directory with measured scaling curves, one CSV file per model")
      ->type_name("DIR");
  command
      ->add_option(
          "--profiles", flags->profiles,
          "directory with measured step times and gradients, one directory per application. "
          "Jobs then end by training progress, and policies see only what was measured")
      ->type_name("DIR");
  command
      ->add_option("--type-speeds", flags->type_speeds,
                   "with --profiles: how many times as fast as measured GPUs of a type compute, "
                   "for example a100=2,t4=1; 1 for types that are not named")
      ->type_name("TYPE=SPEED,...");
  command->add_flag(
      "--rigid", flags->rigid,
      "jobs keep the number of GPUs that they ask for, unless the trace or --curves gives them a "
      "speed curve");
  auto* contention =
      command
          ->add_option("--contention", flags->contention,
                       "what jobs on the same nodes lose to each other: a measured table, two "
                       "numbers per model, or links with bandwidths (docs/contention.md)")
          ->type_name("FILE");
  command
      ->add_option("--contention-knowledge", flags->contention_knowledge,
                   "what the placement quiet knows of --contention. measured: the speeds that "
                   "running jobs report. oracle: the file")
      ->type_name("NAME")
      ->check(one_of({"measured", "oracle"}))
      ->capture_default_str();
  command
      ->add_option(
          "--link-order", flags->link_order,
          "with a contention file of links: who sends first. fair: nobody. intensity: jobs "
          "that compute much for what they send. grouper: stages of searches, the short "
          "ones first (docs/contention.md)")
      ->type_name("NAME")
      ->check(one_of({"fair", "intensity", "grouper"}))
      ->capture_default_str();
  command
      ->add_option("--searches", flags->searches,
                   "stop: the worst trials of a search are stopped after each stage. ignore: every "
                   "trial runs to its end")
      ->type_name("NAME")
      ->check(one_of({"stop", "ignore"}))
      ->capture_default_str();
  command
      ->add_option("--quiet-loss", flags->quiet_loss,
                   "with --placement quiet: the largest share of its speed that a job may lose to "
                   "another one that starts, grows or moves; 1 means any")
      ->type_name("SHARE")
      ->check(from_to(0, 1))
      ->capture_default_str();
  command
      ->add_option("--skew-limit", flags->skew_limit,
                   "with --placement skew: a job is packed if its largest tensor is more than this "
                   "share of all its parameters")
      ->type_name("SHARE")
      ->check(from_to(0, 1))
      ->capture_default_str();
  command
      ->add_option("--interference", flags->interference,
                   "share of its speed, 0 to below 1, that a job on several nodes loses while it "
                   "shares a node "
                   "with another job that is on several nodes")
      ->type_name("SHARE")
      ->capture_default_str()
      ->excludes(contention);
  command
      ->add_option(
          "--throughputs", flags->throughputs,
          "measured speeds per GPU type, of jobs alone and in pairs, in the JSON format of Gavel")
      ->type_name("FILE");
  command->add_flag(
      "--adapt-batches", flags->adapt_batches,
      "with --throughputs: jobs of a shockwave trace change their batch size as the trace says "
      "(accordion, gns); without it they keep it");
  command
      ->add_option(
          "--deadlines", flags->deadlines,
          "give each job without a deadline one: submission + x * duration, with x drawn from "
          "this range")
      ->type_name("LOW:HIGH");
  command->add_flag("--utilities", flags->utilities,
                    "give each job with a deadline a utility, drawn as in the evaluation of OASiS "
                    "(docs/traces.md)");
  command
      ->add_option("--opportunistic", flags->opportunistic,
                   "make this share of the jobs opportunistic, by seed (policy antman)")
      ->type_name("SHARE")
      ->check(from_to(0, 1));
  auto* file =
      command
          ->add_option(
              "--failures", flags->failures,
              "node failures: CSV with the columns time_s, node and event, which is down or up")
          ->type_name("FILE");
  command
      ->add_option("--failure-rate", flags->failure_rate,
                   "failures per node and day, drawn from the seed; not together with --failures")
      ->type_name("NUMBER")
      ->capture_default_str()
      ->excludes(file);
  command->add_option("--repair-time", flags->repair_time, "mean time until a failed node returns")
      ->type_name("SECONDS")
      ->capture_default_str();
  command
      ->add_option("--seed", flags->seed,
                   "seed of the random numbers: assigned curves, deadlines, failures, losses")
      ->type_name("NUMBER")
      ->capture_default_str();
  command
      ->add_option("--threads", flags->threads,
                   "policies simulated at the same time; 0 means one per core. The results do not "
                   "depend on it")
      ->type_name("NUMBER")
      ->capture_default_str();
  command
      ->add_option(
          "--knowledge", flags->knowledge,
          "oracle: policies know the speed curve of every job. measured: they must measure it")
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--measuring-time", flags->measuring_time,
                   "time that a job must run on one number of GPUs until its speed there is known")
      ->type_name("SECONDS")
      ->capture_default_str();
  command->add_flag(
      "--bound", flags->bound,
      "also print what no schedule can exceed: a lower bound on the average job completion "
      "time (JCT), each policy's ratio to it, and how many deadlines can be met at most");
  command->add_flag(
      "--advise", flags->advise,
      "also simulate one more node of each GPU type, and print what it would be worth");
  command->add_flag(
      "--json", flags->json,
      "print one JSON object {\"trace\": {...}, \"runs\": [...]} instead of the table");
  command
      ->add_option("--jobs-csv", flags->jobs_csv,
                   "write a CSV file with one row per job and policy")
      ->type_name("FILE");
  command
      ->add_option("--html", flags->html,
                   "write a report page, one HTML file that needs no other files")
      ->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  rubato simulate --trace jobs.csv --cluster 16x8 --policy fifo,srtf,afs-l\n"
      "  rubato simulate --trace philly.csv --cluster 64x8 \\\n"
      "    --policy tiresias-las:queues=2,limits=57600 --json\n"
      "  rubato simulate --trace jobs.csv --cluster 8x8:v100,8x8:k80 --policy srtf \\\n"
      "    --html report.html\n"
      "\n"
      "docs/simulator.md says what is simulated and what each figure means.\n"
      "\n"
      "Exit code: 0 done, 1 a simulation failed, 2 bad input.");
  command->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace rubato::cmd
