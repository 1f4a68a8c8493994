#include "rubato/policy/lyra.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "rubato/policy/share_plan.h"

namespace rubato::policy {
namespace {

constexpr double kMostSteps = 2e7;  // of the exact solution

// The counts that a job may have, the fewest first.
std::vector<Level> counts_of(const JobSpec& spec, const SpeedModel& speed, int most) {
  std::vector<Level> levels;
  const auto consider = [&](int gpus) {
    const WorkRate rate = speed.on(GpuType(), gpus);
    if (gpus <= most && rate > (levels.empty() ? 0 : levels.back().rate))
      levels.push_back({gpus, rate});
  };
  for (const int gpus : speed.measured()) {
    if (spec.limits.legal(gpus)) consider(gpus);
  }
  if (levels.empty()) consider(spec.requested);
  return levels;
}

struct Runner {
  const JobView* job = nullptr;
  std::vector<Level> levels;
  double base_s = 0;  // time left on its base demand
  int gpus = 0;
};

// The corners of the smallest concave curve above the values, from no GPUs on.
std::vector<Further> corners_of(const std::vector<Further>& choices) {
  std::vector<Further> corners = {{}};
  for (const Further& next : choices) {
    while (corners.size() > 1) {
      const Further& a = corners[corners.size() - 2];
      const Further& b = corners.back();
      if ((b.value - a.value) * (next.gpus - a.gpus) > (next.value - a.value) * (b.gpus - a.gpus))
        break;
      corners.pop_back();
    }
    corners.push_back(next);
  }
  return corners;
}

}  // namespace

std::vector<int> exact_knapsack(std::span<const std::vector<Further>> choices, int gpus) {
  const auto width = static_cast<std::size_t>(gpus) + 1;
  std::vector<double> best(width, 0);
  std::vector<std::vector<int>> taken(choices.size(), std::vector<int>(width, 0));
  for (std::size_t i = 0; i < choices.size(); ++i) {
    for (std::size_t room = width; room-- > 0;) {
      for (const Further& choice : choices[i]) {
        if (choice.gpus > static_cast<int>(room)) break;
        const double value = choice.value + best[room - static_cast<std::size_t>(choice.gpus)];
        if (value > best[room]) {
          best[room] = value;
          taken[i][room] = choice.gpus;
        }
      }
    }
  }
  std::vector<int> given(choices.size(), 0);
  int room = gpus;
  for (std::size_t i = choices.size(); i-- > 0;) {
    given[i] = taken[i][static_cast<std::size_t>(room)];
    room -= given[i];
  }
  return given;
}

std::vector<int> greedy_knapsack(std::span<const std::vector<Further>> choices, int gpus) {
  std::vector<std::vector<Further>> corners;
  corners.reserve(choices.size());
  for (const auto& of_job : choices) corners.push_back(corners_of(of_job));
  using Step = std::tuple<double, std::ptrdiff_t, std::size_t>;  // value a GPU, -job, corner
  std::priority_queue<Step> steps;
  const auto offer = [&](std::size_t i, std::size_t corner) {
    if (corner >= corners[i].size()) return;
    const Further& a = corners[i][corner - 1];
    const Further& b = corners[i][corner];
    if (b.value > a.value)
      steps.emplace((b.value - a.value) / (b.gpus - a.gpus), -static_cast<std::ptrdiff_t>(i),
                    corner);
  };
  for (std::size_t i = 0; i < corners.size(); ++i) offer(i, 1);
  std::vector<int> given(choices.size(), 0);
  while (gpus > 0 && !steps.empty()) {
    const auto [value, job, corner] = steps.top();
    steps.pop();
    const auto i = static_cast<std::size_t>(-job);
    const int more = corners[i][corner].gpus - given[i];
    if (more > gpus) continue;
    gpus -= more;
    given[i] += more;
    offer(i, corner + 1);
  }
  return given;
}

Decision Lyra::decide(const Snapshot& snapshot, State& /*state*/) const {
  std::vector<Runner> jobs;
  jobs.reserve(snapshot.jobs.size());
  for (const JobView& job : snapshot.jobs) {
    Runner runner{&job, counts_of(*job.spec, *job.speed, snapshot.cluster.installed()), 0, 0};
    if (runner.levels.empty()) continue;
    runner.base_s = job.progress.left(snapshot.now) / runner.levels.front().rate;
    jobs.push_back(std::move(runner));
  }
  std::sort(jobs.begin(), jobs.end(), [](const Runner& a, const Runner& b) {
    const bool waits_a = a.job->target.empty(), waits_b = b.job->target.empty();
    const bool first_a = a.job->spec->goes_first, first_b = b.job->spec->goes_first;
    return std::tuple(waits_a, !first_a, a.base_s, a.job->id) <
           std::tuple(waits_b, !first_b, b.base_s, b.job->id);
  });
  int idle = snapshot.cluster.usable();
  std::vector<std::vector<Further>> choices;
  std::vector<Runner*> running;
  for (Runner& runner : jobs) {
    const Level& base = runner.levels.front();
    if (base.gpus > idle) continue;
    idle -= base.gpus;
    runner.gpus = base.gpus;
    running.push_back(&runner);
  }
  double steps = 0;
  for (const Runner* runner : running) {
    choices.emplace_back();
    const Level& base = runner->levels.front();
    const Work left = runner->job->progress.left(snapshot.now);
    for (const Level& level : runner->levels) {
      if (level.gpus == base.gpus || level.gpus - base.gpus > idle) continue;
      choices.back().push_back({level.gpus - base.gpus, runner->base_s - left / level.rate});
    }
    steps += static_cast<double>(choices.back().size()) * idle;
  }
  const auto given =
      steps <= kMostSteps ? exact_knapsack(choices, idle) : greedy_knapsack(choices, idle);
  Decision decision;
  for (std::size_t i = 0; i < running.size(); ++i)
    decision.run.push_back({running[i]->job->id, Count{GpuType(), running[i]->gpus + given[i]}});
  return decision;
}

int Lyra::least_gpus(const JobSpec& spec, const SpeedModel& speed) const {
  const auto counts = counts_of(spec, speed, std::numeric_limits<int>::max());
  return counts.empty() ? spec.requested : counts.front().gpus;
}

std::vector<PolicyEntry> lyra_rows() {
  PolicyEntry entry;
  entry.name = "lyra";
  entry.paper = "Li et al., EuroSys'23";
  entry.summary =
      "base demands first, the shortest job first; what is left where completion times fall most "
      "(a knapsack); without loans";
  entry.knows = "work left, speed curve";
  entry.elastic = true;
  entry.one_type = true;
  entry.make = [](const KeyValues&, const PolicyInputs&) -> MadePolicy { return erase(Lyra{}); };
  return {entry};
}

}  // namespace rubato::policy
