#include "rubato/member/record.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "rubato/base/check.h"
#include "rubato/base/json_reader.h"

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

// One description of each type for reading and writing. It binds all members by position, so it
// does not compile if one is forgotten.
template <class T, class Plain>
concept Is = std::is_same_v<std::remove_const_t<T>, Plain>;

void describe(auto& f, Is<Member> auto& value) {
  auto& [uid, role, donor, since] = value;
  f("uid", uid);
  f("role", role);
  f("donor", donor);
  f("since", since);
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
  f.maybe("norm", leaf_sqr_norm);
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
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class T>
Json write(const T& value);

class FieldsOut {
 public:
  explicit FieldsOut(Json& json) : json_(json) { json_ = Json::object(); }
  template <class T>
  void operator()(const char* name, const T& member) {
    json_[name] = write(member);
  }
  // A number that is not finite becomes null.
  void maybe(const char* name, double member) { json_[name] = member; }

 private:
  Json& json_;
};

template <class T>
Json write(const T& value) {
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, Role>) {
    return name_in(kRoles, value);
  } else if constexpr (std::is_same_v<T, Generation>) {
    return Json::array({value.plan, value.revision});
  } else if constexpr (IsVector<T>::value) {
    Json list = Json::array();
    for (const auto& one : value) list.push_back(write(one));
    return list;
  } else {
    Json json;
    FieldsOut fields(json);
    describe(fields, value);
    return json;
  }
}

template <class T>
void read(const JsonValue& json, T& value);

class FieldsIn {
 public:
  // A checkpoint of a newer version may have more fields.
  explicit FieldsIn(const JsonValue& json) : fields_(json, JsonFields::Unknown::ignored) {}
  template <class T>
  void operator()(const char* name, T& member) {
    read(fields_[name], member);
  }
  // null is read as 0.
  void maybe(const char* name, double& member) {
    const JsonValue json = fields_[name];
    member = json.json().is_null() ? 0 : json.number();
  }

 private:
  JsonFields fields_;
};

template <class T>
void read(const JsonValue& json, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    value = json.boolean();
  } else if constexpr (std::is_integral_v<T>) {
    value = json.whole<T>();
  } else if constexpr (std::is_floating_point_v<T>) {
    value = json.number();
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = json.text();
  } else if constexpr (std::is_same_v<T, Role>) {
    value = json.choice(kRoles);
  } else if constexpr (std::is_same_v<T, Generation>) {
    if (json.is_row(2))
      value = {json.at(0).template whole<std::int64_t>(),
               json.at(1).template whole<std::int64_t>()};
  } else if constexpr (IsVector<T>::value) {
    value.clear();
    json.each([&](const JsonValue& one) { read(one, value.emplace_back()); });
  } else {
    FieldsIn fields(json);
    describe(fields, value);
  }
}

// For Json::get<T>(), which reports errors by an exception.
template <class T>
void read_or_throw(const Json& json, T& value, std::string_view what) {
  JsonTrouble trouble;
  read(JsonValue(json, trouble), value);
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
