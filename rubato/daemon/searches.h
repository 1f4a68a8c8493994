// Searches for hyper-parameters: the daemon notes the stages that trials finish, and stops, holds
// and releases trials as model/search.h says. All of it becomes rows, so recovery and replay judge
// nothing again.
#pragma once

#include <set>

#include "rubato/base/result.h"
#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

// The place of a new job in its search. A search begins with its first trial, and ends when it has
// all its trials or when all of them have ended: the next trial of that name begins another. An
// error if the job has other settings than the trials before it.
[[nodiscard]] Result<SearchTrial> trial_of(const DaemonState& state, const JobRecord& job);

// Notes the stages that the trial has finished by this report. False: none.
bool note_stages(Transaction& tx, const JobStatus& status);

// Of a trial that is about to complete: notes the stages that it has not finished, with its last
// metric, by which it counts in them.
void note_last_stages(Transaction& tx, const JobRecord& job, const JobProgress& last);

// Judges all trials of these searches that have not ended. `finished` have just finished a stage:
// they are put on hold if nothing is certain.
void judge_searches(Transaction& tx, const std::set<JobId>& searches,
                    const std::set<JobId>& finished);

// How the job stands in its search, which it must have.
[[nodiscard]] TrialStanding standing_of(const DaemonState& state, const JobRecord& job);

// "trial 3 of 8 of the search lr".
[[nodiscard]] std::string trial_text(const JobRecord& job);

}  // namespace rubato::daemon
