#include "rubato/member/record.h"

#include <algorithm>
#include <tuple>

#include "rubato/base/check.h"

namespace rubato::member {

const Member* Record::find(Uid uid) const {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const Member& member) { return member.uid == uid; });
  return found == members.end() ? nullptr : &*found;
}

std::vector<Uid> Record::working() const {
  std::vector<Uid> uids;
  for (const Member& member : members) {
    if (member.role == Role::working) uids.push_back(member.uid);
  }
  return uids;
}

Uid Record::leader() const {
  const std::vector<Uid> uids = working();
  CHECK(!uids.empty());
  return uids.front();
}

bool Record::newer_than(const Record& other) const {
  return std::tie(recovery, generation) > std::tie(other.recovery, other.generation);
}

StepPlan for_workers(StepPlan plan, int workers) {
  if (!plan.adaptive || plan.samples == 0) return plan;
  CHECK(plan.leaves > 0 && workers > 0);
  const std::int64_t pass = std::max(plan.per_pass, 1);
  plan.passes = static_cast<int>((plan.samples + workers * pass - 1) / (workers * pass));
  plan.leaves = workers * plan.passes;
  return plan;
}

namespace {

constexpr const char* kRoles[] = {"working", "joining", "leaving"};

Role role_of(const std::string& name) {
  for (int i = 0; i < 3; ++i) {
    if (name == kRoles[i]) return static_cast<Role>(i);
  }
  throw Json::other_error::create(501, "unknown role " + name, nullptr);
}

}  // namespace

void to_json(Json& json, const Record& value) {
  Json members = Json::array();
  for (const Member& member : value.members) {
    members.push_back({{"uid", member.uid},
                       {"role", kRoles[static_cast<int>(member.role)]},
                       {"donor", member.donor},
                       {"since", member.since}});
  }
  json = {{"generation", value.generation},
          {"recovery", value.recovery},
          {"first", value.first},
          {"members", members}};
}

void from_json(const Json& json, Record& value) {
  json.at("generation").get_to(value.generation);
  json.at("recovery").get_to(value.recovery);
  json.at("first").get_to(value.first);
  value.members.clear();
  for (const Json& member : json.at("members")) {
    value.members.push_back({member.at("uid").get<Uid>(),
                             role_of(member.at("role").get<std::string>()),
                             member.at("donor").get<Uid>(), member.at("since").get<Step>()});
  }
}

void to_json(Json& json, const StepPlan& value) {
  json = {{"step", value.step},
          {"epoch", value.epoch},
          {"cursor", value.cursor},
          {"samples", value.samples},
          {"leaves", value.leaves},
          {"adaptive", value.adaptive},
          {"passes", value.passes},
          {"per_pass", value.per_pass},
          {"factor", value.learning_rate_factor},
          {"mark", value.used_mark},
          {"checkpoint", value.checkpoint},
          {"digest", value.digest},
          {"finish", value.finish},
          {"stopped", value.stopped}};
}

void from_json(const Json& json, StepPlan& value) {
  json.at("step").get_to(value.step);
  json.at("epoch").get_to(value.epoch);
  json.at("cursor").get_to(value.cursor);
  json.at("samples").get_to(value.samples);
  json.at("leaves").get_to(value.leaves);
  json.at("adaptive").get_to(value.adaptive);
  json.at("passes").get_to(value.passes);
  json.at("per_pass").get_to(value.per_pass);
  json.at("factor").get_to(value.learning_rate_factor);
  json.at("mark").get_to(value.used_mark);
  json.at("checkpoint").get_to(value.checkpoint);
  json.at("digest").get_to(value.digest);
  json.at("finish").get_to(value.finish);
  json.at("stopped").get_to(value.stopped);
}

void to_json(Json& json, const Proposal& value) {
  json = {{"record", value.record}, {"plan", value.plan}};
}
void from_json(const Json& json, Proposal& value) {
  json.at("record").get_to(value.record);
  json.at("plan").get_to(value.plan);
}

void to_json(Json& json, const Word& value) {
  json = {{"uid", value.uid},
          {"step", value.step},
          {"ready", value.ready},
          {"digest", value.digest},
          {"mark", value.mark},
          {"seconds", value.compute_seconds},
          {"leaves", value.leaves},
          {"norm", value.leaf_sqr_norm},
          {"published", value.published},
          {"proposal", value.proposal}};
}

void from_json(const Json& json, Word& value) {
  json.at("uid").get_to(value.uid);
  json.at("step").get_to(value.step);
  json.at("ready").get_to(value.ready);
  json.at("digest").get_to(value.digest);
  json.at("mark").get_to(value.mark);
  json.at("seconds").get_to(value.compute_seconds);
  json.at("leaves").get_to(value.leaves);
  json.at("published").get_to(value.published);
  // A norm that is not a number is written as null.
  value.leaf_sqr_norm = json.at("norm").is_number() ? json.at("norm").get<double>() : 0;
  json.at("proposal").get_to(value.proposal);
}

void to_json(Json& json, const Level& value) {
  json = {{"recovery", value.recovery}, {"since", value.since}};
}
void from_json(const Json& json, Level& value) {
  json.at("recovery").get_to(value.recovery);
  json.at("since").get_to(value.since);
}

void to_json(Json& json, const Report& value) {
  json = {{"record", value.record},
          {"applied", value.applied},
          {"plan", value.plan},
          {"dead", value.dead},
          {"own", value.own}};
}
void from_json(const Json& json, Report& value) {
  json.at("record").get_to(value.record);
  json.at("applied").get_to(value.applied);
  json.at("plan").get_to(value.plan);
  json.at("dead").get_to(value.dead);
  json.at("own").get_to(value.own);
}

void to_json(Json& json, const Commit& value) {
  json = {{"record", value.record}, {"plan", value.plan},     {"applied", value.applied},
          {"holder", value.holder}, {"behind", value.behind}, {"stranded", value.stranded}};
}
void from_json(const Json& json, Commit& value) {
  json.at("record").get_to(value.record);
  json.at("plan").get_to(value.plan);
  json.at("applied").get_to(value.applied);
  json.at("holder").get_to(value.holder);
  json.at("behind").get_to(value.behind);
  json.at("stranded").get_to(value.stranded);
}

}  // namespace rubato::member
