// The roster: what the master of a job that spans hosts must remember when it dies.
//
// It is stored in numbered versions. Version n + 1 can be created only once, so of two masters that
// both believe that they lead, one fails its next write and ends. Taking a job over is itself a new
// version, with the next epoch.
//
// The functions below make the next roster of a given one. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rubato/launch/master_messages.h"
#include "rubato/wire/roster_messages.h"

namespace rubato::launch {

using wire::Uid;

// What a new master must know to go on with the run, besides who is in it.
struct RosterRun {
  std::int64_t start = 0;             // of the job; a new start begins a new round
  std::optional<Place> place;         // the newest one that was obeyed, in a managed run
  std::optional<Generation> stopped;  // by this command
  int failures = 0;
  int resizes = 0;
  int fresh_starts = 0;
  bool spoke = false;  // a worker has said hello, so the program knows Rubato
  friend bool operator==(const RosterRun&, const RosterRun&) = default;
};

struct Roster {
  static constexpr std::int64_t kNotPlanned = std::numeric_limits<std::int64_t>::max();
  struct Worker {
    ShareName share;
    // Number of the first plan from which on no plan has omitted the worker.
    std::int64_t planned_since = kNotPlanned;
    Slot slot{};  // of a managed run
    friend bool operator==(const Worker&, const Worker&) = default;
  };
  // The process that has the name of a share. Another one with the name is told to end: a manager
  // that was asked twice may start two, and one that was started again has forgotten its workers.
  struct Admitted {
    std::string native;    // the manager's own id; empty: not known
    std::string instance;  // of the process
    friend bool operator==(const Admitted&, const Admitted&) = default;
  };

  std::int64_t epoch = 0;  // counts the masters
  std::int64_t round = 1;  // counts the starts of all workers
  bool ending = false;     // the round is given up: all its workers end before the next begins
  Uid first_uid = 1;       // of the round
  Uid next_uid = 1;
  Uid founder = 0;                // of the round; 0: none yet
  wire::MembershipPlan plan;      // numbers grow over all rounds
  std::map<Uid, Worker> workers;  // of the round
  std::vector<Uid> gone;          // of the round, in order: vouched deaths and exclusions
  std::map<ShareName, Admitted> admitted{};
  RosterRun run{};

  [[nodiscard]] bool is_gone(Uid uid) const;
  [[nodiscard]] std::vector<Uid> not_gone() const;
  friend bool operator==(const Roster&, const Roster&) = default;
};

[[nodiscard]] Roster taken_over(Roster roster);
// One more worker, with the number roster.next_uid.
[[nodiscard]] Roster with_worker(Roster roster, const ShareName& share);
// The same with another number, which was never used: who starts workers has counted them.
[[nodiscard]] Roster with_worker(Roster roster, const ShareName& share, Uid uid,
                                 const Slot& slot = {});
[[nodiscard]] Roster with_plan(Roster roster, std::vector<Uid> workers);
// They are in no plan any more. The plan gets a new number, so that it is said again.
[[nodiscard]] Roster with_gone(Roster roster, const std::vector<Uid>& uids);
[[nodiscard]] Roster with_founder(Roster roster, Uid founder);
[[nodiscard]] Roster with_ending(Roster roster);
[[nodiscard]] Roster next_round(Roster roster);
[[nodiscard]] Roster with_admitted(Roster roster, const ShareName& share,
                                   const Roster::Admitted& process);

[[nodiscard]] Json to_json(const Roster& roster);
[[nodiscard]] Result<Roster> parse_roster(const Json& json);

struct RosterVersion {
  std::int64_t number = 0;
  Roster roster;
};

// Where the versions are (roster_files.h).
class RosterStore {
 public:
  RosterStore() = default;
  RosterStore(const RosterStore&) = delete;
  RosterStore& operator=(const RosterStore&) = delete;
  virtual ~RosterStore() = default;

  // Version 0 is an empty roster.
  [[nodiscard]] virtual RosterVersion newest() const = 0;
  // Durable when it returns true. False: the version exists already, or cannot be written.
  [[nodiscard]] virtual bool create(std::int64_t number, const Roster& roster) = 0;
};

}  // namespace rubato::launch
