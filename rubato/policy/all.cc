#include "rubato/policy/all.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "rubato/base/text.h"
#include "rubato/policy/afs.h"
#include "rubato/policy/edf.h"
#include "rubato/policy/elasticflow.h"
#include "rubato/policy/sorted.h"
#include "rubato/policy/tiresias.h"

namespace rubato {
namespace {

using Made = Result<std::unique_ptr<Policy>>;

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
  entry.keys = {choice_key("admission", {"on", "off"},
                           "off: take every job in and promise nothing, for comparison")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> Made {
    return erase(ElasticFlow{{values.text("admission") == "on"}});
  };
  return entry;
}

std::vector<PolicyEntry> make_table() {
  using Order = Sorted::Order;
  return {
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
                               quoted(text), quoted(item))};
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
  return Error{fmt::format("unknown policy {}{}; \"rubato policies\" lists them all", quoted(name),
                           meant ? fmt::format(": did you mean {}?", *meant) : "")};
}

Error unknown_key(const PolicyEntry& entry, std::string_view name) {
  std::string known;
  for (const auto& key : entry.keys) known += (known.empty() ? "" : ", ") + key.name;
  return Error{fmt::format("policy {}: unknown key {}; {}", entry.name, quoted(name),
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
      return Error{fmt::format("policy {}: {}={} {}", policy.name, key->name, quoted(given),
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

}  // namespace rubato
