// The roster of a job in a directory, for masters that follow each other.
//
//   master-E       made by the master of epoch E before it reads anything; never removed
//   roster-E.json  the newest version that this master has written
//   secret.json    of the job, from which the keys of its processes are made
//
// A master first makes master-E exclusively, with the next E, and then reads the roster. From then
// on no version of an earlier master counts: an earlier master looks for master-(E + 1) after each
// write, before it says what it wrote. So whatever was said is in what the later master has read.
//
// The directory must be on a file system of this machine. Everything is on the disk when a call
// returns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rubato/launch/roster.h"

namespace rubato::launch {

class RosterFiles : public RosterStore {
 public:
  // Takes the job over: newest() is what the last master left. Makes the directory if needed.
  [[nodiscard]] static Result<std::unique_ptr<RosterFiles>> open(const std::string& directory);

  // The epoch is the last one before ours; or a later one, if a later master has taken over.
  [[nodiscard]] RosterVersion newest() const override;
  [[nodiscard]] bool create(std::int64_t number, const Roster& roster) override;

  [[nodiscard]] const std::string& secret() const { return secret_; }

 private:
  RosterFiles(std::string directory, std::int64_t epoch, RosterVersion newest, std::string secret);

  [[nodiscard]] bool replaced() const;
  void remove_earlier() const;

  std::string directory_;
  std::int64_t epoch_;
  RosterVersion newest_;
  std::string secret_;
};

}  // namespace rubato::launch
