// A search for hyper-parameters: several trials of one training, of which the worst are stopped at
// the end of each stage.
//
// The rule is successive halving as in the inner loop of Hyperband (Li et al., JMLR 2018): of n
// trials, n / eta^s go on after stage s (rounded down, at least one), and stage s ends when a trial
// has done eta^(s-1) times the work of the first stage. eta is `keep_one_in`. After the stage that
// leaves one trial there is no other stage. Ours is that a trial is judged as soon as its fate is
// certain, and not when all others have finished the stage:
//   it stops    if as many trials as may go on were better at the end of a stage that it finished,
//   it goes on  if that can no longer happen,
//   it waits    otherwise. (Its owner may let it run meanwhile.)
// So with all trials submitted, exactly those are stopped that successive halving stops. A trial
// that was not submitted yet is not waited for.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rubato::model {

inline constexpr int kMostTrials = 1000;

struct SearchRule {
  int trials = 2;        // 2 to kMostTrials
  int keep_one_in = 2;   // 2 or more
  bool highest = false;  // the highest metric is the best; otherwise the lowest
  friend bool operator==(const SearchRule&, const SearchRule&) = default;

  [[nodiscard]] int stages() const;
  // How many trials go on after this stage; the first one is 1.
  [[nodiscard]] int survivors(int stage) const;
  // The work at the end of this stage, as a multiple of that of the first.
  [[nodiscard]] double stage_end(int stage) const;
};

// The metric at the end of a stage; nullopt: none was reported, which is worse than any other.
using StageMetric = std::optional<double>;

struct TrialResults {
  std::vector<StageMetric> metrics;  // of the stages that it has finished
  bool over = false;                 // it will not finish another stage
};

enum class TrialVerdict : std::uint8_t { goes_on, waits, stops };

// `stage` is the one that decides: the first after which it must stop, or the last that it has
// finished. 0: it has finished none.
struct TrialStanding {
  TrialVerdict verdict = TrialVerdict::goes_on;
  int stage = 0;
  int rank = 0;     // among those that have finished the stage so far
  int reached = 0;  // how many these are
  friend bool operator==(const TrialStanding&, const TrialStanding&) = default;
};

// Of all trials of a search. Of two equal ones, the one that comes first in the list is better. A
// trial that runs on while it is not certain may finish further stages: it counts there only once
// it is certain that it has survived those before.
[[nodiscard]] std::vector<TrialStanding> standings(const SearchRule& rule,
                                                   std::span<const TrialResults> trials);

// "1st", "2nd", "7th", "11th".
[[nodiscard]] std::string ordinal(int number);
// "stopped after stage 2: 7th of 8 by loss".
[[nodiscard]] std::string stopped_text(const TrialStanding& standing, std::string_view metric);

}  // namespace rubato::model
