#include "rubato/model/search.h"

#include <algorithm>
#include <fmt/format.h>

namespace rubato::model {
namespace {

bool better(const SearchRule& rule, const StageMetric& a, const StageMetric& b) {
  if (!a || !b) return a.has_value() && !b;
  return rule.highest ? *a > *b : *a < *b;
}

// All trials at one stage. Only those that are certain to have survived the stages before count as
// better. One that may still be stopped there is open, and one that is stopped does not count.
std::vector<TrialStanding> at_stage(const SearchRule& rule, std::span<const TrialResults> trials,
                                    std::span<const TrialStanding> before, int stage) {
  const auto last = static_cast<std::size_t>(stage - 1);
  const auto finished = [&](std::size_t i) { return trials[i].metrics.size() > last; };
  std::vector<std::size_t> in;
  int open = 0;  // has not finished the stage, or may still be stopped before it
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (before[i].verdict == TrialVerdict::stops) continue;
    if (finished(i)) {
      in.push_back(i);
    } else {
      open += trials[i].over ? 0 : 1;
    }
  }
  std::stable_sort(in.begin(), in.end(), [&](std::size_t a, std::size_t b) {
    return better(rule, trials[a].metrics[last], trials[b].metrics[last]);
  });
  std::vector<TrialStanding> result(before.begin(), before.end());
  const int survivors = rule.survivors(stage);
  int ahead = 0;      // certain to have survived the stages before
  int uncertain = 0;  // better, if they survive
  for (std::size_t n = 0; n < in.size(); ++n) {
    const std::size_t i = in[n];
    const bool certain = before[i].verdict == TrialVerdict::goes_on;
    TrialVerdict verdict = TrialVerdict::goes_on;
    if (ahead >= survivors) {
      verdict = TrialVerdict::stops;
    } else if (!certain || ahead + uncertain + open >= survivors) {
      verdict = TrialVerdict::waits;
    }
    result[i] = {verdict, stage, static_cast<int>(n) + 1, static_cast<int>(in.size())};
    (certain ? ahead : uncertain) += 1;
  }
  return result;
}

}  // namespace

int SearchRule::survivors(int stage) const {
  int left = trials;
  for (int s = 0; s < stage && left > 1; ++s) left /= keep_one_in;
  return std::max(1, left);
}

int SearchRule::stages() const {
  int stage = 1;
  while (survivors(stage) > 1) ++stage;
  return stage;
}

double SearchRule::stage_end(int stage) const {
  double end = 1;
  for (int s = 1; s < stage; ++s) end *= keep_one_in;
  return end;
}

std::vector<TrialStanding> standings(const SearchRule& rule, std::span<const TrialResults> trials) {
  std::vector<TrialStanding> result(trials.size());
  for (int stage = 1; stage <= rule.stages(); ++stage)
    result = at_stage(rule, trials, result, stage);
  return result;
}

std::string ordinal(int number) {
  const int tens = number / 10 % 10;
  const int ones = number % 10;
  const char* ending = tens == 1   ? "th"
                       : ones == 1 ? "st"
                       : ones == 2 ? "nd"
                       : ones == 3 ? "rd"
                                   : "th";
  return fmt::format("{}{}", number, ending);
}

std::string stopped_text(const TrialStanding& standing, std::string_view metric) {
  return fmt::format("stopped after stage {}: {} of {} by {}", standing.stage,
                     ordinal(standing.rank), standing.reached, metric);
}

}  // namespace rubato::model
