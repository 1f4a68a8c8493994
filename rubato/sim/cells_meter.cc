#include "rubato/sim/cells_meter.h"

#include <algorithm>
#include <fmt/format.h>

namespace rubato::sim {
namespace {

double mean(double sum, int count) { return count > 0 ? sum / count : 0; }

}  // namespace

void CellsMeter::advance(Time now) {
  const double passed = seconds(now - at_);
  at_ = now;
  if (!(passed > 0)) return;
  for (const auto& [id, held] : held_) {
    reports_[held.tenant].inside_gpu_s += passed * held.inside;
    reports_[held.tenant].borrowed_gpu_s += passed * held.borrowed.gpus();
    for (std::size_t t = 0; t < held.from.size(); ++t)
      reports_[t].lent_gpu_s += passed * held.from[t];
  }
}

// Who has GPUs of its cells now that somebody else had until now.
void CellsMeter::note_taken_back(const Snapshot& snapshot, const CellUse& use) {
  for (const CellUse::Job& job : use.jobs) {
    if (!job.tenant || job.inside.empty()) continue;
    const bool taken = std::any_of(held_.begin(), held_.end(), [&](const auto& entry) {
      return entry.first != job.job && !common(entry.second.borrowed, job.inside).empty();
    });
    if (!taken) continue;
    const JobView* view = snapshot.jobs.find(job.job);
    TenantReport& report = reports_[*job.tenant];
    const double waited = seconds(snapshot.now - std::max(view->submitted, decided_at_));
    ++report.taken_back;
    report.reclaim_s += waited;
    report.longest_reclaim_s = std::max(report.longest_reclaim_s, waited);
  }
}

void CellsMeter::decided(const Snapshot& snapshot, const CellUse& use) {
  if (reports_.empty()) {
    reports_.resize(use.tenants.size() + 1);
    for (std::size_t t = 0; t < use.tenants.size(); ++t) {
      reports_[t].tenant = use.tenants[t].name;
      reports_[t].quota = use.tenants[t].quota;
    }
  }
  advance(snapshot.now);
  note_taken_back(snapshot, use);
  for (const CellUse::Job& job : use.jobs) {
    Held& held = held_[job.job];
    held.tenant = job.tenant.value_or(use.tenants.size());
    held.submitted = snapshot.jobs.find(job.job)->submitted;
    held.inside = job.inside.gpus();
    held.borrowed = job.borrowed;
    held.from = use.by_owner(job.borrowed);
    if (held.started || held.inside + held.borrowed.gpus() == 0) continue;
    held.started = true;
    ++reports_[held.tenant].started;
    reports_[held.tenant].wait_s += seconds(snapshot.now - held.submitted);
  }
  decided_at_ = snapshot.now;
}

void CellsMeter::ended(Time now, JobId job) {
  const auto found = held_.find(job);
  if (found == held_.end()) return;
  advance(now);
  TenantReport& report = reports_[found->second.tenant];
  ++report.jobs;
  report.jct_s += seconds(now - found->second.submitted);
  held_.erase(found);
}

Json to_json(const std::vector<TenantReport>& reports) {
  Json list = Json::array();
  for (const TenantReport& r : reports) {
    list.push_back({{"tenant", r.tenant.empty() ? Json() : Json(r.tenant)},
                    {"quota_gpus", r.quota},
                    {"jobs", r.jobs},
                    {"avg_wait_s", mean(r.wait_s, r.started)},
                    {"avg_jct_s", mean(r.jct_s, r.jobs)},
                    {"inside_gpu_s", r.inside_gpu_s},
                    {"borrowed_gpu_s", r.borrowed_gpu_s},
                    {"lent_gpu_s", r.lent_gpu_s},
                    {"taken_back", r.taken_back},
                    {"avg_reclaim_s", mean(r.reclaim_s, r.taken_back)},
                    {"longest_reclaim_s", r.longest_reclaim_s}});
  }
  return list;
}

std::string to_text(const std::vector<TenantReport>& reports) {
  constexpr double kHour = 3600;
  std::string text =
      fmt::format("{:<16} {:>6} {:>6} {:>11} {:>11} {:>12} {:>13} {:>12} {:>10} {:>13}\n", "TENANT",
                  "QUOTA", "JOBS", "AVG WAIT s", "AVG JCT s", "INSIDE GPU-h", "BORROWED GPU-h",
                  "LENT GPU-h", "TAKEN BACK", "LONGEST s");
  for (const TenantReport& r : reports) {
    text += fmt::format(
        "{:<16} {:>6} {:>6} {:>11.0f} {:>11.0f} {:>12.1f} {:>14.1f} {:>12.1f} {:>10} {:>13.1f}\n",
        r.tenant.empty() ? "(no cells)" : r.tenant, r.quota, r.jobs, mean(r.wait_s, r.started),
        mean(r.jct_s, r.jobs), r.inside_gpu_s / kHour, r.borrowed_gpu_s / kHour,
        r.lent_gpu_s / kHour, r.taken_back, r.longest_reclaim_s);
  }
  return text;
}

}  // namespace rubato::sim
