#include "rubato/policy/gangs.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

namespace rubato::policy {
namespace {

Json row_of(const Gang& gang) {
  // JSON has no infinity: a job without a deadline is saved as null.
  Json::array_t values;
  values.reserve(5);
  values.emplace_back(gang.job.value());
  values.emplace_back(gang.gpus);
  values.emplace_back(gang.rank.level);
  std::isinf(gang.rank.key) ? values.emplace_back(nullptr) : values.emplace_back(gang.rank.key);
  values.emplace_back(gang.rank.stamp);
  Json row = std::move(values);
  return row;
}

}  // namespace

Room::Room(const Cluster& cluster) {
  for (int t = 0; t < cluster.types(); ++t) {
    free_.push_back(cluster.usable(GpuType(static_cast<std::uint8_t>(t))));
    largest_ = std::max(largest_, free_.back());
  }
}

bool Room::fits_on(std::size_t type, int gpus, const SpeedModel& speed) const {
  return free_[type] >= gpus && speed.on(GpuType(static_cast<GpuType::rep>(type)), gpus) > 0;
}

bool Room::fits_on_some(int gpus, const SpeedModel& speed) const {
  std::size_t type = 0;
  while (type < free_.size() && !fits_on(type, gpus, speed)) ++type;
  return type < free_.size();
}

GpuType Room::take_of_several(int gpus, const SpeedModel& speed, std::optional<GpuType> preferred) {
  std::size_t type = 0;
  if (preferred && fits_on(preferred->index(), gpus, speed)) {
    type = preferred->index();
  } else {
    while (!fits_on(type, gpus, speed)) ++type;
  }
  free_[type] -= gpus;
  largest_ = *std::max_element(free_.begin(), free_.end());
  return GpuType(static_cast<std::uint8_t>(type));
}

void GangQueue::set_where(JobId job, Where where) {
  if (job.index() >= where_.size()) {
    where_.resize(job.index() + 1, Where::unknown);
    waiting_gang_.resize(job.index() + 1);
  }
  where_[job.index()] = where;
}

std::vector<JobId> GangQueue::known_jobs() const {
  std::vector<JobId> known;
  for (std::size_t i = 0; i < where_.size(); ++i) {
    if (where_[i] != Where::unknown) known.emplace_back(static_cast<JobId::rep>(i));
  }
  return known;
}

void GangQueue::forget(JobId job) {
  if (where(job) == Where::waiting) erase_waiting(job);
  if (where(job) != Where::unknown) set_where(job, Where::unknown);  // running_ drops it by itself
}

void GangQueue::insert_waiting(const Gang& gang) {
  auto size = std::lower_bound(waiting_.begin(), waiting_.end(), gang.gpus,
                               [](const SizeClass& s, int gpus) { return s.gpus < gpus; });
  if (size == waiting_.end() || size->gpus != gang.gpus)
    size = waiting_.insert(size, {gang.gpus, {}});
  size->gangs.insert(gang);
  set_where(gang.job, Where::waiting);
  waiting_gang_[gang.job.index()] = gang;
}

void GangQueue::insert_running(const Gang& gang) {
  running_.insert(std::upper_bound(running_.begin(), running_.end(), gang), gang);
  set_where(gang.job, Where::running);
}

void GangQueue::erase_waiting(JobId job) {
  const Gang& gang = waiting_gang_[job.index()];
  const auto size = std::lower_bound(waiting_.begin(), waiting_.end(), gang.gpus,
                                     [](const SizeClass& s, int gpus) { return s.gpus < gpus; });
  size->gangs.erase(gang);
  if (job.index() < spelled_.size()) spelled_[job.index()] = std::string();
}

void GangQueue::settle(const Outcome& outcome) {
  running_.clear();
  for (const auto& picked : outcome.picked) {
    if (picked.waited) {
      erase_waiting(picked.gang.job);
      set_where(picked.gang.job, Where::running);
    }
    running_.push_back(picked.gang);
  }
  for (const auto& gang : outcome.preempted) insert_waiting(gang);
}

void GangQueue::return_thrown_off(const Snapshot& snapshot) {
  std::erase_if(running_, [&](const Gang& gang) {
    const JobView* job = snapshot.jobs.find(gang.job);
    if (job == nullptr) return true;
    if (!job->target.empty()) return false;
    insert_waiting({{0, gang.rank.key, gang.rank.stamp}, gang.job, gang.gpus});
    return true;
  });
}

void GangQueue::move_waiting(JobId job, Rank rank) {
  erase_waiting(job);
  Gang gang = waiting_gang_[job.index()];
  gang.rank = rank;
  insert_waiting(gang);
}

Json GangQueue::save() const {
  Json::array_t running;
  running.reserve(running_.size());
  for (const auto& gang : running_) running.push_back(row_of(gang));
  Json::array_t waiting;
  for (const auto& size : waiting_) {
    for (const auto& gang : size.gangs) waiting.push_back(row_of(gang));
  }
  Json json = {{"last_stamp", last_stamp_}, {"first_stamp", first_stamp_}};
  json["running"] = std::move(running);
  json["waiting"] = std::move(waiting);
  return json;
}

Result<std::string> GangQueue::save_text() const {
  std::string text =
      fmt::format(R"({{"first_stamp":{},"last_stamp":{},"running":)", first_stamp_, last_stamp_);
  Json::array_t running;
  running.reserve(running_.size());
  for (const auto& gang : running_) running.push_back(row_of(gang));
  auto spelled = canonical_json(Json(std::move(running)));
  if (!spelled) return spelled;
  text += *spelled + R"(,"waiting":[)";
  spelled_.resize(waiting_gang_.size());
  bool first = true;
  for (const auto& size : waiting_) {
    for (const auto& gang : size.gangs) {
      std::string& row = spelled_[gang.job.index()];
      if (row.empty()) {
        spelled = canonical_json(row_of(gang));
        if (!spelled) return spelled;
        row = std::move(*spelled);
      }
      if (!std::exchange(first, false)) text += ',';
      text += row;
    }
  }
  text += "]}";
  if (constexpr auto kMost = JsonLimits().bytes; text.size() > kMost)
    return Error{fmt::format("larger than the {} bytes allowed for JSON", kMost)};
  return text;
}

Result<GangQueue> GangQueue::load(const Json& json) {
  try {
    GangQueue queue;
    queue.last_stamp_ = json.at("last_stamp").get<std::int64_t>();
    queue.first_stamp_ = json.at("first_stamp").get<std::int64_t>();
    const auto gang = [](const Json& row) {
      const double key =
          row.at(3).is_null() ? std::numeric_limits<double>::infinity() : row.at(3).get<double>();
      return Gang{{row.at(2).get<int>(), key, row.at(4).get<std::int64_t>()},
                  JobId(row.at(0).get<JobId::rep>()),
                  row.at(1).get<int>()};
    };
    for (const auto& row : json.at("running")) {
      queue.running_.push_back(gang(row));
      queue.set_where(queue.running_.back().job, Where::running);
    }
    for (const auto& row : json.at("waiting")) queue.insert_waiting(gang(row));
    return queue;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved queue: {}", problem.what())};
  }
}

Result<std::string> with_queue(const Json& rest, const GangQueue& queue) {
  auto text = canonical_json(rest);
  if (!text) return text;
  auto queued = queue.save_text();
  if (!queued) return queued;
  text->pop_back();
  *text += fmt::format(R"({}"queue":{}}})", rest.empty() ? "" : ",", *queued);
  return text;
}

Decision to_decision(const GangQueue::Outcome& outcome) {
  Decision decision;
  decision.run.reserve(outcome.picked.size());
  for (const auto& picked : outcome.picked) {
    decision.run.push_back({picked.gang.job, Count{picked.type, picked.gpus}});
  }
  return decision;
}

}  // namespace rubato::policy
