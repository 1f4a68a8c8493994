#include "rubato/policy/all.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "rubato/base/text.h"
#include "rubato/policy/afs.h"
#include "rubato/policy/allox.h"
#include "rubato/policy/antman.h"
#include "rubato/policy/aonline.h"
#include "rubato/policy/edf.h"
#include "rubato/policy/edge_cloud.h"
#include "rubato/policy/elas.h"
#include "rubato/policy/elastic_tiresias.h"
#include "rubato/policy/elasticflow.h"
#include "rubato/policy/equal.h"
#include "rubato/policy/fifo_perf.h"
#include "rubato/policy/gandiva.h"
#include "rubato/policy/gandiva_fair.h"
#include "rubato/policy/gavel.h"
#include "rubato/policy/hesrpt.h"
#include "rubato/policy/learned.h"
#include "rubato/policy/lyra.h"
#include "rubato/policy/oasis.h"
#include "rubato/policy/optimus.h"
#include "rubato/policy/pickyman.h"
#include "rubato/policy/pollux.h"
#include "rubato/policy/rubato.h"
#include "rubato/policy/shockwave.h"
#include "rubato/policy/sia.h"
#include "rubato/policy/sorted.h"
#include "rubato/policy/themis.h"
#include "rubato/policy/tiresias.h"

namespace rubato::policy {
namespace {

std::vector<PolicyEntry> make_table() {
  std::vector<PolicyEntry> table;
  // One a line.
  // clang-format off
  for (auto* const rows : {
           rubato_rows,
           sorted_rows,
           edf_rows,
           oasis_rows,
           aonline_rows,
           edge_cloud_rows,
           lyra_rows,
           tiresias_rows,
           elas_rows,
           pickyman_rows,
           afs_rows,
           pollux_rows,
           sia_rows,
           gavel_rows,
           fifo_perf_rows,
           allox_rows,
           gandiva_rows,
           antman_rows,
           gandiva_fair_rows,
           themis_rows,
           shockwave_rows,
           optimus_rows,
           elastic_tiresias_rows,
           hesrpt_rows,
           equal_rows,
           elasticflow_rows,
           learned_rows,
       }) {
    // clang-format on
    for (auto& row : rows()) table.push_back(std::move(row));
  }
  return table;
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

const std::vector<PolicyGroup>& policy_groups() {
  static const std::vector<PolicyGroup> groups = {
      {"rigid", "Jobs keep the GPUs that they ask for"},
      {"elastic", "The policy chooses how many GPUs a job gets"},
      {"deadlines", "Deadlines come first"},
      {"heterogeneous", "Several types of GPUs"},
      {"fair", "Fair shares between jobs or users"},
      {"learned", "Weights that were trained choose"},
  };
  return groups;
}

std::string_view group_of(const PolicyEntry& entry) {
  if (!entry.group.empty()) return entry.group;
  if (entry.admits) return "deadlines";
  return entry.elastic ? "elastic" : "rigid";
}

std::string example_of(const PolicyEntry& entry) {
  const auto group = group_of(entry);
  const bool typed = group == "heterogeneous" && !entry.one_type;
  return fmt::format("rubato simulate --trace jobs.csv --cluster {}{} --policy fifo-backfill,{}",
                     typed ? "2x8:v100,2x8:k80" : "4x8",
                     group == "deadlines" ? " --deadlines 0.8:3" : "", entry.name);
}

bool ChosenPolicy::admits() const {
  const std::string& key = entry->admission_key;
  return entry->admits && (key.empty() || values->text(key) == "on");
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
