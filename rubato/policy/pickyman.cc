#include "rubato/policy/pickyman.h"

#include <cmath>

#include "rubato/policy/sorted.h"
#include "rubato/policy/victims.h"

namespace rubato::policy {

double PickyMan::loss_micros(const JobView& job, Time now) const {
  double rest = 0;
  if (config.epochs > 0 && job.work > 0) {
    const Work epoch = job.work / config.epochs;
    const Work begun = std::fmod(job.work - job.progress.left(now), epoch);
    const Work unfinished = begun > 0 ? epoch - begun : 0;
    rest = unfinished / job.speed->on(GpuType(), job.spec->requested) * 1e6;
  }
  return std::round(rest) + seconds(job.spec->restart_cost) * 1e6;
}

Decision PickyMan::decide(const Snapshot& snapshot, State& /*state*/) const {
  return decide_with_victims(snapshot, [&](const JobView& job) {
    const double left = remaining_micros(job, snapshot.now);
    const double loss = loss_micros(job, snapshot.now);
    return Precedence{left, left - loss, {loss / job.spec->requested, -left}};
  });
}

Result<PickyMan::State> PickyMan::State::load(const Json& json) {
  if (!json.is_object()) return Error{"saved PickyMan state: not an object"};
  return State();
}

std::vector<PolicyEntry> pickyman_rows() {
  PolicyEntry entry;
  entry.name = "pickyman";
  entry.paper = "Chen et al. (PickyMan), IPCCC'22";
  entry.summary = "shortest first; stops the jobs that lose least by it";
  entry.knows = "GPUs asked for, work left, restart cost";
  entry.one_type = true;
  entry.keys = {whole_key("epochs", 0, 0, 1'000'000,
                          "epochs of a job, if it must finish one before it stops; 0 = it stops "
                          "at once")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    return erase(PickyMan{{static_cast<int>(values.whole("epochs"))}});
  };
  return {entry};
}

}  // namespace rubato::policy
