#include "rubato/policy/all.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "rubato/base/text.h"
#include "rubato/policy/afs.h"
#include "rubato/policy/allox.h"
#include "rubato/policy/edf.h"
#include "rubato/policy/elastic_tiresias.h"
#include "rubato/policy/elasticflow.h"
#include "rubato/policy/equal.h"
#include "rubato/policy/fifo_perf.h"
#include "rubato/policy/gandiva.h"
#include "rubato/policy/gandiva_fair.h"
#include "rubato/policy/gavel.h"
#include "rubato/policy/hesrpt.h"
#include "rubato/policy/optimus.h"
#include "rubato/policy/pollux.h"
#include "rubato/policy/rubato.h"
#include "rubato/policy/sorted.h"
#include "rubato/policy/themis.h"
#include "rubato/policy/tiresias.h"

namespace rubato::policy {
namespace {

using Made = Result<std::unique_ptr<Policy>>;

constexpr const char* kAdmission = "admission";

PolicyEntry sorted(std::string name, std::string summary, std::string knows,
                   Sorted::Config config) {
  PolicyEntry entry;
  entry.name = std::move(name);
  entry.summary = std::move(summary);
  entry.knows = std::move(knows);
  entry.work_conserving = !config.head_blocks;
  entry.make = [config](const KeyValues&, const PolicyInputs&) -> Made {
    return erase(Sorted{config});
  };
  return entry;
}

PolicyEntry edf(std::string name, std::string summary, bool admission) {
  PolicyEntry entry;
  entry.name = std::move(name);
  entry.paper = "baseline of ElasticFlow (Gu et al., ASPLOS'23)";
  entry.summary = std::move(summary);
  entry.knows = admission ? "deadline, work left, speed curve" : "deadline, speed curve if any";
  entry.admits = admission;
  entry.keys = {choice_key("count", {"largest", "peak", "trace"},
                           "GPUs of a job with a curve: the largest measured count that fits, the "
                           "same up to the curve's peak, or what the trace asks for")};
  entry.make = [admission](const KeyValues& values, const PolicyInputs&) -> Made {
    const std::string& count = values.text("count");
    const auto sizing = count == "largest" ? Edf::Sizing::largest
                        : count == "peak"  ? Edf::Sizing::peak
                                           : Edf::Sizing::trace;
    return erase(Edf{{sizing, admission}});
  };
  return entry;
}

Made make_tiresias(const KeyValues& values, const PolicyInputs& inputs, bool gittins) {
  Tiresias::Config config;
  const auto queues = static_cast<std::size_t>(values.whole("queues"));
  auto limits = values.numbers("limits");
  if (limits.size() + 1 < queues) {
    return Error{
        fmt::format("queues={} needs {} limits, but limits has {}; give one limit less than queues",
                    queues, queues - 1, limits.size())};
  }
  limits.resize(queues - 1);
  for (const double limit : limits) config.limits.push_back(GpuTime::from_gpu_seconds(limit));
  config.promote = values.number("promote");
  config.gittins = gittins;
  if (!gittins) config.running_first = values.text("order") == "running";
  if (gittins) {
    std::vector<double> samples = default_service_samples();
    if (const std::string& path = values.text("samples"); !path.empty()) {
      auto read = inputs.numbers(path);
      if (!read) return read.error();
      samples = std::move(*read);
    }
    config.table = GittinsTable(std::move(samples), values.number("quantum"));
  }
  return erase(Tiresias{std::move(config)});
}

PolicyEntry tiresias(std::string name, std::string summary, bool gittins) {
  PolicyEntry entry;
  entry.name = std::move(name);
  entry.paper = "Gu et al., NSDI'19";
  entry.summary = std::move(summary);
  entry.knows = gittins ? "GPUs asked for, attained service, past total services"
                        : "GPUs asked for, attained service";
  entry.keys = {
      whole_key("queues", 3, 1, 65, "number of queues"),
      ascending_key(
          "limits", "3250/7200",
          "GPU-seconds at which a job leaves each queue but the last; surplus ones are not used"),
      number_key("promote", 0, 0, 1e9,
                 "PromoteKnob: a job that waited this many times its executed "
                 "time returns to the first queue; 0 = off"),
  };
  if (!gittins) {
    entry.keys.push_back(
        choice_key("order", {"running", "entry"},
                   "inside a queue: running jobs before pending ones, or all as they entered it"));
  }
  if (gittins) {
    entry.keys.push_back(
        number_key("quantum", 3250, 1, 1e15, "service quantum of the index, GPU-seconds"));
    entry.keys.push_back(path_key("samples",
                                  "file with a column of total services in GPU-seconds; "
                                  "default: log-uniform from a minute to 10^8"));
  }
  entry.make = [gittins](const KeyValues& values, const PolicyInputs& inputs) -> Made {
    return make_tiresias(values, inputs, gittins);
  };
  return entry;
}

PolicyEntry afs(std::string name, std::string summary, bool lengths_known) {
  PolicyEntry entry;
  entry.name = std::move(name);
  entry.paper = "Hwang et al., NSDI'21";
  entry.summary = std::move(summary);
  entry.knows = lengths_known ? "speed curve, work left" : "speed curve, work done";
  entry.elastic = true;
  entry.one_type = true;
  entry.keys = {choice_key("find", {"tree", "scan"},
                           "how the next GPU's winner is found: tournament "
                           "tree, or a linear scan for comparison")};
  if (!lengths_known) {
    entry.keys.push_back(number_key(
        "prior", 600, 0, 1e9, "expected seconds on the fewest GPUs of a job that has not run"));
  }
  entry.make = [lengths_known](const KeyValues& values, const PolicyInputs&) -> Made {
    Afs::Config config;
    config.lengths_known = lengths_known;
    if (!lengths_known) config.prior_seconds = values.number("prior");
    config.finding = values.text("find") == "tree" ? Afs::Finding::tree : Afs::Finding::scan;
    return erase(Afs{config});
  };
  return entry;
}

PolicyEntry pollux() {
  PolicyEntry entry;
  entry.name = "pollux";
  entry.paper = "Qiao et al., OSDI'21";
  entry.summary = "genetic search for the goodput of all jobs, in power mean; tunes batches";
  entry.knows = "what each job's agent has measured (or its speed curve), age, attained service";
  entry.elastic = true;
  entry.one_type = true;
  entry.tunes_batches = true;
  entry.work_conserving = false;
  entry.keys = {
      number_key("p", -1, -100, 10, "exponent of the power mean: lower is fairer"),
      choice_key("batch", {"tuned", "fixed"}, "batch of highest goodput, or the owner's"),
      number_key("interval", 60, 1, 1e6, "seconds between two searches"),
      whole_key("population", 100, 1, 100'000, "solutions kept by the search"),
      whole_key("generations", 100, 0, 100'000, "generations of the search"),
      choice_key("avoid", {"on", "off"}, "at most one multi-node job on a node"),
      choice_key("autoscale", {"off", "on"},
                 "advise a number of nodes where utility is not"
                 " between low and high"),
      number_key("low", 0.35, 0, 1, "utility below which fewer nodes are advised"),
      number_key("high", 0.65, 0, 1, "utility above which more nodes are advised"),
      whole_key("seed", 1, 0, 1'000'000'000, "of the search"),
  };
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> Made {
    Pollux::Config config;
    config.p = values.number("p");
    config.tune_batch = values.text("batch") == "tuned";
    config.interval = from_seconds(values.number("interval"));
    config.population = static_cast<int>(values.whole("population"));
    config.generations = static_cast<int>(values.whole("generations"));
    config.avoid_interference = values.text("avoid") == "on";
    config.autoscale = values.text("autoscale") == "on";
    config.low_utility = values.number("low");
    config.high_utility = values.number("high");
    if (config.low_utility > config.high_utility)
      return Error{"pollux: low must not be above high"};
    config.seed = static_cast<std::uint64_t>(values.whole("seed"));
    return erase(Pollux{config});
  };
  return entry;
}

constexpr auto kGavelPaper = "Narayanan et al., OSDI'20";

PolicyEntry gavel(std::string name, std::string summary, std::string knows,
                  Gavel::Objective objective) {
  using Objective = Gavel::Objective;
  PolicyEntry entry;
  entry.name = std::move(name);
  entry.paper = kGavelPaper;
  entry.summary = std::move(summary);
  entry.knows = std::move(knows);
  entry.work_conserving = false;  // who ends leaves its GPUs idle until the round does
  const bool solves = objective != Objective::isolated;
  if (solves) {
    entry.keys.push_back(choice_key(
        "aware", {"on", "off"}, "off: GPU types count as one, and time is split over them evenly"));
    entry.keys.push_back(choice_key("packing", {"off", "on"},
                                    "on: pairs of jobs may share GPUs where that was measured"));
    entry.keys.push_back(whole_key(
        "parts", 1, 1, 1024, "split jobs and GPUs into so many problems: faster, a little worse"));
  }
  if (objective == Objective::las || objective == Objective::finish_time_fairness ||
      objective == Objective::makespan) {
    entry.keys.push_back(choice_key("ties", {"fill", "none"},
                                    "fill: water filling raises all but the worst job, too"));
  }
  if (objective == Objective::throughput) {
    entry.keys.push_back(list_key(
        "prices", "cost of a GPU-hour by type, 2.48/1.46/0.45: throughput per cost is maximised"));
  }
  if (objective == Objective::hierarchical) {
    entry.keys.push_back(choice_key("inside", {"fair", "fifo"}, "between the jobs of one user"));
    entry.keys.push_back(weights_key(
        "entities", "weights of users, USER:WEIGHT/...; default: the largest of a user's jobs"));
  }
  entry.keys.push_back(number_key("round", 360, 1, 1e7, "seconds a round lasts"));
  entry.keys.push_back(number_key("resolve", 1920, 0, 1e9, "seconds between two solves at least"));
  entry.keys.push_back(whole_key("seed", 0, 0, 1'000'000'000,
                                 "of the order in which types are filled, where that is random"));
  entry.make = [objective, solves](const KeyValues& values, const PolicyInputs&) -> Made {
    Gavel::Config config;
    config.objective = objective;
    if (solves) {
      config.aware = values.text("aware") == "on";
      config.packing = values.text("packing") == "on";
      config.parts = static_cast<std::size_t>(values.whole("parts"));
    }
    if (objective == Objective::las || objective == Objective::finish_time_fairness ||
        objective == Objective::makespan) {
      config.water_filling = values.text("ties") == "fill";
    }
    if (objective == Objective::throughput) config.prices = values.numbers("prices");
    if (objective == Objective::hierarchical) {
      config.fifo_inside = values.text("inside") == "fifo";
      config.entity_weights = values.weights("entities");
    }
    config.rounds.length = from_seconds(values.number("round"));
    config.rounds.resolve = from_seconds(values.number("resolve"));
    config.rounds.fastest_first = solves && (config.aware || config.packing);
    config.rounds.seed = static_cast<std::uint64_t>(values.whole("seed"));
    return erase(Gavel{std::move(config)});
  };
  return entry;
}

PolicyEntry fifo_perf() {
  PolicyEntry entry;
  entry.name = "fifo-perf";
  entry.paper = kGavelPaper;
  entry.summary = "in order of submission, each on its fastest type with room; re-assigned";
  entry.knows = "GPUs asked for, speed by type";
  entry.work_conserving = false;
  entry.keys = {number_key("round", 360, 0, 1e7,
                           "seconds a round lasts; 0: jobs are assigned at every event"),
                number_key("resolve", 1920, 0, 1e9, "seconds between two assignments at least")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> Made {
    FifoPerf::Config config;
    config.in_rounds = values.number("round") > 0;
    config.rounds.length = from_seconds(values.number("round"));
    config.rounds.resolve = from_seconds(values.number("resolve"));
    config.rounds.spare = false;
    return erase(FifoPerf{config});
  };
  return entry;
}

PolicyEntry allox() {
  PolicyEntry entry;
  entry.name = "allox";
  entry.paper = "Le et al., EuroSys'20";
  entry.summary = "matching of jobs to places in the queues of GPUs; no preemption";
  entry.work_conserving = false;  // a job may wait for a GPU of a faster type
  entry.knows = "GPUs asked for, speed by type, work left, user";
  entry.keys = {number_key("alpha", 0.3, 0.001, 1,
                           "share of the users that enter the matching, the least served ones")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> Made {
    return erase(Allox{{values.number("alpha")}});
  };
  return entry;
}

PolicyEntry gandiva() {
  PolicyEntry entry;
  entry.name = "gandiva";
  entry.paper = "Xiao et al., OSDI'18";
  entry.summary = "time slicing, packing by trial, migration, growth on idle GPUs";
  entry.knows = "GPUs asked for, measured rate, speed estimates";
  entry.keys = {
      number_key("quantum", 60, 1, 1e9, "seconds of a time slice, without the restart"),
      number_key("trial", 10, 0, 1e9, "seconds for which a pair or a growth is measured"),
      choice_key("packing", {"on", "off"}, "try pairs of jobs on the same GPUs while jobs wait"),
      choice_key("migrate", {"on", "off"},
                 "move jobs to fewer nodes, and to a faster type while nobody waits"),
      choice_key("grow", {"on", "off"}, "grow elastic jobs on idle GPUs")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> Made {
    Gandiva::Config config;
    config.quantum = from_seconds(values.number("quantum"));
    config.trial = from_seconds(values.number("trial"));
    config.packing = values.text("packing") == "on";
    config.migrate = values.text("migrate") == "on";
    config.grow = values.text("grow") == "on";
    return erase(Gandiva{config});
  };
  return entry;
}

PolicyEntry gandiva_fair() {
  PolicyEntry entry;
  entry.name = "gandiva-fair";
  entry.paper = "Chaudhary et al., EuroSys'20";
  entry.summary = "GPU-time by tickets of users: gang-aware stride, trading of GPU types";
  entry.knows = "user, weight, GPUs asked for, speed on each type";
  entry.work_conserving = false;  // a gang that fits on one server waits for one
  entry.keys = {number_key("quantum", 60, 1, 1e9, "seconds of a time slice, without the restart"),
                choice_key("trade", {"on", "off"}, "let users trade fast GPUs for slow ones")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> Made {
    return erase(
        GandivaFair{{from_seconds(values.number("quantum")), values.text("trade") == "on"}});
  };
  return entry;
}

PolicyEntry themis() {
  PolicyEntry entry;
  entry.name = "themis";
  entry.paper = "Mahajan et al., NSDI'20";
  entry.summary = "leases auctioned among those with the worst finish-time fairness";
  entry.knows = "GPUs asked for, work left, speed on each type";
  entry.keys = {number_key("f", 0.8, 0, 1, "fairness knob: the worst 1-f share of jobs takes part"),
                number_key("lease", 1200, 1, 1e9, "seconds of a lease, without the restart")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> Made {
    return erase(Themis{{values.number("f"), from_seconds(values.number("lease"))}});
  };
  return entry;
}

PolicyEntry optimus() {
  PolicyEntry entry;
  entry.name = "optimus";
  entry.paper = "Peng et al., EuroSys'18";
  entry.summary = "GPU by GPU to the job whose time left falls most; fits losses and step times";
  entry.knows = "losses and step times shown so far";
  entry.elastic = true;
  entry.one_type = true;
  entry.keys = {
      choice_key("oracle", {"off", "on"}, "on: true work left and speed curve instead of fits"),
      number_key("prior", 600, 0, 1e9,
                 "expected seconds on the fewest GPUs of a job that has shown nothing")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> Made {
    return erase(Optimus{{values.text("oracle") == "on", values.number("prior")}});
  };
  return entry;
}

PolicyEntry elastic_tiresias() {
  PolicyEntry entry;
  entry.name = "elastic-tiresias";
  entry.paper = "Wu et al. (EDL), TPDS'21";
  entry.summary = "Tiresias; shrinks inefficient jobs for waiting ones, grows who gains most";
  entry.knows = "GPUs asked for, attained service, speed curve";
  entry.elastic = true;
  entry.one_type = true;
  entry.keys = {
      ascending_key("limits", "3250/7200",
                    "GPU-seconds at which a job leaves each queue but the last"),
      whole_key("waiting", 0, 0, 1'000'000, "jobs that may wait before others shrink"),
      number_key("least", 0.5, 0.001, 1, "share of the GPUs it asked for that a job is left with")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> Made {
    ElasticTiresias::Config config;
    for (const double limit : values.numbers("limits"))
      config.limits.push_back(GpuTime::from_gpu_seconds(limit));
    config.waiting = static_cast<int>(values.whole("waiting"));
    config.least = values.number("least");
    return erase(ElasticTiresias{std::move(config)});
  };
  return entry;
}

PolicyEntry hesrpt() {
  PolicyEntry entry;
  entry.name = "hesrpt";
  entry.paper = "Berg, Vesilo, Harchol-Balter 2020";
  entry.summary = "the optimal shares for jobs with speed k^q that are all there at the start";
  entry.knows = "work left, speed curve";
  entry.elastic = true;
  entry.one_type = true;
  entry.keys = {number_key("q", 0, 0, 0.99, "the exponent; 0 = mean of the jobs' curves")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> Made {
    return erase(Hesrpt{{values.number("q")}});
  };
  return entry;
}

PolicyEntry equal() {
  PolicyEntry entry;
  entry.name = "equal";
  entry.paper = "baseline of elastic policies";
  entry.summary = "as many GPUs for each job as for any other";
  entry.knows = "speed curve";
  entry.elastic = true;
  entry.one_type = true;
  entry.make = [](const KeyValues&, const PolicyInputs&) -> Made { return erase(Equal{}); };
  return entry;
}

PolicyEntry elasticflow() {
  PolicyEntry entry;
  entry.name = "elasticflow";
  entry.paper = "Gu et al., ASPLOS'23";
  entry.summary =
      "promises deadlines and keeps them with as few GPUs as will do; grows on leftovers";
  entry.knows = "deadline, work left, speed curve, restart cost";
  entry.elastic = true;
  entry.one_type = true;
  entry.work_conserving = false;
  entry.admits = true;
  entry.keys = {choice_key(kAdmission, {"on", "off"},
                           "off: take every job in and promise nothing, for comparison")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> Made {
    return erase(ElasticFlow{{values.text(kAdmission) == "on"}});
  };
  return entry;
}

PolicyEntry rubato_policy() {
  PolicyEntry entry;
  entry.name = "rubato";
  entry.paper = "ours (docs/rubato-policy.md)";
  entry.summary = "a market for GPUs: each job bids what a GPU would save it and all others";
  entry.knows = "speed by count and type, work left, deadline, restart cost, weight";
  entry.elastic = true;
  entry.tunes_batches = true;
  entry.explores = true;
  entry.admits = true;
  entry.work_conserving = false;
  entry.keys = {
      number_key("fairness", 0.4, 0, 1,
                 "how much more who is behind its fair share bids; 0 = only the mean completion "
                 "time counts"),
      choice_key("promises", {"on", "off"},
                 "on: promise deadlines and keep them; off: deadlines do not count"),
      number_key("patience", 259200, 1, 1e9, "seconds without GPUs after which a job gets a turn"),
      choice_key("lengths", {"told", "fraction", "unknown"},
                 "what is known of a job's work: all, all from its first step on, or only what is "
                 "done"),
      choice_key("shares", {"jobs", "users"},
                 "who has a weight: each job, or each user, however many jobs they have")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> Made {
    Rubato::Config config;
    config.fairness = values.number("fairness");
    config.promises = values.text("promises") == "on";
    config.patience = from_seconds(values.number("patience"));
    const std::string& lengths = values.text("lengths");
    config.lengths = lengths == "told"       ? Rubato::Lengths::told
                     : lengths == "fraction" ? Rubato::Lengths::fraction
                                             : Rubato::Lengths::unknown;
    config.by_user = values.text("shares") == "users";
    return erase(Rubato{config});
  };
  return entry;
}

std::vector<PolicyEntry> make_table() {
  using Order = Sorted::Order;
  return {
      rubato_policy(),
      sorted("fifo", "in order of submission; the head of the line blocks", "GPUs asked for",
             {Order::submission, false, true}),
      sorted("fifo-backfill", "in order of submission; whatever fits runs", "GPUs asked for",
             {Order::submission, false, false}),
      sorted("sjf", "fewest GPUs first, preemptive", "GPUs asked for", {Order::gpus, true, false}),
      sorted("srtf", "least remaining time first, preemptive", "GPUs asked for, work left",
             {Order::remaining_time, true, false}),
      sorted("srsf", "least remaining time x GPUs first, preemptive", "GPUs asked for, work left",
             {Order::remaining_service, true, false}),
      edf("edf", "earliest deadline first, preemptive; sizes jobs that have a curve", false),
      edf("edf-admission", "earliest deadline first; refuses what would break a deadline", true),
      tiresias("tiresias-las", "least attained service in discrete queues", false),
      tiresias("tiresias-gittins", "Gittins index in discrete queues", true),
      afs("afs-l", "GPU by GPU to the short or the efficient; lengths known", true),
      afs("afs-p", "GPU by GPU to the short or the efficient; lengths unknown", false),
      pollux(),
      gavel("gavel-las", "max-min fairness in shares of time on each GPU type",
            "GPUs asked for, speed by type, weight", Gavel::Objective::las),
      gavel("gavel-ftf", "the worst finish-time fairness as good as it can be",
            "GPUs asked for, speed by type, work left", Gavel::Objective::finish_time_fairness),
      gavel("gavel-makespan", "all jobs end as early as possible",
            "GPUs asked for, speed by type, work left", Gavel::Objective::makespan),
      gavel("gavel-throughput", "largest total throughput, or per cost, with deadlines kept",
            "GPUs asked for, speed by type, deadline and work left", Gavel::Objective::throughput),
      gavel("gavel-min-jct", "largest rate of completions: short jobs first",
            "GPUs asked for, speed by type, work left", Gavel::Objective::min_jct),
      gavel("gavel-hierarchical", "weighted fairness between users, fair or FIFO inside",
            "GPUs asked for, speed by type, user, weight", Gavel::Objective::hierarchical),
      gavel("isolated", "a 1/n slice of every GPU type for each of n jobs", "GPUs asked for",
            Gavel::Objective::isolated),
      fifo_perf(),
      allox(),
      gandiva(),
      gandiva_fair(),
      themis(),
      optimus(),
      elastic_tiresias(),
      hesrpt(),
      equal(),
      elasticflow(),
  };
}

struct PolicyText {
  std::string_view name;
  std::vector<std::string_view> settings;
};

// An item starts a new policy if it has no '=' or a ':' before its first '='.
Result<std::vector<PolicyText>> split_policies(std::string_view text) {
  std::vector<PolicyText> policies;
  for (const auto raw : split(text, ',')) {
    const auto item = trim(raw);
    const auto equals = item.find('=');
    const auto colon = item.find(':');
    if (equals == std::string_view::npos || colon < equals) {
      policies.push_back({item.substr(0, colon), {}});
      if (colon != std::string_view::npos)
        policies.back().settings.push_back(item.substr(colon + 1));
    } else if (policies.empty()) {
      return Error{fmt::format("policy list {}: {} is a key, but no policy stands before it",
                               base::quoted(text), base::quoted(item))};
    } else {
      policies.back().settings.push_back(item);
    }
  }
  return policies;
}

Result<const PolicyEntry*> find_policy(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& entry : all_policies()) {
    if (entry.name == name) return &entry;
    names.push_back(entry.name);
  }
  const auto meant = closest(name, names);
  return Error{fmt::format("unknown policy {}{}; \"rubato policies\" lists them all",
                           base::quoted(name),
                           meant ? fmt::format(": did you mean {}?", *meant) : "")};
}

Error unknown_key(const PolicyEntry& entry, std::string_view name) {
  std::string known;
  for (const auto& key : entry.keys) known += (known.empty() ? "" : ", ") + key.name;
  return Error{fmt::format("policy {}: unknown key {}; {}", entry.name, base::quoted(name),
                           known.empty() ? "it has no keys" : "its keys are " + known)};
}

Result<ChosenPolicy> choose(const PolicyText& text) {
  const auto entry = find_policy(text.name);
  if (!entry) return entry.error();
  const PolicyEntry& policy = **entry;
  std::map<std::string, std::string> values;
  for (const auto setting : text.settings) {
    const auto equals = setting.find('=');
    const auto name = trim(setting.substr(0, equals));
    const auto key = std::find_if(policy.keys.begin(), policy.keys.end(),
                                  [&](const Key& k) { return k.name == name; });
    if (key == policy.keys.end()) return unknown_key(policy, name);
    if (equals == std::string_view::npos) {
      return Error{fmt::format("policy {}: key {} has no value; write {}=VALUE", policy.name,
                               key->name, key->name)};
    }
    const auto given = trim(setting.substr(equals + 1));
    auto value = key->canonical(given);
    if (!value) {
      return Error{fmt::format("policy {}: {}={} {}", policy.name, key->name, base::quoted(given),
                               value.error().message)};
    }
    if (!values.emplace(key->name, std::move(*value)).second) {
      return Error{fmt::format("policy {}: key {} is given twice", policy.name, key->name)};
    }
  }
  std::string canonical;
  for (const auto& key : policy.keys) {
    const auto& value = values.emplace(key.name, key.fallback).first->second;
    if (value != key.fallback)
      canonical += fmt::format("{}{}={}", canonical.empty() ? ":" : ",", key.name, value);
  }
  return ChosenPolicy{&policy, policy.name + canonical,
                      std::make_shared<const KeyValues>(std::move(values))};
}

}  // namespace

bool ChosenPolicy::admits() const {
  const bool has_choice = std::any_of(entry->keys.begin(), entry->keys.end(),
                                      [](const Key& key) { return key.name == kAdmission; });
  return entry->admits && (!has_choice || values->text(kAdmission) == "on");
}

Result<void> ChosenPolicy::check(const Cluster& cluster) const {
  if (!entry->one_type || cluster.types() <= 1) return {};
  return Error{fmt::format("policy {} needs a cluster with one GPU type, and this one has {}",
                           entry->name, cluster.types())};
}

const std::vector<PolicyEntry>& all_policies() {
  static const std::vector<PolicyEntry> table = make_table();
  return table;
}

Result<std::vector<ChosenPolicy>> parse_policies(std::string_view text) {
  const auto items = split_policies(text);
  if (!items) return items.error();
  std::vector<ChosenPolicy> chosen;
  for (const auto& item : *items) {
    auto policy = choose(item);
    if (!policy) return policy.error();
    chosen.push_back(std::move(*policy));
  }
  return chosen;
}

}  // namespace rubato::policy
