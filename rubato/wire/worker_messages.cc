#include "rubato/wire/worker_messages.h"

#include <cmath>
#include <limits>

namespace rubato::wire {
namespace {

constexpr int kMostInt = std::numeric_limits<int>::max();
constexpr double kMostReal = std::numeric_limits<double>::max();
constexpr double kMostSteps = 9e15;  // doubles count exactly up to it

std::optional<double> at_least_zero(const Json& content, std::string_view name) {
  const auto value = look_for_number(content, name);
  return value && *value >= 0 ? value : std::nullopt;
}

// A count that some workers write as a double.
std::optional<int> count(const Json& content, std::string_view name, int least) {
  const auto value = look_for_number(content, name);
  if (!value || *value < least || *value > kMostInt) return std::nullopt;
  return static_cast<int>(*value);
}

void set_if(Json& json, const char* name, const std::optional<int>& value) {
  if (value) json[name] = *value;
}

// JSON has no infinity and no NaN.
void set_if(Json& json, const char* name, const std::optional<double>& value) {
  if (value && std::isfinite(*value)) json[name] = *value;
}

double finite(double value) { return std::isfinite(value) ? value : 0; }

std::optional<std::int64_t> as_integer(const Json& json) {
  JsonTrouble trouble;
  const auto value = JsonValue(json, trouble).whole<std::int64_t>();
  return trouble.ok() ? std::optional(value) : std::nullopt;
}

}  // namespace

// --- reports -------------------------------------------------------------------------------------

Json to_json(const JobTuning& tuning) {
  return {{"initial", tuning.initial},
          {"largest", tuning.largest},
          {"largest_per_gpu", tuning.largest_per_gpu},
          {"step_seconds", finite(tuning.step_seconds)},
          {"pass_seconds", finite(tuning.pass_seconds)}};
}

void read_job_tuning(const JsonValue& json, JobTuning& tuning) {
  JsonFields fields(json);
  tuning.initial = fields["initial"].whole(1, kMostInt);
  tuning.largest = fields["largest"].whole(1, kMostInt);
  tuning.largest_per_gpu = fields["largest_per_gpu"].whole(1, kMostInt);
  tuning.step_seconds = fields["step_seconds"].number(0, kMostReal);
  tuning.pass_seconds = fields["pass_seconds"].number(0, kMostReal);
  if (fields.ok() && tuning.largest < tuning.initial)
    fields.refuse("has a \"largest\" that is less than \"initial\"");
}

Json to_json(const StepReport& report) {
  Json json = {{"step", report.step}};
  set_if(json, "epoch", report.epoch);
  set_if(json, "cursor", report.cursor);
  set_if(json, "samples", report.samples);
  set_if(json, "loss", report.loss);
  set_if(json, "workers", report.workers);
  set_if(json, "leaves", report.leaves);
  set_if(json, "factor", report.factor);
  set_if(json, "learning_rate", report.learning_rate);
  set_if(json, "epoch_samples", report.epoch_samples);
  if (report.ends_epoch) json["ends_epoch"] = *report.ends_epoch;
  set_if(json, "applied_at", report.applied_at);
  set_if(json, "per_gpu", report.per_gpu);
  set_if(json, "accumulation", report.accumulation);
  if (report.tuning) json["tuning"] = to_json(*report.tuning);
  set_if(json, "noise", report.noise);
  for (const auto& [name, value] : report.metrics)
    json["metrics"][name] = value && std::isfinite(*value) ? Json(*value) : Json();
  set_if(json, "skew", report.skew);
  return json;
}

std::optional<StepReport> read_step_report(const Json& content) {
  const auto step = at_least_zero(content, "step");
  if (!step || *step > kMostSteps) return std::nullopt;
  StepReport report;
  report.step = static_cast<std::int64_t>(*step);
  report.epoch = at_least_zero(content, "epoch");
  report.cursor = at_least_zero(content, "cursor");
  report.samples = at_least_zero(content, "samples");
  report.epoch_samples = at_least_zero(content, "epoch_samples");
  if (const Json* ends = look_for(content, "ends_epoch"); ends != nullptr && ends->is_boolean())
    report.ends_epoch = *ends->get_ptr<const bool*>();
  report.loss = look_for_number(content, "loss");
  report.workers = count(content, "workers", 0);
  report.leaves = count(content, "leaves", 0);
  report.factor = look_for_number(content, "factor");
  report.learning_rate = at_least_zero(content, "learning_rate");
  report.applied_at = look_for_number(content, "applied_at");
  report.per_gpu = count(content, "per_gpu", 1);
  report.accumulation = count(content, "accumulation", 0);
  report.noise = at_least_zero(content, "noise");
  report.skew = at_least_zero(content, "skew");
  if (report.skew && !(*report.skew > 0 && *report.skew <= 1)) report.skew.reset();
  if (const Json* told = look_for(content, "tuning")) {
    JsonTrouble trouble;
    JobTuning tuning;
    read_job_tuning(JsonValue(*told, trouble), tuning);
    if (trouble.ok()) report.tuning = tuning;
  }
  if (const Json* metrics = look_for(content, "metrics");
      metrics != nullptr && metrics->is_object()) {
    for (const auto& [name, value] : metrics->items()) {
      if (report.metrics.size() == kMostReportedMetrics) break;
      if (name.empty() || name.size() > kLongestMetricName) continue;
      if (const auto number = look_for_number(*metrics, name)) report.metrics[name] = *number;
      if (metrics->at(name).is_null()) report.metrics[name] = std::nullopt;
    }
  }
  return report;
}

// --- notices -------------------------------------------------------------------------------------

std::set<Uid> MembersNotice::working() const {
  if (members.empty()) return uids;
  std::set<Uid> working;
  for (const Member& member : members) {
    if (member.role == "working") working.insert(member.uid);
  }
  return working;
}

Json to_json(const MembersNotice& members) {
  Json json = {{"uids", members.uids}};
  if (!members.members.empty()) {
    Json roles = Json::array();
    for (const auto& [uid, role] : members.members) roles.push_back({{"uid", uid}, {"role", role}});
    json["members"] = std::move(roles);
  }
  if (members.first) json["first"] = *members.first;
  if (members.age.empty()) return json;
  json["recovery"] = members.age.front();
  json["generation"] = std::vector<std::int64_t>(members.age.begin() + 1, members.age.end());
  return json;
}

MembersNotice read_members(const Json& content) {
  MembersNotice notice;
  if (const Json* uids = look_for(content, "uids"); uids != nullptr && uids->is_array()) {
    for (const Json& uid : *uids) {
      if (const auto number = as_integer(uid)) notice.uids.insert(*number);
    }
  }
  if (const Json* members = look_for(content, "members");
      members != nullptr && members->is_array()) {
    for (const Json& member : *members) {
      const auto uid = look_for_integer(member, "uid");
      if (uid) notice.members.push_back({*uid, look_for_text(member, "role")});
    }
  }
  notice.first = look_for_integer(content, "first");
  notice.age.push_back(look_for_integer(content, "recovery").value_or(0));
  const Json* generation = look_for(content, "generation");
  if (generation == nullptr || !generation->is_array()) return notice;
  for (const Json& part : *generation) notice.age.push_back(as_integer(part).value_or(0));
  return notice;
}

Json to_json(const StragglerNotice& straggler) {
  return {{"worker", straggler.worker}, {"ratio", finite(straggler.ratio)}};
}

std::optional<StragglerNotice> read_straggler(const Json& content) {
  const auto worker = look_for_integer(content, "worker");
  if (!worker) return std::nullopt;
  return StragglerNotice{*worker, look_for_number(content, "ratio").value_or(0)};
}

}  // namespace rubato::wire
