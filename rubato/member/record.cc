#include "rubato/member/record.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>

#include "rubato/base/check.h"
#include "rubato/base/json_record.h"

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

constexpr std::array<NameOf<Role>, 3> kRoles = {
    {{Role::working, "working"}, {Role::joining, "joining"}, {Role::leaving, "leaving"}}};

struct Format : RecordFormat {
  // A checkpoint of a newer version may have more fields.
  static constexpr auto kUnknownFields = JsonFields::Unknown::ignored;
};

const auto& names_of(const Format& /*format*/, Role /*any*/) { return kRoles; }

// One description of each type for reading and writing (base/json_record.h).
void describe_row(auto& f, Is<MembershipGeneration> auto& value) {
  auto& [plan, revision] = value;
  f(plan, revision);
}

void describe(auto& f, Is<Member> auto& value) {
  auto& [uid, role, donor, since, host] = value;
  f("uid", uid);
  f("role", role);
  f("donor", donor);
  f("since", since);
  f.unless_plain("host", host);
}

void describe(auto& f, Is<Record> auto& value) {
  auto& [generation, recovery, first, members] = value;
  f("generation", generation);
  f("recovery", recovery);
  f("first", first);
  f("members", members);
}

void describe(auto& f, Is<StepPlan> auto& value) {
  auto& [step, epoch, cursor, samples, leaves, adaptive, passes, per_pass, learning_rate_factor,
         used_mark, checkpoint, digest, finish, stopped] = value;
  f("step", step);
  f("epoch", epoch);
  f("cursor", cursor);
  f("samples", samples);
  f("leaves", leaves);
  f("adaptive", adaptive);
  f("passes", passes);
  f("per_pass", per_pass);
  f("factor", learning_rate_factor);
  f("mark", used_mark);
  f("checkpoint", checkpoint);
  f("digest", digest);
  f("finish", finish);
  f("stopped", stopped);
}

void describe(auto& f, Is<Proposal> auto& value) {
  auto& [record, plan] = value;
  f("record", record);
  f("plan", plan);
}

void describe(auto& f, Is<Word> auto& value) {
  auto& [uid, step, ready, broken, digest, mark, compute_seconds, leaves, published, leaf_sqr_norm,
         proposal] = value;
  f("uid", uid);
  f("step", step);
  f("ready", ready);
  f("broken", broken);
  f("digest", digest);
  f("mark", mark);
  f("seconds", compute_seconds);
  f("leaves", leaves);
  f.finite_or_null("norm", leaf_sqr_norm);
  f("published", published);
  f("proposal", proposal);
}

void describe(auto& f, Is<Level> auto& value) {
  auto& [recovery, since] = value;
  f("recovery", recovery);
  f("since", since);
}

void describe(auto& f, Is<Report> auto& value) {
  auto& [record, applied, plan, dead, own] = value;
  f("record", record);
  f("applied", applied);
  f("plan", plan);
  f("dead", dead);
  f("own", own);
}

void describe(auto& f, Is<Commit> auto& value) {
  auto& [record, plan, applied, holder, behind, stranded] = value;
  f("record", record);
  f("plan", plan);
  f("applied", applied);
  f("holder", holder);
  f("behind", behind);
  f("stranded", stranded);
}

template <class T>
Json write(const T& value) {
  Format format;
  return RecordWriter<Format>(format).write(value);
}

// For Json::get<T>(), which reports errors by an exception.
template <class T>
void read_or_throw(const Json& json, T& value, std::string_view what) {
  JsonTrouble trouble;
  Format format;
  RecordReader<Format>(format).read(JsonValue(json, trouble), value);
  if (!trouble.ok()) throw Json::other_error::create(501, trouble.sentence(what), nullptr);
}

}  // namespace

void to_json(Json& json, const Record& value) { json = write(value); }
void from_json(const Json& json, Record& value) { read_or_throw(json, value, "record"); }
void to_json(Json& json, const StepPlan& value) { json = write(value); }
void from_json(const Json& json, StepPlan& value) { read_or_throw(json, value, "step"); }
void to_json(Json& json, const Proposal& value) { json = write(value); }
void from_json(const Json& json, Proposal& value) { read_or_throw(json, value, "proposal"); }
void to_json(Json& json, const Word& value) { json = write(value); }
void from_json(const Json& json, Word& value) { read_or_throw(json, value, "word"); }
void to_json(Json& json, const Level& value) { json = write(value); }
void from_json(const Json& json, Level& value) { read_or_throw(json, value, "level"); }
void to_json(Json& json, const Report& value) { json = write(value); }
void from_json(const Json& json, Report& value) { read_or_throw(json, value, "report"); }
void to_json(Json& json, const Commit& value) { json = write(value); }
void from_json(const Json& json, Commit& value) { read_or_throw(json, value, "commit"); }

}  // namespace rubato::member
