#include "rubato/launch/roster.h"

#include <algorithm>
#include <utility>

#include "rubato/base/json_reader.h"

namespace rubato::launch {
namespace {

bool holds(const std::vector<Uid>& uids, Uid uid) {
  return std::find(uids.begin(), uids.end(), uid) != uids.end();
}

}  // namespace

bool Roster::is_gone(Uid uid) const { return holds(gone, uid); }

std::vector<Uid> Roster::not_gone() const {
  std::vector<Uid> uids;
  for (const auto& [uid, worker] : workers) {
    if (!is_gone(uid)) uids.push_back(uid);
  }
  return uids;
}

Roster taken_over(Roster roster) {
  ++roster.epoch;
  return roster;
}

Roster with_worker(Roster roster, const ShareName& share) {
  const Uid uid = roster.next_uid;
  return with_worker(std::move(roster), share, uid);
}

Roster with_worker(Roster roster, const ShareName& share, Uid uid, const Slot& slot) {
  roster.workers[uid] = {share, Roster::kNotPlanned, slot};
  roster.next_uid = std::max(roster.next_uid, uid + 1);
  return roster;
}

Roster with_plan(Roster roster, std::vector<Uid> workers) {
  std::erase_if(workers, [&](Uid uid) { return roster.is_gone(uid); });
  ++roster.plan.number;
  for (auto& [uid, worker] : roster.workers) {
    if (!holds(workers, uid)) {
      worker.planned_since = Roster::kNotPlanned;
    } else if (worker.planned_since == Roster::kNotPlanned) {
      worker.planned_since = roster.plan.number;
    }
  }
  roster.plan.workers = std::move(workers);
  return roster;
}

Roster with_gone(Roster roster, const std::vector<Uid>& uids) {
  for (const Uid uid : uids) {
    if (!roster.is_gone(uid)) roster.gone.push_back(uid);
  }
  std::vector<Uid> workers = roster.plan.workers;
  return with_plan(std::move(roster), std::move(workers));
}

Roster with_founder(Roster roster, Uid founder) {
  roster.founder = founder;
  return roster;
}

Roster with_ending(Roster roster) {
  roster.ending = true;
  return roster;
}

Roster next_round(Roster roster) {
  ++roster.round;
  roster.ending = false;
  roster.first_uid = roster.next_uid;
  roster.founder = 0;
  roster.workers.clear();
  roster.gone.clear();
  return with_plan(std::move(roster), {});
}

Roster with_admitted(Roster roster, const ShareName& share, const Roster::Admitted& process) {
  roster.admitted[share] = process;
  return roster;
}

// --- files ---

namespace {

Json to_json(const RosterRun& run) {
  Json json = {{"start", run.start},
               {"failures", run.failures},
               {"resizes", run.resizes},
               {"fresh_starts", run.fresh_starts},
               {"spoke", run.spoke}};
  if (run.place) json["place"] = to_json(ToMaster(*run.place));
  if (run.stopped) json["stopped"] = run.stopped->value();
  return json;
}

void read_run(const JsonValue& json, RosterRun& run) {
  JsonFields fields(json);
  run.start = fields["start"].integer(0, kMostInt64);
  run.failures = fields["failures"].whole(0, std::numeric_limits<int>::max());
  run.resizes = fields["resizes"].whole(0, std::numeric_limits<int>::max());
  run.fresh_starts = fields["fresh_starts"].whole(0, std::numeric_limits<int>::max());
  run.spoke = fields["spoke"].boolean();
  if (const auto stopped = fields.find("stopped")) run.stopped = stopped->id<Generation>();
  if (const auto place = fields.find("place")) {
    JsonFields of_place(*place);
    of_place.leave("type");
    run.place = read_place(of_place);
  }
}

std::vector<Uid> read_uids(const JsonValue& json) {
  std::vector<Uid> uids;
  json.each([&](const JsonValue& uid) { uids.push_back(uid.integer(1, kMostInt64)); });
  return uids;
}

void read_worker(const JsonValue& json, Roster& roster) {
  JsonFields fields(json);
  const Uid uid = fields["uid"].integer(1, kMostInt64 - 1);
  Roster::Worker worker;
  worker.share = fields["share"].text();
  if (const auto since = fields.find("planned_since"))
    worker.planned_since = since->integer(0, Roster::kNotPlanned - 1);
  worker.slot = fields["slot"].text();
  if (!roster.workers.emplace(uid, std::move(worker)).second) json.refuse("is there twice");
}

void read_roster(JsonFields& fields, Roster& roster) {
  roster.epoch = fields["epoch"].integer(0, kMostInt64 - 1);
  roster.round = fields["round"].integer(1, kMostInt64 - 1);
  roster.ending = fields["ending"].boolean();
  roster.first_uid = fields["first_uid"].integer(1, kMostInt64 - 1);
  roster.next_uid = fields["next_uid"].integer(1, kMostInt64 - 1);
  roster.founder = fields["founder"].integer(0, kMostInt64 - 1);
  roster.plan.number = fields["plan"].integer(0, kMostInt64 - 1);
  roster.plan.workers = read_uids(fields["planned"]);
  fields["workers"].each([&](const JsonValue& worker) { read_worker(worker, roster); });
  roster.gone = read_uids(fields["gone"]);
  fields["admitted"].each_field([&](const std::string& name, const JsonValue& json) {
    JsonFields process(json);
    roster.admitted[name] = {process["native"].text(), process["instance"].text()};
  });
  read_run(fields["run"], roster.run);
}

}  // namespace

Json to_json(const Roster& roster) {
  Json workers = Json::array();
  for (const auto& [uid, worker] : roster.workers) {
    Json json = {{"uid", uid}, {"share", worker.share}, {"slot", worker.slot}};
    if (worker.planned_since != Roster::kNotPlanned) json["planned_since"] = worker.planned_since;
    workers.push_back(std::move(json));
  }
  Json admitted = Json::object();
  for (const auto& [name, process] : roster.admitted) {
    admitted[name] = {{"native", process.native}, {"instance", process.instance}};
  }
  return {{"epoch", roster.epoch},           {"round", roster.round},
          {"ending", roster.ending},         {"first_uid", roster.first_uid},
          {"next_uid", roster.next_uid},     {"founder", roster.founder},
          {"plan", roster.plan.number},      {"planned", roster.plan.workers},
          {"workers", std::move(workers)},   {"gone", roster.gone},
          {"admitted", std::move(admitted)}, {"run", to_json(roster.run)}};
}

Result<Roster> parse_roster(const Json& json) {
  JsonTrouble trouble;
  Roster roster;
  JsonFields fields(JsonValue(json, trouble));
  read_roster(fields, roster);
  fields.finish();
  if (!trouble.ok()) return trouble.error("roster");
  return roster;
}

}  // namespace rubato::launch
