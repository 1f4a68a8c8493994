#include "rubato/daemon/reader.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <map>

#include "rubato/daemon/core_metrics.h"
#include "rubato/daemon/explain.h"
#include "rubato/daemon/health.h"
#include "rubato/daemon/history_query.h"
#include "rubato/daemon/timeline.h"
#include "rubato/policy/all.h"

namespace rubato::daemon {

Reply say(int status, std::string sentence) {
  return [answer = refusal(status, std::move(sentence))] { return answer; };
}

Reply no_job(const JobRef& ref) {
  return [answer = no_such_job(ref)] { return answer; };
}

bool Reader::sees(const JobRecord& job) const { return caller_.admin || job.user == caller_.user; }

const JobRecord* Reader::find(const JobRef& ref) const {
  if (const auto* id = std::get_if<JobId>(&ref)) {
    const JobRecord* job = state().job(*id);
    return job != nullptr && sees(*job) ? job : nullptr;
  }
  return find_all({ref}).front();
}

std::vector<const JobRecord*> Reader::find_all(const std::vector<JobRef>& refs) const {
  std::map<std::string, const JobRecord*, std::less<>> newest;
  for (const JobRef& ref : refs) {
    if (const auto* name = std::get_if<std::string>(&ref)) newest.emplace(*name, nullptr);
  }
  const auto own = [&](const JobRecord* job) {
    return job != nullptr && job->user == caller_.user;
  };
  for (const auto& [number, record] : state().jobs()) {
    if (newest.empty()) break;
    if (record.measures_for || !sees(record)) continue;
    const auto wanted = newest.find(record.name);
    // The caller's own jobs come first.
    if (wanted != newest.end() && (own(&record) || !own(wanted->second))) wanted->second = &record;
  }
  std::vector<const JobRecord*> found;
  found.reserve(refs.size());
  for (const JobRef& ref : refs) {
    const auto* name = std::get_if<std::string>(&ref);
    found.push_back(name != nullptr ? newest.find(*name)->second : find(ref));
  }
  return found;
}

const JobRecord* Reader::find_alive(const JobRef& ref, Reply& refusal) const {
  const JobRecord* job = find(ref);
  if (job == nullptr) {
    refusal = no_job(ref);
    return nullptr;
  }
  if (!job->gone()) return job;
  refusal =
      say(409, fmt::format("job {} has ended: {}", job->id.value(), to_text(job->ending->how)));
  return nullptr;
}

Reply Reader::job_reply(JobId id, int status) const {
  return [&core = core_, id, status]() -> Answer {
    const JobRecord* job = core.state->job(id);
    if (job == nullptr) return no_such_job(id);
    return {status, show_job(core.view(), *job)};
  };
}

Reply Reader::operator()(const ShowJob& ask) const {
  const JobRecord* job = find(ask.job);
  if (job == nullptr) return no_job(ask.job);
  return [*this, id = job->id]() -> Answer {
    const JobRecord* found = state().job(id);
    if (found == nullptr) return no_such_job(id);
    Json body = show_job(core_.view(), *found);
    body["file"] = to_json(found->file);
    // Only this request shows a long command completely, until the job has ended.
    if (found->text_bytes && !found->gone()) {
      if (const auto file = core_.whole_file(*found)) {
        body["command"] = file->command;
        body["command_cut"] = false;
        body["file"] = to_json(*file);
      }
    }
    return {200, std::move(body)};
  };
}

Reply Reader::operator()(const ListJobs& ask) const {
  return [*this, ask]() -> Answer {
    Json list = Json::array();
    Json next = nullptr;
    const ViewContext view = core_.view();
    const auto& jobs = state().jobs();
    JobId last;
    for (auto at = ask.after ? jobs.upper_bound(*ask.after) : jobs.begin(); at != jobs.end();
         ++at) {
      const JobRecord& job = at->second;
      if (job.measures_for || !sees(job) || (ask.user && *ask.user != job.user)) continue;
      const auto& states = ask.states;
      if (!states.empty() &&
          std::find(states.begin(), states.end(), state_of(state(), job)) == states.end())
        continue;
      if (list.size() >= static_cast<std::size_t>(std::max(ask.limit, 1))) {
        next = last.value();
        break;
      }
      last = job.id;
      list.push_back(show_job(view, job));
    }
    return {200, {{"jobs", std::move(list)}, {"next", next}}};
  };
}

Reply Reader::operator()(const ExplainJob& ask) const {
  const JobRecord* job = find(ask.job);
  if (job == nullptr) return no_job(ask.job);
  return [*this, id = job->id]() -> Answer {
    const JobRecord* found = state().job(id);
    if (found == nullptr) return no_such_job(id);
    return {200, explain(core_.view(), *found, caller_.admin)};
  };
}

Reply Reader::operator()(const ShowPast& ask) const {
  const JobRecord* job = find(ask.job);
  if (job == nullptr) return no_job(ask.job);
  return [*this, id = job->id]() -> Answer {
    const JobRecord* found = state().job(id);
    if (found == nullptr) return no_such_job(id);
    return {200, show_past(*found, state())};
  };
}

Reply Reader::operator()(const FindLog& ask) const {
  const JobRecord* job = find(ask.job);
  if (job == nullptr) return no_job(ask.job);
  if (const auto& check = core_.options.check_directory) {
    if (auto own = check(job->id); !own) {
      return [answer = refusal(409, own.error().message)] { return answer; };
    }
  }
  Json body = {{"id", job->id.value()},
               {"directory", fmt::format("{}/{}", core_.options.jobs_directory, job->id.value())},
               {"ended", job->gone()}};
  return [answer = Answer{200, std::move(body)}] { return answer; };
}

Reply Reader::operator()(const History& ask) const {
  std::optional<JobId> only;
  if (ask.job) {
    const JobRecord* job = find(*ask.job);
    if (job == nullptr) return no_job(*ask.job);
    only = job->id;
  }
  return [*this, ask, only]() -> Answer {
    return history_for(caller_, ask, only, state(), core_.store.journal(),
                       core_.options.history_rows);
  };
}

Reply Reader::operator()(const ShowTimeline& ask) const {
  return [*this, ask]() -> Answer { return timeline_for(caller_, ask, state(), core_.time); };
}

Reply Reader::operator()(const ShowDecisions& ask) const {
  return [*this, ask]() -> Answer {
    return decisions_for(caller_, ask, state(), core_.time, core_.took);
  };
}

Reply Reader::operator()(const ShowUse& ask) const {
  return [*this, ask]() -> Answer { return use_for(caller_, ask, state(), core_.time); };
}

Reply Reader::operator()(const ShowNodes& /*ask*/) const {
  return [*this]() -> Answer {
    const auto tenant = state().quotas().tenant_of(caller_.user);
    const auto sees_job = [this](JobId id) {
      const JobRecord* job = state().job(id);
      return job != nullptr && sees(*job);
    };
    const auto sees_tenant = [&](const std::string& name) {
      return caller_.admin || (tenant && state().quotas().all()[*tenant].tenant == name);
    };
    return {200, show_nodes(state(), sees_job, sees_tenant)};
  };
}

Reply Reader::operator()(const ShowPolicy& /*ask*/) const {
  return [*this]() -> Answer {
    Json body = show_policy(state(), [this](JobId id) {
      const JobRecord* job = state().job(id);
      return job != nullptr && sees(*job);
    });
    Json known = Json::array();
    for (const PolicyEntry& one : all_policies()) {
      if (one.not_live.empty()) known.push_back({{"name", one.name}, {"summary", one.summary}});
    }
    body["policies"] = std::move(known);
    return {200, std::move(body)};
  };
}

Reply Reader::operator()(const ShowMetrics& /*ask*/) const {
  return [*this]() -> Answer { return {200, {{"text", metrics_for(caller_, core_)}}}; };
}

Reply Reader::operator()(const ShowHealth& /*ask*/) const {
  return [*this]() -> Answer {
    std::vector<Problem> problems;
    if (!core_.trouble.empty()) {
      problems.push_back({fmt::format("nothing can be stored: {}", core_.trouble),
                          "free some space on the disk of the state directory, or repair what the "
                          "reason names; the daemon then continues by itself"});
    }
    if (core_.options.problems) {
      for (Problem& one : core_.options.problems()) problems.push_back(std::move(one));
    }
    for (Problem& one : problems_of(state(), [this](JobId id) { return sees(*state().job(id)); }))
      problems.push_back(std::move(one));
    Json list = Json::array();
    for (const Problem& one : problems)
      list.push_back({{"what", one.what}, {"remedy", one.remedy}});
    if (core_.trouble.empty())
      return {200, {{"status", problems.empty() ? "ok" : "problems"}, {"problems", list}}};
    return {503,
            {{"status", "nothing can be stored"}, {"error", core_.trouble}, {"problems", list}}};
  };
}

Reply Reader::operator()(const ListUsers& /*ask*/) const {
  return [*this]() -> Answer {
    Json list = Json::array();
    for (const auto& [name, user] : state().users()) list.push_back(show_user(user));
    return {200, {{"users", std::move(list)}}};
  };
}

Reply Reader::operator()(const ListCells& /*ask*/) const {
  return [*this]() -> Answer { return {200, show_cells(state())}; };
}

}  // namespace rubato::daemon
